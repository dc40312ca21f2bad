"""The lines of `headrace run`: what became of each table, made of the events of a Dagster run.

    notes.documents              9 rows     3.2 s  computed  increments 0
    notes.broken                            0.9 s  failed    column doc_idx cannot be resolved ..
    left, because notes.broken failed: notes.after_broken

While a step lasts, a line on standard error names it now and then (`Watch`).
"""

from __future__ import annotations

import itertools
import queue
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dagster_project.cli.output import print_styled
from spark_jobs.progress import tell

if TYPE_CHECKING:
    import dagster as dg


_STYLES = {"computed": "green", "unchanged": "dim", "frozen": "yellow", "failed": "red", "left": "yellow"}
_QUIET_SECONDS = 20.0  # without a line, after which running steps are named; then twice as long each time
_MOST_QUIET_SECONDS = 600.0


@dataclass(frozen=True)
class StepLine:
    """The result of a run for one table.

    Attributes:
        table: identifier.
        rows: rows in the table now (of the partition, where one was run); 0 where it failed or was left.
        seconds: wall-clock time of the step.
        status: computed, unchanged, frozen (unchanged under other settings), failed, left (what it reads failed).
        detail: increments computed, what is frozen, why it failed, or which table failed before it.
        notice: rows for a user to know of, such as rejected files, and the command to show them.
        failed_check: name of the check that refused the rows of a failed step; empty where none did.
        partition: key of the partition, where the table is run by partitions.
    """

    table: str
    rows: int
    seconds: float
    status: str
    detail: str
    notice: str = ""
    failed_check: str = ""
    partition: str | None = None

    @property
    def label(self) -> str:
        """The table with its partition."""
        return self.table if self.partition is None else f"{self.table}[{self.partition}]"


def print_line(line: StepLine) -> None:
    """Print the line of a table, aligned with those of others; left tables are printed by `print_left`."""
    if line.status == "left":
        return
    rows = " " * 17 if line.status == "failed" else f"{line.rows:>12,} rows"
    text = f"{line.label:<36} {rows} {line.seconds:>7.1f} s  {line.status:<9} {line.detail}"
    print_styled(text.rstrip(), _STYLES[line.status])


def print_left(lines: Iterable[StepLine]) -> None:
    """Print the left tables, a line for each failed table they depend on."""
    left = sorted((line for line in lines if line.status == "left"), key=lambda line: line.detail)
    for cause, group in itertools.groupby(left, key=lambda line: line.detail):
        print_styled(f"left, because {cause} failed: {', '.join(line.label for line in group)}", _STYLES["left"])


class Watch:
    """Turns the events of one Dagster run into lines as they come; names running steps when none has come for a while.

    Args:
        tables: the main table of each step, by the name of its op.
        partition: key of the partition to run.
        show: called with each line.
    """

    def __init__(self, tables: Mapping[str, str], partition: str | None, show: Callable[[StepLine], None]) -> None:
        self._tables, self._partition, self._show = tables, partition, show
        self._records: queue.SimpleQueue[dg.EventLogEntry | None] = queue.SimpleQueue()
        self._started: dict[str, float] = {}
        self._told: set[tuple[str, str]] = set()
        self.lines: list[StepLine] = []

    def _table(self, name: str) -> str:
        return self._tables.get(name, name.replace("__", ".", 1))

    def put(self, record: dg.EventLogEntry | None) -> None:
        """Queue a record of the run's log, None after the last one."""
        self._records.put(record)

    def follow(self) -> None:
        """Show lines until the last record has come."""
        quiet, told_at = _QUIET_SECONDS, time.monotonic()
        while True:
            try:
                record = self._records.get(timeout=max(0.0, told_at + quiet - time.monotonic()))
            except queue.Empty:
                now, told_at, quiet = time.time(), time.monotonic(), min(2 * quiet, _MOST_QUIET_SECONDS)
                at_work = [f"{self._table(name)} ({now - since:.0f} s)" for name, since in self._started.items()]
                if at_work:
                    tell(f"still computing: {', '.join(at_work)}")
                continue
            if record is None:
                return
            if self.read(record):
                quiet, told_at = _QUIET_SECONDS, time.monotonic()

    def read(self, record: dg.EventLogEntry) -> bool:
        """Show the line of a record unless it was shown before; gives whether a line was shown."""
        event = record.dagster_event
        if event is None:
            return False
        name = _op_name(event)
        if event.is_step_start:
            self._started.setdefault(name, record.timestamp)
        elif event.is_step_success:
            self._started.pop(name, None)
        line = _line(event, self._table(name), record.timestamp - self._started.get(name, record.timestamp))
        if line is None or (line.table, line.status) in self._told:
            return False
        if line.status == "failed":
            self._started.pop(name, None)
        self._told.add((line.table, line.status))
        line = replace(line, partition=self._partition)
        self.lines.append(line)
        self._show(line)
        return True


def _op_name(event: dg.DagsterEvent) -> str:
    """Name of an event's op, or of its graph of ops: of step `notes__texts.part[3]` it is `notes__texts`."""
    return (event.step_key or "").partition(".")[0].partition("[")[0]


def _line(event: dg.DagsterEvent, table: str, seconds: float) -> StepLine | None:
    """The line of a materialization or a failed step; None for other events."""
    if event.event_type_value == "ASSET_MATERIALIZATION":
        values: dict[str, Any] = {name: value.value for name, value in event.materialization.metadata.items()}
        increments = values.get("increments_computed")  # plain assets of Dagster lack these
        detail = values.get("detail") or (f"increments {increments}" if increments is not None else "")
        if "rollout" in values:
            detail += f", {values['rollout']}"
        note, skipped = values.get("note", ""), values.get("skipped")
        return StepLine(
            table=".".join(event.asset_key.path) if event.asset_key else "",
            rows=values.get("dagster/row_count", 0),
            seconds=0.0 if skipped else values.get("seconds", seconds),
            status="computed" if not skipped else "frozen" if note else "unchanged",
            detail=note if skipped else detail,
            notice=values.get("notice", ""),
        )
    if event.is_step_failure:
        why = failure_text(event).removeprefix(f"{table}: ")
        return StepLine(table, 0, seconds, "failed", why, failed_check=_failed_check(event))
    return None


def _failed_check(event: dg.DagsterEvent) -> str:
    """Name of the check that refused the rows of a failed step; empty where none did."""
    from dagster_project.lake_asset import FAILED_CHECK

    data = event.step_failure_data.user_failure_data
    check = data.metadata.get(FAILED_CHECK) if data is not None else None
    return str(check.value) if check is not None else ""


def failure_text(event: dg.DagsterEvent) -> str:
    """Why a step failed, in one line."""
    data = event.step_failure_data
    if data.user_failure_data is not None and data.user_failure_data.description:
        return " ".join(data.user_failure_data.description.split())
    error = data.error
    while error is not None and error.cause is not None:
        error = error.cause
    return " ".join((error.message if error is not None else "unknown").split())

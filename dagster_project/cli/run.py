"""`headrace run`: materialize assets in one process with one Spark session, and print one line for each table.

The run is an ordinary one of the Dagster instance: the UI shows it, with its checks and metadata.
"""

from __future__ import annotations

import json
import queue
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from dagster_project.cli.output import original_stdout, print_styled
from dagster_project.cli.project import dagster_home, load_definitions, select
from dagster_project.exceptions import CommandError, RunFailedError
from spark_jobs.lake.session.catalogue import open_catalogue, require_writable
from spark_jobs.lake.session.settings import load_settings

if TYPE_CHECKING:
    import dagster as dg
    from pyiceberg.catalog import Catalog

_DRAIN_SECONDS = 10.0


@dataclass(frozen=True)
class StepLine:
    """The result of a run for one table.

    Attributes:
        table: identifier.
        rows: rows that the table holds now (of the partition, where one was run).
        seconds: wall-clock time of the step.
        status: computed, unchanged, frozen (unchanged under other settings), failed.
        detail: increments computed, what is frozen, or why it failed.
        notice: rows that a user should know of, such as rejected files, and the command that shows them.
    """

    table: str
    rows: int
    seconds: float
    status: str
    detail: str
    notice: str = ""


@click.command()
@click.argument("selection", nargs=-1)
@click.option("--partition", help="run only this partition, where assets have partitions")
@click.option("--json", "as_json", is_flag=True, help="print the steps as JSON at the end, nothing else")
def run(selection: tuple[str, ...], partition: str | None, as_json: bool) -> None:
    """Bring tables up to date: all of them, or those of SELECTION.

    SELECTION is a dataset, a corpus, a table (main.tokens), or Dagster's own syntax (group:main, key:"main/tokens"+).
    """
    show = (lambda line: None) if as_json else print_line
    lines = execute(selection, partition, show, (lambda text: None) if as_json else click.echo)
    if as_json:
        click.echo(json.dumps([asdict(line) for line in lines], indent=2))
    else:
        for line in (line for line in lines if line.notice and line.status == "computed"):
            click.echo(f"{line.table}: {line.notice}")
    failed = [line for line in lines if line.status == "failed"]
    if failed:
        raise RunFailedError(f"{len(failed)} of {len(lines)} steps failed; first {failed[0].table}: {failed[0].detail}")
    if not as_json:
        computed, frozen = (sum(line.status == status for line in lines) for status in ("computed", "frozen"))
        kept = f", {frozen} frozen with other settings" if frozen else ""
        unchanged = len(lines) - computed - frozen
        click.echo(f"{len(lines)} tables: {computed} computed, {unchanged} unchanged{kept}. Look: headrace ui")


def print_line(line: StepLine) -> None:
    """Print the line of a table, aligned with those of others."""
    style = {"computed": "green", "unchanged": "dim", "frozen": "yellow", "failed": "red"}[line.status]
    text = f"{line.table:<36} {line.rows:>12,} rows {line.seconds:>7.1f} s  {line.status:<9} {line.detail}"
    print_styled(text, style)


def execute(
    selection: tuple[str, ...],
    partition: str | None,
    show: Callable[[StepLine], None],
    tell: Callable[[str], None] = lambda text: None,
) -> list[StepLine]:
    """Run a selection on the persistent instance and give a line for every table.

    Args:
        selection: as of the command.
        partition: the only one to run, where assets have partitions.
        show: called with each line as it comes.
        tell: called, before anything is computed, with sentences about existing tables that the run will change.

    Raises:
        CatalogueError: the lake cannot be opened or written.
        CommandError: the selection or the partition does not exist.
        DefinitionError: the project cannot be loaded.
    """
    settings = load_settings()
    catalogue = open_catalogue(settings)
    require_writable(settings)
    dagster_home()
    import dagster as dg

    definitions = load_definitions()
    keys = select(definitions, selection)
    graph = definitions.resolve_asset_graph()
    if partition is not None and all(graph.get(key).partitions_def is None for key in keys):
        raise CommandError(f"--partition {partition}: no table of the selection has partitions; leave it out")
    for text in _foretold_changes(catalogue, [".".join(key.path) for key in keys]):
        tell(text)
    lines: list[StepLine] = []
    with dg.DagsterInstance.get() as instance, original_stdout():
        for definition, group in groupby(keys, key=lambda key: graph.get(key).partitions_def):
            chosen = list(group)
            for key in _partition_keys(definition, partition, instance):
                lines += _execute_once(definitions, instance, chosen, key, show)
            if any(line.status == "failed" for line in lines):
                break
    return lines


def _foretold_changes(catalogue: Catalog, tables: list[str]) -> Iterator[str]:
    """Sentences about changes that a run will make besides adding increments."""
    from dagster_project.inspect.dependent_blends import dependent_blends, effect_of_repacking
    from dagster_project.table_asset import declared_bindings
    from spark_jobs.lake.ledger.ledger import Ledger
    from spark_jobs.lake.run.foresight import foresee, other_columns

    ledger = Ledger(catalogue)
    ledger.refresh()
    bindings = declared_bindings(tables)
    refused = other_columns(ledger, bindings)
    if refused:
        listed = " ".join(refused)
        yield f"other columns are declared than the tables have, so their steps will fail: headrace table drop {listed}"
    found = foresee(ledger, bindings)
    for table, sentence in found.kept_frozen:
        yield f"{table} stays {sentence}"
    for table in found.recomputed_frozen:
        yield f"{table} was computed from rows that are computed anew: so is it, and all that follows from it"
    blends = dependent_blends(catalogue, found.renumbered)
    for table in found.renumbered:
        effect = effect_of_repacking(blends[table])
        yield f"{table} is packed anew, as a new generation, if its rows change{f': {effect}' if effect else ''}"


def _partition_keys(
    definition: dg.PartitionsDefinition[Any] | None, wanted: str | None, instance: dg.DagsterInstance
) -> list[str | None]:
    """Partitions to run: the one asked for, or all; a single None for assets without partitions."""
    if definition is None:
        return [None]
    keys = list(definition.get_partition_keys(dynamic_partitions_store=instance))
    if wanted is None:
        return list(keys)
    if wanted not in keys:
        raise CommandError(f"partition {wanted!r} is not there; the last ones are {', '.join(keys[-5:]) or 'none yet'}")
    return [wanted]


def _execute_once(
    definitions: dg.Definitions,
    instance: dg.DagsterInstance,
    keys: list[dg.AssetKey],
    partition: str | None,
    show: Callable[[StepLine], None],
) -> list[StepLine]:
    """Execute one Dagster run, and turn its events into lines as they come."""
    import threading

    run_id = str(uuid.uuid4())
    events: queue.Queue[dg.DagsterEvent | None] = queue.Queue()

    def on_event(record: Any, cursor: str) -> None:
        events.put(record.dagster_event)

    job = definitions.resolve_implicit_global_asset_job_def()
    lines: list[StepLine] = []

    def collect() -> None:
        for line in _lines(iter(events.get, None)):
            lines.append(line)
            show(line)

    collector = threading.Thread(target=collect, name="run-lines", daemon=True)
    collector.start()
    instance.watch_event_logs(run_id, None, on_event)
    try:
        result = job.execute_in_process(
            instance=instance,
            run_id=run_id,
            asset_selection=keys,
            partition_key=partition,
            raise_on_error=False,
            tags={"headrace/command": "run"},
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        )
        _drain(lines, len(result.get_asset_materialization_events()) + len(result.filter_events(_failed)))
    finally:
        instance.end_watch_event_logs(run_id, on_event)
        events.put(None)
        collector.join()
    return lines


def _failed(event: dg.DagsterEvent) -> bool:
    return bool(event.is_step_failure)


def _drain(lines: list[StepLine], expected: int) -> None:
    """Wait until Dagster's watcher of events, which polls, has delivered the last ones."""
    deadline = time.monotonic() + _DRAIN_SECONDS
    while time.monotonic() < deadline and len(lines) < expected:
        time.sleep(0.05)


def _lines(events: Iterator[dg.DagsterEvent]) -> Iterator[StepLine]:
    """A line for every materialization and every failed step; other events are ignored."""
    for event in events:
        if event.event_type_value == "ASSET_MATERIALIZATION":
            values: dict[str, Any] = {name: value.value for name, value in event.materialization.metadata.items()}
            detail = values.get("detail") or f"increments {values.get('increments_computed')}"
            note, skipped = values.get("note", ""), values.get("skipped")
            yield StepLine(
                table=".".join(event.asset_key.path) if event.asset_key else "",
                rows=values.get("dagster/row_count", 0),
                seconds=0.0 if skipped else values.get("seconds", 0.0),
                status="computed" if not skipped else "frozen" if note else "unchanged",
                detail=note if skipped else detail,
                notice=values.get("notice", ""),
            )
        elif event.is_step_failure:
            yield StepLine((event.step_key or "").replace("__", ".", 1), 0, 0.0, "failed", failure_text(event))


def failure_text(event: dg.DagsterEvent) -> str:
    """Why a step failed, in one line."""
    data = event.step_failure_data
    if data.user_failure_data is not None and data.user_failure_data.description:
        return " ".join(data.user_failure_data.description.split())
    error = data.error
    while error is not None and error.cause is not None:
        error = error.cause
    return " ".join((error.message if error is not None else "unknown").split())

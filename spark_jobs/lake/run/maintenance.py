"""Maintenance of a whole lake, in tasks that each look at every table and say what they did.

    ledger      rows of the ledger that a crash lost are recorded
    compaction  partitions with many small files are merged; rows keep their order
    expiry      old snapshots are removed; heads and tagged ones stay, so what blends and releases pin is served on
    orphans     files that no snapshot names, and that are old, are removed

None changes a row, a digest or an ordinal. Each table is worked on under its lease, and one that another writer holds
is reported and left to the next time. Each task, and each table in it, stands alone: a failure is reported and stops
no other.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Concatenate, ParamSpec, TypeVar

from headrace.tables.catalogue import tables_in
from spark_jobs.exceptions import LeaseError
from spark_jobs.lake.files.compaction import compact
from spark_jobs.lake.files.maintenance import expire, old_snapshots, remove_orphans
from spark_jobs.lake.ledger.acts import AUDIT_TABLE
from spark_jobs.lake.ledger.lease import table_leases
from spark_jobs.lake.ledger.ledger_table import LEDGER
from spark_jobs.lake.run.materialize import Lake
from spark_jobs.lake.session.catalogue import catalogue_errors
from spark_jobs.lake.session.spark_errors import cause_line

MANY_FILES = 8  # of one partition, from which on merging is worth it
SMALL_BYTES = 64 * 1024**2
_WAIT_SECONDS = 5.0
_YOUNGEST_ORPHAN_DAYS = 1.0


@dataclass(frozen=True)
class MaintenanceResult:
    """What a task did to one table: how many files, snapshots or rows it merged, removed or recovered; in words too.

    Attributes:
        table: its identifier; the task's name where the failure is none of a table's.
        count: 0 where nothing was to be done, or could be.
        text: the same in words, or why it failed.
        error: why it failed; None where it did not.
        is_left: whether the table is left as it is, because another writer holds it or somebody else sees to it.
    """

    table: str
    count: int
    text: str
    error: Exception | None = None
    is_left: bool = False


Task = Callable[[Lake, float, bool], Iterator[MaintenanceResult]]
_More = ParamSpec("_More")
_Result = TypeVar("_Result")


def alone(
    work: Callable[Concatenate[Lake, str, _More], _Result],
) -> Callable[Concatenate[Lake, str, _More], _Result | MaintenanceResult]:
    """Turn a failure on one table into a `MaintenanceResult` with the error, so that work on other tables goes on.

    A table that another writer holds is no failure: it is left to the next time.
    """

    @functools.wraps(work)
    def worked(lake: Lake, table: str, /, *more: _More.args, **named: _More.kwargs) -> _Result | MaintenanceResult:
        try:
            with catalogue_errors():
                return work(lake, table, *more, **named)
        except LeaseError as error:
            return MaintenanceResult(table, 0, str(error), is_left=True)
        except Exception as error:  # noqa: BLE001  whatever it is, the other tables want their maintenance
            return MaintenanceResult(table, 0, cause_line(error), error)

    return worked


def run_task(name: str, task: Task, lake: Lake, days: float, dry_run: bool) -> Iterator[MaintenanceResult]:
    """Run a task; a failure of the task itself becomes its last `MaintenanceResult`, under the task's name."""
    pieces = task(lake, days, dry_run)

    @alone
    def following(lake: Lake, name: str) -> MaintenanceResult | None:
        return next(pieces, None)

    while (done := following(lake, name)) is not None:
        yield done


def tables_of(lake: Lake) -> list[str]:
    """Identifiers of all tables, by name."""
    spaces = sorted(lake.catalogue.list_namespaces())
    return [table for space in spaces for table in tables_in(lake.catalogue, space[0])]


def tidy_ledger(lake: Lake, days: float, dry_run: bool, tables: Sequence[str] = ()) -> Iterator[MaintenanceResult]:
    """Records rows of the ledger that a crash lost; its small files are merged as it is written."""
    lake.ledger.refresh()
    for table in tables or tables_of(lake):
        if not table.startswith("system."):
            yield _settled(lake, table, dry_run)


@alone
def _settled(lake: Lake, table: str, dry_run: bool) -> MaintenanceResult:
    lost = lake.ledger.lost(table)
    if not lost or dry_run:
        return MaintenanceResult(table, lost, f"{lost} rows of the ledger to recover")
    with table_leases(lake.catalogue, [table], _WAIT_SECONDS):
        lake.ledger.refresh()
        lake.ledger.settle([table])
    return MaintenanceResult(table, lost, f"{lost} rows of the ledger recovered")


def compact_tables(lake: Lake, days: float, dry_run: bool, tables: Sequence[str] = ()) -> Iterator[MaintenanceResult]:
    """Merges the data files of tables that have many small ones in a partition; rows keep their order.

    Of tables that the caller names, two files of a partition are enough.
    """
    for table in tables or tables_of(lake):
        if table not in (LEDGER, AUDIT_TABLE):  # those are merged as they are written
            yield _compacted(lake, table, 2 if tables else MANY_FILES, dry_run)


@alone
def _compacted(lake: Lake, table: str, many: int, dry_run: bool) -> MaintenanceResult:
    small: Counter[str] = Counter()
    for file in lake.catalogue.load_table(table).scan().plan_files():
        small[str(file.file.partition)] += file.file.file_size_in_bytes < SMALL_BYTES
    return _merged(lake, table, sum(count for count in small.values() if count >= many), dry_run)


def _merged(lake: Lake, table: str, files: int, dry_run: bool) -> MaintenanceResult:
    if not files:
        return MaintenanceResult(table, 0, "few files")
    if dry_run:
        return MaintenanceResult(table, files, f"{files} small files to merge")
    before, after = compact(lake.catalogue, table, _WAIT_SECONDS)
    return MaintenanceResult(table, before - after, f"{before} files are now {after}")


def expire_snapshots(lake: Lake, days: float, dry_run: bool, tables: Sequence[str] = ()) -> Iterator[MaintenanceResult]:
    """Removes snapshots older than some days, and the files that only they used; heads and tagged snapshots stay."""
    moment = datetime.now(UTC) - timedelta(days=days)
    for table in tables or tables_of(lake):
        yield _expired(lake, table, moment, dry_run)


@alone
def _expired(lake: Lake, table: str, moment: datetime, dry_run: bool) -> MaintenanceResult:
    old = len(old_snapshots(lake.catalogue.load_table(table).metadata, moment))
    if not old:
        return MaintenanceResult(table, 0, "no old snapshot")
    if dry_run:
        return MaintenanceResult(table, old, f"{old} snapshots to remove")
    gone = expire(lake.catalogue, table, moment, _WAIT_SECONDS)
    return MaintenanceResult(table, gone, f"{gone} snapshots removed")


def remove_orphan_files(
    lake: Lake, days: float, dry_run: bool, tables: Sequence[str] = ()
) -> Iterator[MaintenanceResult]:
    """Removes files below a table's location that no snapshot names and that are older than some days, one at least."""
    moment = datetime.now(UTC) - timedelta(days=max(days, _YOUNGEST_ORPHAN_DAYS))
    for table in tables or tables_of(lake):
        yield _cleaned(lake, table, moment, dry_run)


@alone
def _cleaned(lake: Lake, table: str, moment: datetime, dry_run: bool) -> MaintenanceResult:
    files = remove_orphans(lake.catalogue, table, moment, dry_run, _WAIT_SECONDS)
    return MaintenanceResult(table, len(files), f"{len(files)} orphan files {'to remove' if dry_run else 'removed'}")


TASKS: dict[str, Callable[..., Iterator[MaintenanceResult]]] = {
    "ledger": tidy_ledger,
    "compaction": compact_tables,
    "expiry": expire_snapshots,
    "orphans": remove_orphan_files,
}

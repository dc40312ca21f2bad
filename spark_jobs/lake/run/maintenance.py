"""Maintenance of a whole lake, in tasks that each look at every table and say what they did.

    ledger      rows of the ledger that a crash lost are recorded, then its small files are merged
    compaction  partitions with many small files are merged; rows keep their order
    expiry      old snapshots are removed; heads and tagged ones stay, so what blends and releases pin is served on
    orphans     files that no snapshot names, and that are old, are removed

None changes a row, a digest or an ordinal. Each table is worked on under its lease, and one that another writer holds
is told and left to the next time.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Concatenate, ParamSpec

from spark_jobs.exceptions import LeaseError
from spark_jobs.lake.files.maintenance import compact, expire, old_snapshots, remove_orphans
from spark_jobs.lake.ledger.lease import table_leases
from spark_jobs.lake.ledger.ledger import LEDGER
from spark_jobs.lake.run.materialize import Lake
from spark_jobs.lake.session.catalogue import load_table, tables_in

MANY_FILES = 8  # of one partition, from which on merging is worth a Spark job
SMALL_BYTES = 64 * 1024**2
_LEDGER_FILES = 16
_WAIT_SECONDS = 5.0
_YOUNGEST_ORPHAN_DAYS = 1.0


@dataclass(frozen=True)
class Done:
    """What a task did to one table: how many files, snapshots or rows it merged, removed or recovered; in words too."""

    table: str
    count: int
    text: str


Task = Callable[[Lake, float, bool], Iterator[Done]]
_More = ParamSpec("_More")


def _unless_held(
    work: Callable[Concatenate[Lake, str, _More], Done],
) -> Callable[Concatenate[Lake, str, _More], Done]:
    """Make work on one table say so, and change nothing, where another writer holds the table."""

    @functools.wraps(work)
    def worked(lake: Lake, table: str, /, *more: _More.args, **named: _More.kwargs) -> Done:
        try:
            return work(lake, table, *more, **named)
        except LeaseError as error:
            return Done(table, 0, str(error))

    return worked


def tables_of(lake: Lake) -> list[str]:
    """Identifiers of all tables, by name."""
    spaces = sorted(lake.catalogue.list_namespaces())
    return [table for space in spaces for table in tables_in(lake.catalogue, space[0])]


def tidy_ledger(lake: Lake, days: float, dry_run: bool) -> Iterator[Done]:
    """Records rows of the ledger that a crash lost, and merges the small files that each run leaves in it."""
    lake.ledger.refresh()
    for table in tables_of(lake):
        if table.startswith("system."):
            continue
        lost = lake.ledger.lost(table)
        if lost and dry_run:
            yield Done(table, lost, f"{lost} rows of the ledger to recover")
        elif lost:
            yield _settled(lake, table, lost)
    ledger = load_table(lake.catalogue, LEDGER)
    files = sum(1 for _ in ledger.scan().plan_files()) if ledger is not None else 0
    if files >= _LEDGER_FILES:
        yield _compacted(lake, LEDGER, files, dry_run)


@_unless_held
def _settled(lake: Lake, table: str, lost: int) -> Done:
    with table_leases(lake.catalogue, [table], _WAIT_SECONDS):
        lake.ledger.refresh()
        lake.ledger.settle([table])
    return Done(table, lost, f"{lost} rows of the ledger recovered")


def compact_tables(lake: Lake, days: float, dry_run: bool) -> Iterator[Done]:
    """Merges the data files of tables that have many small ones in a partition; rows keep their order."""
    for table in tables_of(lake):
        if table == LEDGER:
            continue
        small: Counter[str] = Counter()
        for file in lake.catalogue.load_table(table).scan().plan_files():
            small[str(file.file.partition)] += file.file.file_size_in_bytes < SMALL_BYTES
        files = sum(count for count in small.values() if count >= MANY_FILES)
        yield _compacted(lake, table, files, dry_run) if files else Done(table, 0, "few files")


@_unless_held
def _compacted(lake: Lake, table: str, files: int, dry_run: bool) -> Done:
    if dry_run:
        return Done(table, files, f"{files} small files to merge")
    before, after = compact(lake.session(), lake.catalogue, table, _WAIT_SECONDS)
    return Done(table, before - after, f"{before} files are now {after}")


def expire_snapshots(lake: Lake, days: float, dry_run: bool) -> Iterator[Done]:
    """Removes snapshots older than some days, and the files that only they used; heads and tagged snapshots stay."""
    moment = datetime.now(UTC) - timedelta(days=days)
    for table in tables_of(lake):
        old = old_snapshots(lake.catalogue, table, moment)
        if not old:
            yield Done(table, 0, "no old snapshot")
        elif dry_run:
            yield Done(table, old, f"{old} snapshots to remove")
        else:
            yield _expired(lake, table, moment)


@_unless_held
def _expired(lake: Lake, table: str, moment: datetime) -> Done:
    gone = expire(lake.session(), lake.catalogue, table, moment, _WAIT_SECONDS)
    return Done(table, gone, f"{gone} snapshots removed")


def remove_orphan_files(lake: Lake, days: float, dry_run: bool) -> Iterator[Done]:
    """Removes files below a table's location that no snapshot names and that are older than some days, one at least."""
    moment = datetime.now(UTC) - timedelta(days=max(days, _YOUNGEST_ORPHAN_DAYS))
    for table in tables_of(lake):
        yield _cleaned(lake, table, moment, dry_run)


@_unless_held
def _cleaned(lake: Lake, table: str, moment: datetime, dry_run: bool) -> Done:
    files = remove_orphans(lake.session(), lake.catalogue, table, moment, dry_run, _WAIT_SECONDS)
    return Done(table, len(files), f"{len(files)} orphan files {'to remove' if dry_run else 'removed'}")


TASKS: dict[str, Task] = {
    "ledger": tidy_ledger,
    "compaction": compact_tables,
    "expiry": expire_snapshots,
    "orphans": remove_orphan_files,
}

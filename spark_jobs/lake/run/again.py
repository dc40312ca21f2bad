"""Compute the newest place of a table once more, into branches that are removed: nothing is published or recorded.

`headrace table check` does so on both engines, and compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.step import Scope
from spark_jobs.lake.declare.tables import Table
from spark_jobs.lake.files.branches import Written
from spark_jobs.lake.files.rows import table_rows
from spark_jobs.lake.ledger.digests import digest
from spark_jobs.lake.ledger.lease import table_leases
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.materialization import TableSlice
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.plan.excisions import excisions_read, without_excised
from spark_jobs.lake.plan.frozen import frozen_from, stays
from spark_jobs.lake.plan.plan import Task
from spark_jobs.lake.plan.reads import reads_of
from spark_jobs.lake.plan.reasons import changed_since, some
from spark_jobs.lake.run.materialize import Lake, discard_all, write_task


@dataclass(frozen=True)
class Recomputed:
    """Rows of one table that were computed once more.

    Attributes:
        table: identifier.
        place: increment or partition; empty for a whole table.
        row_count: rows.
        version: their data version.
        columns: by column, the data version of its values beside the key's.
    """

    table: str
    place: str
    row_count: int
    version: str
    columns: Mapping[str, str]


def recomputed(lake: Lake, binding: Binding) -> list[Recomputed]:
    """Compute the newest place of a step's tables once more, on the engine of this process.

    Raises:
        InputError: the table was not computed yet, or its step reads a source, which may have other rows by now.
        AuditError: a check refused the rows.
        StepRunError: the engine failed.
    """
    with table_leases(lake.catalogue, list(binding.tables), lake.wait_seconds):
        lake.ledger.refresh()
        task = newest_task(lake.ledger, binding)
        _, written = write_task(lake, binding, task, {})
        try:
            pairs = zip(binding.step.tables, written, strict=True)
            return [_measured(lake, declared, rows, task.place) for declared, rows in pairs]
        finally:
            discard_all(lake, written)


def newest_task(ledger: Ledger, binding: Binding) -> Task:
    """The task that computes the newest place of a step's tables, as it would be computed now.

    Raises:
        InputError: see `recomputed`.
    """
    table, scope = binding.tables[0], binding.step.scope
    if binding.step.discover is not None or scope is Scope.INTAKE:
        raise InputError(f"{table}: what its step reads may have changed since, so it cannot be computed once more")
    places = ledger.places(table)
    if not places or (binding.partition is not None and binding.partition.key not in places):
        raise InputError(f"{table}: was not computed yet; run first: headrace run {table}")
    increment: int | None = None
    place = binding.partition or TableSlice.whole()
    if binding.partition is None and scope is not Scope.WHOLE:
        increment = max(ledger.increments(table))
        place = TableSlice.increment(increment)
    if stays(ledger, binding) and (changed := changed_since(ledger, table)):
        raise InputError(f"{table}: stays, though {some(changed)} changed since, so it cannot be computed once more")
    reads = reads_of(binding, ledger, frozen_from(ledger, binding) if scope is Scope.FROZEN else increment)
    excised = excisions_read(ledger, binding)
    return Task(place, increment, "", without_excised(ledger, binding, reads, excised), excised=excised)


def _measured(lake: Lake, declared: Table, rows: Written, place: TableSlice) -> Recomputed:
    """The data versions of rows on a branch."""
    landed = table_rows(lake.session(), rows.identifier, rows.snapshot_id, place.replaced).where(place.predicate)
    columns = {
        column.name: str(digest(landed.select(*dict.fromkeys([*declared.key, column.name]))))
        for column in declared.columns
    }
    return Recomputed(rows.identifier, place.key, rows.row_count, str(rows.version), columns)

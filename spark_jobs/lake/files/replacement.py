"""Replace one published increment of a table by rows in the driver's memory, or by none, without Spark.

The rows go the way of any others: to a branch, then one commit publishes them with the row of the ledger. What is
replaced here is what a deletion leaves; nothing is computed, so nothing is audited.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow

from spark_jobs.lake.files.branches import Written, branch_at_head, branch_of_a_writer, publish
from spark_jobs.lake.files.data_files import file_schema
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.lease import Leases, writer_branch
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.materialization import Materialization, TableSlice

_BATCH_ROWS = 1 << 16


def replace_increment(
    ledger: Ledger, former: Materialization, rows: pa.Table | None, leases: Leases | None, **facts: Any
) -> None:
    """Replace the rows of an increment; called under the lease of its table.

    Like any write it removes the increments after it if all of them are marked to be computed anew (`validity`).

    Args:
        ledger: of the lake.
        former: the valid row of the ledger, naming table and increment; it has rows.
        rows: the new rows, with all columns; None for none.
        leases: of the table, among others; None where the catalogue has none.
        facts: fields of the new row of the ledger, where they differ from the former, beside those derived from rows.

    Raises:
        LeaseError: somebody else wrote the table meanwhile; nothing was published.
    """
    ledger.settle([former.table])
    later = [row for row in ledger.increments_there(former.table).values() if row.increment > former.increment]
    place = TableSlice.increment(former.increment, and_later=all(row.is_forgotten for row in later))
    branch = writer_branch()
    with branch_of_a_writer(ledger.catalogue, former.table, branch):
        row = _replaced(ledger.catalogue, branch, place, former, rows, leases, facts)
    ledger.record([row])


def _replaced(
    catalogue: Catalog,
    branch: str,
    place: TableSlice,
    former: Materialization,
    rows: pa.Table | None,
    leases: Leases | None,
    facts: Mapping[str, Any],
) -> Materialization:
    """Write and publish what replaces an increment; gives its row of the ledger."""
    table, base = branch_at_head(catalogue, former.table, branch)
    summary = {"headrace.step": "delete", "headrace.place": place.key}
    table.delete(place.replaced, snapshot_properties=summary, branch=branch)
    version = DataVersion()
    if rows is not None and rows.num_rows:
        rows = _as_in_files(rows, schema_to_pyarrow(table.schema()))
        version = version_of_rows(rows, rows.schema)
        table.append(rows, snapshot_properties=summary, branch=branch)
    table = catalogue.load_table(former.table)
    snapshot_there = table.snapshot_by_name(branch)
    assert snapshot_there is not None and snapshot_there.summary is not None  # it was made above
    files_bytes = int(snapshot_there.summary.additional_properties.get("added-files-size", 0))
    row = replace(
        former,
        data_version=version,
        snapshot_id=snapshot_there.snapshot_id,
        sequence_number=snapshot_there.sequence_number or 0,
        row_count=version.count,
        byte_count=files_bytes,
        **facts,
    )
    snapshot = (row.snapshot_id, row.sequence_number, row.table_uuid)
    written = Written(former.table, branch, base, *snapshot, version, version.count, files_bytes, ())
    publish(catalogue, written, replace(row, inputs=facts.get("inputs", {})), {}, leases)
    return row


def version_of_rows(rows: pa.Table, schema: pa.Schema) -> DataVersion:
    """The data version of rows, with the columns of a table in its order."""
    from spark_jobs.lake.ledger.row_hashes import version_of_batch

    version = DataVersion()
    for batch in _as_in_files(rows, schema).to_batches(_BATCH_ROWS):
        version += version_of_batch(batch)
    return version


def _as_in_files(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with the types of other increments' files: Sail reads no two files of different types together."""
    return rows.select(schema.names).cast(file_schema(schema))

"""The list of excised documents, `system.excisions`, and how later computations leave these documents out.

An excision rewrites the windows that exist. Rows that are computed later (a new increment, a table that is packed anew
after a change of config or code, another window length) come from tokens, which still hold the document. So steps whose
rows are numbered read their inputs without the documents that are listed here:

    table is null           the document is left out of every packed table, later ones included
    table is an identifier  it is left out of that table

Ledger row and step key say which documents an increment was computed without. A later change of the list computes
nothing again, because the excision itself rewrote the rows that existed. To let a document in again, delete its rows
here; it is packed with the next increment or generation that is computed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, BooleanExpression, EqualTo, In, IsNull, Or, StartsWith

from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.files.lookups import read_columns, read_rows
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.plan.reads import LeftOut, Read, Reads, is_path
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, ensure_table

EXCISIONS = "system.excisions"
SUPERSEDE_PREFIX = "supersede-"  # of the run_id, where a revision replaced the documents and no person asked for it
_DOC_ID = "doc_id"

_DECLARED = Table(
    name="excisions",
    comment="Documents taken out of packed tables for good: they are left out of whatever is packed later.",
    columns=(
        Column("doc_id!", "string", "identity of the document"),
        Column("table", "string", "packed table that it was taken out of; null: all, later ones too"),
        Column("run_id!", "string", "command that took it out"),
        Column("recorded_at!", "timestamptz", "when the row was written"),
    ),
    key=(),
)


def record_excisions(
    catalogue: Catalog, table: str | None, doc_ids: Collection[str], run_id: str, now: datetime | None = None
) -> int:
    """List documents as out of a packed table, or of all (None)."""
    listed = ensure_table(catalogue, EXCISIONS, _DECLARED, {SCOPE_PROPERTY: "excisions"})
    new = set(doc_ids)
    for batch in listed.scan(_out_of(table), selected_fields=(_DOC_ID,)).to_arrow_batch_reader():
        new.difference_update(batch.column(_DOC_ID).to_pylist())
    if new:
        moment = now or datetime.now(UTC)
        rows = [{"doc_id": doc_id, "table": table, "run_id": run_id, "recorded_at": moment} for doc_id in sorted(new)]
        listed.append(pa.Table.from_pylist(rows, schema=listed.schema().as_arrow()))
    return len(new)


def excised_documents(catalogue: Catalog, table: str | None) -> frozenset[str]:
    """Documents excised from a packed table or from all tables; for None, those excised from all."""
    return _listed(catalogue, _out_of(table))


def _out_of(table: str | None) -> BooleanExpression:
    """Condition for rows of the list about a packed table or all tables; for None, all tables alone."""
    everywhere = IsNull("table")
    return everywhere if table is None else Or(everywhere, EqualTo("table", table))


def excised_by(catalogue: Catalog, table: str, run_prefix: str) -> set[str]:
    """Documents excised from a packed table by commands with a prefix of their run_id."""
    return set(_listed(catalogue, And(EqualTo("table", table), StartsWith("run_id", run_prefix))))


def _listed(catalogue: Catalog, condition: BooleanExpression) -> frozenset[str]:
    """Documents named by the rows of the list under a condition."""
    listed = read_columns(catalogue, EXCISIONS, (_DOC_ID,), condition)
    return frozenset() if listed is None else frozenset(listed[_DOC_ID].to_pylist())


def withdraw_excisions(catalogue: Catalog, table: str, doc_ids: Collection[str], run_prefix: str) -> None:
    """Take documents off the list of a packed table that commands with such a run_id put there."""
    if doc_ids:
        condition = And(EqualTo("table", table), StartsWith("run_id", run_prefix), In(_DOC_ID, set(doc_ids)))
        catalogue.load_table(EXCISIONS).delete(condition)


def excisions_of(catalogue: Catalog, doc_id: str) -> list[dict[str, Any]]:
    """Rows of the list about one document (table, run_id, recorded_at), the oldest first."""
    rows = read_rows(catalogue, EXCISIONS, ("table", "run_id", "recorded_at"), EqualTo(_DOC_ID, doc_id))
    return sorted(rows, key=lambda row: str(row["recorded_at"]))


def excisions_read(ledger: Ledger, binding: Binding) -> dict[str, dict[str, Any]]:
    """The list of excisions as an input of a step, as the ledger records it: its snapshot, a digest of the documents.

    Returns:
        The list by its name, as other inputs are recorded; nothing where the step's rows are not numbered and it does
        not ask for this, or no document is out of its table.
    """
    step = binding.step
    listed = ledger.table(EXCISIONS) if step.numbered or step.without_excised else None
    snapshot = listed.current_snapshot() if listed is not None else None
    if listed is None or snapshot is None:
        return {}
    out_of_it = Or(IsNull("table"), EqualTo("table", binding.tables[0]))
    rows = listed.scan(out_of_it, selected_fields=(_DOC_ID,), snapshot_id=snapshot.snapshot_id).to_arrow()
    doc_ids = sorted(set(rows[_DOC_ID].to_pylist()))
    if not doc_ids:
        return {}
    digest = hashlib.sha256("\n".join(doc_ids).encode()).hexdigest()
    return {EXCISIONS: {"snapshot_id": str(snapshot.snapshot_id), "versions": {"": digest}}}


def excisions_in(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The list of excisions among the inputs of a ledger row."""
    return {name: facts for name, facts in inputs.items() if name == EXCISIONS}


def without_excised(ledger: Ledger, binding: Binding, reads: Reads, excised: Mapping[str, Mapping[str, Any]]) -> Reads:
    """What a step reads, without the documents that are excised from its table.

    Only inputs with a column `doc_id` are narrowed. Parquet files are read as they are.
    """
    if EXCISIONS not in excised:
        return reads
    left_out = LeftOut(EXCISIONS, int(excised[EXCISIONS]["snapshot_id"]), binding.tables[0])
    return {
        parameter: tuple(replace(read, left_out=left_out) if _names_documents(ledger, read) else read for read in parts)
        for parameter, parts in reads.items()
    }


def _names_documents(ledger: Ledger, read: Read) -> bool:
    table = None if is_path(read.table) else ledger.table(read.table)
    return table is not None and _DOC_ID in table.schema().column_names

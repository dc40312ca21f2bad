"""The table `system.materializations`: its columns, and rows of the ledger to Arrow and back."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table as IcebergTable

from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.materialization import Materialization
from spark_jobs.lake.ledger.step_key import canonical_json

LEDGER = "system.materializations"
MATERIALIZATIONS = Table(
    name="materializations",
    comment="What was computed: one row per table and increment (or partition), newest row counts.",
    columns=(
        Column("table!", "string", "identifier of the table"),
        Column("place!", "string", "increment or partition computed; empty for a table without either"),
        Column("step!", "string", "step that computed it"),
        Column(
            "step_key!",
            "string",
            "SHA-256 over step, code version, config, inputs and place; empty: the snapshot was rolled back; "
            "`forgotten`: the place is to be computed anew",
        ),
        Column("data_version!", "string", "digest of the rows, v2:count:sum:xor"),
        Column("code_version!", "string", "version of the step's code"),
        Column("config!", "string", "config as canonical JSON"),
        Column(
            "inputs!",
            "string",
            "JSON: input table to snapshot_id and `versions` read, by place; of a step that reads history, to their "
            "`count`, the `last` increment and one `digest`",
        ),
        Column("snapshot_id!", "long", "snapshot that made the rows visible"),
        Column("sequence_number!", "long", "sequence number of that snapshot"),
        Column("table_uuid!", "string", "the table when it was written"),
        Column("row_count!", "long", "rows of this increment or partition"),
        Column("byte_count!", "long", "bytes of its data files"),
        Column("seconds!", "double", "wall-clock seconds from the first read to publishing"),
        Column(
            "core_seconds",
            "double",
            "seconds of tasks over all cores; on Sail its part of what the process took; null: not measured",
        ),
        Column("engine", "string", "engine that computed it, spark or sail; null where it is not known"),
        Column("run_id!", "string", "Dagster run or command that computed it"),
        Column("git_commit", "string", "commit of the code, where it is known"),
        Column("recorded_at!", "timestamptz", "when the row was written"),
    ),
    key=(),
)


def by_table(rows: pa.Table) -> tuple[dict[str, list[Materialization]], dict[tuple[str, str, str], datetime]]:
    """Parse the ledger: its rows by table, in the order recorded; and when each place was first recorded.

    Returns:
        Rows by identifier of their table; times by identifier, UUID of the table and place.
    """
    rows_by_table: dict[str, list[Materialization]] = {}
    first: dict[tuple[str, str, str], datetime] = {}
    rows = rows.sort_by([("recorded_at", "ascending"), ("sequence_number", "ascending")])
    names = [name for name in rows.column_names if name != "recorded_at"]
    columns = [_shared(rows[name]) for name in names]
    for at, values in zip(rows["recorded_at"].to_pylist(), zip(*columns, strict=True), strict=True):
        facts = dict(zip(names, values, strict=True))
        facts["inputs"] = json.loads(facts["inputs"])
        facts["data_version"] = DataVersion.parse(facts["data_version"])
        row = Materialization(**facts)
        first.setdefault((row.table, row.table_uuid, row.place), at)
        rows_by_table.setdefault(row.table, []).append(row)
    return rows_by_table, first


def _shared(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column, equal texts as one object: most rows repeat the configs and names of others."""
    if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
        return column.to_pylist()  # type: ignore[no-any-return]
    coded = column.combine_chunks().dictionary_encode()
    texts = coded.dictionary.to_pylist()
    return [None if code is None else texts[code] for code in coded.indices.to_pylist()]


def to_arrow(rows: list[Materialization], now: datetime, table: IcebergTable) -> pa.Table:
    """Rows of the ledger, recorded at a time, in the columns of its table."""
    values = [
        {
            **dataclasses.asdict(row),
            "data_version": str(row.data_version),
            "inputs": canonical_json(row.inputs),
            "recorded_at": now,
        }
        for row in rows
    ]
    return pa.Table.from_pylist(values, schema=table.schema().as_arrow())

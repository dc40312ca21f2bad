"""The ledger `system.materializations`: one row per table and increment (or partition) that was computed.

It answers two questions without Spark: is this step key known (then nothing is computed), and what is the data version
of an increment. The newest row of a table and place counts, and only while the table still holds what it says:

    the table's uuid is the row's, and no rollback took main back before the row's snapshot

A row lost in a crash between publishing and recording is recovered from the table: the commit that publishes puts the
same facts into its property `headrace.last-materialization`. (A snapshot's summary cannot hold them all: it is fixed
before the pass that computes the data version; it holds step key, code version, inputs, run and git commit.)
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable

from spark_jobs.exceptions import TableMismatchError
from spark_jobs.lake.catalogue import data_head, ensure_table, load_table, rewrites_files
from spark_jobs.lake.digest import DataVersion
from spark_jobs.lake.keys import canonical_json
from spark_jobs.lake.tables import Column, Table

_log = logging.getLogger(__name__)

LEDGER = "system.materializations"
LAST_PROPERTY = "headrace.last-materialization"

MATERIALIZATIONS = Table(
    name="materializations",
    comment="What was computed: one row per table and increment (or partition), newest row counts.",
    columns=(
        Column("table!", "string", "identifier of the table"),
        Column("place!", "string", "increment or partition computed; empty for a table without either"),
        Column("step!", "string", "step that computed it"),
        Column("step_key!", "string", "SHA-256 over step, code version, config, inputs and place"),
        Column("data_version!", "string", "digest of the rows, v1:count:sum:xor"),
        Column("code_version!", "string", "version of the step's code"),
        Column("config!", "string", "config as canonical JSON"),
        Column("inputs!", "string", "JSON: input table to snapshot_id and the data versions read, by place"),
        Column("snapshot_id!", "long", "snapshot that made the rows visible"),
        Column("sequence_number!", "long", "sequence number of that snapshot"),
        Column("table_uuid!", "string", "the table when it was written"),
        Column("row_count!", "long", "rows of this increment or partition"),
        Column("byte_count!", "long", "bytes of its data files"),
        Column("seconds!", "double", "wall-clock seconds from the first read to publishing"),
        Column("run_id!", "string", "Dagster run or command that computed it"),
        Column("git_commit", "string", "commit of the code, where it is known"),
        Column("recorded_at!", "timestamptz", "when the row was written"),
    ),
    key=(),
)


@dataclass(frozen=True)
class Materialization:
    """One row of the ledger; fields as in `MATERIALIZATIONS`, `inputs` decoded."""

    table: str
    place: str
    step: str
    step_key: str
    data_version: DataVersion
    code_version: str
    config: str
    inputs: Mapping[str, Any]
    snapshot_id: int
    sequence_number: int
    table_uuid: str
    row_count: int
    byte_count: int
    seconds: float
    run_id: str
    git_commit: str | None

    def to_json(self) -> str:
        """All facts as one line, for the table's property."""
        return canonical_json({**dataclasses.asdict(self), "data_version": str(self.data_version)})

    @classmethod
    def from_json(cls, text: str) -> Materialization:
        """Read what `to_json` wrote."""
        values = json.loads(text)
        return cls(**{**values, "data_version": DataVersion.parse(values["data_version"])})

    @property
    def increment(self) -> int:
        """The place as an increment."""
        return int(self.place)


class Ledger:
    """The newest valid facts of every table; reads again only when another process has written.

    Not safe for use from several threads at once.
    """

    def __init__(self, catalogue: Catalog) -> None:
        self._catalogue = catalogue
        self._snapshot_id: int | None = None
        self._rows: dict[str, dict[str, Materialization]] = {}
        self._tables: dict[str, IcebergTable | None] = {}

    def refresh(self) -> None:
        """Read the ledger where it changed, and forget what is known of the tables' heads."""
        self._tables.clear()
        table = load_table(self._catalogue, LEDGER)
        snapshot = table.current_snapshot() if table is not None else None
        if table is None or snapshot is None:
            self._rows, self._snapshot_id = {}, None
        elif snapshot.snapshot_id != self._snapshot_id:
            self._rows = _index(table.scan().to_arrow())
            self._snapshot_id = snapshot.snapshot_id

    def table(self, identifier: str) -> IcebergTable | None:
        """The Iceberg table as this process last saw it."""
        if identifier not in self._tables:
            self._tables[identifier] = load_table(self._catalogue, identifier)
        return self._tables[identifier]

    def reload(self, identifier: str) -> IcebergTable | None:
        """The Iceberg table as it is now."""
        self._tables.pop(identifier, None)
        return self.table(identifier)

    def places(self, identifier: str) -> dict[str, Materialization]:
        """Valid facts of one table by place, a row lost in a crash recovered from the table.

        Raises:
            TableMismatchError: somebody else wrote the table, so what it holds is not known.
        """
        table = self.table(identifier)
        if table is None:
            return {}
        head = data_head(table)
        if head is None:
            return {}
        rows = dict(self._rows.get(identifier, {}))
        last_text = table.properties.get(LAST_PROPERTY)
        last = Materialization.from_json(last_text) if last_text else None
        if last is not None and last.table_uuid == str(table.metadata.table_uuid):
            known = rows.get(last.place)
            if known is None or known.sequence_number < last.sequence_number:
                _log.info("%s: recovered the ledger's row of place %r from the table", identifier, last.place)
                rows[last.place] = last
        sequence = head.sequence_number or 0
        if not rewrites_files(head):
            self._refuse_foreign(identifier, head.snapshot_id, sequence, last, rows)
        uuid = str(table.metadata.table_uuid)
        return {place: row for place, row in rows.items() if row.table_uuid == uuid and row.sequence_number <= sequence}

    def _refuse_foreign(
        self,
        identifier: str,
        head: int,
        sequence: int,
        last: Materialization | None,
        rows: Mapping[str, Materialization],
    ) -> None:
        """Refuse a head that no materialization published."""
        known = {row.snapshot_id for row in rows.values()} | ({last.snapshot_id} if last else set())
        newest = max((row.sequence_number for row in rows.values()), default=0)
        if head not in known and sequence > newest:
            raise TableMismatchError(
                f"{identifier}: snapshot {head} on main was not written by headrace; roll back to the one before "
                f"(CALL lake.system.rollback_to_snapshot) or drop the table and run again"
            )

    def increments(self, identifier: str) -> dict[int, Materialization]:
        """Valid facts of a table by increment, ascending."""
        rows = self.places(identifier)
        return {int(place): rows[place] for place in sorted(rows, key=_order) if place.isdigit()}

    def record(self, rows: Iterable[Materialization], now: datetime | None = None) -> None:
        """Append rows, in one commit.

        Args:
            rows: what was published.
            now: time written beside them; the clock's by default.
        """
        new = list(rows)
        table = ensure_table(self._catalogue, LEDGER, MATERIALIZATIONS, {"headrace.scope": "ledger"})
        table.append(_to_arrow(new, now or datetime.now(UTC), table))
        for row in new:
            self._rows.setdefault(row.table, {})[row.place] = row
            self._tables.pop(row.table, None)
        # Rows of other processes may have come between; the next refresh reads them.


def _order(place: str) -> tuple[int, str]:
    return (int(place), "") if place.isdigit() else (-1, place)


def _index(rows: pa.Table) -> dict[str, dict[str, Materialization]]:
    """Newest row by table and place."""
    found: dict[str, dict[str, Materialization]] = {}
    for values in rows.sort_by([("recorded_at", "ascending"), ("sequence_number", "ascending")]).to_pylist():
        del values["recorded_at"]
        values["inputs"] = json.loads(values["inputs"])
        values["data_version"] = DataVersion.parse(values["data_version"])
        found.setdefault(values["table"], {})[values["place"]] = Materialization(**values)
    return found


def _to_arrow(rows: list[Materialization], now: datetime, table: IcebergTable) -> pa.Table:
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

"""The ledger `system.materializations`: one row per table and increment (or partition) that was computed.

It answers two questions without Spark: whether a step key is known (then nothing is computed), and which data version
an increment has. Of the rows of one table and place the newest counts, as long as the table still holds what it says:

    the table's uuid is the row's, and main still descends from the row's snapshot   (`validity`)

A row that a crash between publishing and recording lost is recovered from the table, because the commit that publishes
puts the same facts into the table property `headrace.last-materialization`. The snapshot's summary cannot hold them: it
is fixed before the pass that computes the data version.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable

from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.materialization import Materialization, forgotten, withdrawn
from spark_jobs.lake.ledger.step_key import canonical_json
from spark_jobs.lake.ledger.validity import refuse_foreign, rolled_back, valid_rows
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, ensure_table, load_table

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
        Column(
            "step_key!",
            "string",
            "SHA-256 over step, code version, config, inputs and place; empty: the snapshot was rolled back; "
            "`forgotten`: the place is to be computed anew",
        ),
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
        Column("core_seconds", "double", "seconds that Spark's tasks took, summed over cores; null where not measured"),
        Column("run_id!", "string", "Dagster run or command that computed it"),
        Column("git_commit", "string", "commit of the code, where it is known"),
        Column("recorded_at!", "timestamptz", "when the row was written"),
    ),
    key=(),
)


class Ledger:
    """Reads and appends the ledger's rows, and tells which of them are true of the tables as they are now.

    The ledger is read again only when another process has written it. Steps that run at the same time share it.
    """

    def __init__(self, catalogue: Catalog) -> None:
        self.catalogue = catalogue
        self._snapshot_id: int | None = None
        self._rows: dict[str, list[Materialization]] = {}
        self._first: dict[tuple[str, str, str], datetime] = {}  # by table, its UUID and place: when first recorded
        self._tables: dict[str, IcebergTable | None] = {}
        self._places: dict[str, dict[str, Materialization]] = {}
        self._lock = threading.RLock()  # over all that changes the five above

    @classmethod
    def fresh(cls, catalogue: Catalog) -> Ledger:
        """The ledger of a lake as it is now."""
        ledger = cls(catalogue)
        ledger.refresh()
        return ledger

    def refresh(self) -> None:
        """Read the ledger if it changed, and drop the cached tables, so that their heads are looked up anew."""
        with self._lock:
            self._tables.clear()
            self._places.clear()
            self._read()

    def _read(self) -> None:
        table = load_table(self.catalogue, LEDGER)
        snapshot = table.current_snapshot() if table is not None else None
        if table is None or snapshot is None:
            self._rows, self._first, self._snapshot_id = {}, {}, None
        elif snapshot.snapshot_id != self._snapshot_id:
            self._rows, self._first = _by_table(table.scan().to_arrow())
            self._snapshot_id = snapshot.snapshot_id

    def table(self, identifier: str) -> IcebergTable | None:
        """The Iceberg table as this process last saw it."""
        with self._lock:
            if identifier not in self._tables:
                self._tables[identifier] = load_table(self.catalogue, identifier)
            return self._tables[identifier]

    @property
    def warehouse(self) -> str:
        """Path or URI of the folder that the tables lie in."""
        return str(self.catalogue.properties.get("warehouse", ""))

    def recorded_tables(self) -> list[str]:
        """Identifiers of all tables that were ever computed."""
        with self._lock:
            return sorted(self._rows)

    def places(self, identifier: str) -> dict[str, Materialization]:
        """Valid rows of one table by place, a row lost in a crash recovered from the table.

        Raises:
            TableMismatchError: something other than headrace wrote the table, so what it holds is not known.
        """
        found = self._standing(identifier)
        return {place: row for place, row in found.items() if not row.is_forgotten}

    def _standing(self, identifier: str) -> dict[str, Materialization]:
        """Rows for all that the table holds, by place, those included that are marked to be computed anew."""
        with self._lock:
            if identifier not in self._places:
                table = self.table(identifier)
                if table is None or table.current_snapshot() is None:
                    return {}
                rows = self._known(identifier, table)
                found = valid_rows(table, rows)
                refuse_foreign(identifier, table, rows, found)
                self._places[identifier] = found
            return self._places[identifier]

    def _known(self, identifier: str, table: IcebergTable) -> list[Materialization]:
        """Rows of one table, with the one that a crash may have kept from being recorded."""
        last = _last(table)
        if last is None or _recorded(last, self._rows.get(identifier, [])):
            return self._rows.get(identifier, [])
        self._read()  # the table was read after the ledger: another process may have published and recorded since
        rows = self._rows.get(identifier, [])
        if _recorded(last, rows):
            return rows
        _log.info("%s: recovered the ledger's row of place %r from the table", identifier, last.place)
        return [*rows, last]

    def increments(self, identifier: str) -> dict[int, Materialization]:
        """Valid rows of a table by increment, ascending."""
        return _by_increment(self.places(identifier))

    def first_recorded(self, identifier: str) -> dict[str, datetime]:
        """When each place of a table was computed first, in UTC; not of an earlier table of its name."""
        table = self.table(identifier)
        if table is None:
            return {}
        own = (identifier, str(table.metadata.table_uuid))
        with self._lock:
            return {key[2]: at for key, at in self._first.items() if key[:2] == own}

    def increments_there(self, identifier: str) -> dict[int, Materialization]:
        """As `increments`, with those that are marked to be computed anew and whose rows the table still holds."""
        return _by_increment(self._standing(identifier))

    def settle(self, identifiers: Iterable[str]) -> None:
        """Record what is known only from the present state of some tables, before a publish changes that state.

        Called by a writer under its lease. Two things are recorded: rows that a crash lost, which are only in the
        table's property, and that property is overwritten by the next publish; and withdrawals of snapshots that were
        rolled back, which cannot be told from others once expiry has cut the chain.
        """
        with self._lock:
            missing: list[Materialization] = []
            for identifier in identifiers:
                table = self.table(identifier)
                if table is None or table.current_snapshot() is None:
                    continue
                rows = self._known(identifier, table)
                missing += rows[len(self._rows.get(identifier, [])) :]
                missing += [withdrawn(row) for row in rolled_back(table, rows)]
            if missing:
                self.record(missing)

    def lost(self, identifier: str) -> int:
        """How many rows of one table `settle` would record: lost in a crash, or rolled back since."""
        with self._lock:
            table = self.table(identifier)
            if table is None or table.current_snapshot() is None:
                return 0
            rows = self._known(identifier, table)
            return len(rows) - len(self._rows.get(identifier, [])) + len(rolled_back(table, rows))

    def forget(self, identifiers: Collection[str], since: int = 0) -> None:
        """Mark increments of some tables to be computed anew, in one commit; called by a writer under their leases.

        Readers see the present rows until then. The first increment that is computed removes all later ones.
        """
        with self._lock:
            self.settle(identifiers)
            there = (row for table in identifiers for number, row in self.increments(table).items() if number >= since)
            rows = [forgotten(row) for row in there]
            if rows:
                self.record(rows)

    def record(self, rows: Iterable[Materialization], now: datetime | None = None) -> None:
        """Append rows, in one commit."""
        new = list(rows)
        with self._lock:
            table = ensure_table(self.catalogue, LEDGER, MATERIALIZATIONS, {SCOPE_PROPERTY: "ledger"}, grows=True)
            now = now or datetime.now(UTC)
            table.append(_to_arrow(new, now, table))
            for row in new:
                self._rows.setdefault(row.table, []).append(row)
                self._first.setdefault((row.table, row.table_uuid, row.place), now)
                self._tables.pop(row.table, None)
                self._places.pop(row.table, None)
            snapshot = table.current_snapshot()
            if snapshot is not None and snapshot.parent_snapshot_id == self._snapshot_id:
                self._snapshot_id = snapshot.snapshot_id  # no other commit came between, so all rows are known


def _by_increment(rows: Mapping[str, Materialization]) -> dict[int, Materialization]:
    return {int(place): rows[place] for place in sorted(rows, key=_order) if place.isdigit()}


def _order(place: str) -> tuple[int, str]:
    return (int(place), "") if place.isdigit() else (-1, place)


def _by_table(rows: pa.Table) -> tuple[dict[str, list[Materialization]], dict[tuple[str, str, str], datetime]]:
    """Rows by table, in the order recorded; and the first time of each place, by table, UUID and place."""
    found: dict[str, list[Materialization]] = {}
    first: dict[tuple[str, str, str], datetime] = {}
    for values in rows.sort_by([("recorded_at", "ascending"), ("sequence_number", "ascending")]).to_pylist():
        first.setdefault((values["table"], values["table_uuid"], values["place"]), values.pop("recorded_at"))
        values["inputs"] = json.loads(values["inputs"])
        values["data_version"] = DataVersion.parse(values["data_version"])
        found.setdefault(values["table"], []).append(Materialization(**values))
    return found, first


def _last(table: IcebergTable) -> Materialization | None:
    """What the last publish to a table wrote into its property."""
    text = table.properties.get(LAST_PROPERTY)
    last = Materialization.from_json(text) if text else None
    return last if last is not None and last.table_uuid == str(table.metadata.table_uuid) else None


def _recorded(last: Materialization, rows: Sequence[Materialization]) -> bool:
    return any(
        (row.snapshot_id, row.place, row.step_key) == (last.snapshot_id, last.place, last.step_key) for row in rows
    )


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

"""The ledger `system.materializations`: one row per table and computed increment (or partition).

It answers two questions without Spark: whether a step key has been computed (then nothing is to do), and which data
version an increment has. Of several rows of one table and place the newest counts. It is valid while the table still
holds its rows:

    the table's uuid is the row's, and main still descends from the row's snapshot   (`validity`)

The publishing commit puts the same facts into the table property `headrace.last-materialization`. (The snapshot's
summary cannot hold them: it is fixed before the pass over the data version.) So rows need not be written one
by one: a run gathers the rows of its steps and appends them together, and other processes recover them from the
properties until then, or after a crash. A property holds only one row, so a gathered row is written before its table is
published again. A step with the same rows as before publishes nothing and sets no property, so all gathered rows are
also written at the next step after half a minute.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table as IcebergTable

from headrace.tables.catalogue import again_if_disconnected, load_table, metadata_locations
from spark_jobs.lake.ledger.ledger_table import LEDGER, MATERIALIZATIONS, by_table, to_arrow
from spark_jobs.lake.ledger.materialization import Materialization, forgotten, withdrawn
from spark_jobs.lake.ledger.validity import refuse_foreign, rolled_back, valid_rows
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, ensure_table
from spark_jobs.lake.session.tidiness import tidy

_log = logging.getLogger(__name__)

LAST_PROPERTY = "headrace.last-materialization"
_GATHER_SECONDS = 30.0
_Derived = TypeVar("_Derived")


@dataclasses.dataclass
class _ValidRows:
    """The valid rows of one table, cached as long as neither the table nor its rows in the ledger change.

    Attributes:
        of: metadata file of the table and number of its rows in the ledger, which tell when the cache is stale.
        found: the valid row of each place, also of places marked to be computed anew.
        derived: values computed from the rows, by key (`Ledger.derived`).
    """

    of: tuple[str, int]
    found: dict[str, Materialization]
    derived: dict[Hashable, Any] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def places(self) -> dict[str, Materialization]:
        """The row of each place without a mark to compute it anew."""
        return {place: row for place, row in self.found.items() if not row.is_forgotten}

    @functools.cached_property
    def increments(self) -> dict[int, Materialization]:
        """The row of each increment, ascending."""
        return _by_increment(self.places)


class Ledger:
    """The rows of the ledger, and the valid ones for the tables as they are now.

    The ledger is read again only if another process has written it. Concurrent steps share one object.
    """

    def __init__(self, catalogue: Catalog) -> None:
        self.catalogue = catalogue
        self._snapshot_id: int | None = None
        self._rows: dict[str, list[Materialization]] = {}
        self._first: dict[tuple[str, str, str], datetime] = {}  # by table, its UUID and place: when first recorded
        self._gathered: list[Materialization] = []  # also in the two above, but not written yet
        self._gathered_at = 0.0
        self._newest = datetime.min.replace(tzinfo=UTC)  # the latest `recorded_at` of the rows
        self._tables: dict[str, IcebergTable | None] = {}
        self._standings: dict[str, _ValidRows] = {}
        self._lock = threading.RLock()  # guards all attributes above

    @classmethod
    def fresh(cls, catalogue: Catalog) -> Ledger:
        """The ledger of a lake as it is now."""
        ledger = cls(catalogue)
        ledger.refresh()
        return ledger

    def refresh(self) -> None:
        """Read the ledger if it changed, and drop changed tables, so that they are loaded again."""
        with self._lock:
            is_asked = bool(self._tables) and isinstance(self.catalogue, SqlCatalog)  # others answer table by table
            heads = again_if_disconnected(metadata_locations, self.catalogue) if is_asked else {}
            loaded = ((name, table) for name, table in self._tables.items() if table is not None)
            self._tables = {name: table for name, table in loaded if heads.get(name) == table.metadata_location}
            self._read()

    def _read(self) -> None:
        table = load_table(self.catalogue, LEDGER)
        snapshot = table.current_snapshot() if table is not None else None
        if snapshot is not None and snapshot.snapshot_id == self._snapshot_id:
            return
        before = self._rows
        if table is None or snapshot is None:
            self._rows, self._first, self._snapshot_id = {}, {}, None
        else:
            rows = table.scan().to_arrow()
            self._rows, self._first = by_table(rows)
            self._snapshot_id, self._newest = snapshot.snapshot_id, pc.max(rows["recorded_at"]).as_py() or self._newest
        self._standings.clear()
        self._gathered = [
            row
            for row in self._gathered
            if not _is_settled(row, before.get(row.table, ()), self._rows.get(row.table, ()))
        ]
        self._remember(self._gathered, datetime.now(UTC))

    def table(self, identifier: str) -> IcebergTable | None:
        """The Iceberg table as this process last saw it."""
        with self._lock:
            if identifier not in self._tables:
                self._tables[identifier] = load_table(self.catalogue, identifier)
            return self._tables[identifier]

    @property
    def warehouse(self) -> str:
        """Path or URI of the tables' folder."""
        return str(self.catalogue.properties.get("warehouse", ""))

    def recorded_tables(self) -> list[str]:
        """Identifiers of all tables ever computed."""
        with self._lock:
            return sorted(self._rows)

    def places(self, identifier: str) -> dict[str, Materialization]:
        """Valid rows of one table by place; the caller must not change the dict. A row lost in a crash is recovered.

        Raises:
            TableMismatchError: something other than headrace wrote the table, so its rows belong to no step key.
        """
        standing = self._standing(identifier)
        return standing.places if standing is not None else {}

    def _standing(self, identifier: str) -> _ValidRows | None:
        """The valid rows of a table; None if it holds nothing."""
        with self._lock:
            table = self.table(identifier)
            if table is None or table.metadata.current_snapshot_id is None:
                return None
            standing = self._standings.get(identifier)
            if standing is None or standing.of != self._state(identifier, table):
                rows = self._known(identifier, table)
                valid = valid_rows(table, rows)
                refuse_foreign(identifier, table, rows, valid)
                standing = self._standings[identifier] = _ValidRows(self._state(identifier, table), valid)
            return standing

    def _state(self, identifier: str, table: IcebergTable) -> tuple[str, int]:
        return table.metadata_location, len(self._rows.get(identifier, ()))

    def derived(self, identifier: str, key: Hashable, make: Callable[[], _Derived]) -> _Derived:
        """A value computed from the rows of a table, cached by `key` as long as neither table nor ledger changes."""
        with self._lock:
            standing = self._standing(identifier)
            if standing is None:
                return make()
            if key not in standing.derived:
                standing.derived[key] = make()
            value: _Derived = standing.derived[key]
            return value

    def _known(self, identifier: str, table: IcebergTable) -> list[Materialization]:
        """Rows of one table, with the row in its property if this is not recorded, as after a crash."""
        last = _last(table)
        if last is None or _recorded(last, self._rows.get(identifier, [])):
            return self._rows.get(identifier, [])
        self._read()  # the table was read after the ledger: another process may have published and recorded since
        rows = self._rows.get(identifier, [])
        if _recorded(last, rows):
            return rows
        _log.debug("%s: the ledger's row of place %r is the table's own", identifier, last.place)
        return [*rows, last]

    def increments(self, identifier: str) -> dict[int, Materialization]:
        """Valid rows of a table by increment, ascending; the dict is cached, and the caller must not change it."""
        standing = self._standing(identifier)
        return standing.increments if standing is not None else {}

    def first_recorded(self, identifier: str) -> dict[str, datetime]:
        """When each place of a table was first computed, in UTC; a dropped table of the same name does not count."""
        table = self.table(identifier)
        if table is None:
            return {}
        table_key = (identifier, str(table.metadata.table_uuid))
        with self._lock:
            return {key[2]: at for key, at in self._first.items() if key[:2] == table_key}

    def increments_there(self, identifier: str) -> dict[int, Materialization]:
        """As `increments`, with those marked to be computed anew but still in the table."""
        standing = self._standing(identifier)
        return _by_increment(standing.found) if standing is not None else {}

    def settle(self, identifiers: Collection[str]) -> None:
        """Record facts found in the present state of some tables alone, before a publish changes that state.

        Called by a writer under its lease. Two kinds of rows are recorded: those that a crash lost, which are only in
        the table's property until the next publish overwrites it; and withdrawals of rolled-back snapshots:
        nothing distinguishes them from valid ones after old snapshots have expired.
        """
        with self._lock:
            self.make_room(identifiers)
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
        """Mark all places of some tables, or increments from one on, to be computed anew, in one commit.

        Called by a writer under their leases. Readers see the present rows until then. The first increment that is
        computed removes all later ones.
        """
        with self._lock:
            self.settle(identifiers)
            rows = [
                forgotten(row)
                for table in identifiers
                for place, row in self.places(table).items()
                if not since or (place.isdecimal() and int(place) >= since)
            ]
            if rows:
                self.record(rows)

    def record(self, rows: Iterable[Materialization], now: datetime | None = None) -> None:
        """Append rows, together with all gathered ones, in one commit."""
        self.gather(rows)
        self.write(now)

    def gather(self, rows: Iterable[Materialization]) -> None:
        """Add rows of newly published tables; `write` appends them later, together with others."""
        new = list(rows)
        with self._lock:
            if new and not self._gathered:
                self._gathered_at = time.monotonic()
            self._gathered += new
            self._remember(new, datetime.now(UTC))
            for row in new:
                self._tables.pop(row.table, None)

    def make_room(self, tables: Collection[str]) -> None:
        """Write the gathered rows if some of their tables are about to be published again, or after half a minute."""
        with self._lock:
            is_old = time.monotonic() - self._gathered_at > _GATHER_SECONDS
            if self._gathered and (is_old or any(row.table in tables for row in self._gathered)):
                self.write()

    def write(self, now: datetime | None = None) -> None:
        """Append the gathered rows, in one commit."""
        with self._lock:
            if self._gathered:
                self._read()  # what another process has recorded is not written again: it may be forgotten since
            if not self._gathered:
                return
            table = ensure_table(self.catalogue, LEDGER, MATERIALIZATIONS, {SCOPE_PROPERTY: "ledger"})
            # Later than all rows there, whatever this machine's clock says, because the newest row of a place counts.
            self._newest = now or max(datetime.now(UTC), self._newest + timedelta(microseconds=1))
            table.append(to_arrow(self._gathered, self._newest, table))
            self._gathered = []
            self._follow(table)
            tidy(self.catalogue, table)
            self._follow(table)

    def _follow(self, table: IcebergTable) -> None:
        """Note that the head of the ledger is read, unless another process has committed since the last one."""
        snapshot = table.current_snapshot()
        if snapshot is not None and snapshot.parent_snapshot_id == self._snapshot_id:
            self._snapshot_id = snapshot.snapshot_id

    def _remember(self, rows: Iterable[Materialization], now: datetime) -> None:
        for row in rows:
            self._rows.setdefault(row.table, []).append(row)
            self._first.setdefault((row.table, row.table_uuid, row.place), now)


def _by_increment(rows: Mapping[str, Materialization]) -> dict[int, Materialization]:
    return {int(place): rows[place] for place in sorted(rows, key=_order) if place.isdigit()}


def _order(place: str) -> tuple[int, str]:
    return (int(place), "") if place.isdigit() else (-1, place)


def _last(table: IcebergTable) -> Materialization | None:
    """The row in the property of a table, written by the last publish."""
    text = table.properties.get(LAST_PROPERTY)
    last = Materialization.from_json(text) if text else None
    return last if last is not None and last.table_uuid == str(table.metadata.table_uuid) else None


def _recorded(last: Materialization, rows: Sequence[Materialization]) -> bool:
    return any(
        (row.snapshot_id, row.place, row.step_key) == (last.snapshot_id, last.place, last.step_key)
        for row in reversed(rows)
    )


def _is_settled(row: Materialization, before: Sequence[Materialization], now: Sequence[Materialization]) -> bool:
    """Whether another process has written a gathered row, or has since marked its place to be computed anew."""

    def marks(rows: Sequence[Materialization]) -> int:
        return sum(
            other.is_forgotten and (other.snapshot_id, other.place) == (row.snapshot_id, row.place) for other in rows
        )

    row_facts = row.snapshot_id, row.place, row.step_key, row.run_id
    return any((other.snapshot_id, other.place, other.step_key, other.run_id) == row_facts for other in now) or (
        not row.is_forgotten and marks(now) > marks(before)
    )

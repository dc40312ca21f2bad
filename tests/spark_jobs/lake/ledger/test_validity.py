"""Which ledger rows describe what a table holds: random histories of a table beside what its snapshots really held."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from headrace.tables.window_facts import GENERATION_PROPERTY
from spark_jobs.exceptions import TableMismatchError
from spark_jobs.lake.declare.step import Scope
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.materialization import Materialization, forgotten, withdrawn
from spark_jobs.lake.ledger.validity import is_of_a_step, refuse_foreign, rolled_back, valid_rows
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY
from tests.tiers import tries

UUID = "the-table"


def row_of(place: str, snapshot: Snapshot, uuid: str = UUID) -> Materialization:
    """The row that the publish of a snapshot records."""
    number = snapshot.sequence_number or 0
    return Materialization(
        table="c.t", place=place, step="t", step_key=f"key-{number}", data_version=DataVersion(), code_version="1",
        config="{}", inputs={}, snapshot_id=snapshot.snapshot_id, sequence_number=number, table_uuid=uuid, row_count=1,
        byte_count=1, seconds=1.0, run_id="run", git_commit=None,
    )  # fmt: skip


class History:
    """A table and its ledger, with the places that each snapshot held and the step key of each.

    A writer settles before it publishes, as `Ledger.settle` does. A numbered table loses its later increments when an
    increment is written; any table does if all later ones are marked (`plan._Planner.increments`).
    """

    def __init__(self, numbered: bool = False) -> None:
        self.numbered = numbered
        self.snapshots: list[Snapshot] = []
        self.rows: list[Materialization] = []
        self.head: Snapshot | None = None
        self.held: dict[int | None, dict[str, str]] = {None: {}}

    def table(self) -> IcebergTable:
        """As PyIceberg has it."""
        properties = {SCOPE_PROPERTY: "history"} | ({GENERATION_PROPERTY: "some"} if self.numbered else {})
        found = SimpleNamespace(
            metadata=SimpleNamespace(snapshots=self.snapshots, table_uuid=UUID),
            current_snapshot=lambda: self.head,
            properties=properties,
        )
        return cast(IcebergTable, found)

    def add(self, operation: Operation, places: dict[str, str], parent: Snapshot | None) -> Snapshot:
        """A new head of main."""
        number = 1 + max((one.sequence_number or 0 for one in self.snapshots), default=0)
        number = max(number, 1 + max((row.sequence_number for row in self.rows), default=0))
        self.head = Snapshot(
            snapshot_id=1000 - number,  # ids are in no order
            parent_snapshot_id=parent.snapshot_id if parent is not None else None,
            sequence_number=number,
            timestamp_ms=number,
            manifest_list="",
            summary=Summary(operation, **{"total-records": str(len(places))}),
        )
        self.snapshots.append(self.head)
        self.held[self.head.snapshot_id] = places
        return self.head

    def now(self) -> dict[str, str]:
        """What main holds: the key of each place."""
        return self.held[self.head.snapshot_id if self.head is not None else None]

    def write(self, place: str) -> None:
        """Publish a place, or a marked one before it, since marked places are computed in order."""
        self.rows += [withdrawn(row) for row in rolled_back(self.table(), self.rows)]
        self.publish(min({place, *self.marked()}, key=int))

    def replace(self, place: str) -> None:
        """Publish other rows of a place, marked or not, as a deletion does (`replacement`)."""
        if place in self.now() and not self.numbered:
            self.rows += [withdrawn(row) for row in rolled_back(self.table(), self.rows)]
            self.publish(place)

    def marked(self) -> set[str]:
        """Places that are to be computed anew."""
        return {place for place, row in valid_rows(self.table(), self.rows).items() if row.is_forgotten}

    def publish(self, place: str) -> None:
        """Write a place, and remove the places after it if all of those are marked."""
        here, marked = self.now(), self.marked()
        later = {other for other in here if int(other) > int(place)}
        gone = later if self.numbered or later <= marked else set()
        number = 1 + max((row.sequence_number for row in self.rows), default=0)
        number = max(number, 1 + max((one.sequence_number or 0 for one in self.snapshots), default=0))
        places = {other: key for other, key in here.items() if other not in gone} | {place: f"key-{number}"}
        self.rows.append(row_of(place, self.add(Operation.OVERWRITE, places, self.head)))

    def forget(self, since: int) -> None:
        """Mark increments to be computed anew, those before them alone are not."""
        valid = valid_rows(self.table(), self.rows)
        self.rows += [forgotten(row) for place, row in valid.items() if int(place) >= since and not row.is_forgotten]

    def compact(self) -> None:
        """Rewrite files."""
        if self.head is not None:
            self.add(Operation.REPLACE, self.now(), self.head)

    def roll_back(self, steps: int) -> None:
        """Set main to a snapshot further down."""
        by_id = {one.snapshot_id: one for one in self.snapshots}
        for _ in range(steps):
            parent = by_id.get(self.head.parent_snapshot_id or 0) if self.head is not None else None
            if parent is not None:
                self.head = parent

    def expire(self) -> None:
        """Remove all snapshots but the head, once what was rolled back is recorded, as the next writer does."""
        self.rows += [withdrawn(row) for row in rolled_back(self.table(), self.rows)]
        self.snapshots = [self.head] if self.head is not None else []


PLACE = st.integers(0, 4).map(str)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["write", "write", "replace"]), PLACE),
    st.tuples(st.just("write"), PLACE),
    st.tuples(st.just("forget"), st.integers(0, 4)),
    st.tuples(st.just("roll_back"), st.integers(1, 3)),
    st.tuples(st.sampled_from(["compact", "expire"])),
)


@settings(max_examples=tries(2000, 200))
@given(st.booleans(), st.lists(STEPS, max_size=14))
def test_valid_rows_are_those_of_what_the_table_holds(numbered: bool, steps: list[tuple[object, ...]]) -> None:
    """After any writes, marks, compactions, rollbacks and expiries: each place that main holds, with its own key.

    A place that is marked has its mark in place of the key, as long as its rows are there.
    """
    history = History(numbered)
    for name, *values in steps:
        getattr(history, str(name))(*values)
        held = history.now()
        valid = valid_rows(history.table(), history.rows)
        assert set(valid) == set(held)
        for place, row in valid.items():
            assert row.is_forgotten or row.step_key == held[place]


def history_of(*places: str, numbered: bool = False) -> History:
    """A table of which these places were written."""
    history = History(numbered)
    for place in places:
        history.write(place)
    return history


def test_marked_increments_are_there_until_a_write_removes_them() -> None:
    """Marked increments are there; a write of the first of them takes away those after it, which come again later."""
    history = history_of("0", "1", "2")
    history.forget(1)
    marks = {place: row.is_forgotten for place, row in valid_rows(history.table(), history.rows).items()}
    assert marks == {"0": False, "1": True, "2": True}
    history.write("1")
    assert {place: row.is_forgotten for place, row in valid_rows(history.table(), history.rows).items()} == {
        "0": False,
        "1": False,
    }
    history.write("2")
    assert list(valid_rows(history.table(), history.rows)) == ["0", "1", "2"]


def test_what_a_write_removed_does_not_come_back_when_that_write_is_marked() -> None:
    """Increment 1 is gone; a mark on increment 0, whose write removed it, says nothing of it."""
    history = history_of("0", "1")
    history.forget(0)
    history.write("0")
    history.forget(0)
    assert list(valid_rows(history.table(), history.rows)) == ["0"]


def test_a_write_in_a_table_with_ordinals_says_nothing_of_increments_that_it_removed() -> None:
    """An increment that was removed and is not written again hides none that comes after it."""
    history = history_of("1", "0", "2", numbered=True)
    assert list(valid_rows(history.table(), history.rows)) == ["0", "2"]


def test_a_table_of_the_same_name_has_no_row_of_the_one_that_was_dropped() -> None:
    """Neither valid nor to be withdrawn: its UUID is another."""
    history = history_of("0", "1")
    before = [dataclasses.replace(row, table_uuid="before") for row in history.rows]
    assert valid_rows(history.table(), before) == {}
    history.snapshots, history.head = history.snapshots[:1], history.snapshots[0]
    assert rolled_back(history.table(), before) == []
    assert [row.place for row in rolled_back(history.table(), history.rows)] == ["1"]


def test_a_rolled_back_snapshot_is_withdrawn_once() -> None:
    """One row for a snapshot; after that there is nothing to record."""
    history = history_of("0", "1")
    history.roll_back(1)
    history.rows += history.rows[1:]
    found = rolled_back(history.table(), history.rows)
    assert [row.place for row in found] == ["1"]
    assert rolled_back(history.table(), [*history.rows, *map(withdrawn, found)]) == []


def refused(history: History) -> bool:
    """Whether the table is taken for somebody else's."""
    try:
        refuse_foreign("c.t", history.table(), history.rows, valid_rows(history.table(), history.rows))
    except TableMismatchError as error:
        assert "roll back to the one before" in str(error)
        return True
    return False


@pytest.mark.parametrize("numbered", [False, True])
def test_rows_that_nobody_published_are_refused(numbered: bool) -> None:
    """A snapshot on top that no row is of, also under a compaction; compactions and older heads are none."""
    assert not refused(History(numbered))
    history = history_of("0", "1", numbered=numbered)
    assert not refused(history)
    history.compact()
    assert not refused(history)
    history.add(Operation.APPEND, history.now() | {"9": "foreign"}, history.head)
    assert refused(history)
    history.compact()
    assert refused(history)
    history.roll_back(2)
    assert not refused(history)
    history = history_of("0", "1", numbered=numbered)
    history.rows = history.rows[1:]
    history.roll_back(1)
    assert not refused(history), "a head that is older than the newest row was there before it"


def test_the_rows_under_a_compaction_are_counted_where_nothing_else_is_left() -> None:
    """After expiry only the summary of the compaction tells whether all rows are recorded."""
    for foreign in (False, True):
        history = history_of("0", "1")
        if foreign:
            history.add(Operation.APPEND, history.now() | {"9": "foreign"}, history.head)
        history.compact()
        history.snapshots = history.snapshots[-1:]
        assert refused(history) == foreign


def test_tables_to_which_commands_append_are_nobodys() -> None:
    """Their scope is none of a step's; a table without one is a step's, as before scopes were noted."""
    history = history_of("0")
    history.add(Operation.APPEND, {}, history.head)
    table = history.table()
    for scope, of_a_step in (("audit", False), *((scope.value, True) for scope in Scope)):
        table.properties[SCOPE_PROPERTY] = scope
        assert is_of_a_step(table) == of_a_step
    del table.properties[SCOPE_PROPERTY]
    assert is_of_a_step(table)
    table.properties[SCOPE_PROPERTY] = "audit"
    refuse_foreign("c.t", table, history.rows, {})

"""The ledger of real tables, by several processes at once; no engine takes part."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from headrace.tables.settings import settings_at
from spark_jobs.exceptions import TableMismatchError
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.ledger import ledger as ledger_module
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.ledger import LAST_PROPERTY, Ledger
from spark_jobs.lake.ledger.ledger_table import LEDGER
from spark_jobs.lake.ledger.materialization import Materialization
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, ensure_table, open_catalogue

NUMBERS = Table("numbers", "numbers", (Column("n!", "long", "a number"),), partition=("increment",))
NAME = "d.numbers"


@pytest.fixture
def catalogue(tmp_path: Path) -> SqlCatalog:
    """A lake with an embedded catalogue."""
    opened = open_catalogue(settings_at(tmp_path))
    assert isinstance(opened, SqlCatalog)
    return opened


def publish(catalogue: SqlCatalog, place: int, name: str = NAME, run: str = "run") -> Materialization:
    """Write an increment as a step does: its rows, and its row of the ledger as a property of the table."""
    table = ensure_table(catalogue, name, NUMBERS, {SCOPE_PROPERTY: "history"})
    table.append(pa.Table.from_pylist([{"n": place, "increment": place}], table.schema().as_arrow()))
    snapshot = table.current_snapshot()
    assert snapshot is not None and snapshot.sequence_number is not None
    row = Materialization(
        table=name, place=str(place), step="numbers", step_key=f"key-{snapshot.sequence_number}",
        data_version=DataVersion(), code_version="1", config="{}", inputs={"a": {"versions": {"0": "x"}}},
        snapshot_id=snapshot.snapshot_id, sequence_number=snapshot.sequence_number,
        table_uuid=str(table.metadata.table_uuid), row_count=1, byte_count=1, seconds=1.0, run_id=run, git_commit=None,
    )  # fmt: skip
    with table.transaction() as change:
        change.set_properties({LAST_PROPERTY: row.to_json()})
    return row


def recorded(catalogue: SqlCatalog, **rows: int) -> tuple[Ledger, list[Materialization]]:
    """A ledger with increments 0, 1, .. of tables: d.numbers alone, or as many as said of each."""
    ledger, found = Ledger.fresh(catalogue), []
    for name, count in (rows or {"numbers": 3}).items():
        for place in range(count):
            found.append(publish(catalogue, place, f"d.{name}"))
            ledger.record(found[-1:])
    ledger.refresh()
    return ledger, found


def stored(catalogue: SqlCatalog) -> list[tuple[str, str, str]]:
    """(table, place, step key) of the rows of the ledger's table, in the order recorded."""
    rows = catalogue.load_table(LEDGER).scan().to_arrow().sort_by("recorded_at").to_pylist()
    return [(row["table"], row["place"], row["step_key"]) for row in rows]


def test_rows_come_back_from_the_table_as_they_were_recorded(catalogue: SqlCatalog) -> None:
    """All facts, by table and place; a table that was never computed has none."""
    assert Ledger.fresh(catalogue).recorded_tables() == []
    _, rows = recorded(catalogue, numbers=3, others=1)
    ledger = Ledger.fresh(catalogue)
    assert ledger.recorded_tables() == ["d.numbers", "d.others"]
    assert list(ledger.places(NAME).values()) == rows[:3]
    assert ledger.increments(NAME) == ledger.increments_there(NAME) == dict(enumerate(rows[:3]))
    assert ledger.places("d.missing") == ledger.increments("d.missing") == ledger.increments_there("d.missing") == {}
    assert ledger.table("d.missing") is None
    assert ledger.first_recorded("d.missing") == {}


def test_increments_ascend_as_numbers(catalogue: SqlCatalog) -> None:
    """10 comes after 9, whatever was computed first; the newest row of a place counts."""
    ledger = Ledger.fresh(catalogue)
    rows = {}
    for place in (10, 9, 2, 9):
        rows[place] = publish(catalogue, place)
        ledger.record([rows[place]])
    ledger.refresh()
    assert list(ledger.increments(NAME).items()) == [(place, rows[place]) for place in (2, 9, 10)]


def test_gathered_rows_are_known_at_once_and_written_together(catalogue: SqlCatalog) -> None:
    """In one commit: when another table's is to be published, when asked, or after half a minute."""
    ledger, _ = recorded(catalogue, numbers=1)
    before = len(catalogue.load_table(LEDGER).snapshots())
    rows = [publish(catalogue, 1), publish(catalogue, 0, "d.others")]
    ledger.gather(rows)
    assert ledger.increments(NAME)[1] == rows[0] and ledger.increments("d.others") == {0: rows[1]}
    ledger.make_room(["d.third"])
    assert len(stored(catalogue)) == 1
    ledger.make_room(["d.third", "d.others"])
    assert stored(catalogue)[1:] == [(row.table, row.place, row.step_key) for row in rows]
    assert len(catalogue.load_table(LEDGER).snapshots()) == before + 1
    ledger.write()
    assert len(catalogue.load_table(LEDGER).snapshots()) == before + 1


@pytest.mark.parametrize(("seconds", "written"), [(29.0, False), (31.0, True)])
def test_rows_that_were_gathered_for_half_a_minute_are_written(
    catalogue: SqlCatalog, seconds: float, written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted from the first of them, whatever table is published next."""
    ledger, _ = recorded(catalogue, numbers=1)
    now = [1000.0]
    monkeypatch.setattr(ledger_module.time, "monotonic", lambda: now[0])
    ledger.gather([publish(catalogue, 1)])
    now[0] += seconds
    ledger.gather([publish(catalogue, 0, "d.others")])
    ledger.make_room(["d.third"])
    assert (len(stored(catalogue)) == 3) == written


def test_a_row_that_a_crash_lost_is_recovered_from_its_table(catalogue: SqlCatalog) -> None:
    """It is valid at once, and recorded by the next writer, once."""
    recorded(catalogue, numbers=1)
    lost = publish(catalogue, 1)
    ledger = Ledger.fresh(catalogue)
    assert ledger.increments(NAME)[1] == lost
    assert (ledger.lost(NAME), ledger.lost("d.missing")) == (1, 0)
    assert len(stored(catalogue)) == 1
    ledger.settle([NAME, "d.missing"])
    assert stored(catalogue)[1:] == [(NAME, "1", lost.step_key)]
    assert ledger.lost(NAME) == 0
    ledger.settle([NAME])
    assert len(stored(catalogue)) == 2


def test_a_row_of_another_process_is_read_before_it_counts_as_lost(catalogue: SqlCatalog) -> None:
    """The table was read after the ledger: the row in its property may be recorded since."""
    ledger, rows = recorded(catalogue, numbers=1)
    new = publish(catalogue, 1)
    Ledger.fresh(catalogue).record([new])
    ledger._tables.clear()
    assert ledger.lost(NAME) == 0
    assert ledger.increments(NAME) == {0: rows[0], 1: new}


def test_a_rolled_back_snapshot_is_withdrawn_by_the_next_writer(catalogue: SqlCatalog) -> None:
    """Its increment is not valid; the row that says so is recorded once."""
    ledger, rows = recorded(catalogue, numbers=3)
    table = catalogue.load_table(NAME)
    table.manage_snapshots().set_current_snapshot(snapshot_id=rows[1].snapshot_id).commit()
    ledger.refresh()
    assert list(ledger.increments(NAME)) == [0, 1]
    assert ledger.lost(NAME) == 1
    ledger.settle([NAME])
    assert stored(catalogue)[3:] == [(NAME, "2", "")]
    assert ledger.lost(NAME) == 0


def test_forgotten_increments_are_there_and_not_computed(catalogue: SqlCatalog) -> None:
    """From an increment on, in some tables, in one commit; nothing to forget is no commit."""
    ledger, rows = recorded(catalogue, numbers=3, others=1, third=1)
    before = len(catalogue.load_table(LEDGER).snapshots())
    ledger.forget(["d.third"], 1)
    assert len(catalogue.load_table(LEDGER).snapshots()) == before
    ledger.forget([NAME, "d.others"], 1)
    assert len(catalogue.load_table(LEDGER).snapshots()) == before + 1
    for known in (ledger, Ledger.fresh(catalogue)):
        assert known.increments(NAME) == {0: rows[0]} and known.places(NAME) == {"0": rows[0]}
        assert list(known.increments_there(NAME)) == [0, 1, 2]
        assert list(known.increments("d.others")) == list(known.increments("d.third")) == [0]
    ledger.forget(["d.third"])
    assert ledger.increments("d.third") == {} and list(ledger.increments_there("d.third")) == [0]


def test_what_another_process_recorded_is_not_recorded_again(catalogue: SqlCatalog) -> None:
    """Nor what it has marked since to be computed anew: the mark would be lost under a newer row."""
    ledger, rows = recorded(catalogue, numbers=1)
    mine = [publish(catalogue, 1), publish(catalogue, 0, "d.others")]
    ledger.gather(mine)
    other = Ledger.fresh(catalogue)
    other.settle([NAME])
    other.forget([NAME], 1)
    ledger.write()
    assert [row[:2] for row in stored(catalogue)] == [(NAME, "0"), (NAME, "1"), (NAME, "1"), ("d.others", "0")]
    assert ledger.increments(NAME) == Ledger.fresh(catalogue).increments(NAME) == {0: rows[0]}


def test_the_same_place_of_another_run_is_recorded_beside(catalogue: SqlCatalog) -> None:
    """Rows are told apart by snapshot, place, step key and run."""
    ledger, _ = recorded(catalogue, numbers=1)
    ledger.gather([publish(catalogue, 1, run="mine")])
    Ledger.fresh(catalogue).record([publish(catalogue, 2, run="other")])
    ledger.write()
    assert [row[1] for row in stored(catalogue)] == ["0", "2", "1"]


def test_a_row_is_newer_than_all_before_whatever_the_clock_says(catalogue: SqlCatalog) -> None:
    """A machine whose clock is behind writes after the rows that are there; a moment that is given is taken."""
    ledger, _ = recorded(catalogue, numbers=1)
    late = datetime.now(UTC) + timedelta(days=2)
    ledger.record([publish(catalogue, 1)], late)
    ledger.record([publish(catalogue, 2)])
    Ledger.fresh(catalogue).record([publish(catalogue, 3)])
    times = Ledger.fresh(catalogue).first_recorded(NAME)
    assert [times[str(place)] - late for place in (1, 2, 3)] == [timedelta(microseconds=step) for step in range(3)]
    assert times["0"] < datetime.now(UTC)


def test_a_place_was_first_recorded_when_it_was_first_computed(catalogue: SqlCatalog) -> None:
    """A later row of it changes nothing; a table of the same name that was dropped has another UUID."""
    first, later = datetime(2024, 1, 1, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC)
    ledger = Ledger.fresh(catalogue)
    ledger.record([publish(catalogue, 0)], first)
    ledger.record([publish(catalogue, 0)], later)
    assert Ledger.fresh(catalogue).first_recorded(NAME) == {"0": first}
    catalogue.drop_table(NAME)
    ledger.record([publish(catalogue, 0)], later)
    assert Ledger.fresh(catalogue).first_recorded(NAME) == {"0": later}
    assert ledger.first_recorded("d.missing") == {}


def test_rows_that_somebody_else_wrote_are_refused(catalogue: SqlCatalog) -> None:
    """They belong to no step key; the table is named."""
    ledger, _ = recorded(catalogue, numbers=1)
    table = catalogue.load_table(NAME)
    table.append(pa.Table.from_pylist([{"n": 9, "increment": 9}], table.schema().as_arrow()))
    ledger.refresh()
    with pytest.raises(TableMismatchError, match=rf"{NAME}: snapshot \d+ on main was not written by headrace"):
        ledger.places(NAME)


def test_a_row_in_the_property_of_a_copied_table_does_not_count(catalogue: SqlCatalog) -> None:
    """It names another UUID, as where properties were copied; no property is no row."""
    ledger, rows = recorded(catalogue, numbers=1)
    with catalogue.load_table(NAME).transaction() as change:
        change.set_properties({LAST_PROPERTY: dataclasses.replace(rows[0], table_uuid="other", place="5").to_json()})
    ledger.refresh()
    assert (ledger.lost(NAME), list(ledger.places(NAME))) == (0, ["0"])
    with catalogue.load_table(NAME).transaction() as change:
        change.remove_properties(LAST_PROPERTY)
    ledger.refresh()
    assert (ledger.lost(NAME), list(ledger.places(NAME))) == (0, ["0"])


def test_partitions_are_places_and_no_increments(catalogue: SqlCatalog) -> None:
    """Their names are no numbers."""
    ledger, rows = recorded(catalogue, numbers=1)
    part = dataclasses.replace(rows[0], place="2024-01", step_key="of a partition")
    ledger.record([part])
    assert ledger.places(NAME) == {"0": rows[0], "2024-01": part}
    assert ledger.increments(NAME) == {0: rows[0]}


def test_derived_values_last_as_long_as_table_and_ledger(catalogue: SqlCatalog) -> None:
    """One value for a key until a row comes or the table changes; of a table that is not there none is held."""
    ledger, _ = recorded(catalogue, numbers=1)
    made: list[str] = []

    def make(key: str) -> int:
        return ledger.derived(NAME, key, lambda: made.append(key) or len(made))

    assert [make("a"), make("b"), make("a")] == [1, 2, 1]
    ledger.record([publish(catalogue, 1)])
    assert make("a") == 3
    publish(catalogue, 2)
    ledger.refresh()
    assert [make("a"), make("a")] == [4, 4]
    assert [ledger.derived("d.missing", "a", lambda: made.append("c") or len(made)) for _ in range(2)] == [5, 6]


def test_a_table_is_loaded_again_after_it_changed(catalogue: SqlCatalog) -> None:
    """Until a refresh it is as this process last saw it; one that did not change is the same object."""
    ledger, _ = recorded(catalogue, numbers=1, others=1)
    seen, still = ledger.table(NAME), ledger.table("d.others")
    publish(catalogue, 1)
    assert ledger.table(NAME) is seen
    assert list(ledger.increments(NAME)) == [0]
    ledger.refresh()
    assert ledger.table(NAME) is not seen and ledger.table("d.others") is still
    assert list(ledger.increments(NAME)) == [0, 1]
    assert ledger.warehouse == catalogue.properties["warehouse"]

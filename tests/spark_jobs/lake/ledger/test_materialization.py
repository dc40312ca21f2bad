"""A place is a part of a table, and a row of the ledger is what was computed there."""

from __future__ import annotations

import dataclasses

import pytest
from pyiceberg.expressions import AlwaysTrue, EqualTo, GreaterThanOrEqual

from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.materialization import FORGOTTEN, Materialization, TableSlice, forgotten, withdrawn

ROW = Materialization(
    table="d.numbers", place="12", step="numbers", step_key="key", data_version=DataVersion(3, 5), code_version="1",
    config="{}", inputs={"a": {"versions": {"0": "x"}}}, snapshot_id=4, sequence_number=5, table_uuid="u", row_count=6,
    byte_count=7, seconds=1.5, run_id="run", git_commit=None, core_seconds=2.5, engine="sail",
)  # fmt: skip


def test_a_place_is_the_whole_table_or_an_increment_and_later_ones() -> None:
    """What is written there, and what goes for it."""
    assert TableSlice.whole() == TableSlice("", "true", AlwaysTrue())
    one = TableSlice.increment(3)
    assert one == TableSlice("3", "increment = 3", EqualTo("increment", 3))
    assert TableSlice.increment(3, and_later=True) == TableSlice(
        "3", "increment = 3", GreaterThanOrEqual("increment", 3)
    )


def test_a_row_comes_back_from_its_text() -> None:
    """All facts, its data version as well."""
    assert Materialization.from_json(ROW.to_json()) == ROW
    assert ROW.increment == 12
    with pytest.raises(dataclasses.FrozenInstanceError):
        ROW.place = "13"  # type: ignore[misc]
    old = dataclasses.replace(ROW, core_seconds=None, engine=None)
    assert Materialization.from_json(old.to_json()) == old


def test_marks_and_withdrawals_are_of_the_same_snapshot() -> None:
    """A mark keeps all but the key; a withdrawal has no rows, no inputs and no key."""
    assert (ROW.is_forgotten, ROW.is_withdrawal) == (False, False)
    mark, gone = forgotten(ROW), withdrawn(ROW)
    assert (mark.is_forgotten, mark.is_withdrawal) == (True, False)
    assert (gone.is_forgotten, gone.is_withdrawal) == (False, True)
    assert mark == dataclasses.replace(ROW, step_key=FORGOTTEN)
    assert gone == dataclasses.replace(
        ROW, step_key="", data_version=DataVersion(), inputs={}, row_count=0, byte_count=0
    )

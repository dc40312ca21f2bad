"""The register is checked against its roots: what was changed, removed or inserted late is named."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog

from headrace.tables.rights_root import ROOT_PROPERTY, current_root
from headrace_features.rights.proof.verify import Log
from headrace_features.rights.register import register
from headrace_features.rights.register.merkle import audit_path, leaf_hash, prefix_roots, root_of
from headrace_features.rights.register.register import OptOut
from tests.blender_service.packed_tables import create_packed, open_lake

Tamper = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
DAY = datetime(2026, 7, 1, 12, tzinfo=UTC)


@given(st.integers(1, 70), st.data())
def test_paths_and_roots_of_prefixes_are_those_of_rfc_9162(count: int, data: st.DataObject) -> None:
    """A leaf and its path give the root by the steps of 2.1.3.2; another leaf does not."""
    leaves = [leaf_hash(bytes([number])) for number in range(count)]
    assert list(prefix_roots(leaves)) == [root_of(leaves[:size]) for size in range(count + 1)]
    index = data.draw(st.integers(0, count - 1))
    path = audit_path(leaves, index)
    assert followed(leaves[index], path, index, count) == root_of(leaves)
    assert followed(leaf_hash(b"another"), path, index, count) != root_of(leaves)


def followed(leaf: bytes, path: list[bytes], index: int, count: int) -> bytes:
    """The root that a path gives, by RFC 9162, 2.1.3.2."""
    last = count - 1
    for beside in path:
        assert last
        if index & 1 or index == last:
            leaf = root_of_two(beside, leaf)
            while not index & 1 and index:
                index, last = index >> 1, last >> 1
        else:
            leaf = root_of_two(leaf, beside)
        index, last = index >> 1, last >> 1
    assert not last
    return leaf


def root_of_two(left: bytes, right: bytes) -> bytes:
    """A node above two."""
    return root_of([left, right])


def lake_with_register(folder: Path) -> Catalog:
    """A lake whose register grew on five days; between them windows were written, whose snapshots say its root."""
    catalogue = open_lake(folder)
    catalogue.is_guarded = True  # type: ignore[attr-defined]
    packed = create_packed(catalogue, "main.packed_notes_16")
    packed.append(3, 1)
    for day in range(5):
        rows = [row_of(day, part) for part in range(2)]
        register.append(catalogue, functools.partial(list, rows), DAY + timedelta(days=day))
        packed.append(2, 2 + day)
    return catalogue


def row_of(day: int, part: int) -> dict[str, Any]:
    """A row of the register."""
    empty = dict.fromkeys(column.name for column in register.DECLARED.columns)
    opt_out = OptOut(f"asker {day}", "domain", (f"site{part}.example",))
    return {**empty, "act": "entry", "entry": opt_out.entry, **vars(opt_out), "values": list(opt_out.values)}


def test_snapshots_say_the_root_and_all_is_as_it_was_written(tmp_path: Path) -> None:
    """Of a lake without a register they say nothing; roots of later snapshots are over more rows."""
    catalogue = lake_with_register(tmp_path)
    log = Log.read(catalogue)
    assert list(log.faults()) == [] and (len(log.rows), len(log.days)) == (10, 5)
    assert f"10:{log.prefixes[-1]}" == current_root(catalogue)
    stated = [
        snapshot.summary.additional_properties.get(ROOT_PROPERTY)
        for snapshot in catalogue.load_table("main.packed_notes_16").snapshots()
        if snapshot.summary is not None
    ]
    assert [None if root is None else int(root.split(":")[0]) for root in stated] == [None, 2, 4, 6, 8, 10]
    assert len(log.snapshots) >= 5


def test_leaves_are_in_order_of_time_whatever_clocks_say(tmp_path: Path) -> None:
    """A machine whose clock is late writes the time of the newest leaf."""
    catalogue = lake_with_register(tmp_path)
    register.add_entries(catalogue, [OptOut("late", "path", ("a",))], DAY)
    log = Log.read(catalogue)
    assert all(before["at"] <= after["at"] for before, after in pairwise(log.rows)) and not [*log.faults()]


def test_a_root_that_a_kill_lost_is_written_by_the_next_append_and_a_removed_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The register's own root is of the commit with its rows, that of the day is of a second one."""
    catalogue = lake_with_register(tmp_path)

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(register, "_note_root", killed)
        register.add_entries(catalogue, [OptOut("a", "path", ("a",))], DAY + timedelta(days=6))
    assert [row["leaves"] for row in register.roots(catalogue)] == [2, 4, 6, 8, 10]
    assert not [*Log.read(catalogue).faults()]
    register.add_entries(catalogue, [OptOut("b", "path", ("b",))], DAY + timedelta(days=7))
    log = Log.read(catalogue)
    assert [row["leaves"] for row in log.days] == [2, 4, 6, 8, 10, 11, 12] and not [*log.faults()]
    assert ["over 6 leaves" in fault for fault in replace(log, days=log.days[:2] + log.days[3:]).faults()] == [True]


def changed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Row 4 says another asker."""
    rows[4]["asker"] = "nobody"
    return rows


def changed_with_hash(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """And its hash is of that."""
    rows = changed(rows)
    rows[4]["leaf_hash"] = leaf_hash(register.leaf_bytes(rows[4])).hex()
    return rows


def removed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Row 4 is not there."""
    return rows[:4] + rows[5:]


def removed_and_numbered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """And the others are numbered anew, with their hashes."""
    return numbered(removed(rows))


def inserted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row of the third day is written today behind it, and all is numbered and hashed anew."""
    return numbered([*rows[:6], {**rows[5], "asker": "late"}, *rows[6:]])


def appended(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row of the third day is written today at the end."""
    return numbered([*rows, {**rows[5], "asker": "late"}])


def numbered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with numbers and hashes as they would have had."""
    for number, row in enumerate(rows):
        row["leaf"] = number
        row["leaf_hash"] = leaf_hash(register.leaf_bytes(row)).hex()
    return rows


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """The register as it was written."""
    return Log.read(lake_with_register(tmp_path_factory.mktemp("lake")))


@pytest.mark.parametrize(
    ("tamper", "named", "of_snapshot"),
    [
        (changed, "leaf 4 ", False),
        (changed_with_hash, "root of 2026-07-03 over 6", True),
        (removed, "leaf 4: its row was removed", False),
        (removed_and_numbered, "root of 2026-07-03 over 6", True),
        (inserted, "root of 2026-07-04 over 8", True),
        (appended, "leaf 10 ", False),
    ],
)
@pytest.mark.parametrize("hidden", [0, 1, 2])
def test_whatever_is_tampered_with_is_named(
    log: Log, tamper: Tamper, named: str, of_snapshot: bool, hidden: int
) -> None:
    """Rows alone; the property too; the roots of days too: snapshots of other tables have the roots of before."""
    now = replace(log, rows=tamper([{**row} for row in log.rows]))
    if hidden >= 1:
        now = replace(now, stated=f"{len(now.rows)}:{now.prefixes[-1]}")
    if hidden >= 2:
        ends = [at for at, (row, after) in enumerate(pairwise(now.rows), 1) if row["at"] != after["at"]]
        days = [
            {"day": now.rows[n - 1]["at"].date(), "leaves": n, "root": now.prefixes[n], "at": now.rows[n - 1]["at"]}
            for n in [*ends, len(now.rows)]
        ]
        now = replace(now, days=days)
    named = "root of snapshot" if hidden == 2 and of_snapshot else named
    faults = list(now.faults())
    assert any(named in fault for fault in faults), faults


@pytest.mark.parametrize("text", ["garbage", "", ":", "-1:00", "x:00", "10"])
def test_a_root_that_is_none_is_named_and_stops_no_other_check(log: Log, text: str) -> None:
    """The property is anybody's to write."""
    faults = list(replace(log, stated=text).faults())
    assert faults and ROOT_PROPERTY in faults[0]


def test_a_table_of_roots_that_is_gone_is_named(log: Log) -> None:
    """Dropped, or emptied."""
    assert not list(log.faults())
    assert any(register.ROOTS in fault for fault in replace(log, days=[]).faults())

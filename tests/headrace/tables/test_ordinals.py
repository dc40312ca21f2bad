"""Ordinals, successors and facts of packed tables, against plain rules on made-up metadata."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import LongType, NestedField

from headrace.tables.exceptions import PackedTableError, WrongLakeError
from headrace.tables.generations import rows_noted, successor_of, successors
from headrace.tables.identity import LakeIdentity
from headrace.tables.ordinals import file_runs, index_snapshot, require_dense
from headrace.tables.window_facts import PROPERTY_OF_FACT, properties_at, read_window_facts, stamp

SCHEMA = Schema(NestedField(3, "ordinal", LongType(), required=True))
FACTS = dict.fromkeys(PROPERTY_OF_FACT.values(), "1") | {"headrace.tokenizer-sha256": "7" * 64}


def data_file(start: int, count: int, **changed: Any) -> Any:
    """A data file of `count` rows from an ordinal on, as a manifest tells of it."""
    bounds = {} if not count else {3: to_bytes(LongType(), start)}
    last = {} if not count else {3: to_bytes(LongType(), start + count - 1)}
    facts = {"content": DataFileContent.DATA, "file_format": FileFormat.PARQUET, "record_count": count}
    return SimpleNamespace(
        **{"file_path": f"{start}+{count}", "lower_bounds": bounds, "upper_bounds": last, **facts, **changed}
    )


class Made:
    """A table of made-up snapshots."""

    io = None

    def __init__(self, snapshots: dict[int, Any], properties: dict[str, str]) -> None:
        """Have some."""
        self.snapshots, self.properties = snapshots, properties

    def schema(self) -> Schema:
        """One column."""
        return SCHEMA

    def name(self) -> tuple[str, ...]:
        """Any."""
        return "a", "packed_b_16"

    def snapshot_by_id(self, snapshot_id: int) -> Any:
        """A snapshot, None if it has expired."""
        return self.snapshots.get(snapshot_id)


def snapshot(number: int, parent: int | None, summary: dict[str, str], operation: Operation = Operation.APPEND) -> Any:
    """A snapshot with a summary."""
    stated = SimpleNamespace(operation=operation, additional_properties=summary)
    return SimpleNamespace(snapshot_id=number, parent_snapshot_id=parent, summary=stated)


@given(st.lists(st.integers(0, 4), max_size=8), st.data())
def test_an_index_is_refused_where_an_ordinal_is_missing_or_twice(counts: list[int], data: st.DataObject) -> None:
    """Files in any order over any manifests, empty ones among them; one may be gone or moved."""
    starts = [sum(counts[:number]) for number in range(len(counts))]
    files = [data_file(*one) for one in zip(starts, counts, strict=True)]
    if files and data.draw(st.booleans()):
        files[data.draw(st.integers(0, len(files) - 1))] = data_file(data.draw(st.integers(0, 9)), 2)
    files = data.draw(st.permutations(files))
    cut = data.draw(st.integers(0, len(files)))
    manifests = [
        SimpleNamespace(
            manifest_path=str(number),
            fetch_manifest_entry=lambda io, part=part: [SimpleNamespace(data_file=file) for file in part],
        )
        for number, part in enumerate((files[:cut], files[cut:]))
    ]
    held: dict[int, list[str]] = {}
    for file in files:
        start, count = map(int, file.file_path.split("+"))
        for ordinal in range(start, start + count):
            held.setdefault(ordinal, []).append(file.file_path)
    is_dense = sorted(held) == list(range(len(held))) and all(len(paths) == 1 for paths in held.values())
    made: Any = Made({}, {})
    stated: Any = SimpleNamespace(manifests=lambda io: manifests)
    if not is_dense:
        with pytest.raises(PackedTableError, match="should come next"):
            index_snapshot(made, "a.b", stated)
        return
    runs = index_snapshot(made, "a.b", stated)
    assert {ordinal: [run.path] for run in runs for ordinal in range(run.start, run.end)} == held
    chosen = file_runs(made, "a.b", files)  # of a scan, in one piece
    require_dense("a.b", chosen)
    assert [run for run in runs if run.end > run.start] == chosen


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"content": DataFileContent.POSITION_DELETES}, "deletes rows"),
        ({"file_format": FileFormat.ORC}, "not Parquet"),
        ({"lower_bounds": None}, "bounds for ordinal"),
        ({"record_count": 3}, "3 rows for ordinals 0..1"),
    ],
)
def test_a_file_that_cannot_say_its_ordinals_is_refused(changed: dict[str, Any], message: str) -> None:
    """Spark's side took a file without bounds for one of ordinals 0 to -1."""
    made: Any = Made({}, {})
    with pytest.raises(PackedTableError, match=message):
        file_runs(made, "a.b", [data_file(0, 2, **changed)])


GENERATIONS = st.lists(st.sampled_from(["a", "b", None]), min_size=2, max_size=6)


@given(GENERATIONS, st.dictionaries(st.integers(0, 5), st.integers(0, 5), max_size=4), st.sets(st.integers(0, 5)))
def test_a_successor_has_the_rows_of_its_snapshot(
    generations: list[str | None], noted: dict[int, int], expired: set[int]
) -> None:
    """Of one generation; what has expired tells nothing. The writer leaves others out, a reader refuses them."""
    there = {
        number: snapshot(number, None, {"headrace.generation": one} if one else {"headrace.excises": "9"})
        for number, one in enumerate(generations)
        if number not in expired
    }
    text = json.dumps({str(old): str(new) for old, new in noted.items()})
    made: Any = Made(there, {"headrace.successors": text, "headrace.generation": "b"})

    def generation(number: int) -> str | None:
        return generations[number] if number in there else None

    right = {
        old: new
        for old, new in noted.items()
        if None in (generation(old), generation(new)) or generation(old) == generation(new)
    }
    assert successors(made) == right
    for old, new in noted.items():
        if old in right:
            assert successor_of(made, old) == new
        else:
            with pytest.raises(PackedTableError, match="of another generation"):
                successor_of(made, old)
    assert successor_of(made, 77) == 77


def test_rows_are_noted_for_what_is_served() -> None:
    """A tag that somebody moved since is another one; an id stays."""
    made: Any = Made({}, {"headrace.named-rows": json.dumps({"7": ["8", 30], "first": ["8", 20]})})
    assert [rows_noted(made, name, 8) for name in ("7", "first", "9")] == [30, 20, None]
    assert [rows_noted(made, name, 10) for name in ("7", "first")] == [30, None]


def test_facts_are_those_of_the_snapshot() -> None:
    """Upkeep says nothing of its own; a later packing changes nothing; what expired is lost."""
    earlier = {**FACTS, "headrace.window-tokens": "16", "headrace.generation": "a"}
    there = {
        1: snapshot(1, None, earlier),
        2: snapshot(2, 1, {}, Operation.REPLACE),
        3: snapshot(3, 2, {"headrace.excises": "2"}, Operation.OVERWRITE),
        4: snapshot(4, 9, {}, Operation.REPLACE),
    }
    made: Any = Made(there, {**FACTS, "headrace.window-tokens": "32", "headrace.generation": "b", "comment": "x"})
    for number in (1, 2, 3):
        assert read_window_facts(made, "a.b", there[number]).window_tokens == 16
        assert (
            properties_at(made, there[number])["headrace.generation"]
            == stamp(made, there[number])["headrace.generation"]
            == "a"
        )
    assert (
        read_window_facts(made, "a.b").window_tokens
        == 32
        == int(properties_at(made, there[4])["headrace.window-tokens"])
    )
    assert stamp(made, there[4]) == {}
    facts = read_window_facts(made, "a.b")
    assert facts.properties == {name: made.properties[name] for name in PROPERTY_OF_FACT.values()}


@pytest.mark.parametrize(
    "note", ["[]", "null", '"x"', "{", '{"lake": "a"}', '{"lake": "a", "warehouse": null, "catalogue": "c"}', b"\xff"]
)
def test_what_is_no_note_is_damaged(note: str | bytes) -> None:
    """One whose warehouse is null crashed Spark's side later, and was the place `None` to Blender."""
    with pytest.raises(WrongLakeError, match="its identity is damaged"):
        LakeIdentity.of_json(note)


def test_a_note_of_a_later_version_is_read() -> None:
    """What it says beside is left alone: Spark's side called such a lake damaged, Blender opened it."""
    note = '{"lake": "a", "warehouse": "/w", "catalogue": "c", "region": "x"}'
    assert (
        LakeIdentity.of_json(note)
        == LakeIdentity("a", "/w", "c")
        == LakeIdentity.of_json(LakeIdentity("a", "/w", "c").to_json())
    )

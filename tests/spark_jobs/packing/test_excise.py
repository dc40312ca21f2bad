"""Excision: documents go, every other row stays where it is, and whatever happens in between the table is whole."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.server.blender import Blender
from headrace.tables.generations import EXCISED_PROPERTY, rows_noted, successor_of, successors
from spark_jobs.code.ordered import ORDERED
from spark_jobs.exceptions import ConfigError, InputError
from spark_jobs.lake.declare.step import NoConfig, Scope, step
from spark_jobs.lake.declare.tables import Table
from spark_jobs.lake.files.maintenance import expire
from spark_jobs.lake.ledger.data_version import FORMER
from spark_jobs.lake.ledger.digests import digest
from spark_jobs.lake.ledger.former_version import former_digests
from spark_jobs.lake.ledger.lease import is_of_a_writer
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.plan.excisions import EXCISIONS, excised_documents, record_excisions
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.packing.excise import excise, excised_table
from spark_jobs.packing.ordinals import find_windows, ordinal_runs
from spark_jobs.packing.packed import packed_step
from spark_jobs.packing.packed_table import PackedConfig
from spark_jobs.packing.windows.assemble import WINDOWS_SCHEMA
from spark_jobs.packing.windows.close_up import excise_windows
from spark_jobs.tokens.tokenizer import TOKENIZER
from spark_jobs.tokens.tokens import TOKENS
from tests.conftest import LakeAt
from tests.spark_jobs.lake.ledger.former_lake import age
from tests.spark_jobs.packing.test_packed import (
    END,
    ORDERED_SCHEMA,
    TOKENS_SCHEMA,
    Corpus,
    L,
    arrow,
    corpus,
    line_tokenizer,
)
from tests.tiers import tries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TABLE = f"main.packed_code_{L}"
PADDING = 1
TOKENIZER_SCHEMA = pa.schema(
    {
        "sha256": pa.string(),
        "vocabulary_size": pa.int32(),
        "end_of_document_id": pa.int32(),
        "padding_id": pa.int32(),
        "special_tokens": pa.map_(pa.string(), pa.int32()),
        "file": pa.string(),
    }
)
Rows = dict[int, dict[str, Any]]


@st.composite
def windows(draw: st.DrawFn) -> list[list[tuple[str, int]]]:
    """Windows as lists of (document, tokens) that fit 16."""
    found = []
    for _ in range(draw(st.integers(1, 6))):
        parts: list[tuple[str, int]] = []
        for part in draw(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 16)), min_size=1, max_size=5)):
            if sum(count for _, count in parts) + part[1] <= 16:
                parts.append(part)
        found.append(parts)
    return found


@settings(max_examples=tries(300))
@given(windows(), st.sets(st.sampled_from("abcd")), st.integers(0, 3))
def test_segments_are_closed_up_to_the_left(made: list[list[tuple[str, int]]], gone: set[str], skip: int) -> None:
    """What stays keeps its tokens and order, abuts from place 0, and the rest of the window is padding."""
    rows, expected = [], []
    for ordinal, parts in enumerate(made):
        ids: list[int] = []
        segments, kept_ids, kept = [], [], []
        for document, count in parts:
            own = [100 * ordinal + len(ids) + n for n in range(count)]
            segment = {"doc_id": document, "document_start": len(ids), "token_count": count}
            segments.append({**segment, "window_start": len(ids)})
            if document not in gone:
                kept.append({**segment, "window_start": len(kept_ids)})
                kept_ids += own
            ids += own
        rows.append({"ordinal": ordinal, "token_count": len(ids), "input_ids": _padded(ids), "segments": segments})
        expected.append(
            {"ordinal": ordinal, "token_count": len(kept_ids), "input_ids": _padded(kept_ids), "segments": kept}
        )
    batch = pa.RecordBatch.from_pylist(rows, schema=WINDOWS_SCHEMA).slice(skip)
    found = [row for part in excise_windows([batch], gone, 16, PADDING) for row in part.to_pylist()]
    assert found == expected[skip:]


def _padded(ids: list[int]) -> list[int]:
    return ids + [PADDING] * (16 - len(ids))


def written(folder: Path, made: Corpus, increment: int) -> dict[str, str]:
    """Inputs of the packed table as Parquet files, by name."""
    tokenizer = ("ab" * 32, 100_000, END, PADDING, [], line_tokenizer())
    tables = {
        "tokens": arrow(made.tokens, TOKENS_SCHEMA),
        "ordered": arrow(made.ordered, ORDERED_SCHEMA),
        "tokenizer": arrow([tokenizer], TOKENIZER_SCHEMA),
    }
    inputs = {}
    for name, table in tables.items():
        path = folder / f"{name}-{increment}.parquet"
        if not path.exists():  # its time is part of the step key
            pq.write_table(table, path)
        inputs[name] = str(path)
    return inputs


def pack(lake: Lake, folder: Path, seed: int, increment: int, version: int = 0) -> None:
    """Materialize one increment of the packed table from Parquet files."""
    inputs = written(folder, corpus(seed), increment)
    config = PackedConfig(dataset="code", window_tokens=L, rows_per_file=5, seed=version)
    materialize(lake, Binding(packed_step("code", L), "main", inputs, config, only=increment))


def land(lake: Lake, declared: Table, path: str, increment: int) -> None:
    """Make an increment of a lake table of the rows of a file."""
    scope = Scope.FROZEN if declared is TOKENIZER else Scope.INCREMENT

    @step(version="1", scope=scope, tables=(replace(declared, checks=(), proofs=()),), name=declared.name)
    def landed(rows: DataFrame) -> DataFrame:
        return rows

    materialize(lake, Binding(landed, "main", {"rows": path}, NoConfig(), only=increment))


def pack_in_lake(lake: Lake, window_tokens: int, seed: int = 0) -> dict[str, list[int]]:
    """Bring a packed table up to date with tables of the lake; gives the ids of every document in it."""
    inputs = {name: f"main.{name}" for name in ("tokens", "ordered", "tokenizer")}
    config = PackedConfig(dataset="code", window_tokens=window_tokens, seed=seed)
    materialize(lake, Binding(packed_step("code", window_tokens), "main", inputs, config, driving_table="main.tokens"))
    windows = lake.catalogue.load_table(f"main.packed_code_{window_tokens}").scan().to_arrow().to_pylist()
    pieces: dict[str, dict[int, list[int]]] = {}
    for row in windows:
        for part in row["segments"]:
            ids = row["input_ids"][part["window_start"] :][: part["token_count"]]
            pieces.setdefault(part["doc_id"], {})[part["document_start"]] = ids
    return {doc_id: [id_ for start in sorted(own) for id_ in own[start]] for doc_id, own in pieces.items()}


def rows(catalogue: Catalog) -> Rows:
    """What readers see, by ordinal."""
    found = catalogue.load_table(TABLE).scan().to_arrow().to_pylist()
    return {row["ordinal"]: row for row in found}


@pytest.mark.parametrize("more", [(), (True,), (False, True), (True, True, True)])
def test_workers_check_what_is_rewritten(more: tuple[bool, ...]) -> None:
    """Else Sail deals the rows of a file of several row groups to several files, and the excision is refused."""
    checks = {check.name: check for check in excised_table("code", 16, *more).checks}
    assert all(check.holds is not None for check in checks.values())
    segment = {"doc_id": "a", "document_start": 0, "token_count": 1, "window_start": 0}
    cases = [(0, 0), (0, 1), (1, 0), (1, 1), (16, 2), (17, 2), (-1, 0)]
    rows = pa.RecordBatch.from_pydict(
        {"token_count": [count for count, _ in cases], "segments": [[segment] * parts for _, parts in cases]}
    )
    holds = checks["filled_window"].holds
    assert holds is not None
    assert holds(rows).tolist() == [0 <= count <= 16 and (parts == 0) == (count == 0) for count, parts in cases]


def files(catalogue: Catalog) -> set[str]:
    """Data files of the head."""
    return {run.path for run in ordinal_runs(TABLE, catalogue.load_table(TABLE))}


@pytest.mark.nightly
@pytest.mark.parametrize("is_former", [False, True])
def test_excised_documents_are_gone_and_all_else_is_as_it_was(lake_at: LakeAt, tmp_path: Path, is_former: bool) -> None:
    """Only files that hold their windows are rewritten; ordinals, other segments, ledger and tags stay right.

    A table that is not there, and one that is something else, are errors that name it.
    """
    lake = lake_at(tmp_path / "lake")
    with pytest.raises(InputError, match="nowhere is not in the lake"):
        excise(lake, "main.nowhere", ["a" * 32])
    pack(lake, tmp_path, seed=1, increment=0)
    with pytest.raises(ConfigError, match="is not packed"):
        excise(lake, "system.materializations", ["a" * 32])
    table = lake.catalogue.load_table(TABLE)
    first = table.current_snapshot()
    assert first is not None
    table.manage_snapshots().create_tag(first.snapshot_id, "blend_1").commit()
    pack(lake, tmp_path, seed=2, increment=1)
    if is_former:
        age(lake, TABLE)
    before, files_before = rows(lake.catalogue), files(lake.catalogue)
    generation = lake.catalogue.load_table(TABLE).properties["headrace.generation"]
    gone = sorted({segment["doc_id"] for row in (before[0], before[7]) for segment in row["segments"]})[:3]
    alone = next(s[0]["doc_id"] for s in (r["segments"] for r in before.values()) if len(s) == 1)
    gone.append(alone)
    held = {o for o, row in before.items() if {s["doc_id"] for s in row["segments"]} & set(gone)}

    done = excise(lake, TABLE, [*gone, "f" * 32])
    after, files_after = rows(lake.catalogue), files(lake.catalogue)
    assert set(done.ordinals) == held == {ordinal for ordinal in before if before[ordinal] != after[ordinal]}
    assert sorted(after) == sorted(before)
    for ordinal, row in after.items():
        stays = [s for s in before[ordinal]["segments"] if s["doc_id"] not in gone]
        assert [s["doc_id"] for s in row["segments"]] == [s["doc_id"] for s in stays]
        ids = [t for s in stays for t in before[ordinal]["input_ids"][s["window_start"] :][: s["token_count"]]]
        assert row["input_ids"] == ids + [PADDING] * (L - len(ids))
        assert row["token_count"] == len(ids)
    assert any(not row["segments"] for row in after.values()), "a window of one such document alone is all padding"
    assert len(files_before - files_after) == done.files_rewritten < len(files_before)
    assert done.doc_ids == tuple(sorted(gone))
    assert done.tokens_removed == sum(row["token_count"] - after[o]["token_count"] for o, row in before.items())

    head = lake.catalogue.load_table(TABLE)
    assert {first.snapshot_id, done.old_snapshot_id} <= set(successors(head))
    assert set(successors(head).values()) == {done.new_snapshot_id}
    assert head.refs()["blend_1"].snapshot_id == done.new_snapshot_id
    assert done.tags_moved == ("blend_1",)
    assert successor_of(head, first.snapshot_id) == done.new_snapshot_id
    first_rows = int(first.summary.additional_properties["total-records"])
    assert first_rows < len(after)
    assert rows_noted(head, str(first.snapshot_id), done.new_snapshot_id) == first_rows
    assert rows_noted(head, "blend_1", done.new_snapshot_id) == first_rows
    assert head.properties[EXCISED_PROPERTY] == str(len(set(gone))), "what Blender tells of a source"
    assert head.properties["headrace.generation"] == generation
    ledger = Ledger(lake.catalogue)
    ledger.refresh()
    for number, row in ledger.increments(TABLE).items():
        landed = lake.session().table(f"lake.{TABLE}").where(f"increment = {number}")
        left = row.data_version.form == FORMER  # of an increment without the documents
        assert row.data_version == (former_digests(landed, False)[""] if left else digest(landed))
        assert not left or is_former
    assert sorted(ledger.increments(TABLE)) == [0, 1]
    pack(lake, tmp_path, seed=1, increment=0)
    pack(lake, tmp_path, seed=2, increment=1)
    assert rows(lake.catalogue) == after, "the step keys are known, so nothing is computed again"

    pack(lake, tmp_path, seed=3, increment=2)
    assert len(rows(lake.catalogue)) > len(after)
    second = excise(lake, TABLE, [gone[0], next(s["doc_id"] for s in after[1]["segments"])])
    head = lake.catalogue.load_table(TABLE)
    assert set(successors(head).values()) == {second.new_snapshot_id}
    assert head.properties[EXCISED_PROPERTY] == str(len(set(gone)) + 1), "a document counts once"
    for name in (str(first.snapshot_id), "blend_1"):
        assert rows_noted(head, name, second.new_snapshot_id) == first_rows, "for good"
    assert expire(lake.catalogue, TABLE, _later()) > 0
    assert not any(file in _all_files(tmp_path / "lake") for file in files_before - files_after)
    assert list(find_windows(TABLE, lake.catalogue.load_table(TABLE), gone)) == []


@pytest.mark.nightly
def test_what_is_packed_later_leaves_excised_documents_out(lake_at: LakeAt, tmp_path: Path) -> None:
    """Tokens still hold them; a table packed anew, one of another length and later increments have all but them."""
    lake = lake_at(tmp_path / "lake")
    own = _landed(lake, tmp_path, 0)
    assert pack_in_lake(lake, L) == own
    blend = Blender(lake.catalogue).create(BlendSpec((SourceSpec(TABLE, name="code"),), seed=1))
    here, everywhere, unknown = sorted(own)[3], sorted(own)[9], "f" * 32
    record_excisions(lake.catalogue, None, [everywhere, unknown], "test")
    excise(lake, TABLE, [here, everywhere])
    assert Blender(lake.catalogue).excised_documents(blend.blend_id) == {"code": 2}
    assert pack_in_lake(lake, L) == _without(own, here, everywhere), "nothing is computed again"
    assert pack_in_lake(lake, 2 * L) == _without(own, everywhere), "a table that was not there yet"

    more = _landed(lake, tmp_path, 1)
    late = min(more)
    record_excisions(lake.catalogue, None, [late], "test")
    assert pack_in_lake(lake, L, seed=1) == _without(own | more, here, everywhere, late), "packed anew, and appended to"
    computed = [lake.ledger.increments(f"main.packed_code_{length}")[0] for length in (L, 2 * L)]
    lists = [row.inputs[EXCISIONS]["versions"] for row in computed]
    assert lists[0] != lists[1], "what a row was computed without is part of what it depends on"
    pack_in_lake(lake, 2 * L)
    after = [row.inputs[EXCISIONS]["versions"] for row in lake.ledger.increments(computed[1].table).values()]
    assert after == [lists[1], {"": _digest(everywhere, late, unknown)}], "0 was left, 1 is without all three"


def _digest(*doc_ids: str) -> str:
    return hashlib.sha256("\n".join(sorted(doc_ids)).encode()).hexdigest()


def _landed(lake: Lake, folder: Path, increment: int) -> dict[str, list[int]]:
    """Make an increment of the tables that packing reads; gives what it should pack."""
    made = corpus(increment + 1, documents=30)
    paths = written(folder, made, increment)
    for declared in (TOKENS, ORDERED, *([TOKENIZER] if increment == 0 else [])):
        land(lake, declared, paths[declared.name], increment)
    return {doc_id: [*ids, END] for doc_id, ids in made.own_ids().items() if ids}


def _without(own: dict[str, list[int]], *doc_ids: str) -> dict[str, list[int]]:
    return {doc_id: ids for doc_id, ids in own.items() if doc_id not in doc_ids}


class Killed(BaseException):
    """Stands for `kill -9`: no handler of errors sees it."""


class Killer:
    """Lets so many commits of the catalogue happen, then kills."""

    def __init__(self, catalogue: Catalog, commits: int) -> None:
        self._commit, self._left = catalogue.commit_table, commits

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Commit, or die."""
        self._left -= 1
        if self._left < 0:
            raise Killed
        return self._commit(*args, **kwargs)


def served(catalogue: Catalog, blend_id: str, rows: int) -> dict[int, list[tuple[str, bytes]]]:
    """What a blend's readers get now: by ordinal, each segment's document and tokens."""
    found: dict[int, list[tuple[str, bytes]]] = {}
    for batch in Blender(catalogue).open(blend_id).read(0, rows):
        segment = 0
        for row in range(batch.rows):
            parts = found.setdefault(int(batch.ordinals[row]), [])
            for _ in range(int(batch.segment_counts[row])):
                start, count = int(batch.window_starts[segment]), int(batch.segment_token_counts[segment])
                parts.append((batch.doc_ids[segment], batch.input_ids[row, start : start + count].tobytes()))
                segment += 1
    return found


@pytest.mark.nightly
def test_no_generation_serves_an_excised_document(
    lake_at: LakeAt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a repack each generation has its own successor: blends of both go on, without the document, row by row.

    Killed before any of its commits, the next call ends what is left, and nothing is computed again.
    """
    lake = lake_at(tmp_path / "lake")
    catalogue = lake.catalogue
    blends: dict[str, int] = {}

    def blend() -> None:
        made = Blender(catalogue).create(BlendSpec((SourceSpec(TABLE),), seed=1))
        blends[made.blend_id] = made.sources[0].rows or 0

    pack(lake, tmp_path, seed=1, increment=0)
    blend()
    pack(lake, tmp_path, seed=2, increment=1)
    blend()
    old_files = files(catalogue)
    for increment in (0, 1):
        pack(lake, tmp_path, seed=increment + 1, increment=increment, version=5)
    blend()
    before = {blend_id: served(catalogue, blend_id, count) for blend_id, count in blends.items()}
    names = sorted({doc_id for parts in before[next(iter(blends))].values() for doc_id, _ in parts})
    gone, second = names[0], names[1]
    old_tags = set(catalogue.load_table(TABLE).refs())

    for commits in range(6):
        with monkeypatch.context() as patch, contextlib.suppress(Killed):
            patch.setattr(catalogue, "commit_table", Killer(catalogue, commits))
            excise(lake, TABLE, [gone])
    assert catalogue.load_table(TABLE).properties[EXCISED_PROPERTY] in ("0", "1")
    excise(lake, TABLE, [gone])
    assert catalogue.load_table(TABLE).properties[EXCISED_PROPERTY] == "1", "a document counts once"
    for blend_id, count in blends.items():
        expected = {o: [part for part in parts if part[0] != gone] for o, parts in before[blend_id].items()}
        assert served(catalogue, blend_id, count) == expected != before[blend_id]
    head = catalogue.load_table(TABLE).current_snapshot()
    for increment in (0, 1):
        pack(lake, tmp_path, seed=increment + 1, increment=increment, version=5)
    assert catalogue.load_table(TABLE).current_snapshot() == head

    done = excise(lake, TABLE, [second, gone])
    assert done.doc_ids == (second,)
    assert [len(one.ordinals) > 0 for one in done.earlier] == [True], "one successor stands for both of the older ones"
    assert done.earlier[0].generation != catalogue.load_table(TABLE).properties["headrace.generation"]
    assert len(done.tags_moved) == 3
    assert done.left == ()
    assert expire(catalogue, TABLE, _later()) > 0
    assert not old_files <= _all_files(tmp_path / "lake"), "nothing pins the old files any more"
    for blend_id, count in blends.items():
        expected = {
            o: [part for part in parts if part[0] not in (gone, second)] for o, parts in before[blend_id].items()
        }
        assert served(catalogue, blend_id, count) == expected
    table = catalogue.load_table(TABLE)
    assert old_tags == {name for name in table.refs() if not is_of_a_writer(name)}
    table.manage_snapshots().create_branch(int(done.new_snapshot_id or 0), "work").commit()
    third = excise(lake, TABLE, [names[2]])
    assert len(third.left) == 1 and "branch work still has them" in third.left[0]

    third_generation = catalogue.load_table(TABLE).properties["headrace.generation"]
    lake.ledger.forget([TABLE])  # as refreeze does
    assert excise(lake, TABLE, [names[3]]).doc_ids == (names[3],)
    for increment in (0, 1):
        pack(lake, tmp_path, seed=increment + 1, increment=increment, version=5)
    assert sorted(lake.ledger.increments(TABLE)) == [0, 1]
    assert catalogue.load_table(TABLE).properties["headrace.generation"] != third_generation
    for blend_id, count in blends.items():
        assert not {doc_id for parts in served(catalogue, blend_id, count).values() for doc_id, _ in parts} & set(
            names[:4]
        )


@pytest.mark.nightly
def test_a_replaced_document_stays_where_it_is_pinned(
    lake_at: LakeAt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the head alone; a later excision of another document treats the pinned snapshot and the head, each for itself.

    Killed before its commit, the document is not listed as out, so that the next call takes it out.
    """
    lake = lake_at(tmp_path / "lake")
    catalogue = lake.catalogue

    def blend() -> tuple[str, int]:
        made = Blender(catalogue).create(BlendSpec((SourceSpec(TABLE),), seed=1))
        return made.blend_id, made.sources[0].rows or 0

    pack(lake, tmp_path, seed=1, increment=0)
    old = blend()
    before = served(catalogue, *old)
    replaced, excised, *_ = sorted({doc_id for parts in before.values() for doc_id, _ in parts})

    def without(*gone: str) -> dict[int, list[tuple[str, bytes]]]:
        return {ordinal: [part for part in parts if part[0] not in gone] for ordinal, parts in before.items()}

    for commits in range(3):
        with monkeypatch.context() as patch, contextlib.suppress(Killed):
            patch.setattr(catalogue, "commit_table", Killer(catalogue, commits))
            excise(lake, TABLE, [replaced], head_only=True)
        listed = replaced in excised_documents(catalogue, TABLE)
        assert not listed or served(catalogue, *blend()) == without(replaced)
    excise(lake, TABLE, [replaced], head_only=True)
    assert replaced in excised_documents(catalogue, TABLE)
    new = blend()
    assert served(catalogue, *old) == before
    assert served(catalogue, *new) == without(replaced)
    pack(lake, tmp_path, seed=2, increment=1)
    assert served(catalogue, *old) == before

    done = excise(lake, TABLE, [excised])
    assert len(done.earlier) == 1 and successors(catalogue.load_table(TABLE))
    assert expire(catalogue, TABLE, _later()) > 0
    assert served(catalogue, *old) == without(excised)
    assert served(catalogue, *new) == without(replaced, excised)


def test_excisions_are_listed_once(lake_at: LakeAt, tmp_path: Path) -> None:
    """For one table or for all; what is out of all is not listed again for one."""
    catalogue = lake_at(tmp_path / "lake").catalogue
    assert excised_documents(catalogue, TABLE) == frozenset()
    assert record_excisions(catalogue, TABLE, ["a", "b", "a"], "test") == 2
    assert record_excisions(catalogue, None, ["b", "c"], "test") == 2
    assert record_excisions(catalogue, TABLE, ["a", "b", "c"], "test") == 0
    assert excised_documents(catalogue, TABLE) == {"a", "b", "c"}
    assert excised_documents(catalogue, "main.another") == excised_documents(catalogue, None) == {"b", "c"}
    assert catalogue.load_table(EXCISIONS).scan().to_arrow().num_rows == 4


def _later() -> Any:
    from datetime import UTC, datetime, timedelta

    return datetime.now(UTC) + timedelta(days=1)


def _all_files(root: Path) -> set[str]:
    return {f"file://{path}" for path in root.rglob("*.parquet")} | {str(path) for path in root.rglob("*.parquet")}

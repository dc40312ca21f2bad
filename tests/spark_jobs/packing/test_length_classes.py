"""Packing by length classes: each document once, in sequences of one length, which windows hold whole."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.tables.cells import CELL_COLUMN, cell_text, cell_values, parse_choice
from spark_jobs.exceptions import ConfigError, TableMismatchError
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.packing.excise import excise
from spark_jobs.packing.order_buckets import CellBuckets, OrderBuckets
from spark_jobs.packing.packed import packed_step
from spark_jobs.packing.packed_table import PackedConfig, packed_table
from spark_jobs.packing.plan.affinity import choose_plan, plan_shards
from spark_jobs.packing.plan.best_fit import plan_sequences
from spark_jobs.packing.plan.placement import Placer, UnitRules, count_batches, plan_shard_of
from spark_jobs.packing.plan.repository_runs import ALONE
from spark_jobs.packing.plan.units import Cuts, UnitCounts, cut_documents
from spark_jobs.packing.plan.window_order import PlanNumbers
from spark_jobs.packing.windows.assemble import CELL_PARTS_SCHEMA, WINDOWS_SCHEMA, assemble_windows
from spark_jobs.packing.windows.close_up import excise_windows
from spark_jobs.packing.windows.window_facts import WindowForm
from tests.conftest import LakeAt
from tests.spark_jobs.packing.plan.test_placement import arranged
from tests.spark_jobs.packing.test_cells import Windows, celled, table_rows, written
from tests.spark_jobs.packing.test_packed import Corpus, L, corpus
from tests.tiers import sampled, tries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = f"main.packed_code_{L}"
CLASSES = (16, 8, 4)
WINDOWS_WITH_CELLS = WINDOWS_SCHEMA.append(pa.field(CELL_COLUMN, pa.string()))
some_classes = st.sets(st.integers(2, 40), min_size=1, max_size=4).map(lambda found: tuple(sorted(found, reverse=True)))


def decomposed(length: int, classes: tuple[int, ...]) -> list[int]:
    """Take the longest class that there is room for, again and again."""
    found = []
    while length:
        found.append(next((each for each in classes if each <= length), length))
        length -= found[-1]
    return found


@settings(max_examples=tries(300))
@given(st.lists(st.integers(0, 300), max_size=12), some_classes, st.integers(0, 1))
def test_documents_are_cut_into_classes(counts: list[int], classes: tuple[int, ...], leading: int) -> None:
    """The longest first, from the document's start on; what is left is shorter than the least class."""
    pieces = cut_documents(np.array(counts, dtype=np.int64), 40, leading, None, classes)
    lengths = [count + 1 + leading for count in counts if count]
    assert pieces.length.tolist() == [part for length in lengths for part in decomposed(length, classes)]
    assert pieces.ends.sum() == pieces.first.sum() == len(lengths)
    whole = Counter(pieces.document.repeat(pieces.length).tolist())
    assert whole == {at: count + 1 + leading for at, count in enumerate(counts) if count}
    assert (
        not len(pieces.start)
        or (pieces.start[1:] == np.where(pieces.first[1:], 0, (pieces.start + pieces.length)[:-1])).all()
    )


def test_powers_of_two_are_the_digits_of_a_length() -> None:
    """As dataset decomposition has it: 2^i tokens where bit i of the length is set, and all beyond in the largest."""
    for length in range(2, 200):
        pieces = cut_documents(np.array([length - 1]), 64, 0, None, (64, 32, 16, 8, 4, 2))
        digits = [1 << bit for bit in reversed(range(6)) if length >> bit & 1]
        assert pieces.length.tolist() == [64] * (length // 64) + digits


def test_rows_of_a_document_are_each_cut_into_classes() -> None:
    """Where a document has cuts, each part is decomposed as if it were one."""
    pieces = cut_documents(np.array([20]), 16, 0, Cuts(np.array([0]), np.array([7])), (8, 4))
    assert pieces.start.tolist() == [0, 4, 7, 15, 19]
    assert pieces.length.tolist() == [4, 3, 8, 4, 2]


@settings(max_examples=tries(200))
@given(
    st.dictionaries(st.integers(1, 12), st.integers(1, 30), max_size=8), st.sampled_from([12, 24, 48, 60]), st.data()
)
def test_sequences_fill_windows_in_order(histogram: dict[int, int], window_tokens: int, data: st.DataObject) -> None:
    """No two units overlap, none crosses a sequence, and there are as few windows as the sequences need."""
    plan = plan_sequences(histogram, window_tokens, 12)
    lengths, firsts = plan.first_slots()
    places: list[tuple[int, int, int]] = []
    for length, first in zip(lengths.tolist(), firsts.tolist(), strict=True):
        slots = np.arange(first, first + histogram[length])
        windows, starts = plan.look_up(slots, np.full(len(slots), length))
        places += zip(windows.tolist(), starts.tolist(), (starts + length).tolist(), strict=True)
    for (window, _, stop), (other, start, _) in itertools.pairwise(sorted(places)):
        assert window < other or stop <= start
    assert all(start >= 0 and start // 12 == (stop - 1) // 12 < window_tokens // 12 for _, start, stop in places)
    sequences = {(window, start // 12) for window, start, _ in places}
    assert plan.window_count == -(-len(sequences) * 12 // window_tokens)
    assert len(sequences) == len({*sequences}) and {w for w, _ in sequences} == {*range(plan.window_count)}


@settings(max_examples=tries(100))
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 90)), max_size=40),
    st.sampled_from([(48, 12, 4), (24, 8), (16,), (48, 24, 12, 6, 3)]),
    st.integers(1, 2),
)
def test_each_piece_has_a_place_of_its_own_class(
    documents: list[tuple[int, int]], classes: tuple[int, ...], shards: int
) -> None:
    """Plans of cells, classes and shards: a piece's window is of its class, and no two pieces share a place."""
    cells, buckets, tokens = 2, 4, 48
    rows = arranged([(bucket, None, count) for bucket, count in sorted(documents)])
    rules, numbers = UnitRules(tokens, 0, (ALONE,), classes=classes), PlanNumbers(shards, classes)
    counts = [row for batch in count_batches([rows], rules) for row in batch.to_pylist() if row["length"]]
    of = np.array([(row["bucket"], row["length"], row["units"]) for row in counts], np.int64).reshape(-1, 3)
    plans = numbers.of(plan_shard_of(of[:, 0], cells * shards, buckets), of[:, 1])  # type: ignore[arg-type]
    histograms: dict[tuple[int, int], dict[int, int]] = {}
    for plan, (_, length, units) in zip(plans.tolist(), of.tolist(), strict=True):
        histogram = histograms.setdefault((ALONE, plan), {})
        histogram[length] = histogram.get(length, 0) + units
    config = PackedConfig.model_validate(
        {"dataset": "code", "window_tokens": tokens, "plan": {"length_classes": classes}, "shards": shards}
    )
    names = OrderBuckets(config) if cells == 1 else CellBuckets({"{}": 1, '{"a":1}': 1}, "p", config, None)  # type: ignore[arg-type]
    lengths = [names.length_of(plan) for plan in range(names.plan_count)]
    chosen = choose_plan(histograms, (ALONE,), names.plan_count, tokens, 0.0, lengths)
    placer = Placer(
        rules,
        plan_shards(chosen, UnitCounts(*of.T), buckets, numbers),
        buckets,
        names.order(chosen, "p", 5, 0),
        numbers,
    )
    found = [row for batch in placer.place_batches([rows]) for row in batch.to_pylist()]
    taken: set[tuple[int, int]] = set()
    for row in found:
        length = row["own_tokens"] + row["ends"]
        sequence = cell_values(names.window_cells[row["cell"]])["length_class"]
        assert isinstance(sequence, int)
        assert sequence == next((each for each in classes if each <= length), classes[-1])
        assert row["window_start"] // sequence == (row["window_start"] + length - 1) // sequence
        places = {(row["ordinal"], row["window_start"] + at) for at in range(length)}
        assert not taken & places
        taken |= places
    by_window = {row["ordinal"]: row["cell"] for row in found}
    assert all(by_window[row["ordinal"]] == row["cell"] for row in found)
    assert sorted(by_window) == [*range(5, 5 + chosen.window_count)]
    assert sum(row["own_tokens"] + row["ends"] for row in found) == sum(count + 1 for _, count in documents if count)


def pack(lake: Lake, inputs: dict[str, str], increment: int = 0, *, cells: bool = False, **config: Any) -> None:
    """Materialize one increment of the table."""
    settings_ = PackedConfig.model_validate(
        {"dataset": "code", "window_tokens": L, "rows_per_file": 40, "plan": {"length_classes": CLASSES}, **config}
    )
    read = inputs if cells else {name: path for name, path in inputs.items() if name != "cells"}
    step = packed_step("code", L, celled=cells, classed=True)
    materialize(lake, Binding(step, "main", read, settings_, only=increment))


def assert_sequences(windows: Windows, cells: dict[str, str]) -> None:
    """Each window is of one class and cell, whole classes fill it alone, and cells are runs of each increment."""
    for window in windows:
        values = cell_values(window["cell"])
        sequence = values.pop("length_class")
        assert {cells[segment["doc_id"]] for segment in window["segments"]} <= {cell_text(values)}
        assert sequence in CLASSES
        assert window["token_count"] == sum(segment["token_count"] for segment in window["segments"])
        ids = np.array(window["input_ids"])
        filled = np.zeros(L, bool)
        for segment in window["segments"]:
            start, stop = segment["window_start"], segment["window_start"] + segment["token_count"]
            assert start // sequence == (stop - 1) // sequence
            assert sequence == CLASSES[-1] or segment["token_count"] == sequence
            assert not filled[start:stop].any()
            filled[start:stop] = True
        assert (ids[~filled] == 1).all()
    runs = [key for key, _ in itertools.groupby((window["increment"], window["cell"]) for window in windows)]
    assert len(set(runs)) == len(runs)


@sampled(2)
@pytest.mark.parametrize("cells", [False, True])
@pytest.mark.parametrize("more", [{}, {"shards": 2, "order_buckets": 5, "beginning_of_document": "<begin>"}])
def test_windows_hold_sequences_of_one_class(
    lake_at: LakeAt, tmp_path: Path, cells: bool, more: dict[str, Any]
) -> None:
    """Over increments, alone and as a dimension more of a corpus's cells; the audit proves every token once."""
    lake, made, of, windows = lake_at(tmp_path / "lake"), Corpus([], []), dict[str, str](), Windows()
    for increment in range(2):
        new = corpus(increment + 31, documents=90)
        of_new = celled(new, 5 + increment)
        made, of = Corpus(made.tokens + new.tokens, made.ordered + new.ordered), {**of, **of_new}
        pack(lake, written(tmp_path, new, of_new, increment), increment, cells=cells, **more)
        before, windows = windows, table_rows(lake)
        assert windows[: len(before)] == before
        assert_sequences(windows, of if cells else dict.fromkeys(of, "{}"))
    for doc_id, ids in made.own_ids().items() if not more else ():
        parts = [(s["document_start"], _ids(w, s)) for w in windows for s in w["segments"] if s["doc_id"] == doc_id]
        assert list(itertools.chain(*(part for _, part in sorted(parts)))) == ([*ids, 0] if ids else [])
        lengths = [len(part) for _, part in sorted(parts, key=lambda part: (part[0], -len(part[1])))]
        assert lengths == (decomposed(len(ids) + 1, CLASSES) if ids else [])
    assert {cell_values(window["cell"])["length_class"] for window in windows} == {*CLASSES}
    choice = parse_choice("length_class=8")
    assert choice.length_class == 8
    assert choice.select({window["cell"] for window in windows}, TABLE)


def test_excision_keeps_sequences_apart(lake_at: LakeAt, tmp_path: Path) -> None:
    """What is left of a sequence closes up inside of it; the audit of the rewritten rows passes."""
    lake, made = lake_at(tmp_path / "lake"), corpus(8, 200)
    pack(lake, written(tmp_path, made, celled(made, 8)))
    before = table_rows(lake)
    several = [window for window in before if len({s["doc_id"] for s in window["segments"]}) > 2]
    gone = {window["segments"][1]["doc_id"] for window in several[::3]}
    assert excise(lake, TABLE, gone).ordinals
    after = table_rows(lake)
    assert_sequences(after, dict.fromkeys({row[2] for row in made.tokens}, "{}"))
    for old, new in zip(before, after, strict=True):
        sequence = int(cell_values(old["cell"])["length_class"] or 0)
        kept = [s for s in old["segments"] if s["doc_id"] not in gone]
        strip = [(s["doc_id"], s["document_start"], s["window_start"] // sequence) for s in kept]
        assert strip == [(s["doc_id"], s["document_start"], s["window_start"] // sequence) for s in new["segments"]]
        for one, other in zip(kept, new["segments"], strict=True):
            assert _ids(old, one) == _ids(new, other)


def _ids(window: dict[str, Any], segment: dict[str, Any]) -> list[int]:
    start = segment["window_start"]
    ids: list[int] = window["input_ids"][start : start + segment["token_count"]]
    return ids


def test_a_table_has_classes_or_none(lake_at: LakeAt, tmp_path: Path) -> None:
    """Refused: lengths that do not divide a window, cuts at lines, cells of that name, a step that is not told."""
    with pytest.raises(ValueError, match="length_classes has 5; give divisors of window_tokens, 16, each once"):
        configured(length_classes=[5, 8])
    with pytest.raises(ValueError, match="a length twice"):
        configured(length_classes=[8, 8])
    for setting in ({"cut": "line"}, {"affinity": "repository"}):
        with pytest.raises(ValueError, match="leave cut and affinity out"):
            configured(length_classes=[8], **setting)
    with pytest.raises(ConfigError, match="length_class is packing's own dimension"):
        CellBuckets({'{"length_class":1}': 3}, "packed", configured(length_classes=[8]), None)  # type: ignore[arg-type]
    lake, made = lake_at(tmp_path / "lake"), corpus(3, 20)
    inputs = written(tmp_path, made, celled(made, 3))
    inputs.pop("cells")
    with pytest.raises(ConfigError, match=r"use packed_step\(.., classed=True\)"):
        materialize(lake, Binding(packed_step("code", L), "main", inputs, configured(length_classes=[8]), only=0))
    part = {"ordinal": 5, "doc_id": "a", "document_start": 0, "begins": False, "ends": False, "balance": 0, "cell": 0}
    parts = [{**part, "window_start": at, "ids": b"\x07\x00" * 3} for at in (0, 6)]
    batch = pa.RecordBatch.from_pylist(parts, schema=CELL_PARTS_SCHEMA)
    with pytest.raises(TableMismatchError, match="document a lies at 6 of its window, wanted 3"):
        list(assemble_windows([batch], WindowForm(L, 0, 1, 1000), cells=(cell_text({"length_class": 8}),)))


def configured(length_classes: list[int], **more: Any) -> PackedConfig:
    """The config of a table with classes."""
    return PackedConfig.model_validate(
        {"dataset": "code", "window_tokens": L, "plan": {"length_classes": length_classes}, **more}
    )


def drawn_windows(draw: np.random.Generator, count: int) -> Windows:
    """Windows with and without classes, of segments that fit, and many that are broken."""
    made = []
    for ordinal in range(count):
        sequence = int(draw.choice([2, 4, 8, 16]))
        segments, at = [], 0
        while at < L and draw.random() < 0.9:
            size = int(draw.integers(1, sequence + 1))
            if at // sequence != (at + size - 1) // sequence:
                at = -(-at // sequence) * sequence
                continue
            segments.append({"doc_id": "ab"[int(draw.integers(2))], "document_start": at, "token_count": size})
            segments[-1]["window_start"] = at
            at += size
        cell = cell_text({"a": "x"} if sequence == 16 else {"a": 1, "length_class": sequence})
        ids = [1] * L
        for segment in segments:
            ids[segment["window_start"] :][: segment["token_count"]] = []
            for place in range(segment["window_start"], segment["window_start"] + segment["token_count"]):
                ids[place] = 100 + place
        total = sum(segment["token_count"] for segment in segments)
        made.append(
            {"ordinal": ordinal, "token_count": total, "input_ids": ids[:L], "segments": segments, "cell": cell}
        )
    return made


def test_checks_are_those_of_the_predicate(spark: SparkSession) -> None:
    """The check over segments of sequences, in Python and in the engine, on whole and broken windows."""
    draw = np.random.default_rng(4)
    windows = json.loads(json.dumps(drawn_windows(draw, 400)))
    for window in windows[::2]:
        if window["segments"]:
            segment = window["segments"][int(draw.integers(len(window["segments"])))]
            segment[draw.choice(["window_start", "token_count"])] += int(draw.choice([-1, 1, 2, 4]))
    check = next(one for one in packed_table("code", L, celled=True).checks if one.name.startswith("segments"))
    rows = pa.RecordBatch.from_pylist(windows, schema=WINDOWS_WITH_CELLS)
    frame = spark.createDataFrame(pa.Table.from_batches([rows])).selectExpr("ordinal", f"{check.predicate} as fine")
    expected = [row["fine"] for row in sorted(frame.collect(), key=lambda row: row["ordinal"])]
    assert check.holds is not None
    assert check.holds(rows).tolist() == expected
    assert all(expected[1::2])
    assert 20 < sum(not fine for fine in expected) < 200


@settings(max_examples=tries(100))
@given(st.integers(0, 2**32), st.sets(st.sampled_from("ab")))
def test_sequences_close_up_by_themselves(seed: int, gone: set[str]) -> None:
    """What stays keeps its tokens, its order and its sequence, and abuts from where that begins."""
    windows = drawn_windows(np.random.default_rng(seed), 12)
    batch = pa.RecordBatch.from_pylist(windows, schema=WINDOWS_WITH_CELLS)
    (found,) = excise_windows([batch], gone, L, 1)
    for old, new in zip(windows, found.to_pylist(), strict=True):
        values = cell_values(old["cell"])
        sequence = int(values.get("length_class") or L)
        ids = [1] * L
        kept, at = [], 0
        for segment in old["segments"]:
            if segment["doc_id"] in gone:
                continue
            at = max(at, segment["window_start"] // sequence * sequence)
            kept.append({**segment, "window_start": at})
            for place in range(segment["token_count"]):
                ids[at + place] = old["input_ids"][segment["window_start"] + place]
            at += segment["token_count"]
        assert new["segments"] == kept
        assert new["input_ids"] == ids
        assert new["token_count"] == sum(segment["token_count"] for segment in kept)


def test_classes_fill_windows() -> None:
    """Lengths as of code and the web: 99.9% of the positions hold a token, with a window less a class at most."""
    draw = np.random.default_rng(1)
    counts = np.minimum(draw.lognormal(6.5, 1.3, 40_000).astype(np.int64) + 1, 100_000)
    classes = (8192, 4096, 2048, 1024, 512)
    lengths = cut_documents(counts, 8192, 0, None, classes).length
    histograms: dict[tuple[int, int], dict[int, int]] = {}
    for length, count in Counter(lengths.tolist()).items():
        plan = int(PlanNumbers(1, classes).of(np.array(0), np.array(length)))
        histograms.setdefault((ALONE, plan), {})[length] = count
    chosen = choose_plan(histograms, (ALONE,), 5, 8192, 0.0, classes)
    assert chosen.utilisation > 0.999
    assert chosen.token_count == int((counts + 1).sum())

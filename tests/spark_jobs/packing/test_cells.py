"""Packing by cells: no window mixes two, a cell's ordinals are one run, and else all is as without cells."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import random
import tarfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagster_project.inspect.lake.exports import export_table
from headrace.tables.cells import cell_text
from headrace.tables.ordinals import OrdinalRun
from spark_jobs.exceptions import ConfigError, StepDeclarationError, StepRunError, TableMismatchError
from spark_jobs.lake.files.compaction import compact
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.packing.cells import CELLS
from spark_jobs.packing.excise import excise
from spark_jobs.packing.order_buckets import CellBuckets
from spark_jobs.packing.ordinals import find_windows, ordinal_runs
from spark_jobs.packing.packed import packed_step
from spark_jobs.packing.packed_table import PackedConfig
from spark_jobs.packing.plan.affinity import choose_plan
from spark_jobs.packing.plan.repository_runs import ALONE
from spark_jobs.packing.plan.window_order import CellOrder, WindowOrder
from spark_jobs.packing.windows.assemble import CELL_PARTS_SCHEMA, assemble_windows
from spark_jobs.packing.windows.window_facts import WindowForm
from tests.conftest import LakeAt
from tests.spark_jobs.packing import test_masked
from tests.spark_jobs.packing.test_excise import TOKENIZER_SCHEMA
from tests.spark_jobs.packing.test_masked import masked_corpus
from tests.spark_jobs.packing.test_packed import (
    ORDERED_SCHEMA,
    TOKENS_SCHEMA,
    Corpus,
    L,
    arrow,
    assert_every_token_once,
    corpus,
    line_tokenizer,
)
from tests.tiers import on_spark, sampled, tries

TABLE = f"main.packed_code_{L}"
NAMES = [cell_text({"topic": name, "quality": at}) for name in ("a", "z", None) for at in range(4)]
Windows = list[dict[str, Any]]


def celled(made: Corpus, seed: int, names: list[str] = NAMES) -> dict[str, str]:
    """A cell for each document, most in the first few; one cell has a single document."""
    draw = random.Random(seed)
    cells = {row[2]: names[min(draw.randrange(len(names)), draw.randrange(len(names)))] for row in made.tokens}
    cells[next(row[2] for row in made.tokens if row[0] == "code" and 0 < row[4] < L)] = cell_text({"topic": "only"})
    return cells


def written(folder: Path, made: Corpus, cells: dict[str, str], increment: int = 0) -> dict[str, str]:
    """Inputs of packing as Parquet files, by name."""
    rows = [
        {"dataset": row[0], "shard": row[1], "doc_id": row[2], "cell": cells[row[2]]}
        for row in made.tokens
        if row[2] in cells
    ]
    tokenizer = ("ab" * 32, 100_000, 0, 1, [("<begin>", 99_999)], line_tokenizer())
    tables = {
        "tokens": arrow(made.tokens, TOKENS_SCHEMA),
        "ordered": arrow(made.ordered, ORDERED_SCHEMA),
        "tokenizer": arrow([tokenizer], TOKENIZER_SCHEMA),
        "cells": pa.Table.from_pylist(
            rows, schema=pa.schema([f for f in CELLS.schema().as_arrow() if f.name != "increment"])
        ),
    }
    inputs = {}
    for name, table in tables.items():
        inputs[name] = str(folder / f"{name}-{increment}.parquet")
        pq.write_table(table, inputs[name], row_group_size=31)
    return inputs


def pack(lake: Lake, inputs: dict[str, str], increment: int = 0, **config: Any) -> None:
    """Materialize one increment of the table."""
    settings_ = PackedConfig.model_validate({"dataset": "code", "window_tokens": L, "rows_per_file": 40, **config})
    materialize(lake, Binding(packed_step("code", L, celled=True), "main", inputs, settings_, only=increment))


def table_rows(lake: Lake) -> Windows:
    """The table by ordinal."""
    found = lake.catalogue.load_table(TABLE).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["ordinal"])


def assert_cells(windows: Windows, cells: dict[str, str]) -> list[tuple[int, str, int]]:
    """Each window is of one cell, and cells are runs, ascending in each increment; gives (increment, cell, windows)."""
    assert [window["ordinal"] for window in windows] == list(range(len(windows)))
    for window in windows:
        assert {cells[segment["doc_id"]] for segment in window["segments"]} == {window["cell"]}
    places = [(window["increment"], window["cell"]) for window in windows]
    runs = [(*place, len(list(same))) for place, same in itertools.groupby(places)]
    assert [run[:2] for run in runs] == sorted({run[:2] for run in runs})
    return runs


POLICIES: dict[str, dict[str, Any]] = {
    "default": {},
    "repository": {"affinity": "repository", "target_utilisation": 0.5, "shards": 2, "order_buckets": 7},
    "buckets": {"order_buckets": 1},
    "line": {"cut": "line", "beginning_of_document": "<begin>"},
    "next_fit": {"plan": "next_fit", "shards": 2},
    "concatenated": {"plan": "concat_and_slice"},
}


def _checked(lake: Lake, folder: Path, policy: str, seed: int) -> str:
    """Three increments, the second without one cell and with a new one: each token once, cells apart; a hash of all."""
    made, cells, windows = Corpus([], []), dict[str, str](), Windows()
    for increment, names in enumerate([NAMES, [*NAMES[1:9], cell_text({"topic": "m"})], NAMES]):
        new = corpus(10 * seed + increment, documents=90)
        of_new = celled(new, seed, names)
        made, cells = Corpus(made.tokens + new.tokens, made.ordered + new.ordered), {**cells, **of_new}
        pack(lake, written(folder, new, of_new, increment), increment, **POLICIES[policy])
        before, windows = windows, table_rows(lake)
        assert windows[: len(before)] == before, "an increment changes no earlier window"
        runs = assert_cells(windows, cells)
        of_dataset = {of_new[row[2]] for row in new.tokens if row[0] == "code" and row[4]}
        assert {cell for number, cell, _ in runs if number == increment} == of_dataset
        assert (increment, cell_text({"topic": "only"}), 1) in runs
    if "beginning_of_document" not in POLICIES[policy] and policy != "concatenated":
        assert_every_token_once(windows, made)  # type: ignore[arg-type]
    return hashlib.sha256(json.dumps(windows).encode()).hexdigest()[:16]


@sampled(3)
@pytest.mark.parametrize("policy", POLICIES)
def test_no_window_mixes_cells_and_each_is_one_run(lake_at: LakeAt, tmp_path: Path, policy: str) -> None:
    """Under each plan and affinity; the audit of the step proves every token once besides."""
    _checked(lake_at(tmp_path / "lake"), tmp_path, policy, len(policy))


@on_spark
def test_both_engines_pack_the_same_cells(lake_at: LakeAt, tmp_path: Path) -> None:
    """The rows on Spark and on Sail; they change with no version of the code."""
    assert _checked(lake_at(tmp_path / "lake"), tmp_path, "repository", 4) == "be59ef0bac022fee"


@settings(max_examples=tries(20))
@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.integers(0, 1000), st.integers(0, 3))
def test_windows_are_permuted_inside_of_their_cell(counts: list[int], base: int, increment: int) -> None:
    """Each cell's windows take its ordinals, each once; another cell has another permutation."""
    firsts = np.cumsum([0, *counts])[:-1]
    orders = tuple(
        WindowOrder(base + int(first), count, 7 * at)
        for at, (first, count) in enumerate(zip(firsts, counts, strict=True))
    )
    order, windows = CellOrder(orders, firsts), np.arange(sum(counts))
    ordinals = order.ordinals(windows)
    for first, count in zip(firsts.tolist(), counts, strict=True):
        assert sorted(ordinals[first : first + count].tolist()) == list(range(base + first, base + first + count))
    shuffled = np.random.default_rng(increment).permutation(windows)
    assert np.array_equal(order.ordinals(shuffled), ordinals[shuffled])


@settings(max_examples=tries(30))
@given(st.lists(st.integers(1, 200), max_size=12), st.integers(1, 9), st.integers(1, 4), st.booleans())
def test_buckets_of_a_cell_are_of_its_plans(documents: list[int], order_buckets: int, shards: int, fits: bool) -> None:
    """Each cell has `shards` plans, each plan its buckets, and a larger cell has no fewer of them."""
    config = PackedConfig(
        dataset="code",
        window_tokens=L,
        shards=min(shards, order_buckets),
        order_buckets=order_buckets,
        plan="best_fit" if fits else "next_fit",
    )
    of_cells = {f"c{at:02d}": count for at, count in enumerate(documents)}
    buckets = CellBuckets(of_cells, "packed", config, cells=Mock())
    assert buckets.bucket_count % buckets.shard_count == 0
    assert buckets.shard_count == max(1, len(documents) * config.shards)
    assert max(buckets.parts, default=1) <= (order_buckets if fits else 1)
    for one, other in itertools.combinations(zip(documents, buckets.parts, strict=True), 2):
        assert (one[0] <= other[0]) <= (one[1] <= other[1])


def test_a_document_without_a_cell_is_refused(lake_at: LakeAt, tmp_path: Path) -> None:
    """So are windows of two cells, too many cells, and a step with cells that reads none."""
    lake, made = lake_at(tmp_path / "lake"), corpus(3, 30)
    cells = celled(made, 3)
    inputs = written(tmp_path, made, {doc_id: cell for doc_id, cell in cells.items() if doc_id != made.tokens[4][2]})
    with pytest.raises(StepRunError, match=f"{made.tokens[4][2]} has tokens and no cell; materialize cells again"):
        pack(lake, inputs)
    with pytest.raises(StepDeclarationError, match="cells"):
        pack(lake, {name: path for name, path in inputs.items() if name != "cells"})
    part = {"ordinal": 5, "doc_id": "a", "document_start": 0, "begins": False, "ends": True, "balance": 0}
    parts = [{**part, "window_start": 2 * at, "ids": b"\x07\x00", "cell": at} for at in range(2)]
    batch = pa.RecordBatch.from_pylist(parts, schema=CELL_PARTS_SCHEMA)
    with pytest.raises(TableMismatchError, match=r"document a of cell .*1} shares a window with others"):
        list(assemble_windows([batch], WindowForm(L, 0, 1, 1000), cells=("{}", '{"a":1}')))
    with pytest.raises(ConfigError, match="65537 cells, at most 65536 are packed; give a dimension of many values"):
        CellBuckets(dict.fromkeys(map(str, range(65_537)), 1), "packed", test_masked.configured(), cells=Mock())


def test_excision_and_compaction_keep_cells(lake_at: LakeAt, tmp_path: Path) -> None:
    """Excised windows keep ordinal and cell, and row groups of all files stay small enough to be read one by one."""
    lake, made = lake_at(tmp_path / "lake"), corpus(8, 200)
    cells = celled(made, 8)
    pack(lake, written(tmp_path, made, cells))
    before = table_rows(lake)
    gone = [window["segments"][0]["doc_id"] for window in before[::9]]
    done = excise(lake, TABLE, gone)
    after = table_rows(lake)
    assert [(w["ordinal"], w["cell"]) for w in after] == [(w["ordinal"], w["cell"]) for w in before]
    assert done.ordinals and not {s["doc_id"] for w in after for s in w["segments"]} & set(gone)
    compact(lake.catalogue, TABLE)
    assert table_rows(lake) == after
    assert list(find_windows(TABLE, lake.catalogue.load_table(TABLE), gone)) == []
    for run in ordinal_runs(TABLE, lake.catalogue.load_table(TABLE)):
        assert _most_group_rows(run) <= 64
    for kind, suffix in (("parquet", "parquet"), ("webdataset", "tar")):
        export_table(lake.catalogue, TABLE, tmp_path / kind, kind)
        (shard,) = (tmp_path / kind).glob(f"*.{suffix}")
        if kind == "parquet":
            assert pq.read_table(shard)["cell"].to_pylist() == [window["cell"] for window in after]
            continue
        with tarfile.open(shard) as tar:
            members = [json.load(tar.extractfile(one) or io.BytesIO()) for one in tar if one.name.endswith("json")]
        assert [member["cell"] for member in members] == [window["cell"] for window in after]


def _most_group_rows(run: OrdinalRun) -> int:
    metadata = pq.read_metadata(run.path.removeprefix("file://"))
    return max(metadata.row_group(at).num_rows for at in range(metadata.num_row_groups))


def test_a_table_gets_cells_and_loses_them(lake_at: LakeAt, tmp_path: Path) -> None:
    """Where a corpus declares cells later, or no longer, its table is packed anew, with and without the column."""
    lake, made = lake_at(tmp_path / "lake"), corpus(9, 60)
    cells = celled(made, 9)
    inputs = written(tmp_path, made, cells)
    plain = {name: path for name, path in inputs.items() if name != "cells"}
    config = PackedConfig(dataset="code", window_tokens=L)
    materialize(lake, Binding(packed_step("code", L), "main", plain, config, only=0))
    before = table_rows(lake)
    pack(lake, inputs)
    assert_cells(table_rows(lake), cells)
    assert lake.catalogue.load_table(TABLE).properties["write.parquet.row-group-limit"] == "64"
    materialize(lake, Binding(packed_step("code", L), "main", plain, config, only=0))
    assert [{**row, "cell": None} for row in before] == [{**row, "cell": None} for row in table_rows(lake)]


def test_masked_windows_have_cells(lake_at: LakeAt, tmp_path: Path) -> None:
    """`trainable` stays the last column, and each token keeps its bit."""
    lake, made = lake_at(tmp_path / "lake"), masked_corpus(5)
    cells = {doc_id: NAMES[at % 5] for at, doc_id in enumerate(made)}
    rows = [{"dataset": "code", "shard": 0, "doc_id": doc_id, "cell": cell} for doc_id, cell in cells.items()]
    inputs = test_masked.written(tmp_path, made)
    pq.write_table(
        pa.Table.from_pylist(rows).set_column(1, "shard", pa.array([0] * len(rows), pa.int32())),
        tmp_path / "cells.parquet",
    )
    step = packed_step("code", L, masked=True, celled=True)
    config = test_masked.configured(affinity="repository")
    materialize(lake, Binding(step, "main", {**inputs, "cells": str(tmp_path / "cells.parquet")}, config, only=0))
    windows = table_rows(lake)
    assert_cells(windows, cells)
    assert list(windows[0])[-2:] == ["cell", "trainable"]
    assert test_masked.packed_parts(windows) == test_masked.wanted(made)


def test_windows_of_large_cells_are_full() -> None:
    """Cells of 1,000 windows and more fill them to 99.9%, with web lengths and a window of 2,048."""
    draw = np.random.default_rng(1)
    histograms = {}
    for cell in range(40):
        lengths = np.minimum(draw.lognormal(6.3 + 0.02 * cell, 1.1, 6000).astype(np.int64) + 2, 2048)
        distinct, counts = np.unique(lengths, return_counts=True)
        histograms[ALONE, cell] = dict(zip(distinct.tolist(), counts.tolist(), strict=True))
    chosen = choose_plan(histograms, (ALONE,), 40, 2048, 0.998)
    assert min(plan.window_count for plan in chosen.plans) >= 1000
    for plan in chosen.plans:
        assert int(plan.lengths @ plan.counts) >= 0.999 * 2048 * plan.window_count

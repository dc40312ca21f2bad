"""Rules of masks, packed: the number of each token's rule keeps to the token, wherever it goes."""

from __future__ import annotations

import io
import json
import random
import tarfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.server.blender import Blender
from dagster_project.inspect.lake.exports import MANIFEST, export_table
from headrace.tables.window_facts import MASK_RULES
from spark_jobs.code.ordered import ORDERED
from spark_jobs.exceptions import AuditError, ConfigError
from spark_jobs.lake.declare.tables import Column
from spark_jobs.lake.engine.embedded import is_embedded
from spark_jobs.lake.files.compaction import compact
from spark_jobs.lake.files.rows import path_rows
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.packing.excise import excise
from spark_jobs.packing.packed import packed_step
from spark_jobs.packing.packed_table import lost_tokens, packed_table
from spark_jobs.packing.windows.close_up import excise_windows
from spark_jobs.tokens.mask_check import RULES_ARE_MASKS
from spark_jobs.tokens.tokenizer import TOKENIZER
from spark_jobs.tokens.tokens import MASKED_TOKENS, ROWS_BEGIN, TOKENS
from tests.conftest import LakeAt
from tests.spark_jobs.packing.test_excise import land
from tests.spark_jobs.packing.test_masked import (
    MASKED_WINDOWS_SCHEMA,
    TABLE,
    Masked,
    masked_corpus,
    packed_parts,
    rows,
    wanted,
    written,
)
from tests.spark_jobs.packing.test_packed import PADDING, L, configured
from tests.tiers import tries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RULES = ("licence_header", "blob", "mill.my_spans")
RULED_TOKENS = replace(
    MASKED_TOKENS,
    columns=(*MASKED_TOKENS.columns, Column("mask_rule!", "list<int!>", "numbers of rules")),
    checks=(*TOKENS.checks, ROWS_BEGIN, RULES_ARE_MASKS),
)
RULED_SCHEMA = MASKED_WINDOWS_SCHEMA.append(pa.field("mask_rule", pa.list_(pa.int32())))


def rule_of(token: int) -> int:
    """The rule of an untrained token, by its id, so that it is known wherever the token goes."""
    return 1 + token % len(RULES)


def numbers_of(ids: list[int], bits: list[bool]) -> list[int]:
    """The column that stands beside ids and bits."""
    return [0 if bit else rule_of(token) for token, bit in zip(ids, bits, strict=True)]


def ruled(folder: Path, made: dict[str, Masked], increment: int = 0) -> dict[str, str]:
    """Inputs of packing as Parquet files, with the column of rules."""
    inputs = written(folder, made, increment)
    table = pq.read_table(inputs["tokens"])
    numbers = [numbers_of(one.ids, one.bits) for one in made.values()]
    table = table.append_column("mask_rule", pa.array(numbers, pa.list_(pa.int32())))
    pq.write_table(table, inputs["tokens"], row_group_size=17)
    return inputs


def pack(lake: Lake, inputs: dict[str, str], rules: tuple[str, ...] = RULES) -> None:
    """Materialize the table."""
    step = packed_step("code", L, masked=True, rules=rules)
    materialize(lake, Binding(step, "main", inputs, configured(), only=0))


def require_rules(windows: list[dict[str, Any]]) -> None:
    """Every number is that of its token, and of the padding -1."""
    for window in windows:
        end = window["token_count"]
        numbers = numbers_of(window["input_ids"][:end], window["trainable"][:end])
        assert window["mask_rule"] == numbers + [-1] * (L - end)


def test_each_token_comes_once_with_its_rule(lake_at: LakeAt, tmp_path: Path) -> None:
    """The table names its rules; the proof finds a changed number, the check a mask that is none of the numbers."""
    lake = lake_at(tmp_path / "lake")
    made = masked_corpus(3)
    inputs = ruled(tmp_path, made)
    pack(lake, inputs)
    windows = rows(lake)
    assert packed_parts(windows) == wanted(made)
    require_rules(windows)
    assert json.loads(lake.catalogue.load_table(TABLE).properties[MASK_RULES]) == [*RULES]

    spark = lake.session()
    given_frames = {name: path_rows(spark, inputs[name]) for name in ("tokens", "tokenizer")}

    def lost() -> list[str]:
        landed = spark.createDataFrame(pa.Table.from_pylist(windows, schema=RULED_SCHEMA))
        return [row["doc_id"] for row in lost_tokens(landed, given_frames, 0, configured()).collect()]

    assert lost() == []
    draw = random.Random(1)
    window = draw.choice(windows)
    at = draw.randrange(window["token_count"])
    window["mask_rule"][at] += 1
    (held,) = [s["doc_id"] for s in window["segments"] if 0 <= at - s["window_start"] < s["token_count"]]
    assert lost() == [held]


def test_a_changed_rule_fails_the_audit(lake_at: LakeAt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On its way from `tokens` to the windows."""
    from spark_jobs.packing.windows import assemble

    lake = lake_at(tmp_path / "lake")
    if not is_embedded(lake.session()):
        pytest.skip("workers of Spark are processes of their own, which the change does not reach")
    real = assemble._windows

    def with_another_rule(*args: Any) -> pa.RecordBatch:
        windows = real(*args)
        numbers = windows.column("input_ids").values.to_numpy().copy()
        numbers[0] ^= 4
        lists = pa.ListArray.from_arrays(windows.column("input_ids").offsets, pa.array(numbers))
        return windows.set_column(2, "input_ids", lists)

    monkeypatch.setattr(assemble, "_windows", with_another_rule)
    with pytest.raises(AuditError, match="every_token_once"):
        pack(lake, ruled(tmp_path, masked_corpus(4, 20)))


def test_rules_are_neither_passed_over_nor_made_up(lake_at: LakeAt, tmp_path: Path) -> None:
    """A step without rules refuses tokens with them, and the other way round."""
    lake = lake_at(tmp_path / "lake")
    inputs = ruled(tmp_path, masked_corpus(1, 9))
    with pytest.raises(ConfigError, match="tokens has a column mask_rule"):
        pack(lake, inputs, ())
    pq.write_table(pq.read_table(inputs["tokens"]).drop_columns(["mask_rule"]), inputs["tokens"])
    with pytest.raises(ConfigError, match="tokens has no column mask_rule"):
        pack(lake, inputs)


@settings(max_examples=tries(200))
@given(
    st.lists(
        st.tuples(st.lists(st.booleans(), max_size=5), st.lists(st.integers(-1, 2), max_size=5)), min_size=1, max_size=4
    )
)
def test_the_check_of_rules(made: list[tuple[list[bool], list[int]]]) -> None:
    """Any masks beside any numbers: it holds where each mask is that of its number."""
    schema = pa.schema({"trainable": pa.list_(pa.bool_()), "mask_rule": pa.list_(pa.int32())})
    batch = pa.RecordBatch.from_pylist([{"trainable": bits, "mask_rule": rules} for bits, rules in made], schema=schema)
    holds = RULES_ARE_MASKS.holds
    assert holds is not None
    for skip in (0, 1):
        assert holds(batch.slice(skip)).tolist() == [bits == [r == 0 for r in rules] for bits, rules in made[skip:]]


def test_the_predicate_says_what_the_check_finds(spark: SparkSession) -> None:
    """In SQL as over Arrow."""
    draw = random.Random(5)
    drawn = [
        (draw.choices([False, True], k=2), draw.choices([0, 0, 1, -1], k=draw.choice([2, 2, 2, 3]))) for _ in range(99)
    ]
    schema = pa.schema({"trainable": pa.list_(pa.bool_()), "mask_rule": pa.list_(pa.int32())})
    batch = pa.RecordBatch.from_pylist([{"trainable": b, "mask_rule": r} for b, r in drawn], schema=schema)
    frame = spark.createDataFrame(pa.Table.from_batches([batch]))
    assert RULES_ARE_MASKS.holds is not None
    found = RULES_ARE_MASKS.holds(batch).tolist()
    assert found == [row[0] for row in frame.selectExpr(RULES_ARE_MASKS.predicate).collect()]
    assert 0 < sum(found) < len(found)


@settings(max_examples=tries(100))
@given(st.integers(0, 10**6), st.sets(st.integers(0, 4)), st.integers(0, 2))
def test_excised_segments_go_with_their_rules(seed: int, gone: set[int], skip: int) -> None:
    """Numbers of what stays keep to their tokens, and the gap at the end is padding."""
    draw = random.Random(seed)
    windows = []
    for ordinal in range(4):
        cuts = [0, *sorted(draw.sample(range(1, L), 3))]
        ids = [draw.randrange(2, 99) for _ in range(cuts[-1])]
        bits = [draw.random() < 0.5 for _ in ids]
        segments = [
            {"doc_id": str(draw.randrange(5)), "document_start": a, "token_count": b - a, "window_start": a}
            for a, b in pairwise(cuts)
        ]
        rest = L - len(ids)
        windows.append(
            {
                "ordinal": ordinal,
                "token_count": len(ids),
                "segments": segments,
                "input_ids": ids + [PADDING] * rest,
                "trainable": bits + [False] * rest,
                "mask_rule": numbers_of(ids, bits) + [-1] * rest,
            }
        )
    batch = pa.RecordBatch.from_pylist(windows, schema=RULED_SCHEMA).slice(skip)
    (left,) = excise_windows([batch], {str(name) for name in gone}, L, PADDING)
    require_rules(left.to_pylist())


def test_readers_and_copies_have_the_rules(lake_at: LakeAt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of windows of a blend, excised and compacted, and in every form of export."""
    torch = pytest.importorskip("torch")
    from blender_service.torch import BlendDataset

    lake = lake_at(tmp_path / "warehouse")
    monkeypatch.chdir(tmp_path)
    made = masked_corpus(21)
    inputs = ruled(tmp_path, made)
    for declared in (RULED_TOKENS, ORDERED, TOKENIZER):
        land(lake, declared, inputs[declared.name], 0)
    own = {name: f"main.{name}" for name in ("tokens", "ordered", "tokenizer")}
    step = packed_step("code", L, masked=True, rules=RULES)
    materialize(lake, Binding(step, "main", own, configured(rows_per_file=7), driving_table="main.tokens"))
    gone = random.Random(2).sample(sorted(wanted(made)), 5)
    excise(lake, TABLE, gone)
    compact(lake.catalogue, TABLE)
    windows = rows(lake)
    assert packed_parts(windows) == {doc_id: parts for doc_id, parts in wanted(made).items() if doc_id not in gone}
    require_rules(windows)

    blend = Blender(lake.catalogue).create(BlendSpec((SourceSpec(TABLE),), seed=1))
    columns = ["mask_rule", "trainable"]
    served = []
    for batch in BlendDataset(f"lake:{blend.blend_id}", batch_rows=1, rank=0, world_size=1, columns=columns):
        assert batch["mask_rule"].dtype == torch.int32
        assert (batch["trainable"] == (batch["mask_rule"] == 0)).all()
        served.append((batch["input_ids"].tolist()[0], batch["mask_rule"].tolist()[0]))
    assert sorted(served) == sorted((window["input_ids"], window["mask_rule"]) for window in windows)

    for kind in ("parquet", "webdataset", "pt"):
        export_table(lake.catalogue, TABLE, tmp_path / kind, kind)
    numbers = [window["mask_rule"] for window in windows]
    (shard,) = (tmp_path / "parquet").glob("*.parquet")
    assert pq.read_table(shard)["mask_rule"].to_pylist() == numbers
    assert torch.load(tmp_path / "pt" / "shard-00000.pt")["mask_rule"].tolist() == numbers
    with tarfile.open(tmp_path / "webdataset" / "shard-00000.tar") as tar:
        arrays = [tar.extractfile(member) for member in tar if member.name.endswith(".mask_rule.npy")]
        assert [np.load(io.BytesIO(array.read())).tolist() for array in arrays if array is not None] == numbers
    manifest = json.loads((tmp_path / "parquet" / MANIFEST).read_text())
    assert json.loads(manifest["properties"][MASK_RULES]) == [*RULES]


def test_tables_without_rules_are_as_before() -> None:
    """Columns, checks and sizes of windows with masks alone."""
    plain, with_rules = packed_table("code", L, masked=True), packed_table("code", L, masked=True, ruled=True)
    assert [column.name for column in with_rules.columns] == [*(c.name for c in plain.columns), "mask_rule"]
    assert "mask_rule" not in repr(plain.checks[0].predicate) and len(with_rules.checks) == len(plain.checks) + 1

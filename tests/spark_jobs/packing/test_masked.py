"""Tokens with masks, packed: each token comes once with its bit, rows are cut where they begin, and excised ones go."""

from __future__ import annotations

import io
import random
import tarfile
from dataclasses import dataclass
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
from dagster_project.inspect.lake.exports import export_table
from spark_jobs.code.ordered import ORDERED
from spark_jobs.exceptions import AuditError, ConfigError, StepRunError
from spark_jobs.lake.engine.embedded import is_embedded
from spark_jobs.lake.files.compaction import compact
from spark_jobs.lake.files.rows import path_rows
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.packing.excise import excise
from spark_jobs.packing.packed import packed_step
from spark_jobs.packing.packed_table import lost_tokens, packed_table
from spark_jobs.packing.windows.assemble import WINDOWS_SCHEMA
from spark_jobs.packing.windows.close_up import excise_windows
from spark_jobs.tokens.tokenizer import TOKENIZER
from spark_jobs.tokens.tokens import MASKED_TOKENS, MASKED_TOKENS_SCHEMA
from tests.conftest import LakeAt
from tests.spark_jobs.packing.test_excise import TOKENIZER_SCHEMA, land
from tests.spark_jobs.packing.test_packed import END, ORDERED_SCHEMA, PADDING, L, arrow, configured, line_tokenizer
from tests.tiers import tries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = f"main.packed_code_{L}"
MASKED_WINDOWS_SCHEMA = WINDOWS_SCHEMA.append(pa.field("trainable", pa.list_(pa.bool_())))
Part = tuple[int, list[int], list[bool]]  # token of its document, ids, bits


@dataclass(frozen=True)
class Masked:
    """A document: ids and bits with the end token, and where rows begin."""

    ids: list[int]
    bits: list[bool]
    starts: list[int]

    def parts(self) -> list[Part]:
        """The pieces that packing is to make, by brute force."""
        bounds = [0, *self.starts, len(self.ids)] if len(self.ids) > 1 else [0]
        cuts = [(at, min(at + L, end)) for first, end in pairwise(bounds) for at in range(first, end, L)]
        return [(start, self.ids[start:end], self.bits[start:end]) for start, end in cuts]


def masked_document(draw: random.Random, next_id: int) -> Masked:
    """Up to five rows of up to 3 L tokens, each with a trained one; perhaps none."""
    lengths = [draw.choice([1, 2, 5, L - 1, L, L + 1, draw.randrange(1, 3 * L)]) for _ in range(draw.randrange(6))]
    lengths[-1:] = [max(2, length) for length in lengths[-1:]]  # an end token alone is no row
    ids, bits, starts = list[int](), list[bool](), list[int]()
    for length in lengths:
        starts.append(len(ids))
        ids += [*range(next_id + len(ids), next_id + len(ids) + length - 1), END]
        mask = [draw.random() < 0.4 for _ in range(length)]
        mask[draw.randrange(length)] = True
        bits += mask
    return Masked(ids or [END], bits or [draw.random() < 0.5], starts[1:])


def masked_corpus(seed: int, documents: int = 90) -> dict[str, Masked]:
    """Documents by id; no id is of two tokens."""
    draw = random.Random(seed)
    return {f"{draw.getrandbits(128):032x}": masked_document(draw, 2 + 400 * number) for number in range(documents)}


def written(folder: Path, made: dict[str, Masked], increment: int = 0) -> dict[str, str]:
    """Inputs of packing as Parquet files, tokens of several row groups."""
    tokens = [("code", 0, doc_id, one.ids[:-1], len(one.ids) - 1, one.bits, one.starts) for doc_id, one in made.items()]
    ordered = [("code", 0, doc_id, f"r{at % 4}" if at % 3 else None, None, at) for at, doc_id in enumerate(made)]
    tokenizer = ("ab" * 32, 60_000, END, PADDING, [], line_tokenizer())
    tables = {
        "tokens": arrow(tokens, MASKED_TOKENS_SCHEMA),
        "ordered": arrow(ordered, ORDERED_SCHEMA),
        "tokenizer": arrow([tokenizer], TOKENIZER_SCHEMA),
    }
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}-{increment}.parquet", row_group_size=17)
    return {name: str(folder / f"{name}-{increment}.parquet") for name in tables}


def pack(lake: Lake, inputs: dict[str, str], increment: int = 0, **config: Any) -> None:
    """Materialize one increment of the table."""
    settings = configured(**config)
    materialize(lake, Binding(packed_step("code", L, masked=True), "main", inputs, settings, only=increment))


def packed_parts(windows: list[dict[str, Any]], padding: int = PADDING) -> dict[str, list[Part]]:
    """Pieces of documents by document, in their order; checks the padding."""
    found: dict[str, list[Part]] = {}
    for window in windows:
        assert len(window["input_ids"]) == len(window["trainable"]) == L
        place = 0
        for segment in window["segments"]:
            assert segment["window_start"] == place
            at = slice(place, place := place + segment["token_count"])
            part = segment["document_start"], window["input_ids"][at], window["trainable"][at]
            found.setdefault(segment["doc_id"], []).append(part)
        assert place == window["token_count"]
        assert window["input_ids"][place:] == [padding] * (L - place)
        assert not any(window["trainable"][place:])
    return {doc_id: sorted(parts) for doc_id, parts in found.items()}


def rows(lake: Lake) -> list[dict[str, Any]]:
    """The table by ordinal."""
    found = lake.catalogue.load_table(TABLE).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["ordinal"])


def wanted(made: dict[str, Masked]) -> dict[str, list[Part]]:
    """What should be packed."""
    return {doc_id: one.parts() for doc_id, one in made.items() if one.parts()}


@pytest.mark.parametrize("seed", range(3))
def test_each_token_comes_once_with_its_bit(lake_at: LakeAt, tmp_path: Path, seed: int) -> None:
    """Rows are cut where they begin and, where longer than a window, every L tokens; the proof knows both columns."""
    lake = lake_at(tmp_path / "lake")
    made = masked_corpus(seed)
    inputs = written(tmp_path, made)
    pack(lake, inputs, shards=1 + seed, affinity="repository" if seed == 2 else None)
    windows = rows(lake)
    assert packed_parts(windows) == wanted(made)
    table = lake.catalogue.load_table(TABLE)
    trained, tokens = [sum(window["trainable"]) for window in windows], sum(window["token_count"] for window in windows)
    share = (
        f"{sum(trained) / tokens:.4f} of the tokens of {len(windows)} windows; {trained.count(0)} of these have none"
    )
    assert table.properties["headrace.trained-share"] == share
    snapshot = table.current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    inside = sum(len(one.parts()) - len(one.starts) - 1 for one in made.values() if one.parts())
    assert snapshot.summary.additional_properties["headrace.packing.cuts-in-rows"] == str(inside)

    spark = lake.session()
    given = {name: path_rows(spark, inputs[name]) for name in ("tokens", "tokenizer")}
    assert lost_tokens(_frame(spark, windows), given, 0, configured()).count() == 0
    window = random.Random(seed).choice(windows)
    at = random.Random(seed).randrange(window["token_count"])
    window["trainable"][at] = not window["trainable"][at]
    (held,) = [s["doc_id"] for s in window["segments"] if 0 <= at - s["window_start"] < s["token_count"]]
    assert [row["doc_id"] for row in lost_tokens(_frame(spark, windows), given, 0, configured()).collect()] == [held]


def _frame(spark: SparkSession, windows: list[dict[str, Any]]) -> Any:
    names = MASKED_WINDOWS_SCHEMA.names
    plain = [{name: window[name] for name in names} for window in windows]
    return spark.createDataFrame(pa.Table.from_pylist(plain, schema=MASKED_WINDOWS_SCHEMA))


def test_a_changed_bit_fails_the_audit(lake_at: LakeAt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On its way from `tokens` to the windows; nothing is published."""
    from spark_jobs.packing.windows import assemble

    lake = lake_at(tmp_path / "lake")
    if not is_embedded(lake.session()):
        pytest.skip("workers of Spark are processes of their own, which the change does not reach")
    inputs = written(tmp_path, masked_corpus(4, 20))
    real = assemble._windows

    def with_a_flip(*args: Any) -> pa.RecordBatch:
        windows = real(*args)
        ids = windows.column("input_ids").values.to_numpy().copy()
        ids[0] ^= 1
        lists = pa.ListArray.from_arrays(windows.column("input_ids").offsets, pa.array(ids))
        return windows.set_column(2, "input_ids", lists)

    monkeypatch.setattr(assemble, "_windows", with_a_flip)
    with pytest.raises(AuditError, match="every_token_once"):
        pack(lake, inputs)
    monkeypatch.undo()
    pack(lake, inputs)


def test_masks_are_neither_passed_over_nor_made_up(lake_at: LakeAt, tmp_path: Path) -> None:
    """A step without masks refuses tokens with them, and the other way round; settings of plain text are refused."""
    lake = lake_at(tmp_path / "lake")
    inputs = written(tmp_path, masked_corpus(1, 9))
    with pytest.raises(ConfigError, match=r"tokens has a column trainable; use packed_step\(.., masked=True\)"):
        materialize(lake, Binding(packed_step("code", L), "main", inputs, configured(), only=0))
    for config in ({"beginning_of_document": "<b>"}, {"plan": "next_fit"}, {"plan": "concat_and_slice"}):
        with pytest.raises(ConfigError, match=f"leave {next(iter(config))} out"):
            pack(lake, inputs, **config)
    plain = pq.read_table(inputs["tokens"]).drop_columns(["trainable", "row_starts"])
    pq.write_table(plain, inputs["tokens"])
    with pytest.raises(ConfigError, match="tokens has no column trainable"):
        pack(lake, inputs)


def test_ids_and_masks_that_do_not_fit_are_refused(lake_at: LakeAt, tmp_path: Path) -> None:
    """A foreign id is named as it is in tokens; a mask of another length is no mask."""
    lake = lake_at(tmp_path / "lake")
    for wrong in (60_000, -1):
        with pytest.raises(StepRunError, match=f"has token id {wrong}, the vocabulary ends at 59999"):
            pack(lake, written(tmp_path, {"a" * 32: Masked([5, wrong, END], [True] * 3, [])}))
    inputs = written(tmp_path, {"a" * 32: Masked([5, 6, END], [True] * 4, [])})
    with pytest.raises(StepRunError, match="one value more"):
        pack(lake, inputs)


Row = tuple[list[bool], list[int], int]


@settings(max_examples=tries(200))
@given(
    st.lists(
        st.tuples(st.lists(st.booleans(), max_size=7), st.lists(st.integers(-1, 7), max_size=3), st.integers(0, 6)),
        min_size=1,
        max_size=5,
    )
)
def test_checks_of_masked_tokens(made: list[Row]) -> None:
    """Any masks, row starts and counts: each check holds where a plain reading of it does."""
    table = pa.RecordBatch.from_pylist(
        [{"input_ids": [2] * n, "token_count": n, "trainable": m, "row_starts": s} for m, s, n in made],
        schema=MASKED_TOKENS_SCHEMA,
    )
    (holds,) = [check.holds for check in MASKED_TOKENS.checks if check.name == "every_row_is_trained"]
    assert holds is not None
    assert holds(table).tolist() == [is_right(row) for row in made]
    assert holds(table.slice(1)).tolist() == [is_right(row) for row in made[1:]]


def is_right(document: Row) -> bool:
    """Whether mask and rows of a document are as its columns say."""
    mask, starts, count = document
    fits = len(mask) == count + 1
    if not count:
        return fits and not starts
    ascending = starts == sorted({*starts} & {*range(1, count)})
    return fits and ascending and all(any(mask[a:b]) for a, b in pairwise([0, *starts, count + 1]))


def test_predicates_say_what_the_checks_find(spark: SparkSession) -> None:
    """Of tokens and of windows: the SQL of a check and its function over Arrow agree on random rows."""
    draw = random.Random(3)
    documents = []
    for _ in range(300):
        count = draw.randrange(6)
        starts = sorted(draw.sample(range(1, 6), draw.choice([0, 0, 1, 2])), reverse=draw.random() < 0.1)
        mask = [draw.random() < 0.7 for _ in range(count + draw.choice([1, 1, 1, 1, 2]))]
        documents.append({"input_ids": [2] * count, "token_count": count, "trainable": mask, "row_starts": starts})
    sizes = [draw.sample([L, L, L - 1, L + 1], 2) for _ in range(60)]
    windows = [{"input_ids": [2] * ids, "trainable": [True] * bits} for ids, bits in sizes]
    for check, made, schema in (
        (MASKED_TOKENS.checks[-1], documents, MASKED_TOKENS_SCHEMA),
        (packed_table("code", L, masked=True).checks[0], windows, MASKED_WINDOWS_SCHEMA),
    ):
        batch = pa.RecordBatch.from_pylist(made, schema=schema)
        frame = spark.createDataFrame(pa.Table.from_batches([batch]))
        assert check.holds is not None
        found = check.holds(batch).tolist()
        assert found == [row[0] for row in frame.selectExpr(check.predicate).collect()], check.name
        assert 0 < sum(found) < len(found), check.name


@settings(max_examples=tries(200))
@given(st.integers(0, 10**6), st.sets(st.integers(0, 4)), st.integers(0, 2))
def test_excised_segments_go_with_their_bits(seed: int, gone: set[int], skip: int) -> None:
    """Of random windows; bits of what stays keep to their tokens."""
    draw = random.Random(seed)
    windows, left = [], []
    for ordinal in range(4):
        cuts = sorted(draw.sample(range(1, L), 3))
        bounds = list(pairwise([0, *cuts]))
        ids = [draw.randrange(2, 99) for _ in range(cuts[-1])]
        bits = [draw.random() < 0.5 for _ in ids]
        names = [draw.randrange(5) for _ in bounds]
        windows.append(_window(ordinal, list(zip(names, bounds, strict=True)), ids, bits))
        stays = [(name, bound) for name, bound in zip(names, bounds, strict=True) if name not in gone]
        places = [place for _, bound in stays for place in range(*bound)]
        left.append((ordinal, [ids[p] for p in places], [bits[p] for p in places]))
    batch = pa.RecordBatch.from_pylist(windows, schema=MASKED_WINDOWS_SCHEMA).slice(skip)
    (found,) = excise_windows([batch], {str(name) for name in gone}, L, PADDING)
    for row, (ordinal, ids, bits) in zip(found.to_pylist(), left[skip:], strict=True):
        assert (row["ordinal"], row["input_ids"], row["trainable"]) == (
            ordinal,
            ids + [PADDING] * (L - len(ids)),
            bits + [False] * (L - len(ids)),
        )


def _window(ordinal: int, parts: list[tuple[int, tuple[int, int]]], ids: list[int], bits: list[bool]) -> dict[str, Any]:
    segments = [
        {"doc_id": str(name), "document_start": start, "token_count": end - start, "window_start": start}
        for name, (start, end) in parts
    ]
    filled = {"input_ids": ids + [PADDING] * (L - len(ids)), "trainable": bits + [False] * (L - len(ids))}
    return {"ordinal": ordinal, "token_count": len(ids), "segments": segments, **filled}


def pack_in_lake(lake: Lake, seed: int = 0) -> None:
    """Pack the tokens of the lake; another seed begins a generation."""
    own = {name: f"main.{name}" for name in ("tokens", "ordered", "tokenizer")}
    config = configured(rows_per_file=7, seed=seed)
    step = packed_step("code", L, masked=True)
    materialize(lake, Binding(step, "main", own, config, driving_table="main.tokens"))


Served = tuple[list[int], list[bool]]  # ids and bits of a row


def without(windows: list[dict[str, Any]], gone: list[str]) -> list[Served]:
    """Windows without some documents, by brute force."""
    left = []
    for window in windows:
        places = [
            segment["window_start"] + at
            for segment in window["segments"]
            for at in range(segment["token_count"])
            if segment["doc_id"] not in gone
        ]
        ids, bits = ([window[name][place] for place in places] for name in ("input_ids", "trainable"))
        left.append((ids + [PADDING] * (L - len(ids)), bits + [False] * (L - len(bits))))
    return left


@pytest.mark.parametrize("seed", range(2))
def test_readers_have_the_bits_of_their_ids(
    lake_at: LakeAt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Of any world size, resumed, while documents are excised: labels of a batch are -100 before untrained tokens.

    Of an excised document neither tokens nor bits are left, in any generation; exports and compacted files hold the
    same.
    """
    torch = pytest.importorskip("torch")
    from blender_service.torch import BlendDataset

    lake = lake_at(tmp_path / "warehouse")
    monkeypatch.chdir(tmp_path)
    made = masked_corpus(20 + seed)
    inputs = written(tmp_path, made)
    for declared in (MASKED_TOKENS, ORDERED, TOKENIZER):
        land(lake, declared, inputs[declared.name], 0)
    pack_in_lake(lake)
    windows = rows(lake)
    assert packed_parts(windows) == wanted(made)
    blend = Blender(lake.catalogue).create(BlendSpec((SourceSpec(TABLE),), seed=1))
    rows_of_step = 4

    def dataset(rank: int, world_size: int) -> Any:
        name = f"lake:{blend.blend_id}"
        return BlendDataset(name, batch_rows=rows_of_step, rank=rank, world_size=world_size, columns=["trainable"])

    def read(world_size: int, steps: int, state: Any) -> tuple[list[Served], Any]:
        """Ids and bits of each row; the state after the steps."""
        found = []
        for rank in range(world_size):
            one = dataset(rank, world_size)
            if state is not None:
                one.load_state_dict(state)
            for _, batch in zip(range(steps), one, strict=False):
                names = ("input_ids", "trainable", "labels", "document_ids")
                for ids, bits, labels, documents in zip(*(batch[name].tolist() for name in names), strict=True):
                    found.append((ids, bits))
                    for at in range(L):
                        goes_on = at + 1 < L and documents[at + 1] == documents[at] >= 0 and bits[at + 1]
                        assert labels[at] == (ids[at + 1] if goes_on else -100)
            after = one.state_dict()
        return found, after

    half = len(windows) // rows_of_step // 2
    first, state = read(2, half, None)
    streaming = iter(dataset(0, 1))
    next(streaming)
    pack_in_lake(lake, seed=5)
    assert rows(lake) != windows and packed_parts(rows(lake)) == wanted(made)
    *gone, replaced = random.Random(seed).sample(sorted(wanted(made)), 6)
    done = excise(lake, TABLE, gone)
    assert done.ordinals and done.earlier[0].ordinals
    excise(lake, TABLE, [replaced], head_only=True)
    left = without(windows, gone)
    assert [pair for pair in first if pair not in without(windows, [])] == []
    assert [
        pair for pair in (*read(1, len(windows), state)[0], *read(4, len(windows), None)[0]) if pair not in left
    ] == []
    for batch in streaming:
        served = zip(batch["input_ids"].tolist(), batch["trainable"].tolist(), strict=True)
        assert all(pair in left or pair in without(windows, []) for pair in served)
    head = packed_parts(rows(lake))
    assert head == {doc_id: parts for doc_id, parts in wanted(made).items() if doc_id not in (*gone, replaced)}
    compact(lake.catalogue, TABLE)
    assert packed_parts(rows(lake)) == head

    for kind in ("parquet", "webdataset", "pt"):
        export_table(lake.catalogue, TABLE, tmp_path / kind, kind)
    wanted_bits = [row["trainable"] for row in rows(lake)]
    (shard,) = (tmp_path / "parquet").glob("*.parquet")
    assert pq.read_table(shard)["trainable"].to_pylist() == wanted_bits
    assert torch.load(tmp_path / "pt" / "shard-00000.pt")["trainable"].tolist() == wanted_bits
    with tarfile.open(tmp_path / "webdataset" / "shard-00000.tar") as tar:
        held = [member for member in tar if member.name.endswith(".trainable.npy")]
        assert [np.load(io.BytesIO(tar.extractfile(member).read())).tolist() for member in held] == wanted_bits  # type: ignore[union-attr]

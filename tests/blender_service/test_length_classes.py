"""Length classes from packing to the loop: each step of one class, each token once, under curricula and worlds."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from blender_service.blend.requests import SourceChange, SourceSpec, Stage
from blender_service.client import BlenderClient, Slice
from blender_service.exceptions import InvalidReadError
from blender_service.server.server import RunningServer, start
from blender_service.wire.row_batch import RowBatch
from headrace.tables.cells import cell_text
from tests.conftest import LakeAt
from tests.spark_jobs.packing.test_cells import celled, written
from tests.spark_jobs.packing.test_length_classes import CLASSES, TABLE, decomposed, pack
from tests.spark_jobs.packing.test_packed import Corpus, L, corpus
from tests.tiers import tries

torch = pytest.importorskip("torch", reason="torch is in the extra torch")
from blender_service.torch import BlendDataset  # noqa: E402 (needs torch)

TURN = 12  # rows of a step, of whatever class


@pytest.fixture
def made() -> Corpus:
    """Documents of 0 to 4 windows."""
    return corpus(77, documents=2000)


@pytest.fixture
def server(lake_at: LakeAt, tmp_path: Path, made: Corpus) -> Iterator[RunningServer]:
    """A server of a lake with these documents packed by length classes."""
    lake = lake_at(tmp_path / "lake")
    pack(lake, written(tmp_path, made, celled(made, 5)), rows_per_file=200)
    running = start(lake.catalogue)
    yield running
    running.stop(grace_seconds=0)


def sources(weights: dict[int, int], **more: int) -> list[SourceSpec]:
    """A source for each class."""
    return [
        SourceSpec(f"{TABLE}[length_class={length}]", str(weight), f"c{length}", on_exhausted="CONTINUE", **more)  # type: ignore[arg-type]
        for length, weight in weights.items()
    ]


def segments_of(batch: RowBatch) -> list[tuple[str, int, int]]:
    """Document, first token and count of each segment of rows."""
    ends = np.cumsum(batch.doc_id_lengths)
    names = [batch.doc_id_bytes[a:b].decode() for a, b in itertools.pairwise([0, *ends.tolist()])]
    starts, counts = batch.document_starts.tolist(), batch.segment_token_counts.tolist()
    return [*zip(names, starts, counts, strict=True)]


@pytest.mark.parametrize("seed", range(tries(4, 2)))
def test_each_token_once_under_random_curricula(server: RunningServer, made: Corpus, seed: int) -> None:
    """Curricula that change the weights of classes, leave some out and take them up again, 97 ranks among the worlds.

    Each step is of one class; each document's chunks come once, but for those of rows that fill no turn, which the
    description counts; and a run that stops anywhere goes on with the very rows of one that does not.
    """
    draw = random.Random(seed)
    with BlenderClient(server.address) as client:
        stages = []
        offset = 0
        for _ in range(draw.randint(2, 5)):
            offset += TURN * draw.randint(1, 6)
            chosen = {length: draw.choice([0, 1, 2, 5]) for length in CLASSES}
            chosen[16] = max(1, chosen[16])  # which has most rows, so that no stage ends the blend
            stages.append((offset, chosen))
        last = dict.fromkeys(CLASSES, 1)
        stages.append((offset + TURN, last))
        there = set(CLASSES)
        schedule = []
        for at, chosen in stages:
            changes = [
                SourceChange(f"c{length}", remove=True) if not weight else _change(length, weight, length in there)
                for length, weight in chosen.items()
                if weight or length in there
            ]
            there = {length for length, weight in chosen.items() if weight}
            schedule.append(Stage(at, tuple(changes)))
        blend = client.create_blend(sources({16: 1, 8: 2, 4: 1}), seed=seed, turn_rows=TURN, schedule=schedule)
        assert blend.length_classes == {"c16": 16, "c8": 8, "c4": 4}
        assert blend.end is not None
        assert blend.end % TURN == 0
        found: list[tuple[str, int, int]] = []
        steps: list[list[tuple[str, int, int]]] = []
        at = 0
        while at < blend.end:
            world = draw.choice([1, 2, 3, 4, 6, 12])
            some = min(draw.randint(1, 5) * TURN, blend.end - at)
            for rank in range(world):
                for batch in client.read(blend.blend_id, at, some, part=Slice(TURN, rank, world), max_batch_rows=3):
                    if batch.rows:
                        found += segments_of(batch)
            at += some
        for batch in client.read(blend.blend_id, 0, blend.end, part=Slice(TURN)):
            if batch.rows:
                steps.append(segments_of(batch))
                assert len({batch.source_names[one] for one in batch.sources.tolist()}) == 1
        assert sorted(found) == sorted(itertools.chain(*steps))
        assert max(Counter(found).values()) == 1
        unread = {one.name: one.unread_rows or 0 for one in client.describe_blend(blend.blend_id).sources}
        assert sum(unread.values()) < len(CLASSES) * TURN
        assert all(count < TURN for count in unread.values())
        wanted = _chunks(made)
        left = wanted - Counter({(doc_id, start): count for doc_id, start, count in found})
        assert sum(left.values()) <= sum(unread.values()) * L
        uneven = Slice(blend.end, 96, 97, uneven=True)
        rows = [batch.rows for batch in client.read(blend.blend_id, 0, blend.end, part=uneven)]
        assert sum(rows) == uneven.rows


def _change(length: int, weight: int, known: bool) -> SourceChange:
    if known:
        return SourceChange(f"c{length}", weight=str(weight))
    return SourceChange(
        f"c{length}", weight=str(weight), table=f"{TABLE}[length_class={length}]", on_exhausted="CONTINUE"
    )


def _chunks(made: Corpus) -> Counter[tuple[str, int]]:
    """Tokens of each chunk of the documents, by id and start."""
    chunks: Counter[tuple[str, int]] = Counter()
    for doc_id, ids in made.own_ids().items():
        start = 0
        for length in decomposed(len(ids) + 1, CLASSES) if ids else []:
            chunks[doc_id, start] += length
            start += length
    return chunks


def test_tensors_are_of_sequences(server: RunningServer, made: Corpus) -> None:
    """A step's tensors have a row for each sequence, which begins a document or goes on with one by itself."""
    own = made.own_ids()
    with BlenderClient(server.address) as client:
        blend = client.create_blend(sources({16: 1, 8: 1, 4: 1}), seed=1, turn_rows=TURN)
        dataset = BlendDataset(server.address, blend.blend_id, TURN, length_classes=True, device="cpu")
        shapes, taken = Counter[tuple[int, ...]](), 0
        layouts = client.read(blend.blend_id, 0, part=Slice(TURN)).steps(by_class=blend)
        for batch, layout in zip(dataset, layouts, strict=False):
            shapes[tuple(batch["input_ids"].shape)] += 1
            length = batch["input_ids"].shape[1]
            np.testing.assert_array_equal(batch["labels"].numpy(), layout.labels)
            assert batch["max_seqlen"] <= length
            assert set(range(0, TURN * L + 1, length)) <= set(batch["cu_seqlens"].tolist())
            positions, ids = batch["position_ids"].numpy(), batch["input_ids"].numpy()
            assert (positions[:, 0] == 0).all()
            if length > CLASSES[-1]:
                full = batch["document_ids"].numpy()[:, 0] == 0
                assert (positions[full] == np.arange(length)).all()
                assert (batch["labels"].numpy()[full, :-1] == ids[full, 1:]).all()
                assert (batch["labels"].numpy()[full, -1] == -100).all()
            taken += int((batch["document_ids"].numpy() >= 0).sum())
        assert set(shapes) == {(TURN * L // length, length) for length in CLASSES}
        whole = sum(len(ids) + 1 for ids in own.values() if ids)
        assert whole - 3 * TURN * L <= taken <= whole
        with pytest.raises(InvalidReadError, match="steps of 8 rows mix length classes, sources take turns of 12"):
            BlendDataset(server.address, blend.blend_id, 8, length_classes=True)
        assert len(next(iter(BlendDataset(server.address, blend.blend_id, 6, length_classes=True)))["labels"]) >= 6
        with pytest.raises(InvalidReadError, match=r"sequences of \d+ and \d+ tokens; take steps that divide"):
            late = BlendDataset(server.address, blend.blend_id, TURN, offset=TURN // 2, length_classes=True)
            list(late)


def test_rows_of_windows_are_one_sequence(server: RunningServer) -> None:
    """Without classes a row is a sequence, and sources of all classes are read as rows."""
    with BlenderClient(server.address) as client:
        blend = client.create_blend([SourceSpec(TABLE)])
        assert (blend.length_classes, blend.turn_rows) == ({}, 1)
        dataset = BlendDataset(server.address, blend.blend_id, 5, length_classes=True)
        (batch, *_) = itertools.islice(dataset, 2)
        assert batch["input_ids"].shape == (5, L)
        two = client.create_blend([SourceSpec(f"{TABLE}[length_class in (4, 8)]")])
        assert two.length_classes == {}


def test_a_class_is_what_a_choice_of_cells_says() -> None:
    """One class of one dimension, beside others or not."""
    from headrace.tables.cells import parse_choice, sequence_tokens

    assert parse_choice("topic=law, length_class=512").length_class == 512
    assert parse_choice("length_class in (512, 8)").length_class is None
    assert parse_choice("length_class>=512").length_class is None
    assert parse_choice("length_class=none").length_class is None
    assert parse_choice("topic=512").length_class is None
    assert sequence_tokens(cell_text({"length_class": 512, "topic": None}), 2048) == 512
    assert sequence_tokens(cell_text({"topic": "512"}), 2048) == 2048

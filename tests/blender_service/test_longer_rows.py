"""Windows that grow in one run: rows before the change are the parent's, what was read is not read again."""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from pyiceberg.catalog import Catalog
from tokenizers import Tokenizer

from blender_service.blend.config import BlendConfig, WindowSpan, load_config
from blender_service.blend.requests import BlendSpec, SourceChange, SourceSpec, Stage, TextSpec, UpdateSpec
from blender_service.blend.store import HEADS, open_store
from blender_service.client import ExpectedWindow, Slice, connect
from blender_service.exceptions import (
    InvalidBlendError,
    InvalidReadError,
    PackedTableError,
    UpdateRefusedError,
    WindowMismatchError,
)
from blender_service.order.resolved_blend import decode_head
from blender_service.server.blender import Blender
from blender_service.server.server import RunningServer
from blender_service.tables.unread_documents import UNREAD
from blender_service.wire.row_batch import RowBatch
from tests.blender_service.packed_tables import PackedFixture
from tests.blender_service.test_texts import put_texts, texts, tokenizer  # noqa: F401 (fixtures)
from tests.tiers import tries

Read = tuple[str, int, str, int, list[int]]  # source, epoch, document, its first token, tokens


@pytest.fixture
def documents(lake: Catalog, texts: dict[str, str], tokenizer: Tokenizer) -> dict[str, list[int]]:  # noqa: F811
    """Tokens of each document with one, in two tables of text."""
    draw = np.random.default_rng(9)
    more = {f"m{i}": " ".join(draw.choice(["of", "many", "words"], draw.integers(1, 40))) for i in range(70)}
    put_texts(lake, "main.more", more)
    reference = Tokenizer.from_str(tokenizer.to_str())
    reference.encode_special_tokens = True
    ids = {name: reference.encode(text, add_special_tokens=False).ids for name, text in {**texts, **more}.items()}
    return {name: [*of, 0] for name, of in ids.items() if of}


def read(blender: Blender, blend_id: str, offset: int, rows: int) -> list[tuple[int, list[Read]]]:
    """The length of each row and what stands in it."""
    found = []
    for batch in blender.open(blend_id, offset).read(offset, rows):
        found += rows_of(batch)
    return found


def rows_of(batch: RowBatch) -> list[tuple[int, list[Read]]]:
    """The length of each row of a batch and what stands in it."""
    ends = np.cumsum(batch.doc_id_lengths).tolist()
    names = [batch.doc_id_bytes[a:b].decode() for a, b in itertools.pairwise([0, *ends])]
    found: list[tuple[int, list[Read]]] = []
    segment = 0
    for row in range(batch.rows):
        pieces: list[Read] = []
        for _ in range(int(batch.segment_counts[row])):
            at, count = int(batch.window_starts[segment]), int(batch.segment_token_counts[segment])
            ids = batch.input_ids[row, at : at + count].tolist()
            source = batch.source_names[batch.sources[row]]
            pieces.append((source, int(batch.epochs[row]), names[segment], int(batch.document_starts[segment]), ids))
            segment += 1
        found.append((batch.input_ids.shape[1], pieces))
    return found


def spec_of(draw: random.Random, epochs: int) -> BlendSpec:
    """A blend of two tables of text."""
    sources = tuple(
        SourceSpec(f"main.{table}", str(draw.randint(1, 3)), table, max_epochs=epochs, on_exhausted="CONTINUE")
        for table in ("texts", "more")
    )
    rule = TextSpec("main.tokenizer", 8, group_documents=draw.choice([1, 3, 7]))
    shape = {"block_rows": draw.choice([1, 4, 16]), "group_blocks": draw.choice([1, 2])}
    return BlendSpec(sources, draw.getrandbits(60), texts=rule, **shape)


@pytest.mark.parametrize("seed", range(tries(12, 6)))
def test_nothing_is_read_twice_in_an_epoch(lake: Catalog, documents: dict[str, list[int]], seed: int) -> None:
    """Over random changes of the length, with other updates between: each document once in each epoch, whole.

    Of what was read in part at a change the rest is left out, and counted. Every row before a change is the parent's,
    heads are computed again as they were stored, and another server gives the same.
    """
    draw = random.Random(seed)
    blender, epochs = Blender(lake), draw.choice([1, 2, 3])
    config = blender.create(spec_of(draw, epochs))
    offset, changes, before = 0, dict[int, int](), [(0, 8)]
    in_part = Counter[str]()
    for _ in range(draw.randint(1, 4)):
        end = blender.head(config.blend_id).end or 0
        if offset + 1 >= end:
            break
        offset = min(end - 1, offset + draw.randint(1, 90))
        parent = read(blender, config.blend_id, 0, offset)
        stage = Stage(offset, tuple(SourceChange(name, weight=str(draw.randint(1, 4))) for name in names_of(config)))
        if draw.random() < 0.75:
            tokens = before[-1][1] * draw.choice([2, 4])
            stage = replace(stage, window_tokens=tokens)
            before.append((offset, tokens))
            changes[offset] = tokens
        config = blender.update(UpdateSpec(config.blend_id, (stage,)))
        if stage.window_tokens:
            in_part.update({s.name: (s.dropped or {}).get("read_in_part", 0) for s in config.sources})
        assert read(blender, config.blend_id, 0, offset) == parent
    assert [(int(span.from_offset), span.window_tokens) for span in config.spans] == before
    end = blender.head(config.blend_id).end or 0
    every = read(blender, config.blend_id, 0, 0)
    assert len(every) == end
    lengths = [next(tokens for first, tokens in reversed(before) if first <= at) for at in range(end)]
    assert [length for length, _ in every] == lengths
    pieces: dict[tuple[str, int, str], list[tuple[int, list[int]]]] = defaultdict(list)
    for _, row in every:
        for source, epoch, name, first, ids in row:
            pieces[source, epoch, name].append((first, ids))
    partial = Counter[str]()
    for (source, _, name), parts in pieces.items():
        parts.sort()
        joined = list(itertools.chain(*(ids for _, ids in parts)))
        if joined == documents[name]:
            continue
        partial[source] += 1
        assert len({first for first, _ in parts}) == len(parts)
        assert all(ids == documents[name][first : first + len(ids)] for first, ids in parts)
    assert partial == +in_part
    tables = {"more": [name for name in documents if name[0] == "m"]}
    tables["texts"] = [name for name in documents if name not in tables["more"]]
    for (source, names), epoch in itertools.product(tables.items(), range(epochs)):
        assert {name for of, at, name in pieces if (of, at) == (source, epoch)} == {*names}
    described = {one.name: one for one in blender.describe(config.blend_id).sources}
    assert all(one.unread_rows == 0 for one in described.values())
    assert sum(one.tokens for one in described.values()) == sum(lengths)
    again = Blender(lake)
    at = draw.randrange(end)
    assert read(again, config.blend_id, at, 0) == every[at:]
    store = open_store(lake)
    stored = decode_head(config.blend_id, store.objects.read(f"{HEADS}/{config.blend_id}") or b"")
    assert stored == store.head(config)
    content = config.canonical_json()
    assert load_config(config.blend_id, content) == config


def names_of(config: BlendConfig) -> list[str]:
    """Names of the sources."""
    return [source.name for source in config.sources]


def test_a_change_is_taken_back(lake: Catalog, documents: dict[str, list[int]]) -> None:
    """An update before the change of its parent has the rows of before, also with another change of its own."""
    blender = Blender(lake)
    first = blender.create(spec_of(random.Random(1), 1))
    grown = blender.update(UpdateSpec(first.blend_id, (Stage(40, window_tokens=32),)))
    back = blender.update(UpdateSpec(grown.blend_id, (Stage(20),)))
    assert back.windows is None
    assert read(blender, back.blend_id, 0, 0) == read(blender, first.blend_id, 0, 0)
    other = blender.update(UpdateSpec(grown.blend_id, (Stage(20, window_tokens=64),)))
    assert [span.window_tokens for span in other.spans] == [8, 64]
    assert read(blender, other.blend_id, 0, 20) == read(blender, first.blend_id, 0, 20)
    whole = blender.update(UpdateSpec(first.blend_id, (Stage(0, window_tokens=64),)))
    assert whole.windows is None
    assert whole.window.window_tokens == 64
    assert {length for length, _ in read(blender, whole.blend_id, 0, 0)} == {64}
    assert len(documents) > 100


def test_readers_meet_the_change_between_steps(
    lake: Catalog, documents: dict[str, list[int]], serve: Callable[..., RunningServer]
) -> None:
    """A stream goes over it, a step never has both lengths, and who expects one length reads up to the other."""
    address = serve().address
    with connect(address) as client:
        spec = spec_of(random.Random(5), 2)
        blend = client.create_blend(spec.sources, seed=5, texts=spec.texts)
        with pytest.raises(InvalidBlendError, match="is 1; give 2 to"):
            client.update_blend(blend.blend_id, 36, window_tokens=1)
        grown = client.update_blend(blend.blend_id, 36, window_tokens=32, schedule=[Stage(60, window_tokens=64)])
        assert grown.windows == ((0, 8), (36, 32), (60, 64))
        assert [grown.at(offset).window_tokens for offset in (0, 35, 36, 59, 60)] == [8, 8, 32, 32, 64]
        lengths = [
            batch.input_ids.shape[1]
            for rank in range(3)
            for batch in client.read(grown.blend_id, 24, 48, part=(12, rank, 3))
            if batch.rows
            for _ in range(batch.rows)
        ]
        assert Counter(lengths) == {8: 12, 32: 24, 64: 12}
        with pytest.raises(InvalidReadError, match="from row 60 on rows have 64 tokens, and a step of 9 rows from 0"):
            list(client.read(grown.blend_id, 0, part=Slice(9)))
        expected = ExpectedWindow(window_tokens=8)
        with pytest.raises(WindowMismatchError, match="rows from 36 on have 32 tokens, expected are 8; read up to"):
            list(client.read(grown.blend_id, 30, expected=expected))
        assert sum(batch.rows for batch in client.read(grown.blend_id, 30, 6, expected=expected)) == 6
        with pytest.raises(WindowMismatchError, match="wants windows of 8 tokens"):
            client.read(grown.blend_id, 40, expected=expected).__next__()
        assert [progress.row for progress in client.prewarm(grown.blend_id, 30, 40)][-1] == 70
        assert client.prove_continuation(blend.blend_id, grown.blend_id, 36).differs_from == 36
    assert len(documents) > 100


def test_97_ranks_read_the_rows_of_one(
    lake: Catalog, documents: dict[str, list[int]], serve: Callable[..., RunningServer]
) -> None:
    """Over two changes, in steps of 97 rows: every rank its rows, also where the run goes on with other worlds."""
    with connect(serve().address) as client:
        spec = spec_of(random.Random(7), 0)
        blend = client.create_blend(spec.sources, seed=7, texts=spec.texts)
        grown = client.update_blend(blend.blend_id, 194, window_tokens=32, schedule=[Stage(388, window_tokens=64)])
        every = [row for batch in client.read(grown.blend_id, 0, 485) for row in rows_of(batch)]
        assert [length for length, _ in every] == [8] * 194 + [32] * 194 + [64] * 97
        for offset, world in ((0, 97), (97, 1), (194, 97), (291, 7)):
            found: dict[int, tuple[int, list[Read]]] = {}
            for rank in range(world):
                for batch in client.read(grown.blend_id, offset, 194, part=Slice(97, rank, world, uneven=True)):
                    found |= dict(enumerate(rows_of(batch), batch.offset))
            assert [found[at] for at in sorted(found)] == every[offset : offset + 194]
    assert len(documents) > 100


def test_datasets_have_the_longer_rows(
    lake: Catalog, documents: dict[str, list[int]], serve: Callable[..., RunningServer]
) -> None:
    """A dataset goes on over the change, in tensors of the new length, and its state resumes there."""
    pytest.importorskip("torch", reason="torch is in the extra torch")
    from blender_service.torch import BlendDataset

    address = serve().address
    with connect(address) as client:
        spec = spec_of(random.Random(5), 1)
        blend = client.create_blend(spec.sources, seed=5, texts=spec.texts)
        grown = client.update_blend(blend.blend_id, 36, window_tokens=32)
    dataset = BlendDataset(address, grown.blend_id, 12, expected=ExpectedWindow(window_tokens=8), tensors=["labels"])
    with pytest.raises(WindowMismatchError):
        list(dataset)
    for device in (None, "cpu"):  # without and with a ring of buffers, fewer than steps
        dataset = BlendDataset(address, grown.blend_id, 12, device=device, prefetch_batches=1)
        shapes = [tuple(batch["input_ids"].shape) for batch in itertools.islice(dataset, 5)]
        assert shapes == [(12, 8)] * 3 + [(12, 32)] * 2
    late = BlendDataset(address, grown.blend_id, 6, offset=36, expected=ExpectedWindow(window_tokens=32))
    assert next(iter(late))["input_ids"].shape == (6, 32)
    assert len(documents) > 100


def test_what_cannot_be_longer_is_refused(lake: Catalog, documents: dict[str, list[int]], code: PackedFixture) -> None:
    """Packed tables, sources that were left out before the change, and a note of unread documents that is lost."""
    blender = Blender(lake)
    packed = blender.create(BlendSpec((SourceSpec(code.identifier),)))
    with pytest.raises(InvalidBlendError, match="is of tables of text; packed rows have one length"):
        blender.update(UpdateSpec(packed.blend_id, (Stage(10, window_tokens=32),)))
    first = blender.create(spec_of(random.Random(3), 1))
    without = blender.update(UpdateSpec(first.blend_id, (Stage(20, (SourceChange("more", remove=True),)),)))
    grown = blender.update(UpdateSpec(without.blend_id, (Stage(40, window_tokens=32),)))
    with pytest.raises(UpdateRefusedError, match="more was left out before rows became 32 tokens long; add its table"):
        blender.update(
            UpdateSpec(
                grown.blend_id, (Stage(50, (SourceChange("more", weight="1"), SourceChange("texts", weight="1"))),)
            )
        )
    (source,) = grown.sources
    store = open_store(lake)
    assert store.objects.read(f"{UNREAD}/{source.unread}") is not None
    store.objects.delete(f"{UNREAD}/{source.unread}")
    with pytest.raises(PackedTableError, match="is lost or damaged beside the blends"):
        list(Blender(lake).open(grown.blend_id, 40).read(40))
    assert len(documents) > 100


def test_rows_are_counted_by_their_lengths() -> None:
    """Tokens as rows, before, at and after changes, beside a count row by row."""
    spans = tuple(WindowSpan(from_offset=str(at), window_tokens=tokens) for at, tokens in ((0, 8), (5, 32), (7, 16)))
    config = BlendConfig.model_construct(windows=spans)
    for tokens in range(200):
        rows = total = 0
        while total < tokens:
            total += config.window_tokens_at(rows)
            rows += 1
        assert config.rows_of(tokens) == rows

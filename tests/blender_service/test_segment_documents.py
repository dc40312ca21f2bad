"""Which document each segment of a batch is of: of packed and text blends, for ranks, meshes and workers in turns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from blender_service.blend.requests import TextSpec
from blender_service.client import SourceSpec, connect
from blender_service.exceptions import InvalidReadError
from blender_service.server.server import RunningServer
from blender_service.wire.row_batch import concatenate
from tests.blender_service.packed_tables import PackedFixture
from tests.blender_service.rows.test_blend_reader import rows_of
from tests.blender_service.test_texts import WINDOW, texts, tokenizer

torch = pytest.importorskip("torch", reason="torch is in the extra torch")

from blender_service.torch import TENSORS, Batch, BlendDataset  # noqa: E402 (needs torch)

assert texts and tokenizer  # fixtures

Serve = Callable[..., RunningServer]
Pieces = list[list[tuple[str, list[int]]]]  # of each row its documents with their tokens there
ASKED = (*TENSORS, "segment_documents")


def read_pieces(address: str, blend: str, offset: int, rows: int) -> Pieces:
    """Documents and tokens of rows, by the plain client."""
    with connect(address) as client:
        batch = concatenate(list(client.read(blend, offset, rows)))
    return [
        [(doc_id, list(row.input_ids[start : start + count])) for doc_id, _, count, start in row.segments]
        for row in rows_of(batch)
    ]


def pieces_of(batch: Batch) -> Pieces:
    """The same of a batch, by its tensors alone."""
    rows: Pieces = []
    segment = 0
    for ids, numbers in zip(batch["input_ids"], batch["document_ids"], strict=True):
        count = int(numbers.max()) + 1
        documents = [batch["documents"][at] for at in batch["segment_documents"][segment : segment + count].tolist()]
        rows.append([(doc_id, ids[numbers == number].tolist()) for number, doc_id in enumerate(documents)])
        segment += count
    assert segment == len(batch["segment_documents"])
    assert sorted({*batch["documents"]}) == sorted(batch["documents"])
    return rows


@pytest.fixture(params=["server", "lake:"])
def address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A server, or the lake without one."""
    monkeypatch.chdir(tmp_path)
    address: str = request.getfixturevalue("serve")().address if request.param == "server" else request.param
    return address


@pytest.mark.parametrize(("rank", "world_size"), [(0, 1), (1, 2), (2, 5)])
@pytest.mark.parametrize("device", [None, "cpu"])
def test_segments_name_their_documents(
    address: str, code: PackedFixture, prose: PackedFixture, rank: int, world_size: int, device: str | None
) -> None:
    """Of a blend of two tables each segment has the document and the tokens that the plain client reads."""
    with connect(address) as client:
        client.create_blend([SourceSpec(code.identifier, "3"), SourceSpec(prose.identifier, max_epochs=0)], name="mix")
    dataset = BlendDataset(address, "mix", 20, rank=rank, world_size=world_size, offset=7, tensors=ASKED, device=device)
    for step, batch in zip(range(3), dataset, strict=False):
        first, last = (7 + 20 * step + number * 20 // world_size for number in (rank, rank + 1))
        assert batch["offset"] == first
        assert pieces_of(batch) == read_pieces(address, "mix", first, last - first)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores
def test_workers_in_turns_give_the_same_documents(
    code: PackedFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids cross from the processes that read to the one that trains."""
    monkeypatch.chdir(tmp_path)
    with connect("lake:") as client:
        client.create_blend([SourceSpec(code.identifier)], name="code")
    dataset = BlendDataset("lake:code", batch_rows=9, rank=1, world_size=2, uneven=True, workers=2, tensors=ASKED)
    for step, batch in zip(range(5), dataset, strict=False):
        assert pieces_of(batch) == read_pieces("lake:", "code", 9 * step + 4, 5)


def test_texts_name_their_documents(address: str, texts: dict[str, str]) -> None:
    """Rows that are tokenized when they are read say the same, through two epochs."""
    assert texts
    with connect(address) as client:
        spec = TextSpec("main.tokenizer", window_tokens=WINDOW, group_documents=8)
        client.create_blend([SourceSpec("main.texts", max_epochs=2)], name="prose", texts=spec)
    dataset = BlendDataset(address, "prose", 32, tensors=ASKED)
    for step, batch in zip(range(4), dataset, strict=False):
        assert pieces_of(batch) == read_pieces(address, "prose", 32 * step, 32)


def test_ids_come_where_they_are_asked_for(address: str, code: PackedFixture) -> None:
    """A batch of the default tensors has none, and a wrong name is refused with those that there are."""
    with connect(address) as client:
        client.create_blend([SourceSpec(code.identifier)], name="code")
    batch = next(iter(BlendDataset(address, "code", 4)))
    assert "documents" not in batch and "segment_documents" not in batch
    with pytest.raises(InvalidReadError, match="segment_documents"):
        BlendDataset(address, "code", 4, tensors=("segment_document",))

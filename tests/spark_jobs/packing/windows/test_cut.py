"""Pieces are cut out of documents where they lie in the files of `tokens`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.exceptions import TableMismatchError
from spark_jobs.lake.files.side_reads import SideReads
from spark_jobs.packing.windows import cut as cut_module
from spark_jobs.packing.windows.assemble import PARTS_SCHEMA
from spark_jobs.packing.windows.cut import cut_pieces
from spark_jobs.packing.windows.window_facts import WindowForm

DOCUMENTS = [[5, 6, 7, 8, 9], [], [70_000, 1], [4] * 30, [3, 2]]
SMALL = WindowForm(8, end_of_document_id=0, padding_id=1, vocabulary_size=1 << 16)
LARGE = WindowForm(8, end_of_document_id=0, padding_id=1, vocabulary_size=70_001)
Piece = tuple[int, int, int]


@pytest.fixture
def file(tmp_path: Path) -> str:
    """The documents, two rows a row group."""
    path = tmp_path / "tokens.parquet"
    names = pa.array([f"d{row}" for row in range(len(DOCUMENTS))])
    ids = pa.array(DOCUMENTS, pa.list_(pa.int32()))
    pq.write_table(pa.table({"doc_id": names, "input_ids": ids}), path, row_group_size=2)
    return str(path)


def cut(file: str, pieces: list[Piece], facts: WindowForm) -> list[list[int]]:
    """Ids of pieces (row, document_start, own_tokens)."""
    count = len(pieces)
    rows = pa.RecordBatch.from_pydict(
        {
            "data_file": [file] * count,
            "data_row": pa.array([row for row, _, _ in pieces], pa.int64()),
            "ordinal": pa.array(range(count), pa.int64()),
            "window_start": pa.array([0] * count, pa.int32()),
            "document_start": pa.array([start for _, start, _ in pieces], pa.int64()),
            "own_tokens": pa.array([own for _, _, own in pieces], pa.int32()),
            "begins": [False] * count,
            "ends": [True] * count,
        }
    )
    found = list(cut_pieces([rows], SideReads(("doc_id", "input_ids"), {}), facts))
    assert all(batch.schema == PARTS_SCHEMA for batch in found)
    assert [o for batch in found for o in batch.column("ordinal").to_pylist()] == list(range(count))
    assert [d for batch in found for d in batch.column("doc_id").to_pylist()] == [f"d{row}" for row, _, _ in pieces]
    return [np.frombuffer(ids, facts.id_type).tolist() for batch in found for ids in batch.column("ids").to_pylist()]


PIECES: list[Piece] = [(0, 0, 4), (0, 4, 1), (2, 1, 1), (3, 0, 8), (3, 8, 8), (3, 16, 14), (4, 2, 0), (4, 0, 2)]


@pytest.mark.parametrize("batch_tokens", [1, 9, 1 << 20])
def test_pieces_are_slices_of_their_documents(file: str, batch_tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole, cut, empty and in any batches; two bytes an id or four, by the vocabulary."""
    monkeypatch.setattr(cut_module, "_BATCH_TOKENS", batch_tokens)
    expected = [DOCUMENTS[row][start : start + own] for row, start, own in PIECES]
    assert cut(file, PIECES, LARGE) == expected
    few = [piece for piece in PIECES if piece[0] != 2]
    assert cut(file, few, SMALL) == [DOCUMENTS[row][start : start + own] for row, start, own in few]


def test_a_foreign_token_id_is_refused_by_document(file: str) -> None:
    """An id outside the vocabulary names the document and the id, if the document is one of those cut."""
    with pytest.raises(TableMismatchError, match=r"document d2 has token id 70000, the vocabulary ends at 65535"):
        cut(file, [(2, 1, 1), (2, 0, 1)], SMALL)
    assert cut(file, [(2, 1, 1), (3, 0, 1)], SMALL) == [[1], [4]]


def test_a_document_shorter_than_its_count_is_refused(file: str) -> None:
    """A piece beyond the end of its document is not filled with a neighbour's ids."""
    with pytest.raises(TableMismatchError, match=r"document d0 has fewer ids than its token_count"):
        cut(file, [(0, 4, 2)], SMALL)

"""Windows are laid out from sorted parts, whatever the batches they come in."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.exceptions import TableMismatchError
from spark_jobs.packing.windows import assemble
from spark_jobs.packing.windows.assemble import PARTS_SCHEMA, assemble_windows
from spark_jobs.packing.windows.window_facts import WindowForm

FACTS = WindowForm(window_tokens=8, end_of_document_id=0, padding_id=1, vocabulary_size=10)
PARTS = [
    (7, 0, "a", 0, [5, 6, 7], True),
    (7, 4, "b", 0, [9, 9], True),
    (8, 0, "c", 0, [2, 3, 4, 5, 6, 7, 8, 9], False),
    (9, 0, "c", 8, [], True),
    (9, 1, "d", 0, [4], True),
]


def batch(parts: list[tuple[int, int, str, int, list[int], bool]], begins: bool = False) -> pa.RecordBatch:
    """Parts as Spark sends them; `begins` puts a beginning of document before each document."""
    columns = list(zip(*parts, strict=True)) or [()] * 6
    names = ["ordinal", "window_start", "doc_id", "document_start", "ids", "ends"]
    found = dict(zip(names, map(list, columns), strict=True))
    found["ids"] = [np.array(ids, dtype="<u2").tobytes() for ids in found["ids"]]
    found["balance"] = [0] * len(parts)
    found["begins"] = [begins and part[3] == 0 and bool(part[4]) for part in parts]
    return pa.RecordBatch.from_pydict(found, schema=PARTS_SCHEMA)


def rows(batches: list[pa.RecordBatch]) -> list[dict[str, object]]:
    """The windows assembled from batches."""
    return [row for found in assemble_windows(batches, FACTS) for row in found.to_pylist()]


def test_windows_are_laid_out_as_drawn() -> None:
    """Ids, end-of-document tokens, padding and segments of a window shared, a full one, and an end alone."""
    found = rows([batch(PARTS)])
    assert [row["ordinal"] for row in found] == [7, 8, 9]
    assert [row["token_count"] for row in found] == [7, 8, 3]
    assert [row["input_ids"] for row in found] == [
        [5, 6, 7, 0, 9, 9, 0, 1],
        [2, 3, 4, 5, 6, 7, 8, 9],
        [0, 4, 0, 1, 1, 1, 1, 1],
    ]
    assert found[2]["segments"] == [
        {"doc_id": "c", "document_start": 8, "token_count": 1, "window_start": 0},
        {"doc_id": "d", "document_start": 0, "token_count": 2, "window_start": 1},
    ]


def test_a_beginning_of_document_comes_before_the_first_piece() -> None:
    """It takes a place of its own in the first piece of a document, and in no other."""
    facts = WindowForm(8, end_of_document_id=0, padding_id=1, vocabulary_size=10, beginning_of_document_id=3)
    parts = [(0, 0, "a", 0, [5, 6], True), (0, 4, "b", 0, [7, 8, 9], False), (1, 0, "b", 3, [4], True)]
    found = [row for windows in assemble_windows([batch(parts, begins=True)], facts) for row in windows.to_pylist()]
    assert [row["input_ids"] for row in found] == [[3, 5, 6, 0, 3, 7, 8, 9], [4, 0, 1, 1, 1, 1, 1, 1]]
    assert [segment["token_count"] for row in found for segment in row["segments"]] == [4, 4, 2]


@pytest.mark.parametrize("cut", range(6))
@pytest.mark.parametrize("group_tokens", [1, 16, 1 << 22])
def test_batches_do_not_matter(cut: int, group_tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window cut by a batch boundary, an empty batch and small output batches give the same windows."""
    expected = rows([batch(PARTS)])
    monkeypatch.setattr(assemble, "_BATCH_TOKENS", group_tokens)
    assert rows([batch(PARTS[:cut]), batch([]), batch(PARTS[cut:])]) == expected
    assert rows([batch([part]) for part in PARTS]) == expected
    assert rows([batch([*PARTS]).slice(0, cut), batch(PARTS).slice(cut)]) == expected


def test_nothing_gives_nothing() -> None:
    """No batches, or empty ones, give no windows."""
    assert rows([]) == []
    assert rows([batch([])]) == []


def test_a_gap_in_a_window_is_refused() -> None:
    """A part that does not begin where the one before it ends names its document."""
    with pytest.raises(TableMismatchError, match=r"document b lies at 5 of its window, wanted 4"):
        rows([batch([PARTS[0], (7, 5, "b", 0, [9, 9], True)])])


def test_an_overfull_window_is_refused() -> None:
    """More tokens than L in a window are an error."""
    with pytest.raises(TableMismatchError, match="materialize tokens again"):
        rows([batch([PARTS[0], (7, 4, "b", 0, [9, 9, 9, 9], True)])])


@pytest.mark.parametrize("split", [True, False])
def test_a_missing_ordinal_is_refused(split: bool) -> None:
    """Ordinals are dense, within a batch and over batches."""
    parts = [PARTS[0], PARTS[1], PARTS[3], PARTS[4]]
    batches = [batch(parts[:2]), batch(parts[2:])] if split else [batch(parts)]
    with pytest.raises(TableMismatchError, match="ordinal 8 has no segment"):
        rows(batches)

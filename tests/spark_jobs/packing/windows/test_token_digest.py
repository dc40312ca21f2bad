"""Digests of windows and of documents agree exactly where each token is there once, in its place."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.packing.windows.assemble import SEGMENT_FIELDS
from spark_jobs.packing.windows.token_digest import (
    digest_documents,
    digest_windows,
    document_sums,
    length_sums,
    segment_sums,
)
from spark_jobs.packing.windows.window_facts import WindowForm

FACTS = WindowForm(8, end_of_document_id=0, padding_id=1, vocabulary_size=50, beginning_of_document_id=2)
Window = tuple[list[int], list[tuple[str, int, int, int]]]
SEGMENTS = pa.list_(pa.struct(SEGMENT_FIELDS))
DOCUMENTS = {"a": [7, 8, 9], "b": [5, 5, 5, 5, 5, 5, 5, 5, 5], "none": []}
WINDOWS: list[Window] = [
    ([2, 7, 8, 9, 0, 5, 0, 1], [("a", 0, 5, 0), ("b", 8, 2, 5)]),
    ([2, 5, 5, 5, 5, 5, 5, 5], [("b", 0, 8, 0)]),
    ([5, 1, 1, 1, 1, 1, 1, 1], [("b", 7, 1, 0)]),
]


def of_documents() -> dict[str, tuple[int, int]]:
    """Count and digest of every document."""
    rows = pa.RecordBatch.from_pydict(
        {"doc_id": list(DOCUMENTS), "input_ids": pa.array(list(DOCUMENTS.values()), pa.list_(pa.int32()))}
    )
    found = [row for batch in digest_documents([rows], FACTS) for row in batch.to_pylist()]
    return {row["doc_id"]: (row["token_count"], row["digest"]) for row in found}


def of_windows(windows: list[Window]) -> dict[str, tuple[int, int]]:
    """The same from windows, segments put together."""
    rows, found = batch_of(windows), dict[str, tuple[int, int]]()
    for batch in digest_windows([rows.slice(0, 1), rows.slice(1)], FACTS):
        for row in batch.to_pylist():
            count, digest = found.get(row["doc_id"], (0, 0))
            found[row["doc_id"]] = (count + row["token_count"], digest ^ row["digest"])
    return found


def batch_of(windows: list[Window]) -> pa.RecordBatch:
    """Windows as Arrow has them."""
    names = [field.name for field in SEGMENT_FIELDS]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([ids for ids, _ in windows], pa.list_(pa.int32())),
            pa.array([[dict(zip(names, s, strict=True)) for s in segments] for _, segments in windows], SEGMENTS),
        ],
        names=["input_ids", "segments"],
    )


def left_over(windows: list[Window], last_pieces: list[str]) -> int:
    """The balance of windows, of documents of which those last pieces were cut, less what it is to be: 0."""
    there = [name for name, ids in DOCUMENTS.items() if ids]
    counts = np.array([len(DOCUMENTS[name]) for name in there])
    ids = np.concatenate([DOCUMENTS[name] for name in there]).astype(np.int32)
    starts, names = np.cumsum(counts) - counts, pa.array(there)
    cut = np.array([there.index(name) for name in last_pieces])
    of_cut = document_sums(names.take(pa.array(cut)), ids, starts[cut], counts[cut], FACTS)
    sums = of_cut, -segment_sums(batch_of(windows), FACTS), -length_sums(names, counts)
    return int(np.concatenate(sums).sum())


def test_windows_that_hold_every_token_agree_with_the_documents() -> None:
    """Whole, cut in any way, specials in their places; empty documents are in neither."""
    assert of_windows(WINDOWS) == of_documents()
    assert left_over(WINDOWS, ["b", "a"]) == 0


@pytest.mark.parametrize("pieces", [["a"], ["a", "a", "b"], ["a", "b", "b"]])
def test_a_document_that_is_cut_twice_or_never_is_left_over(pieces: list[str]) -> None:
    """Be it with its tokens in the windows or not."""
    assert left_over(WINDOWS, pieces)
    assert left_over([window for window in WINDOWS for _ in pieces], pieces)


def test_a_beginning_of_document_may_stand_alone() -> None:
    """Cut anywhere, it may be a segment by itself, and the next one starts at token 0 as well."""
    alone: list[Window] = [
        ([2, 1, 1, 1, 1, 1, 1, 1], [("a", 0, 1, 0)]),
        ([7, 8, 9, 0, 1, 1, 1, 1], [("a", 0, 4, 0)]),
    ]
    assert of_windows(alone)["a"] == of_documents()["a"]


@pytest.mark.parametrize(
    "broken",
    [
        ([2, 8, 7, 9, 0, 5, 0, 1], [("a", 0, 5, 0), ("b", 8, 2, 5)]),
        ([2, 7, 8, 9, 3, 5, 0, 1], [("a", 0, 5, 0), ("b", 8, 2, 5)]),
        ([2, 7, 8, 0, 5, 0, 1, 1], [("a", 0, 4, 0), ("b", 8, 2, 4)]),
        ([2, 7, 8, 9, 0, 5, 0, 1], [("a", 0, 5, 0), ("b", 7, 2, 5)]),
        ([2, 7, 8, 9, 0, 5, 0, 1], [("b", 0, 5, 0), ("b", 8, 2, 5)]),
    ],
    ids=["swapped", "end changed", "token lost", "moved in the document", "wrong document"],
)
def test_a_broken_window_disagrees(broken: Window) -> None:
    """Swapped, changed, lost, moved and foreign tokens all show."""
    assert of_windows([broken, *WINDOWS[1:]]) != of_documents()
    assert left_over([broken, *WINDOWS[1:]], ["a", "b"])


def test_a_window_twice_disagrees() -> None:
    """The xor of a token that comes twice is as if it were not there; the count tells."""
    assert of_windows([*WINDOWS, WINDOWS[0], WINDOWS[0]]) != of_documents()
    assert left_over([*WINDOWS, WINDOWS[0], WINDOWS[0]], ["a", "b"])


def test_no_two_places_of_a_million_tokens_mix_to_the_same() -> None:
    """The mixing spreads (place, id): a document of equal tokens has a digest that every token decides."""
    rows = pa.RecordBatch.from_arrays(
        [pa.array(["x", "y"]), pa.array([np.full(n, 3, dtype=np.int32) for n in (1 << 20, (1 << 20) - 1)])],
        names=["doc_id", "input_ids"],
    )
    digests = [row["digest"] for batch in digest_documents([rows], FACTS) for row in batch.to_pylist()]
    assert digests[0] != digests[1]

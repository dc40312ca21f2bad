"""Windows of ids in hand: every token once, in its order, in as few windows as may be."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.exceptions import InputError
from spark_jobs.in_hand.windows import PackedWindows, pack

PADDING, END = -1, 99


def documents_of(packed: PackedWindows, count: int, has_end: bool) -> list[list[int]]:
    """The documents, put together from the segments of all windows."""
    pieces: dict[int, list[tuple[int, list[int]]]] = {}
    for window in packed.windows.to_pylist():
        position = 0
        for segment in window["segments"]:
            assert segment["window_start"] == position
            position += segment["token_count"]
            ids = window["input_ids"][segment["window_start"] : position]
            pieces.setdefault(segment["row"], []).append((segment["document_start"], ids))
        assert position == window["token_count"]
        assert window["input_ids"][position:] == [PADDING] * (len(window["input_ids"]) - position)
    documents = []
    for row in range(count):
        ids = [token for _, part in sorted(pieces.get(row, [])) for token in part]
        assert not has_end or not ids or ids.pop() == END
        documents.append(ids)
    return documents


@given(
    documents=st.lists(st.lists(st.integers(0, 50), max_size=40), max_size=25),
    window_tokens=st.integers(1, 16),
    has_end=st.booleans(),
    orders=st.booleans(),
    seed=st.integers(0, 3),
)
def test_no_token_is_lost_and_none_comes_twice(
    documents: list[list[int]], window_tokens: int, has_end: bool, orders: bool, seed: int
) -> None:
    """Documents are read back from their segments; a document is cut into the fewest pieces."""
    order = [f"{len(ids) % 3}/{number}" for number, ids in enumerate(documents)] if orders else None
    packed = pack(
        documents, window_tokens, order=order, end_of_document=END if has_end else None, padding=PADDING, seed=seed
    )
    assert documents_of(packed, len(documents), has_end) == documents
    lengths = [len(ids) + has_end for ids in documents if ids]
    assert len(packed) >= -(-sum(lengths) // window_tokens)
    assert packed.cut_count == sum(length > window_tokens for length in lengths)
    segments = packed.windows["segments"].combine_chunks().flatten()
    assert len(segments) == sum(-(-length // window_tokens) for length in lengths)
    assert sum(packed.windows["token_count"].to_pylist()) == sum(lengths)


def test_windows_are_nearly_full_and_neighbours_share_them() -> None:
    """Lengths as of real files: less than a hundredth is padding, and files of a folder are together."""
    draw = np.random.default_rng(1)
    lengths = np.minimum(draw.lognormal(6, 1.2, 3000).astype(int) + 1, 20_000)
    documents = pa.array([np.full(length, number % 1000, np.int32) for number, length in enumerate(lengths)])
    folders = [f"{number % 60:03}" for number in range(len(lengths))]
    alone = pack(documents, 2048)
    together = pack(documents, 2048, order=folders)
    assert min(alone.utilisation, together.utilisation) > 0.99

    def mean_folders(packed: PackedWindows) -> float:
        rows = [{folders[segment["row"]] for segment in window["segments"]} for window in packed.windows.to_pylist()]
        return float(np.mean([len(names) for names in rows]))

    assert mean_folders(together) < 0.7 * mean_folders(alone)


def test_nulls_slices_and_other_types() -> None:
    """Documents that are null are in no window; ids may be of any type of Arrow's, from anywhere."""
    rows = [[1, 2], None, [3], [], [4, 5, 6]]
    for kind in (pa.list_(pa.int32()), pa.large_list(pa.int64()), pa.list_(pa.uint16())):
        column = pa.chunked_array([pa.array([[9], *rows[:2]], kind).slice(1), pa.array(rows[2:], kind)])
        packed = pack(column, 3, padding=PADDING)
        assert documents_of(packed, 5, False) == [[1, 2], [], [3], [], [4, 5, 6]]
        assert len(packed) == 2 and packed.utilisation == 1
    assert repr(pack([[1]], 2)) == "1 windows, 50.00% of them tokens, 0 documents cut"
    assert len(pack([], 8)) == 0


@pytest.mark.parametrize(
    ("ids", "options", "message"),
    [
        (["a"], {}, "no lists of token ids"),
        ([[1, None]], {}, "an id is missing or below 0"),
        ([[1], [-1]], {}, "an id is missing or below 0"),
        (pa.array([[1 << 40]]), {}, "these are no token ids"),
        ([[1 << 40]], {}, "no lists of token ids"),
        (pa.array([1, 2]), {}, "no column of lists of token ids"),
        ([[1]], {"order": ["a", "b"]}, "order has 2 values for 1 documents"),
    ],
)
def test_what_cannot_be_packed_is_said_in_a_line(ids: object, options: dict[str, object], message: str) -> None:
    """What it is, and what to give."""
    with pytest.raises(InputError, match=message):
        pack(ids, 4, **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="window_tokens 0"):
        pack([[1]], 0)

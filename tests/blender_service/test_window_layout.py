"""Tensors of windows: of any segments and padding, in pieces, in arrays of before, beside a loop over every token."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from blender_service.client.window_layout import WindowLayout
from blender_service.exceptions import InvalidReadError
from blender_service.wire.row_batch import RowBatch
from tests.tiers import tries

DENSE = ("input_ids", "labels", "position_ids", "document_ids")


def random_windows(rows: int, window_tokens: int, longest: int, seed: int) -> RowBatch:
    """Make rows of random ids, cut into segments of up to `longest` tokens with padding here and there."""
    random = np.random.default_rng(seed)
    counts, starts, sizes = [], [], []
    for _ in range(rows):
        place = count = 0
        while place < window_tokens and random.random() < 0.9:
            place += int(random.integers(0, 4)) if random.random() < 0.2 else 0
            size = min(int(random.integers(1, longest + 1)), window_tokens - place)
            if size > 0:
                starts.append(place)
                sizes.append(size)
                count += 1
            place += size
        counts.append(count)
    int32, nothing = np.int32, np.zeros(len(sizes), np.int64)
    ids = random.integers(0, 1 << 16, (rows, window_tokens)).astype(np.uint16)
    return RowBatch(
        0, ids, np.full(rows, window_tokens, int32), ("a",), np.zeros(rows, np.uint8), np.zeros(rows, np.int64),
        np.arange(rows), np.array(counts, int32), b"", nothing.astype(int32), nothing, np.array(sizes, int32),
        np.array(starts, int32),
    )  # fmt: skip


def token_by_token(batch: RowBatch) -> dict[str, NDArray[Any]]:
    """Lay out the rows by a loop over segments and tokens."""
    shape = batch.input_ids.shape
    laid = {
        "input_ids": batch.input_ids.astype(np.int64),
        "labels": np.full(shape, -100),
        "position_ids": np.zeros(shape, np.int64),
        "document_ids": np.full(shape, -1, np.int32),
    }
    segment = 0
    for row, count in enumerate(batch.segment_counts.tolist()):
        for number in range(count):
            start, size = int(batch.window_starts[segment]), int(batch.segment_token_counts[segment])
            for place in range(size):
                laid["position_ids"][row, start + place], laid["document_ids"][row, start + place] = place, number
                if place + 1 < size:
                    laid["labels"][row, start + place] = batch.input_ids[row, start + place + 1]
            segment += 1
    return laid


@given(
    rows=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    window_tokens=st.sampled_from([1, 2, 7, 64, 300]),
    longest=st.sampled_from([1, 3, 40, 300]),
    seed=st.integers(0, 1 << 32),
)
@settings(max_examples=tries(200))
def test_windows_in_pieces_equal_a_loop_over_their_tokens(
    rows: list[int], window_tokens: int, longest: int, seed: int
) -> None:
    """Short segments and long ones, whole rows without any, and arrays that hold values of before."""
    pieces = [random_windows(count, window_tokens, longest, seed + number) for number, count in enumerate(rows)]
    laid = [token_by_token(piece) for piece in pieces]
    layout = WindowLayout(*pieces, new_array=lambda name, shape, dtype: np.full(shape, 77, dtype))
    for name in DENSE:
        values, wanted = getattr(layout, name), np.concatenate([of_piece[name] for of_piece in laid])
        np.testing.assert_array_equal(values, wanted, err_msg=name)
        assert (values.dtype, values.flags.c_contiguous) == (wanted.dtype, True), name
    ends = np.flatnonzero(np.diff(layout.document_ids.reshape(-1), prepend=-2)) if window_tokens > 1 else []
    assert {*layout.cu_seqlens.tolist()} >= {*np.asarray(ends).tolist()}


@given(
    window_tokens=st.sampled_from([1, 2, 7, 64, 300]),
    longest=st.sampled_from([1, 3, 40, 300]),
    block_tokens=st.sampled_from([1, 2, 5, 64]),
    seed=st.integers(0, 1 << 32),
)
@settings(max_examples=tries(200))
def test_blocks_see_what_their_tokens_see(window_tokens: int, longest: int, block_tokens: int, seed: int) -> None:
    """Nothing, a part or all, counted over every pair of tokens."""
    layout = WindowLayout(random_windows(3, window_tokens, longest, seed))
    ids, place = layout.document_ids, np.arange(window_tokens)
    visible = (ids[:, :, None] == ids[:, None]) & (place[:, None] >= place)
    starts = np.arange(0, window_tokens, block_tokens)
    sizes = np.diff(starts, append=window_tokens)
    seen = np.add.reduceat(np.add.reduceat(visible.astype(int), starts, axis=1), starts, axis=2)
    wanted = (seen > 0).astype(np.int8) + (seen == sizes[:, None] * sizes)
    np.testing.assert_array_equal(layout.block_mask(block_tokens), wanted)


def test_a_buffer_is_used_again_once_nobody_holds_its_tensors() -> None:
    """Neither a tensor that is kept, nor a view, a slice or a NumPy array of one, is ever written again."""
    torch = pytest.importorskip("torch")
    from blender_service.torch_batches import Buffers

    buffers = Buffers()
    views = (lambda t: t, lambda t: t[3:5], lambda t: t.view(-1), lambda t: t.numpy(), lambda t: t.detach()[0, 0])
    for view in views:
        tensor = torch.from_numpy(buffers.take("input_ids", (8, 4), np.int64))
        tensor.fill_(5)
        kept = view(tensor)
        del tensor
        for _ in range(40):
            torch.from_numpy(buffers.take("input_ids", (8, 4), np.int64)).fill_(6)
        assert (torch.as_tensor(kept) == 5).all()
    address = buffers.take("labels", (8, 4), np.int64).ctypes.data
    assert buffers.take("labels", (8, 4), np.int64).ctypes.data == address
    assert buffers.take("labels", (9, 4), np.int64).shape == (9, 4)


@given(
    classes=st.sampled_from([(8, 1), (8, 4), (64, 16), (300, 100), (300, 300)]),
    rows=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    longest=st.sampled_from([1, 3, 40, 300]),
    seed=st.integers(0, 1 << 32),
)
@settings(max_examples=tries(200))
def test_sequences_of_a_length_class_are_rows(
    classes: tuple[int, int], rows: list[int], longest: int, seed: int
) -> None:
    """Rows of whole sequences, viewed by their class, are laid out as if each sequence were a row."""
    window_tokens, length = classes
    each = window_tokens // length
    short = [random_windows(count * each, length, longest, seed + number) for number, count in enumerate(rows)]
    long = [joined(batch, each) for batch in short]
    values, wanted = WindowLayout(*long, sequence_tokens=length), WindowLayout(*short)
    for name in (*DENSE, "cu_seqlens"):
        np.testing.assert_array_equal(getattr(values, name), getattr(wanted, name), err_msg=name)
    np.testing.assert_array_equal(values.block_mask(4), wanted.block_mask(4))
    assert values.max_seqlen == wanted.max_seqlen <= length
    if window_tokens % (length + 1):
        with pytest.raises(InvalidReadError, match=f"rows of {window_tokens} tokens are no sequences of {length + 1}"):
            WindowLayout(*long, sequence_tokens=length + 1)


def joined(batch: RowBatch, each: int) -> RowBatch:
    """Put so many rows side by side."""
    rows, length = batch.input_ids.shape
    number = np.repeat(np.arange(rows), batch.segment_counts) % each
    return replace(
        batch,
        input_ids=batch.input_ids.reshape(rows // each, each * length),
        token_counts=batch.token_counts.reshape(-1, each).sum(axis=1, dtype=np.int32),
        sources=batch.sources[::each],
        epochs=batch.epochs[::each],
        ordinals=batch.ordinals[::each],
        segment_counts=batch.segment_counts.reshape(-1, each).sum(axis=1, dtype=np.int32),
        window_starts=(batch.window_starts + number * length).astype(np.int32),
    )

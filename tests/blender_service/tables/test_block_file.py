"""The file of a block: every array comes back, and whatever is changed in it is found."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blender_service.exceptions import DamagedBlockError
from blender_service.tables.block_file import Block, BlockKey, decode_block_file, encode_block
from tests.blender_service.random_blocks import random_block
from tests.tiers import tries


def file_of(block: Block, key: BlockKey) -> bytes:
    """Give the bytes of a block's file."""
    return b"".join(encode_block(block, key))


@given(
    rows=st.integers(1, 20),
    window_tokens=st.integers(1, 40),
    token_bytes=st.sampled_from([2, 4]),
    start=st.integers(0, 1 << 40),
    seed=st.integers(0, 1 << 32),
)
@settings(max_examples=tries(60))
def test_a_block_comes_back_as_it_was(rows: int, window_tokens: int, token_bytes: int, start: int, seed: int) -> None:
    """Every array of the file equals the one written, in type and shape, aligned, and cannot be written to."""
    key = BlockKey("file.parquet", start, start + rows, window_tokens, token_bytes, 1 << 16)
    block = random_block(key, seed)
    again = decode_block_file(memoryview(file_of(block, key)), key)
    for field in dataclasses.fields(Block):
        written, read = getattr(block, field.name), getattr(again, field.name)
        np.testing.assert_array_equal(read, written)
        if isinstance(written, np.ndarray):
            assert (read.dtype, read.shape) == (written.dtype, written.shape)
            assert read.flags.aligned
            assert not read.flags.writeable


def test_every_flipped_bit_is_found() -> None:
    """Each single bit of a file, in checksum, header, segments, padding and ids, makes it be refused when changed."""
    key = BlockKey("file.parquet", 7, 12, 16, 2, 300)
    whole = bytearray(file_of(random_block(key, 1), key))
    assert decode_block_file(memoryview(whole), key).rows == 5
    found = 0
    for bit in range(8 * len(whole)):
        whole[bit // 8] ^= 1 << bit % 8
        try:
            decode_block_file(memoryview(whole), key)
        except DamagedBlockError:
            found += 1
        whole[bit // 8] ^= 1 << bit % 8
    assert found == 8 * len(whole)
    assert decode_block_file(memoryview(whole), key).rows == 5


@pytest.mark.parametrize("length", [0, 1, 15, 127, 128, 4095, 4096, -1])
def test_a_file_that_was_cut_is_refused(length: int) -> None:
    """A file that ends early, wherever, or has a byte too much, is damaged."""
    key = BlockKey("file.parquet", 7, 12, 16, 2, 300)
    whole = file_of(random_block(key, 1), key)
    with pytest.raises(DamagedBlockError):
        decode_block_file(memoryview(whole[:length]), key)
    with pytest.raises(DamagedBlockError):
        decode_block_file(memoryview(whole + b"\0"), key)


@pytest.mark.parametrize("change", [{"path": "other"}, {"start": 8}, {"end": 13}, {"vocabulary_size": 299}])
def test_a_file_under_another_name_is_refused(change: dict[str, int | str]) -> None:
    """A whole, undamaged file that holds other rows than its name says is not served."""
    key = BlockKey("file.parquet", 7, 12, 16, 2, 300)
    whole = file_of(random_block(key, 1), key)
    other = BlockKey(**{**key._asdict(), **change})
    assert other.name != key.name
    with pytest.raises(DamagedBlockError, match="another block"):
        decode_block_file(memoryview(whole), other)


def test_the_format_has_not_changed() -> None:
    """The bytes of a known block are these; a change needs another magic, else old folders are misread."""
    key = BlockKey("file.parquet", 7, 9, 2, 2, 300)
    content = file_of(random_block(key, 5), key)
    assert key.name.startswith("efb8e3ec53e737d4")
    assert content[:16].hex() == "e52682468144e053d8a58120317a0489"
    assert len(content) == 4096 + 2 * 2 * 2

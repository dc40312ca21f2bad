"""Documents by 128 bits: those of a doc_id, of another id the first 128 of its SHA-256, as doc_ids are made."""

from __future__ import annotations

import hashlib
import re
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.kernels.compiling import compiled
from headrace.kernels.hash_tables import slots_for
from headrace.kernels.permutation import mix

Keys = NDArray[np.uint64]  # (N, 2), the 128 bits of N documents

_DOC_ID: Final = re.compile(rb"[0-9a-f]{32}")
_NIBBLES: Final = np.full(256, 16, np.uint8)
_NIBBLES[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)


def keys_of(ids: pa.Array | pa.ChunkedArray) -> Keys:
    """(N, 2) the 128 bits of N ids."""
    chunks = ids.chunks if isinstance(ids, pa.ChunkedArray) else [ids]
    return np.concatenate([np.zeros((0, 2), np.uint64), *map(_keys_of_chunk, chunks)])


def _keys_of_chunk(ids: pa.Array) -> Keys:
    try:
        plain = ids.cast(pa.binary()).cast(pa.binary(32))
        letters = np.frombuffer(plain.buffers()[1], np.uint8)[32 * plain.offset :][: 32 * len(plain)]
    except pa.ArrowInvalid:  # not all have 32 letters
        letters = np.zeros(1, np.uint8)
    digits = _NIBBLES[letters]
    if digits.max(initial=0) > 15:
        texts = (str(one).encode() for one in ids.to_pylist())
        hashed = [text if _DOC_ID.fullmatch(text) else hashlib.sha256(text).hexdigest()[:32].encode() for text in texts]
        digits = _NIBBLES[np.frombuffer(b"".join(hashed), np.uint8)]
    pairs = digits.reshape(-1, 2)
    return (pairs[:, 0] << 4 | pairs[:, 1]).view(np.uint64).reshape(-1, 2)


@compiled
def number_keys(keys: Keys) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Number distinct keys in the order they come.

    Returns:
        (N,) the number of each key, and the first row of each number.
    """
    slots = np.full(slots_for(len(keys)), -1, np.int32)
    mask = np.uint64(slots.size - 1)
    numbers, first, count = np.empty(len(keys), np.int32), np.empty(len(keys), np.int64), 0
    for row in range(len(keys)):
        slot = mix(keys[row, 0] ^ mix(keys[row, 1])) & mask  # an id need not be a hash
        while slots[slot] >= 0:
            other = first[slots[slot]]
            if keys[other, 0] == keys[row, 0] and keys[other, 1] == keys[row, 1]:
                break
            slot = (slot + np.uint64(1)) & mask
        if slots[slot] < 0:
            slots[slot], first[count] = count, row
            count += 1
        numbers[row] = slots[slot]
    return numbers, first[:count]

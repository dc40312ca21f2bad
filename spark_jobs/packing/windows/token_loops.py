"""Compiled loops over tokens: copy slices of an array, and digest them in place.

NumPy would need an index of 8 bytes a token for each of these, several passes over it, and fresh memory for every pass:
some 100 ns a token measured, where these take 1 to 2. Imported by workers only: numba takes half a second to load.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.kernels.compiling import compiled, inner
from headrace.kernels.memory import byte_at, four_bytes_at
from headrace.kernels.mixing import GOLDEN, mix64
from spark_jobs.arrays import Int64Array

_mix64 = inner(mix64)


@inner
def _mixed_pair(seed: np.uint64, position: int, token: np.int32) -> np.uint64:
    """The pair (position, id) of a token, mixed with a seed."""
    mixed: np.uint64 = _mix64(seed + ((np.uint64(position) << np.uint64(32)) | np.uint64(np.uint32(token))))
    return mixed


@compiled
def copy_slices(
    source: npt.NDArray[Any], starts: Int64Array, counts: Int64Array, target: npt.NDArray[Any], targets: Int64Array
) -> None:
    """Copy N slices of a source array into a target array, possibly of narrower integers.

    Args:
        source: values.
        starts: (N,) where the slices begin in the source.
        counts: (N,) length of each slice.
        target: output, written in place.
        targets: (N,) where the slices begin in the target.
    """
    for number in range(len(counts)):
        start, to = starts[number], targets[number]
        for i in range(counts[number]):
            target[to + i] = source[start + i]


@compiled
def copy_ids(
    addresses: Int64Array, counts: Int64Array, id_bytes: int, target: npt.NDArray[np.int32], targets: Int64Array
) -> None:
    """Copy N runs of ids of two or four bytes each, wherever they lie in memory, into an array.

    Args:
        addresses: (N,) of the first id of each run.
        counts: (N,) ids of each.
        id_bytes: 2 or 4.
        target: output, written in place.
        targets: (N,) where the runs begin in it.
    """
    for number in range(len(counts)):
        address, to = addresses[number], targets[number]
        if id_bytes == 2:
            for i in range(counts[number]):
                target[to + i] = byte_at(address + 2 * i) | byte_at(address + 2 * i + 1) << 8  # one load, once compiled
        else:
            for i in range(counts[number]):
                target[to + i] = four_bytes_at(address + 4 * i)


@compiled
def sum_slices(
    ids: npt.NDArray[np.int32], starts: Int64Array, counts: Int64Array, positions: Int64Array, seeds: Int64Array
) -> Int64Array:
    """(N,) sum, modulo 2^64, of the pairs (position, id) of each of N slices of tokens, each mixed with a seed.

    Args:
        ids: token ids.
        starts: (N,) where the slices begin in `ids`.
        counts: (N,) tokens of each.
        positions: (N,) position of each slice's first token in its document.
        seeds: (N,) of the document.
    """
    sums = np.zeros(len(counts), dtype=np.int64)
    for number in range(len(counts)):
        start, position, seed = starts[number], positions[number], np.uint64(seeds[number])
        total = np.uint64(0)
        for i in range(counts[number]):
            total += _mixed_pair(seed, position + i, ids[start + i])
        sums[number] = np.int64(total)
    return sums


@compiled
def digest_slices(
    ids: npt.NDArray[np.int32], starts: Int64Array, counts: Int64Array, positions: Int64Array
) -> Int64Array:
    """(N,) xor of the mixed pairs (position, id) of each of N slices of tokens.

    Args:
        ids: token ids.
        starts: (N,) where the slices begin in `ids`.
        counts: (N,) tokens of each.
        positions: (N,) position of each slice's first token in its document.
    """
    digests = np.zeros(len(counts), dtype=np.int64)
    for number in range(len(counts)):
        start, position = starts[number], positions[number]
        digest = np.uint64(0)
        for i in range(counts[number]):
            digest ^= _mixed_pair(GOLDEN, position + i, ids[start + i])
        digests[number] = np.int64(digest)
    return digests

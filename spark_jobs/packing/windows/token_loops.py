"""Loops over tokens, compiled: copied in runs, and digested where they lie.

NumPy would need an index of 8 bytes a token for each of these, several passes over it, and fresh memory for every pass:
some 100 ns a token measured, where these take 1 to 2. Imported by workers only: numba takes half a second to load.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from spark_jobs.arrays import Int64Array
from spark_jobs.packing.plan.shuffle_at_rest import mix

_mix = njit(mix)


@njit(cache=True, nogil=True)
def copy_runs(
    source: npt.NDArray[Any], starts: Int64Array, counts: Int64Array, target: npt.NDArray[Any], places: Int64Array
) -> None:
    """Copy runs of `counts` values from `starts` in the source to `places` in the target, which may be narrower."""
    for run in range(len(counts)):
        start, place = starts[run], places[run]
        for i in range(counts[run]):
            target[place + i] = source[start + i]


@njit(cache=True, nogil=True)
def digest_runs(ids: npt.NDArray[np.int32], starts: Int64Array, counts: Int64Array, places: Int64Array) -> Int64Array:
    """(N,) xor of the mixed (place, id) of each of N runs of tokens.

    Args:
        ids: token ids.
        starts: (N,) where the runs begin in `ids`.
        counts: (N,) tokens of each.
        places: (N,) place of each run's first token in its document.
    """
    found = np.zeros(len(counts), dtype=np.int64)
    for run in range(len(counts)):
        start, place = starts[run], places[run]
        digest = np.uint64(0)
        for i in range(counts[run]):
            pair = (np.uint64(place + i) << np.uint64(32)) | np.uint64(np.uint32(ids[start + i]))
            digest ^= _mix(pair)
        found[run] = np.int64(digest)
    return found

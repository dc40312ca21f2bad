"""Project counted features of texts to vectors of equal length, in compiled code, by sums of integers."""

from __future__ import annotations

import numpy as np

from headrace.kernels.compiling import compiled
from spark_jobs.arrays import Int8Array, Int16Array, Int32Array, Int64Array, UInt8Array


@compiled
def project(
    starts: Int64Array,
    buckets: Int32Array,
    counts: Int32Array,
    count_weights: Int32Array,
    weights: UInt8Array,
    signs: Int8Array,
    scale: int,
    vectors: Int16Array,
) -> None:
    """Fill (D, V) vectors of length `scale`, 0 where a text has no weight.

    Args:
        starts: (D + 1,) where the features of each text begin.
        buckets: (T,) the features.
        counts: (T,) occurrences of each.
        count_weights: (C,) weight of each count; larger counts get the last one.
        weights: (B,) weight of each bucket.
        signs: (B, V) of the projection, 1 or -1.
        scale: length of the vectors.
        vectors: (D, V) output, written in place.
    """
    width = vectors.shape[1]
    most = count_weights.size - 1
    sums = np.empty(width, np.int32)
    for text in range(starts.size - 1):
        sums[:] = 0
        for k in range(starts[text], starts[text + 1]):
            bucket = buckets[k]
            weight = count_weights[min(counts[k], most)] * np.int32(weights[bucket])
            row = signs[bucket]
            for v in range(width):
                sums[v] += weight * np.int32(row[v])
        squares = np.int64(0)
        for v in range(width):
            squares += np.int64(sums[v]) * np.int64(sums[v])
        if squares == 0:
            vectors[text] = 0
            continue
        factor = scale / np.sqrt(np.float64(squares))
        for v in range(width):
            vectors[text, v] = np.int16(np.rint(sums[v] * factor))

"""Sum the vectors of the tokens of texts, in compiled code, in the order of the tokens."""

from __future__ import annotations

from headrace.kernels.compiling import compiled
from spark_jobs.arrays import Float32Array, Float64Array, Int64Array


@compiled
def add_rows(
    offsets: Int64Array,
    ids: Int64Array,
    row_of: Int64Array,
    weights: Float64Array,
    rows: Float32Array,
    sums: Float64Array,
) -> None:
    """Add to (D, V) sums the weighted rows of each text's tokens, in order, so that every bit of the sum is fixed.

    Args:
        offsets: (D + 1,) where the tokens of each text begin.
        ids: (N,) tokens.
        row_of: (T,) row of each token.
        weights: (T,) its weight.
        rows: (R, V) vectors.
        sums: (D, V) output, added to in place.
    """
    for text in range(offsets.size - 1):
        for place in range(offsets[text], offsets[text + 1]):
            weight = weights[ids[place]]
            row = row_of[ids[place]]
            if weight != 0:
                for v in range(rows.shape[1]):
                    sums[text, v] += weight * rows[row, v]

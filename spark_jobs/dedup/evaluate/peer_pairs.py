"""Similar pairs of a sample of bags, by brute force and by datasketch, which many teams know.

datasketch's weighted MinHash (`WeightedMinHashGenerator.minhash`, 256 values) and `MinHashLSH` get the same weights
and threshold as headrace. LSH returns unverified candidates, so some may be below the threshold.
`minhash` takes a vector of all tokens of the sample; here it gets only a document's own tokens and their draws, which
gives the same sketch, since tokens of weight 0 never win, and is faster. (`minhash_many` fails with current SciPy.)
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np

from headrace.kernels.compiling import compiled
from spark_jobs.arrays import Int64Array, UInt16Array, UInt64Array
from spark_jobs.dedup.bags.bag_arrays import Bags, token_weights, total_weights
from spark_jobs.dedup.sketches.similarity import share_row
from spark_jobs.exceptions import InputError, SetupError

_VALUES: Final = 256
_MOST_WORDS: Final = 1_000_000  # 3 GB of datasketch's draws


class _Side(NamedTuple):
    """(D + 1,) offsets, (T,) ascending hashes, (T,) weights."""

    offsets: Int64Array
    hashes: UInt64Array
    weights: UInt16Array


def true_pairs(bags: Bags, threshold: Fraction) -> Int64Array:
    """(P, 2) rows, the lower first, of all pairs of bags with J >= threshold, by brute force."""
    side = _Side(bags.offsets, bags.hashes, token_weights(bags))
    totals, found = total_weights(bags), [np.zeros((0, 2), np.int64)]
    shared = np.zeros(len(bags), np.int64)
    for row in range(len(bags)):
        _share_with_later(side, row, shared)
        united = totals + totals[row] - shared
        later = np.flatnonzero(shared * threshold.denominator >= united * threshold.numerator)
        later = later[(later > row) & (shared[later] > 0)]
        found.append(np.column_stack([np.full(len(later), row), later]))
    return np.concatenate(found)


@compiled
def _share_with_later(side: _Side, row: int, shared: Int64Array) -> None:
    """Fill (D,) `shared` with the sum of minima of `row` and each later row."""
    for other in range(row + 1, shared.size):
        shared[other] = share_row(side, row, side, other)


def datasketch_pairs(bags: Bags, threshold: float) -> Int64Array:
    """(P, 2) rows, the lower first, of the candidate pairs that datasketch finds.

    Raises:
        SetupError: datasketch is not installed.
        InputError: there are too many distinct tokens for datasketch's memory.
    """
    try:
        from datasketch import MinHashLSH, WeightedMinHashGenerator
    except ImportError as error:
        raise SetupError("--against datasketch: it is not installed; pip install 'headrace[bench]'") from error
    words, columns = np.unique(bags.hashes, return_inverse=True)
    if len(words) > _MOST_WORDS:
        raise InputError(
            f"--against datasketch: {len(words):,} distinct tokens, its memory fits {_MOST_WORDS:,}; lower --sample"
        )
    generator = WeightedMinHashGenerator(len(words), sample_size=_VALUES, seed=1)
    draws = {name: getattr(generator, name).T.copy() for name in ("rs", "ln_cs", "betas")}
    index, found = MinHashLSH(threshold=threshold, num_perm=_VALUES), [np.zeros((0, 2), np.int64)]
    weights = token_weights(bags).astype(np.float32)
    for row in np.flatnonzero(np.diff(bags.offsets)):
        tokens = slice(bags.offsets[row], bags.offsets[row + 1])
        own = columns[tokens]
        generator.dim = len(own)
        for name, values in draws.items():
            setattr(generator, name, np.ascontiguousarray(values[own].T))
        sketch = generator.minhash(weights[tokens])
        sketch.hashvalues[:, 0] = own[sketch.hashvalues[:, 0]]
        others = np.array(index.query(sketch), np.int64)
        found.append(np.column_stack([others, np.full(len(others), row)]))
        index.insert(int(row), sketch, check_duplication=False)
    return np.concatenate(found)

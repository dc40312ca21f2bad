"""Bags for tests: made from dictionaries, at random with a wanted similarity, or of real text; and J by brute force."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from fractions import Fraction
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from spark_jobs.dedup.bags.bag_arrays import Bags

Bag = dict[int, tuple[int, int]]
"""Unit and level by token hash."""

LEVEL_CAP = 4


def bags_of(bags: list[Bag]) -> Bags:
    """Flat arrays of bags."""
    rows = [sorted(bag.items()) for bag in bags]
    return Bags(
        np.cumsum([0, *map(len, rows)], dtype=np.int64),
        np.array([token for row in rows for token, _ in row], dtype=np.uint64),
        np.array([unit for row in rows for _, (unit, _) in row], dtype=np.uint8),
        np.array([level for row in rows for _, (_, level) in row], dtype=np.uint8),
    )


def jaccard(left: Bag, right: Bag) -> Fraction:
    """J by its definition; 0 where both bags are empty."""
    x, y = ({token: unit * level for token, (unit, level) in bag.items()} for bag in (left, right))
    tokens = x.keys() | y.keys()
    united = sum(max(x.get(t, 0), y.get(t, 0)) for t in tokens)
    return Fraction(sum(min(x.get(t, 0), y.get(t, 0)) for t in tokens), united) if united else Fraction(0)


def at_the_bound(threshold: Fraction) -> tuple[list[Bag], set[tuple[int, int]]]:
    """Neighbours (2i, 2i + 1) whose J equals the threshold, and others whose united weight is greater by one.

    All weight that they do not share is on the left, or on the right (there their sizes are at the bound as well), or
    half on either side.

    Returns:
        The bags, and the neighbours that reach the threshold.
    """
    bags: list[Bag] = []
    reaching = set()
    for scale, more in itertools.product((3, 10, 40), (0, 1)):
        shared = threshold.numerator * scale
        apart = threshold.denominator * scale - shared + more
        for left in sorted({0, apart // 2, apart}):
            if not more:
                reaching.add((len(bags), len(bags) + 1))
            for first, count in ((1 << 40, left), (1 << 50, apart - left)):
                tokens = [*range(1, shared + 1), *range(first, first + count)]
                bags.append(dict.fromkeys(tokens, (1, 1)))
    return bags, reaching


def random_bag(rng: np.random.Generator, size: int) -> Bag:
    """A bag of `size` random tokens with units and levels like those of text."""
    tokens = rng.integers(0, 2**64, size, dtype=np.uint64).tolist()
    units = np.clip(rng.normal(45, 20, size), 1, 255).astype(int).tolist()
    levels = rng.choice([1, 1, 1, 2, 3, 4], size).tolist()
    return dict(zip(tokens, zip(units, levels, strict=True), strict=True))


def random_pair(rng: np.random.Generator, shared_fraction: float, size: int = 60) -> tuple[Bag, Bag]:
    """Two bags that share about `shared_fraction` of their tokens, some of them at other levels."""
    shared = random_bag(rng, round(size * shared_fraction))
    left, right = ({**shared, **random_bag(rng, size - len(shared))} for _ in range(2))
    moved = {token: (unit, int(rng.integers(1, 5))) for token, (unit, _) in shared.items() if rng.random() < 0.2}
    return left, {**right, **moved}


def real_bags(real_data: Path, count: int) -> list[Bag]:
    """Bags of the first pieces of some RFCs, 2,000 characters each, weighted as in the table `bags`."""
    texts = pq.read_table(real_data / "rfc.parquet", columns=["text"])["text"].slice(2000, count // 10).to_pylist()
    pieces = [text[start : start + 2000] for text in texts for start in range(0, min(len(text), 20_000), 2000)][:count]
    counted = [Counter(re.findall(r"\w+", piece.lower())) for piece in pieces]
    frequencies = Counter(token for tokens in counted for token in tokens)
    units = {t: min(255, max(1, round(8 * math.log((len(pieces) + 1) / (n + 1))))) for t, n in frequencies.items()}
    hashes = {t: int.from_bytes(blake2b(t.encode(), digest_size=8).digest(), "little") for t in frequencies}
    return [{hashes[t]: (units[t], min(n, LEVEL_CAP)) for t, n in tokens.items()} for tokens in counted if tokens]


def hot_tokens(bags: Bags, count: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8]]:
    """The `count` most frequent tokens with their units."""
    hashes, first, frequencies = np.unique(bags.hashes, return_index=True, return_counts=True)
    order = np.argsort(-frequencies, kind="stable")[:count]
    return hashes[order], bags.units[first[order]]

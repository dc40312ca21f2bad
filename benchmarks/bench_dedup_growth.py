"""How the cost of near-duplicates grows where every document has the same words, without Spark and on one core.

    python benchmarks/bench_dedup_growth.py [--documents 5000 10000 20000 50000]

Parts: forms filled from closed lists, whose documents are all candidates of each other, compared in batches of kept
ones as `large_buckets` does; and the lookups of `thresholds` in its sample, where words occur evenly.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from fractions import Fraction

import command
import numpy as np
import pyarrow as pa

from spark_jobs.dedup.bags.bag_arrays import Bags, binary_column
from spark_jobs.dedup.graph.in_memory import REMOVED, kept_states
from spark_jobs.dedup.near.pool_batches import FinishedBatches, leading, pivots_of, similar_to_pivots
from spark_jobs.dedup.near.sample_join import sample_index, similar_to_sample

THRESHOLDS = (Fraction(7, 10), Fraction(8, 10), Fraction(9, 10))
SAMPLE = 4000


def forms(count: int, labels: int, fields: int, choices: int, seed: int = 1) -> Bags:
    """Forms with the same labels and fields, each filled with one word of a list; weighed as the vocabulary does."""
    draw = np.random.default_rng(seed)
    values = draw.integers(0, choices, (count, fields)) + np.arange(fields) * choices
    unit = max(1, round(8 * math.log(choices)))
    tokens = np.hstack([np.broadcast_to(np.arange(labels), (count, labels)), labels + values])
    hashes = np.sort(draw.integers(1, 2**63, labels + fields * choices)).astype(np.uint64)
    own = np.array([1] * labels + [unit] * fields, np.uint8)
    offsets = np.arange(count + 1, dtype=np.int64) * tokens.shape[1]
    return Bags(offsets, hashes[tokens].ravel(), np.tile(own, count), np.ones(tokens.size, np.uint8))


def even(count: int, words: int = 1000, size: int = 150, seed: int = 1) -> Bags:
    """Documents of words that all occur equally often."""
    draw = np.random.default_rng(seed)
    hashes = np.sort(draw.integers(1, 2**63, words)).astype(np.uint64)
    rows = np.concatenate([np.sort(draw.choice(words, size, replace=False)) for _ in range(count)])
    offsets = np.arange(count + 1, dtype=np.int64) * size
    return Bags(
        offsets, hashes[rows], np.full(len(rows), 15, np.uint8), draw.integers(1, 3, len(rows)).astype(np.uint8)
    )


def kept_in_batches(bags: Bags) -> tuple[int, int, list[int]]:
    """Compare documents as `large_buckets` does; batches, stored pairs and how many are kept at each threshold."""
    count = len(bags)
    columns = {"token_hashes": bags.hashes, "units": bags.units, "levels": bags.levels}
    pool = pa.table(
        {
            "dataset": pa.repeat("d", count),
            "doc_id": pa.array(range(count)).cast(pa.string()),
            "increment": pa.repeat(pa.scalar(0, pa.int32()), count),
            "place": pa.array(np.arange(count)),
            "kind": pa.repeat("prose", count),
            "earlier": pa.repeat(False, count),
            "token_count": np.diff(bags.offsets),
            **{name: binary_column(values, bags.offsets) for name, values in columns.items()},
        }
    )
    done, batches = FinishedBatches(), 0
    pairs = np.zeros((4, 0), np.int64)
    while True:
        groups = np.full(count, (1 << len(THRESHOLDS)) - 1, np.int32)
        for group, threshold in enumerate(THRESHOLDS):
            reached = pairs[2] * threshold.denominator >= pairs[3] * threshold.numerator
            groups[kept_states(pairs[1][reached], pairs[0][reached], count) == REMOVED] &= ~np.int32(1 << group)
        kept = pool.append_column("groups", pa.array(groups)).filter(pa.array(groups != 0))
        places = done.next_batch(kept)
        if not len(places):
            return batches, pairs.shape[1], [int((groups >> group & 1).sum()) for group in range(len(THRESHOLDS))]
        batch = leading(kept.filter(pa.array(np.isin(kept.column("place").to_numpy(), places))), THRESHOLDS)
        done.add(batch)
        batches += 1
        names = ("left_place", "right_place", "shared_weight", "united_weight")
        parts = similar_to_pivots(kept.to_batches(max_chunksize=10_000), pivots_of(batch, THRESHOLDS), THRESHOLDS, 0)
        found = [np.stack([part.column(name).to_numpy() for name in names]) for part in parts]
        pairs = np.unique(np.concatenate([pairs, *found], axis=1), axis=1)


def looked_up(bags: Bags) -> tuple[int, int]:
    """Look all documents up in a sample, as `thresholds` does; documents and pairs."""
    count = min(SAMPLE, len(bags))
    part = slice(0, bags.offsets[count])
    sample = Bags(bags.offsets[: count + 1], bags.hashes[part], bags.units[part], bags.levels[part])
    index = sample_index(sample, np.ones(count, np.int32), THRESHOLDS[:1])
    return len(bags), len(similar_to_sample(bags, np.ones(len(bags), np.int32), index, THRESHOLDS[:1]).rows)


def grown(name: str, sizes: Sequence[int], make: Callable[[int], Bags], work: Callable[[Bags], object]) -> None:
    """Seconds at each size, and the exponent from one size to the next."""
    before: tuple[int, float] | None = None
    work(make(200))  # compiles
    for size in sizes:
        bags = make(size)
        started = time.process_time()
        told = work(bags)
        seconds = time.process_time() - started
        law = math.log(seconds / before[1]) / math.log(size / before[0]) if before else math.nan
        print(f"{name:<34} {size:>7} {seconds:>8.2f} s  n^{law:.2f}  {told}", flush=True)
        before = size, seconds


def main() -> None:
    """Print the tables."""
    parser = command.parser(__doc__)
    parser.add_argument("--documents", type=int, nargs="+", default=[5_000, 10_000, 20_000, 50_000])
    sizes = command.read(parser, documents=[400, 800]).documents
    for labels, fields, choices in ((150, 12, 4), (60, 10, 3), (40, 15, 12)):
        name = f"forms: {labels} labels, {fields} of {choices}"
        grown(name, sizes, lambda n, form=(labels, fields, choices): forms(n, *form), kept_in_batches)  # type: ignore[misc]
    grown("words that occur evenly, lookups", sizes, even, looked_up)


if __name__ == "__main__":
    main()

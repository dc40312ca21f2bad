"""Compile the kernels of deduplication ahead of time, by running them all on a few documents.

Numba compiles a kernel when it is first called, for the types it is called with, and caches the result beside the
source. Without this program every worker of a fresh installation would compile at the same time, in the first step.

    python -m spark_jobs.dedup.rehearsal
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from functools import partial

import numpy as np
import pyarrow as pa

from headrace.process.interrupts import heed_interrupts

_TEXTS = [
    ("prose", "en", "Each of these words is counted, weighed and signed; the words are few."),
    ("prose", "en", "Each of these words is counted, weighed and signed; the words are many."),
    ("code", "Python", "def weigh(bag):\n    return sum(bag.values())  # of all tokens\n"),
    ("data", None, "1, 2, 3"),
]


def rehearse() -> int:
    """Run every compiled kernel once, on the types that Spark's workers call it with; the number of pairs found."""
    words = _words()
    bags = _bags(words)
    signatures = _signatures(bags, words)
    _joined(bags)
    return _verified(bags, signatures, _candidates(signatures))


def _batch(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """A batch as in a worker, read from IPC: its buffers are read-only, which are other types to Numba."""
    batch = pa.RecordBatch.from_pydict(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return next(iter(pa.ipc.open_stream(sink.getvalue())))


def _texts() -> pa.RecordBatch:
    count = len(_TEXTS)
    kinds, languages, contents = (pa.array(column, pa.string()) for column in zip(*_TEXTS, strict=True))
    return _batch(
        {
            "dataset": pa.array(["d"] * count),
            "shard": pa.array([0] * count, pa.int32()),
            "doc_id": pa.array([f"{number:032x}" for number in range(count)]),
            "place": pa.array(range(count), pa.int64()),
            "kind": kinds,
            "language": languages,
            "content": contents,
        }
    )


def _words() -> pa.Table:
    """The vocabulary of the texts."""
    from spark_jobs.dedup.bags.features import Features
    from spark_jobs.dedup.bags.vocabulary import _count_partition

    return pa.Table.from_batches(_count_partition(iter([_texts()]), Features()))


def _bags(words: pa.Table) -> pa.RecordBatch:
    from spark_jobs.dedup.bags.bags import BagsConfig, Units, _bag_batches
    from spark_jobs.dedup.bags.features import Features
    from spark_jobs.dedup.bags.token_counts import token_version
    from spark_jobs.lake.engine.arrangement import Shared

    hashes = np.sort(words.column("token_hash").to_numpy().view(np.uint64))
    units = Units(hashes, np.full(len(hashes), 9, np.uint8), {"prose": 20}, token_version(Features()))
    return _first(_bag_batches(iter([_texts()]), Shared(None, units), BagsConfig()))


def _first(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
    """The first batch of a step's output, as the next step's worker reads it."""
    batch = next(batches)
    return _batch(dict(zip(batch.schema.names, batch.columns, strict=True)))


def _signatures(bags: pa.RecordBatch, words: pa.Table) -> pa.RecordBatch:
    from spark_jobs.dedup.sketches.background import _histograms
    from spark_jobs.dedup.sketches.signatures import SignaturesConfig, _sign

    list(_histograms(iter([bags])))
    hashes = words.column("token_hash").to_numpy().tobytes()
    units = np.full(words.num_rows, 9, np.uint8).tobytes()
    list(_sign(iter([bags]), SignaturesConfig(), b"", b""))
    return _first(_sign(iter([bags]), SignaturesConfig(), hashes, units))


def _candidates(signatures: pa.RecordBatch) -> pa.RecordBatch:
    from spark_jobs.dedup.near.bucket_keys import all_keys
    from spark_jobs.dedup.near.bucket_members import all_pairs
    from spark_jobs.dedup.near.buckets import band_records, bucket_lists
    from spark_jobs.dedup.near.key_filter import fill, filter_bytes
    from spark_jobs.dedup.sketches.bands import solve_bands

    scheme = solve_bands(np.array([10, 0], np.int64), signatures.num_rows, 0.5, 0.9)
    filled = (
        next(fill(iter([signatures]), partial(all_keys, schemes={None: scheme}), filter_bytes(8)))
        .column("filled")[0]
        .as_py()
    )
    for block in (None, filled):
        records = _first(band_records(iter([signatures]), {None: scheme}, 1, earlier=False, filled=block))
    bucket_rows = _first(bucket_lists(iter([records])))
    return next(all_pairs(iter([bucket_rows]), not_among=filled))


def _joined(bags: pa.RecordBatch) -> None:
    """Run the exact joins: of the pool of large buckets, and of the sample that recall is measured with."""
    from spark_jobs.dedup.graph.threshold_pairs import KindThreshold
    from spark_jobs.dedup.near.pair_columns import BAG
    from spark_jobs.dedup.near.prefix_lists import count_pool_tokens, list_candidates, prefix_records
    from spark_jobs.dedup.removal.thresholds import _indexed, _similar_documents
    from spark_jobs.lake.engine.arrangement import Shared

    counters = next(count_pool_tokens(iter([bags]))).column("counters")[0].as_py()
    flags = {"groups": pa.array([1] * bags.num_rows, pa.int32()), "earlier": pa.array([False] * bags.num_rows)}
    pool = _batch({**{name: bags.column(name) for name in bags.schema.names}, **flags})
    lowest = Fraction(1, 10)
    records = list(prefix_records(iter([pool]), counters, (lowest,), 1))
    for pivots in (1, 8, None):
        list(list_candidates(iter(records), (lowest,), pivots, 0, 1000))
    gone = pa.array([0] * bags.num_rows, pa.int32())
    sample = pa.table({name: bags.column(name) for name in ("doc_id", "kind", *BAG)}).append_column("gone", gone)
    least = KindThreshold.model_validate(0.1)
    list(_similar_documents(iter([bags]), Shared(None, _indexed(sample, least)), least))


def _verified(bags: pa.RecordBatch, signatures: pa.RecordBatch, candidates: pa.RecordBatch) -> int:
    from spark_jobs.dedup.graph.connected_components import components_batches
    from spark_jobs.dedup.graph.kept_set import removed_table
    from spark_jobs.dedup.graph.threshold_pairs import KindThreshold
    from spark_jobs.dedup.near.comparison import similar_pairs
    from spark_jobs.dedup.removal.best_edges import removal_batches

    signed = pa.Table.from_batches([signatures]).append_column(
        "increment", pa.array([0] * signatures.num_rows, pa.int32())
    )
    lowest = KindThreshold.model_validate(0.1)
    pairs = similar_pairs(pa.Table.from_batches([candidates]), signed, pa.Table.from_batches([bags]), lowest)
    for kind in (pa.int64(), pa.string()):
        ends = {
            "groups": pa.array([1], pa.int32()),
            "worse": pa.array([2]).cast(kind),
            "better": pa.array([1]).cast(kind),
        }
        removed_table(pa.table(ends))
        list(components_batches(pa.table(ends)))
    names = {"dataset": ["notes"], "doc_id": ["b"], "better_dataset": ["notes"], "better_doc_id": ["a"]}
    weights = {"shared_weight": [8], "united_weight": [9], "repository": pa.nulls(1, pa.string())}
    increment = {"better_increment": pa.array([0], pa.int32())}
    list(removal_batches(pa.table({"groups": ends["groups"], **names, **increment, **weights}), (0.5,)))
    return int(pairs.num_rows)


if __name__ == "__main__":
    heed_interrupts()
    started = time.monotonic()
    rehearse()
    sys.stdout.write(f"headrace: kernels compiled in {time.monotonic() - started:.0f} s\n")

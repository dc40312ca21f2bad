"""Buckets in one process, a few bands at a time: keys of two bands never meet, so none is written to disk.

Of earlier documents only those with a new one's key are compared, and some let pass by a filter.
A corpus of 4.5 million documents has some 300 bands, so 1.4 billion keys, a sixth of them in a bucket. Signatures
are mapped, and read once for each group of bands:

    bands 0 to 6      keys (7, D)      each row by itself: the keys of several documents, sorted, are buckets
    bands 7 to 13     keys (7, D)      ..
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.arrays import UInt8Array
from spark_jobs.dedup.near.bucket_keys import all_keys, by_scheme, keys_of
from spark_jobs.dedup.near.bucket_records import bucket_rows, group_by_key
from spark_jobs.dedup.near.key_filter import filter_of, has_keys
from spark_jobs.dedup.sketches.bands import BandScheme
from spark_jobs.lake.engine.arrangement import Shared
from spark_jobs.spark_sql import DataFrame
from spark_jobs.threads import in_order_of

_KEYS_BYTES = 256 << 20  # of the keys of the bands of a group


def bucket_batches(
    signatures: pa.Table, schemes: Mapping[str | None, BandScheme], increment: int, threads: int
) -> Iterator[pa.RecordBatch]:
    """Buckets of at least two documents, one of them of an increment (rows of `BUCKETS_SCHEMA`).

    Args:
        signatures: columns increment, kind, place, signature of all documents, mapped.
        schemes: bands by kind of document; or under the key None those of all kinds.
        increment: the new one.
        threads: that compute, each with the keys of a band.
    """
    with ThreadPoolExecutor(threads) as pool:
        for kind, scheme in schemes.items():
            yield from _of_scheme(signatures, kind, scheme, increment, pool)


def sharing_keys(
    earlier: DataFrame, new: DataFrame, schemes: Mapping[str | None, BandScheme], new_keys: int
) -> DataFrame:
    """The earlier documents with a new one's key, and some others.

    Args:
        earlier: columns increment, kind, place, signature.
        new: the same of the new documents.
        schemes: as of `bucket_batches`.
        new_keys: number of keys of the new documents.
    """
    filled = np.frombuffer(filter_of(new, partial(all_keys, schemes=schemes), new_keys), np.uint8)
    return earlier.mapInArrow(partial(_passing, schemes=schemes, inside=Shared(earlier, filled)), earlier.schema)


def _passing(
    batches: Iterable[pa.RecordBatch], schemes: Mapping[str | None, BandScheme], inside: Shared[UInt8Array]
) -> Iterator[pa.RecordBatch]:
    """The documents with a key in a filter."""
    for batch, scheme in (part for whole in batches for part in by_scheme(whole, schemes)):
        keys = keys_of(batch, scheme)
        yield batch.filter(pa.array(has_keys(keys.ravel(), inside.value).reshape(keys.shape).any(axis=1)))


def _of_scheme(
    signatures: pa.Table, kind: str | None, scheme: BandScheme, increment: int, pool: ThreadPoolExecutor
) -> Iterator[pa.RecordBatch]:
    """The buckets of the documents of a kind, or of all."""
    batches = signatures.to_batches()

    def of_kind(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if kind is None else batch.filter(pc.equal(batch.column("kind"), kind))

    parts = [of_kind(batch.select(["increment", "kind", "place"])) for batch in batches]
    narrow = pa.Table.from_batches(parts) if parts else signatures
    places = narrow.column("place").to_numpy()
    is_earlier = narrow.column("increment").to_numpy() < increment
    if not len(places) or is_earlier.all():
        return
    ends = list(itertools.accumulate(map(len, parts), initial=0))
    width = max(1, min(scheme.bands, _KEYS_BYTES // (8 * len(places))))
    keys = np.empty((width, len(places)), np.uint64)
    for first in range(0, scheme.bands, width):
        bands = range(first, min(first + width, scheme.bands))

        def fill(number: int, bands: range = bands) -> None:
            into = keys[: len(bands), ends[number] : ends[number + 1]]
            into[:] = keys_of(of_kind(batches[number]), scheme, bands).T

        def group(row: int) -> list[pa.RecordBatch]:
            return list(bucket_rows(group_by_key(keys[row], places, is_earlier)))

        for _ in in_order_of(pool, fill, range(len(batches))):
            pass
        yield from itertools.chain.from_iterable(in_order_of(pool, group, range(len(bands))))

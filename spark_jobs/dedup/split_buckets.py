"""Split buckets: what leaders could not reduce is compared where further values of the signatures agree too.

The members that are left of all large buckets are one pool. Their signatures are cut into overlapping bands of many
rows; how many is decided from a sample of the pool, so that about one candidate a member is expected. Which share of
the pairs at a threshold that finds is `bands.candidate_probability`: a figure of the scheme, not a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_jobs.dedup.bands import BandScheme, band_positions, candidate_probability
from spark_jobs.dedup.bucket_members import in_turn, ranks_among
from spark_jobs.dedup.buckets import BUCKETS_DDL, RECORDS_DDL, band_records, bucket_lists
from spark_jobs.dedup.signature_arrays import SIGNATURE_BYTES, signature_rows
from spark_jobs.dedup.similarity import agreement_counts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BANDS = 16
_ROWS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_SAMPLE_MEMBERS = 700
_CANDIDATES_A_MEMBER = 1
_PARTITION_RECORDS = 4_000_000


def split_buckets(pool: pa.Table, signatures: DataFrame) -> tuple[int, DataFrame, DataFrame]:
    """Members of a pool that agree in all values of a further band.

    Args:
        pool: columns place (int64) and earlier (bool), distinct places.
        signatures: rows of `signatures`.

    Returns:
        Values compared in a band; rows (band, bucket, member_count, members, earlier) as in `buckets`; and a DataFrame
        to unpersist.
    """
    places = pool.column("place").to_numpy()
    is_earlier = pool.column("earlier").to_numpy()
    narrow = signatures.select("kind", "place", "signature")
    members = narrow.mapInArrow(partial(_at, places=np.sort(places)), narrow.schema).persist()
    step = max(1, len(places) // _SAMPLE_MEMBERS)
    sample = members.mapInArrow(partial(_at, places=np.sort(places)[::step]), narrow.schema).toArrow()
    rows = split_rows(signature_rows(sample.sort_by("place").column("signature").combine_chunks()), len(places))

    scheme = BandScheme(_BANDS, rows, band_positions(_BANDS, rows, overlapping=True), True, 0.0, 0.0, 0.0)
    partition_count = max(2, -(-2 * len(places) * _BANDS // _PARTITION_RECORDS))
    emit = partial(band_records, scheme=scheme, partition_count=partition_count, filled=None)
    fresh = (partial(_at, places=np.sort(places[~is_earlier])), partial(emit, earlier=False))
    records = members.mapInArrow(partial(in_turn, functions=fresh), RECORDS_DDL)
    if is_earlier.any():
        known = (partial(_at, places=np.sort(places[is_earlier])), partial(emit, earlier=True))
        records = records.unionByName(members.mapInArrow(partial(in_turn, functions=known), RECORDS_DDL))
    grouped = records.repartitionById(partition_count, records["part"]).mapInArrow(bucket_lists, BUCKETS_DDL)
    return rows, grouped, members


def split_recall(rows: int, thresholds: Sequence[float]) -> list[float]:
    """Expected share, at each threshold, of the pairs of the pool that share a further band of so many values."""
    found: list[float] = candidate_probability(_BANDS, rows, True, np.array(thresholds, np.float64)).tolist()
    return found


def _at(batches: Iterable[pa.RecordBatch], places: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    """Rows at some places, which are ascending."""
    for batch in batches:
        _, inside = ranks_among(batch.column("place").to_numpy(), places)
        yield batch.filter(pa.array(inside))


def split_rows(sample: NDArray[np.uint8], member_count: int) -> int:
    """Values in a band, so that about one pair a member is expected to agree in one, judged by pairs of a sample."""
    if len(sample) < 2:
        return _ROWS[0]
    left, right = np.triu_indices(len(sample), 1)
    agreeing = agreement_counts(sample[left], sample[right]) / SIGNATURE_BYTES
    pairs = _BANDS * member_count * (member_count - 1) / 2
    for rows in _ROWS:
        if pairs * float(np.mean(agreeing**rows)) <= _CANDIDATES_A_MEMBER * member_count:
            return rows
    return _ROWS[-1]

"""Buckets: documents with equal signatures in all rows of a band, so worth comparing.

The user states a threshold and a recall; the bands are solved for these, for the number of documents and for the
background measured on the corpus. The table `bands` also has a forecast of what bands will cost when the
corpus has grown. Signatures are the stored index: keys are not stored, so that every increment may have bands of its
own. An increment computes the keys of its own documents and those of all earlier ones; a Bloom filter drops earlier
keys of no new document. Buckets with at least two members, one of them new, are written.

Both documents of a pair are of one kind, and keys differ by kind. Where the lowest threshold differs by kind, each
kind has bands of its own, solved from its own number of documents and its background; `bands` has their means
over documents, and the summary of its snapshot has the bands of each kind.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import Field

from spark_jobs.arrays import Int64Array
from spark_jobs.dedup.graph.threshold_pairs import KindThreshold
from spark_jobs.dedup.pictures import draw_bands
from spark_jobs.lake.declare.step import ConfigModel, Output, Plot, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.engine.arrangement import dealt
from spark_jobs.lake.engine.embedded import is_embedded, keep_batches, parallelism
from spark_jobs.lake.engine.spooled_rows import mapped_rows
from spark_jobs.spark_sql import DataFrame, F

if TYPE_CHECKING:
    from spark_jobs.dedup.sketches.bands import BandScheme

_log = logging.getLogger(__name__)
# Pairs of at least this similarity are related: their number grows with that of documents, not its square, so they
# do not predict false candidates at another size of the corpus.
RELATED = 0.3
DEFAULT_DOCUMENT_BYTES = 16_384
"""Bytes that finding a document's candidates may cost: about as many as its text and bag take together."""
PARTITION_RECORDS = 4_000_000
"""Records of 16 to 40 bytes that a task holds in memory and sorts."""
_LOWERED = (
    "buckets: %s %d documents the recall at %g is %.4f in place of %g, since keys and candidates of a document may "
    "take %d bytes; raise document_bytes or the threshold, or compare word pairs"
)
BUCKETS_DDL = "band int, bucket bigint, member_count int, members array<bigint>, earlier array<bigint>"
RECORDS_DDL = "part int, keys binary, places binary, earlier boolean"


class BucketsConfig(ConfigModel):
    """The pairs to find by the bands; the bands are solved from it."""

    threshold: KindThreshold = Field(
        KindThreshold.model_validate(0.7),
        description="lowest weighted Jaccard similarity of a duplicate: one for all, or by kind of document",
    )
    recall: float = Field(0.9999, gt=0, lt=1, description="wanted share of the pairs at the threshold that are found")
    document_bytes: int = Field(
        DEFAULT_DOCUMENT_BYTES,
        ge=256,
        description="bytes that keys and false candidates of a document may take; where the wanted recall costs more, "
        "it is lowered to what they buy, and `bands` and a warning say so",
    )
    expected_documents: int | None = Field(
        None,
        ge=1,
        description="documents that the corpus will have, for the forecast in `bands`; ten times those there are",
    )


BUCKETS = Table(
    name="buckets",
    comment="One row per bucket with at least two members, one of them new: their signatures agree in all rows of a "
    "band.",
    columns=(
        Column("band!", "int", "band in which they agree, from 0"),
        Column("bucket!", "long", "hash of kind and agreeing values, its low 10 bits the band"),
        Column("member_count!", "int", "members, earlier ones too"),
        Column("members!", "list<long!>", "places of the members of this increment, ascending"),
        Column("earlier!", "list<long!>", "places of those of earlier increments, ascending"),
    ),
    key=("bucket",),
    partition=("increment",),
    checks=(
        Check(
            "two_members",
            "member_count >= 2 and size(members) >= 1 and member_count = size(members) + size(earlier)",
            "a bucket has at least two members, one of them new",
        ),
    ),
)

BANDS = Table(
    name="bands",
    comment="One row per hundredth of similarity: how likely a pair of it becomes a candidate under the bands used.",
    columns=(
        Column("similarity!", "double", "weighted Jaccard similarity of a pair"),
        Column("candidate_probability!", "double", "probability that such a pair shares a bucket; the mean over kinds"),
        Column("background_fraction!", "double", "share of random pairs of documents in this hundredth"),
        Column("band_count!", "int", "bands; where kinds have their own, those of the lowest threshold"),
        Column("row_count!", "int", "values of the signature in a band"),
        Column("overlapping!", "boolean", "whether bands share values"),
        Column("documents!", "long", "documents that the bands were solved for: those there are"),
        Column("wanted_recall!", "double", "recall that the config asks for"),
        Column("recall!", "double", "expected recall of pairs exactly at the threshold; the lowest of all kinds"),
        Column("false_per_document!", "double", "expected background candidates per document"),
        Column("document_bytes!", "double", "bytes of keys and of these candidates per document"),
        Column("expected_documents!", "long", "documents of the forecast, for which other bands will be solved"),
        Column("expected_band_count!", "int", "bands at that size"),
        Column("expected_row_count!", "int", "values in each of them"),
        Column("expected_recall!", "double", "recall that they will have"),
        Column("expected_document_bytes!", "double", "bytes per document that they will cost"),
    ),
    key=("similarity",),
    partition=("increment",),
    sort=("similarity",),
)


@step(
    version="2",
    scope=Scope.HISTORY,
    tables=(BUCKETS, BANDS),
    plot=Plot(
        "probability of becoming a candidate",
        ("increment", "similarity", "candidate_probability", "background_fraction", "band_count", "row_count"),
        draw_bands,
        table="bands",
    ),
)
def buckets(signatures: DataFrame, background: DataFrame, increment: int, config: BucketsConfig) -> Output:
    """Put the documents of an increment, and the earlier ones with a shared key, into buckets."""
    counted = signatures.groupBy("kind", (F.col("increment") == increment).alias("new")).count().collect()
    sizes: dict[str, int] = {}
    for row in counted:
        sizes[row["kind"]] = sizes.get(row["kind"], 0) + int(row["count"])
    measured = background.toArrow()
    solved = [
        _solved(kind, measured, part, config, sum(sizes.values())) for kind, part in _apart(sizes, config.threshold)
    ]
    schemes = {scheme.kind: scheme.scheme for scheme in solved}
    narrow = signatures.select("increment", "kind", "place", "signature")
    counts = [(row["kind"], bool(row["new"]), int(row["count"])) for row in counted]
    make = _here if is_embedded(narrow) else _distributed
    lists = make(narrow, schemes, increment, counts)
    bands = signatures.sparkSession.createDataFrame(_curve(solved, _combined(measured, sizes), config.recall))
    of_kinds = {
        f"bands-of-{scheme.kind}": f"{scheme.scheme.bands} x {scheme.scheme.rows}" for scheme in solved if scheme.kind
    }
    return Output({"buckets": lists, "bands": bands}, persisted=(lists,), summary=of_kinds)


def _here(
    signatures: DataFrame,
    schemes: Mapping[str | None, BandScheme],
    increment: int,
    counts: Sequence[tuple[str, bool, int]],
) -> DataFrame:
    """As `_distributed`, computed in this process: rows kept until their release."""
    from spark_jobs.dedup.near.buckets_by_band import bucket_batches, sharing_keys

    compared = signatures
    if increment > 0:
        is_new = F.col("increment") == increment
        new, earlier = signatures.where(is_new), signatures.where(~is_new)
        compared = new.unionByName(sharing_keys(earlier, new, schemes, _key_counts(schemes, counts)[0]))
    with mapped_rows(compared) as rows:
        batches = bucket_batches(rows, schemes, increment, parallelism())
        return keep_batches(signatures.sparkSession, batches, BUCKETS_DDL)


def _distributed(
    signatures: DataFrame,
    schemes: Mapping[str | None, BandScheme],
    increment: int,
    counts: Sequence[tuple[str, bool, int]],
) -> DataFrame:
    """Rows of `buckets`, computed by tasks with some of the keys each.

    Args:
        signatures: columns increment, kind, place, signature.
        schemes: bands by kind of document; or under the key None those of all kinds.
        increment: the new one.
        counts: kind, whether of the new increment, and number of documents.
    """
    from spark_jobs.dedup.near.bucket_keys import all_keys
    from spark_jobs.dedup.near.key_filter import filter_of, passing_share

    new_keys, old_keys = _key_counts(schemes, counts)
    is_new = F.col("increment") == increment
    new = signatures.where(is_new)
    passing = int(passing_share(new_keys) * old_keys)
    partition_count = max(2, -(-(2 * new_keys + passing) // PARTITION_RECORDS))
    emit = partial(band_records, schemes=schemes, partition_count=partition_count)
    records = new.mapInArrow(partial(emit, earlier=False, filled=None), RECORDS_DDL)
    if increment > 0:
        filled = filter_of(new, partial(all_keys, schemes=schemes), new_keys)
        earlier = signatures.where(~is_new).mapInArrow(partial(emit, earlier=True, filled=filled), RECORDS_DDL)
        records = records.unionByName(earlier)
    return dealt(records, partition_count, F.col("part")).map(bucket_lists, BUCKETS_DDL).to_frame()


def _key_counts(schemes: Mapping[str | None, BandScheme], counts: Sequence[tuple[str, bool, int]]) -> tuple[int, int]:
    """Keys of all new documents, and of all earlier ones; arguments as of `_distributed`."""
    of = [(new, count * (schemes[None] if None in schemes else schemes[kind]).bands) for kind, new, count in counts]
    new_count, count = sum(keys for is_new, keys in of if is_new), sum(keys for _, keys in of)
    return new_count, count - new_count


class _Solved(NamedTuple):
    """The bands of one kind of document, or of all: what they were solved for, now and in the forecast."""

    kind: str | None
    threshold: float
    documents: int
    scheme: BandScheme
    expected_documents: int
    forecast: BandScheme


def _apart(sizes: dict[str, int], threshold: KindThreshold) -> list[tuple[str | None, dict[str, int]]]:
    """(kind, sizes by kind) of each group with bands of its own: all documents (kind None), or each kind."""
    if threshold.is_one or not sizes:
        return [(None, sizes)]
    return [(kind, {kind: sizes[kind]}) for kind in sorted(sizes)]


def _solved(
    kind: str | None, background: pa.Table, sizes: dict[str, int], config: BucketsConfig, total: int
) -> _Solved:
    """Solve the bands of documents of `kind` (None: all), now and for the forecast; logs a lowered recall."""
    from spark_jobs.dedup.sketches.bands import solve_bands

    measured = _combined(background, sizes)
    documents = max(1, sum(sizes.values()))
    threshold = config.threshold.distinct[0] if kind is None else config.threshold.of(kind)
    solve = partial(
        solve_bands,
        measured,
        threshold=threshold,
        recall=config.recall,
        false_below=min(threshold, RELATED),
        most_bytes=config.document_bytes,
    )
    scheme = solve(documents=documents)
    share = (config.expected_documents or 0) * documents // max(1, total)
    expected = max(documents, share or 10 * documents)
    forecast = solve(documents=expected)
    for when, bands, size in (("over the", scheme, documents), ("once there are", forecast, expected)):
        if bands.recall < config.recall:
            _log.warning(_LOWERED, when, size, threshold, bands.recall, config.recall, config.document_bytes)
    return _Solved(kind, threshold, documents, scheme, expected, forecast)


def _combined(background: pa.Table, sizes: Mapping[str, int]) -> Int64Array:
    """(bins + 1,) of 2^52 random pairs of documents, the number in each bin of J; pairs of two kinds are in bin 0."""
    from spark_jobs.dedup.sketches.background import BINS

    total = max(1, sum(sizes.values()))
    combined = np.zeros(BINS + 1)
    combined[0] = 1.0
    kinds = background.column("kind").to_numpy(zero_copy_only=False)
    bins = np.rint(background.column("similarity").to_numpy() * BINS).astype(np.int64)
    pairs = background.column("pair_count").to_numpy()
    for kind in sorted(sizes):
        of_kind = kinds == kind
        if of_kind.any():
            share = (sizes[kind] / total) ** 2
            measured = np.zeros(BINS + 1)
            measured[bins[of_kind]] = pairs[of_kind] / pairs[of_kind].sum()
            combined += share * measured
            combined[0] -= share
    pairs_of: Int64Array = np.rint(np.maximum(combined, 0.0) * (1 << 52)).astype(np.int64)
    return pairs_of


def _curve(solved: Sequence[_Solved], measured: Int64Array, recall: float) -> pa.Table:
    """Rows of `bands`; of several kinds means over documents, the lowest recall, the lowest threshold's bands."""
    from spark_jobs.dedup.sketches.bands import candidate_probability

    steps = np.arange(101)
    width = (len(measured) - 1) // 100
    shares = np.add.reduceat(measured, steps * width)
    count = len(steps)
    documents = sum(of_kind.documents for of_kind in solved)
    parts = [of_kind.documents / documents for of_kind in solved]
    lowest = min(solved, key=lambda of_kind: of_kind.threshold)

    def mean(values: Iterable[Any]) -> Any:
        return sum(part * value for part, value in zip(parts, values, strict=True))

    curves = [
        candidate_probability(of_kind.scheme.bands, of_kind.scheme.rows, of_kind.scheme.overlapping, steps / 100)
        for of_kind in solved
    ]
    return pa.table(
        {
            "similarity": steps / 100,
            "candidate_probability": mean(curves),
            "background_fraction": shares / (1 << 52),
            "band_count": pa.array([lowest.scheme.bands] * count, pa.int32()),
            "row_count": pa.array([lowest.scheme.rows] * count, pa.int32()),
            "overlapping": [lowest.scheme.overlapping] * count,
            "documents": pa.array([documents] * count, pa.int64()),
            "wanted_recall": [recall] * count,
            "recall": [min(of_kind.scheme.recall for of_kind in solved)] * count,
            "false_per_document": [mean(of_kind.scheme.false_per_document for of_kind in solved)] * count,
            "document_bytes": [mean(of_kind.scheme.document_bytes for of_kind in solved)] * count,
            "expected_documents": pa.array([sum(of_kind.expected_documents for of_kind in solved)] * count, pa.int64()),
            "expected_band_count": pa.array([lowest.forecast.bands] * count, pa.int32()),
            "expected_row_count": pa.array([lowest.forecast.rows] * count, pa.int32()),
            "expected_recall": [min(of_kind.forecast.recall for of_kind in solved)] * count,
            "expected_document_bytes": [mean(of_kind.forecast.document_bytes for of_kind in solved)] * count,
        }
    )


def band_records(
    batches: Iterable[pa.RecordBatch],
    schemes: Mapping[str | None, BandScheme],
    partition_count: int,
    earlier: bool,
    filled: bytes | None,
) -> Iterator[pa.RecordBatch]:
    """Compute the keys of signatures, and pack (key, place) records into one block per partition.

    Args:
        batches: rows with the columns kind, place and signature.
        schemes: bands by kind of document; or under the key None those of all kinds.
        partition_count: partitions to distribute the blocks to, by key.
        earlier: whether the documents are of earlier increments.
        filled: a Bloom filter (`key_filter`); only keys in it pass. None passes all.

    Yields:
        Rows of `RECORDS_DDL`.
    """
    from spark_jobs.dedup.near.bucket_keys import by_scheme, keys_of
    from spark_jobs.dedup.near.bucket_records import scatter
    from spark_jobs.dedup.near.key_filter import has_keys

    united = None if filled is None else np.frombuffer(filled, np.uint8)
    for batch, scheme in (part for whole in batches for part in by_scheme(whole, schemes)):
        keys = keys_of(batch, scheme).ravel()
        places = np.repeat(batch.column("place").to_numpy(), scheme.bands)
        if united is not None:
            passing = has_keys(keys, united)
            keys, places = keys[passing], places[passing]
        offsets, keys, places = scatter(keys, places, partition_count)
        some = np.flatnonzero(np.diff(offsets))
        spans = [slice(offsets[part], offsets[part + 1]) for part in some]
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(some, pa.int32()),
                pa.array([keys[span].tobytes() for span in spans], pa.binary()),
                pa.array([places[span].tobytes() for span in spans], pa.binary()),
                pa.array([earlier] * len(some), pa.bool_()),
            ],
            names=["part", "keys", "places", "earlier"],
        )


def bucket_lists(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of `buckets` of one partition, held in memory: about 32 MB of records, and as much again to sort them."""
    from spark_jobs.dedup.near.bucket_records import bucket_rows, group_by_key

    keys, places, earlier = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)], [np.zeros(0, np.bool_)]
    for batch in batches:
        columns = (batch.column(name) for name in ("keys", "places", "earlier"))
        for key_block, place_block, is_earlier in zip(*columns, strict=True):
            keys.append(np.frombuffer(key_block.as_buffer(), np.uint64))
            places.append(np.frombuffer(place_block.as_buffer(), np.int64))
            earlier.append(np.full(len(keys[-1]), is_earlier.as_py()))
    yield from bucket_rows(group_by_key(np.concatenate(keys), np.concatenate(places), np.concatenate(earlier)))

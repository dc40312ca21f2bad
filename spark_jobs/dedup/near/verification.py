"""Verification: from candidates to pairs with their exact similarity, cheap tests before the costly one.

    candidates (two places)
      -> with both signatures: drop those whose sizes cannot reach the threshold, or whose signatures agree too seldom
      -> with both bags: sum of lesser weights / sum of greater weights, exactly

Sail's process verifies all candidates itself (`verified_here`): of signatures and of bags one scan each writes those of
the candidates' documents to files, where they are looked up. There is no join and no shuffle, and what is held does not
grow with the bags. Of buckets it lists no candidates at all (`bucket_pairs`).

On Spark candidates are distributed to parts, and each part receives every needed document once. A few are
verified in the driver: in a small corpus or a small increment the fixed costs of a dozen Spark jobs would be most of
the time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.process.memory_limit import core_count
from spark_jobs.arrays import Int64Array
from spark_jobs.dedup.graph.threshold_pairs import KindThreshold
from spark_jobs.dedup.near.bucket_members import CANDIDATES_DDL, all_pairs, list_offsets
from spark_jobs.dedup.near.pair_columns import BAG, ENDS, PAIRS_SCHEMA, SIDES, Pairs
from spark_jobs.dedup.near.places import filter_of_places, kept_batches, of_places, passing_any
from spark_jobs.lake.engine.arrangement import Arranged, dealt, persist
from spark_jobs.lake.engine.embedded import is_embedded, keep_batches
from spark_jobs.lake.engine.scratch import scratch_folder
from spark_jobs.lake.engine.spooled_rows import Spool, mapped_rows
from spark_jobs.lake.session.cluster import checkpointed
from spark_jobs.spark_sql import DataFrame, F
from spark_jobs.threads import in_order_of

if TYPE_CHECKING:
    from spark_jobs.dedup.near.comparison import BagRows

SIGNATURE = ("total_weight", "signature", "signature_version")
# Candidates of a part: of two documents each at most, a signature of 0.3 KB and a bag of about 3 KB.
_PART_SIGNATURES = 250_000
_PART_BAGS = 50_000
# Up to this number of candidates, the keys of their documents (40 to 120 bytes each) are broadcast to every task that
# reads the index, so that it is scanned and not shuffled, which would dominate the time of an increment of 1%.
_BROADCAST_CANDIDATES = 250_000
_ENDS_DDL = ", ".join(
    f"{side}_{name} {kind}"
    for side in SIDES
    for name, kind in zip(ENDS, ("string", "string", "int", "bigint", "string"), strict=True)
)
PAIRS_DDL = f"{_ENDS_DDL}, shared_weight bigint, united_weight bigint"
PAIR_COLUMNS = (
    "right_kind AS kind",
    "right_dataset AS dataset",
    "right_doc_id AS doc_id",
    "right_place AS place",
    "left_dataset AS better_dataset",
    "left_doc_id AS better_doc_id",
    "left_place AS better_place",
    "left_increment AS better_increment",
    "shared_weight",
    "united_weight",
)
"""Columns of verified pairs as rows of `pairs`: the left document is the better one."""


@dataclass(frozen=True)
class SignatureIndex:
    """Signatures and bags of all increments so far; on Spark the driver verifies up to `driver_candidates`."""

    signatures: DataFrame
    bags: DataFrame
    driver_candidates: int


def verified_pairs(
    candidates: DataFrame, candidate_count: int, index: SignatureIndex, lowest: KindThreshold
) -> tuple[DataFrame, tuple[DataFrame, ...]]:
    """Verify candidates: keep those at least as similar as the lowest threshold of their kind.

    Args:
        candidates: distinct rows (first bigint, second bigint), two places.
        candidate_count: their number, or more; decides only how they are joined.
        index: signatures and bags.
        lowest: lowest weighted Jaccard similarity, by kind of document.

    Returns:
        Rows left_* and right_* (dataset, doc_id, increment, place, kind), shared_weight and united_weight, where the
        left document comes first in the order (increment, place, doc_id); and DataFrames to unpersist.
    """
    spark = candidates.sparkSession
    if is_embedded(candidates):
        with mapped_rows(candidates) as rows:
            verified = keep_batches(spark, verified_here(rows, index, lowest), PAIRS_DDL)
        return verified, (verified,)
    if candidate_count <= index.driver_candidates:
        similar = verified_here(candidates.toArrow(), index, lowest)
        return spark.createDataFrame(pa.Table.from_batches(similar, PAIRS_SCHEMA), PAIRS_DDL), ()
    candidates = checkpointed(candidates)  # they are read three times
    # Buckets repeat their pairs, seven times in sources; each of seven times as many parts would receive its documents.
    candidate_count = candidates.count()
    parts = max(2, -(-candidate_count // _PART_SIGNATURES))
    signatures = index.signatures.select(*ENDS, *SIGNATURE)
    compare = partial(_agree, lowest=lowest)
    few = candidate_count <= _BROADCAST_CANDIDATES
    signed = _brought(candidates, ("first", "second"), signatures, "place", parts, few)
    agreeing = persist(signed.map(compare, _ENDS_DDL).to_frame())
    bags = index.bags.select("doc_id", *BAG)
    count = agreeing.count()
    parts = max(2, -(-count // _PART_BAGS))
    both = _brought(agreeing, ("left_doc_id", "right_doc_id"), bags, "doc_id", parts, count <= _BROADCAST_CANDIDATES)
    return both.map(partial(_overlap, lowest=lowest), PAIRS_DDL).to_frame(), (agreeing,)


def verified_buckets(
    buckets: DataFrame,
    pair_count: int,
    index: SignatureIndex,
    lowest: KindThreshold,
    increment: int,
    not_among: bytes | None = None,
) -> tuple[DataFrame, tuple[DataFrame, ...]]:
    """Verify the pairs of buckets with a new document.

    Args:
        buckets: rows (members, earlier), of small buckets.
        pair_count: number of their pairs, with repeats.
        index: signatures and bags.
        lowest: lowest weighted Jaccard similarity, by kind of document.
        increment: the new one.
        not_among: a filter of places (`key_filter`); pairs of two places in it are left out.

    Returns:
        As `verified_pairs`.
    """
    if is_embedded(buckets):
        similar = _verified_buckets_here(buckets, index, lowest, increment, not_among)
        verified = keep_batches(buckets.sparkSession, similar, PAIRS_DDL)
        return verified, (verified,)
    candidates = buckets.mapInArrow(partial(all_pairs, not_among=not_among), CANDIDATES_DDL).distinct()
    return verified_pairs(candidates, pair_count, index, lowest)


def _brought(
    candidates: DataFrame, ends: tuple[str, str], documents: DataFrame, key: str, part_count: int, few: bool
) -> Arranged:
    """Candidates and their documents in one DataFrame, each candidate in one partition with both its documents.

    Candidates are distributed by their second document, so those of one pivot are spread, and it is in every part.
    """
    numbered = candidates.withColumn("part", F.pmod(F.xxhash64(ends[1]), F.lit(part_count)).cast("int"))
    wanted = numbered.select("part", F.explode(F.array(*ends)).alias(key)).distinct()
    brought = documents.join(F.broadcast(wanted) if few else wanted, key)
    both = numbered.unionByName(brought, allowMissingColumns=True)
    return dealt(both, part_count, F.col("part"))


def _parted(
    batches: Iterable[pa.RecordBatch], key: str, ends: tuple[str, ...], compare: Callable[[pa.Table, pa.Table], Pairs]
) -> Iterator[pa.RecordBatch]:
    """Split a partition into documents (rows with the key) and candidates (without), on disk, and compare them."""
    with tempfile.TemporaryDirectory() as folder:
        candidates, documents = (Spool(Path(folder, name)) for name in ("candidates", "documents"))
        schema = pa.schema([])
        for batch in batches:
            schema, is_document = batch.schema, batch.column(key).is_valid()
            candidates.add(batch.select(ends).filter(pc.invert(is_document)))
            documents.add(batch.drop_columns(list(ends)).filter(is_document))
        if schema.names:
            yield from compare(candidates.table(schema), documents.table(schema))


def _agree(batches: Iterable[pa.RecordBatch], lowest: KindThreshold) -> Iterator[pa.RecordBatch]:
    """The candidates of a partition whose sizes and signatures allow the lowest threshold."""
    from spark_jobs.dedup.near.comparison import BLOCK, agreeing_rows, taken

    def compare(candidates: pa.Table, signatures: pa.Table) -> Pairs:
        left, right = agreeing_rows(candidates, signatures, lowest)
        for start in range(0, len(left), BLOCK):
            ends = (taken(signatures.select(ENDS), rows[start : start + BLOCK]) for rows in (left, right))
            sides = zip(SIDES, ends, strict=True)
            yield from (
                pa.table({f"{side}_{name}": rows.column(name) for side, rows in sides for name in ENDS})
                .combine_chunks()
                .to_batches()
            )

    return _parted(batches, "place", ("first", "second"), compare)


def _overlap(batches: Iterable[pa.RecordBatch], lowest: KindThreshold) -> Iterator[pa.RecordBatch]:
    """The candidates of a partition with bags reaching the threshold, with their exact similarity."""
    from spark_jobs.dedup.near.comparison import BLOCK, BagRows, pair_batches, similar, threshold_fractions

    names = tuple(f"{side}_{name}" for side in SIDES for name in ENDS)

    def compare(candidates: pa.Table, stored: pa.Table) -> Pairs:
        bags = BagRows.of(stored)
        for part in candidates.to_batches(max_chunksize=BLOCK):
            ends = [part.select([f"{side}_{name}" for name in ENDS]).rename_columns(list(ENDS)) for side in SIDES]
            left, right = (bags.rows_of(side.column("doc_id")) for side in ends)
            least = threshold_fractions(pa.chunked_array([ends[0].column("kind")]), lowest)
            similar_ones = similar((left, right), bags, least)
            sides = [pa.Table.from_batches([side]).take(similar_ones.pairs) for side in ends]
            yield from pair_batches((sides[0], sides[1]), similar_ones)

    return _parted(batches, "doc_id", names, compare)


def verified_here(candidates: pa.Table, index: SignatureIndex, lowest: KindThreshold) -> Pairs:
    """Verify candidates in this process: keep those as similar as the lowest threshold of their kind.

    Held are some 60 bytes for each document of a candidate and 16 for each pair whose signatures agree; signatures and
    bags are looked up in files (`mapped_rows`).

    Args:
        candidates: columns first and second (int64), distinct pairs of places.
        index: signatures and bags; those of the candidates' documents are read.
        lowest: lowest weighted Jaccard similarity, by kind of document.

    Yields:
        Columns left_* and right_* (`ENDS`), shared_weight and united_weight.
    """
    from spark_jobs.dedup.near.comparison import agreeing_rows

    ends = [column for name in ("first", "second") for column in candidates.column(name).chunks]
    with _known(index, [column.to_numpy() for column in ends]) as signatures:
        yield from _verified(signatures, [agreeing_rows(candidates, signatures, lowest, core_count())], index, lowest)


def _verified_buckets_here(
    buckets: DataFrame, index: SignatureIndex, lowest: KindThreshold, increment: int, not_among: bytes | None
) -> Pairs:
    """As `verified_here`, of all pairs in buckets; held are 60 bytes for each document and 8 for an agreeing pair."""
    with mapped_rows(buckets) as lists, _known(index, _members(lists)) as signatures:
        yield from _verified(signatures, _agreeing_in(lists, signatures, lowest, increment, not_among), index, lowest)


def split_by_pool(
    buckets: DataFrame, index: SignatureIndex, lowest: KindThreshold, increment: int, pool: bytes
) -> tuple[DataFrame, SignatureIndex]:
    """Verify the pairs of buckets on Sail, and cut the index down to a pool of other documents, by one scan of each.

    An increment of 1% is verified in seconds; what takes the time is reading signatures and bags of all earlier ones.

    Args:
        buckets: rows (members, earlier), of small buckets.
        index: signatures and bags.
        lowest: lowest weighted Jaccard similarity, by kind of document.
        increment: the new one.
        pool: a filter of places (`key_filter`); pairs of two places in it are left out.

    Returns:
        Pairs as of `verified_pairs`, and the index of the pool, whose bags have also `ENDS` and `total_weight`; both in
        files, to be released.
    """
    session, in_pool = buckets.sparkSession, np.frombuffer(pool, np.uint8)
    signed = index.signatures.select(*ENDS, *SIGNATURE)
    bags = index.bags.select(*ENDS, "total_weight", *BAG)
    with mapped_rows(buckets) as lists:
        wanted = [filter_of_places(_members(lists), index.signatures), in_pool]
        with mapped_rows(passing_any(signed, wanted)) as signatures:
            pool_signatures = keep_batches(session, kept_batches(signatures, in_pool), signed.schema)
            agreeing = _agreeing_in(lists, signatures, lowest, increment, pool)
            used, places = _used(signatures, agreeing)
            wanted = [filter_of_places([places], index.bags), in_pool]
            with mapped_rows(passing_any(bags, wanted)) as stored:
                pool_bags = keep_batches(session, kept_batches(stored, in_pool), bags.schema)
                similar = BaggedDocuments.of(signatures, used, stored, lowest).similar(agreeing)
                verified = keep_batches(session, similar, PAIRS_DDL)
    return verified, SignatureIndex(pool_signatures, pool_bags, index.driver_candidates)


def _members(lists: pa.Table) -> list[Int64Array]:
    """Places of the members of buckets, with repeats."""
    return [list_offsets(column)[1] for name in ("members", "earlier") for column in lists.column(name).chunks]


def _agreeing_in(
    lists: pa.Table, signatures: pa.Table, lowest: KindThreshold, increment: int, not_among: bytes | None
) -> list[tuple[Int64Array, Int64Array]]:
    """Rows of `signatures` of agreeing pairs in buckets (`bucket_pairs`)."""
    from spark_jobs.dedup.near.bucket_pairs import agreeing_in_buckets
    from spark_jobs.dedup.near.comparison import SignatureColumns

    documents = SignatureColumns.of(signatures, lowest)
    earlier = pc.sum(pc.less(signatures.column("increment"), increment)).as_py() or 0
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as folder:
        file = Path(folder, "buckets")
        return list(agreeing_in_buckets(lists, documents, earlier, not_among, file, core_count()))


def _known(index: SignatureIndex, places: Sequence[Int64Array]) -> AbstractContextManager[pa.Table]:
    """The signatures of documents at some places, and few others, in files."""
    return mapped_rows(of_places(index.signatures.select(*ENDS, *SIGNATURE), places))


def _verified(
    signatures: pa.Table,
    agreeing: Sequence[tuple[Int64Array, Int64Array]],
    index: SignatureIndex,
    lowest: KindThreshold,
) -> Pairs:
    """The pairs of rows of `signatures` similar by their bags."""
    used, places = _used(signatures, agreeing)
    with mapped_rows(of_places(index.bags, [places]).select("doc_id", *BAG)) as stored:
        yield from BaggedDocuments.of(signatures, used, stored, lowest).similar(agreeing)


def _used(signatures: pa.Table, agreeing: Sequence[tuple[Int64Array, Int64Array]]) -> tuple[Int64Array, Int64Array]:
    """Rows of `signatures` of the documents of pairs, and their places."""
    from spark_jobs.dedup.near.comparison import taken

    is_used = np.zeros(len(signatures), np.bool_)
    for side in (side for pair in agreeing for side in pair):
        is_used[side] = True
    used = np.flatnonzero(is_used)
    return used, taken(signatures.select(["place"]), used).column("place").to_numpy()


@contextmanager
def opened(index: SignatureIndex, lowest: KindThreshold) -> Iterator[BaggedDocuments]:
    """All documents of an index."""
    signatures, bags = index.signatures.select(*ENDS, *SIGNATURE), index.bags.select("doc_id", *BAG)
    with mapped_rows(signatures) as signed, mapped_rows(bags) as stored:
        yield BaggedDocuments.of(signed, np.arange(len(signed)), stored, lowest)


@dataclass(frozen=True)
class BaggedDocuments:
    """Documents with their bags, in files.

    Attributes:
        known: rows of `signatures`.
        bags: bags of some of them.
        rows: (D,) int64 of each one's bag.
        least: (D,) numerators and (D,) denominators of the thresholds of their kinds.
    """

    known: pa.Table
    bags: BagRows
    rows: Int64Array
    least: tuple[Int64Array, Int64Array]

    @classmethod
    def of(cls, signed: pa.Table, used: Int64Array, stored: pa.Table, lowest: KindThreshold) -> BaggedDocuments:
        """Of rows of `signatures`, of which some are used, and of rows of `bags`."""
        from spark_jobs.dedup.near.comparison import BagRows, taken, threshold_fractions

        bags, rows = BagRows.of(stored), np.full(len(signed), -1, np.int64)
        rows[used] = bags.rows_of(taken(signed.select(["doc_id"]), used).column("doc_id").combine_chunks())
        return cls(signed, bags, rows, threshold_fractions(signed.column("kind"), lowest))

    def similar(self, pairs: Iterable[tuple[Int64Array, Int64Array]]) -> Pairs:
        """Those of pairs of rows similar by their bags, as `PAIRS_SCHEMA`."""
        from spark_jobs.dedup.near.comparison import BLOCK, pair_batches, similar, taken

        ends = self.known.select(ENDS)

        def compare(sides: tuple[Int64Array, Int64Array]) -> list[pa.RecordBatch]:
            left, right = sides
            alike = similar((self.rows[left], self.rows[right]), self.bags, (self.least[0][left], self.least[1][left]))
            return list(pair_batches((taken(ends, left[alike.pairs]), taken(ends, right[alike.pairs])), alike))

        blocks = (
            (left[start : start + BLOCK], right[start : start + BLOCK])
            for left, right in pairs
            for start in range(0, len(left), BLOCK)
        )
        with ThreadPoolExecutor(core_count()) as threads:
            for batches in in_order_of(threads, compare, blocks):
                yield from batches

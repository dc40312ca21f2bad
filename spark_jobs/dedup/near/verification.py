"""Verification: from candidates to pairs with their exact similarity, cheap tests before the costly one.

    candidates (two places)
      -> with both signatures: drop those whose sizes cannot reach the threshold, or whose signatures agree too seldom
      -> with both bags: sum of lesser weights / sum of greater weights, exactly

Bags are large, so only those of documents that still have a candidate are moved, and not once for every candidate:
candidates are distributed to parts, and each part receives every document that it needs once.

A few candidates are verified in the driver's memory and give the same rows. In a small corpus or a small increment the
fixed costs of a dozen Spark jobs would be most of the time; `verified_in_memory` takes one scan of the signatures and
one of the bags, and no shuffle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.arrays import Int64Array
from spark_jobs.dedup.graph.threshold_pairs import KindThreshold, exact, of_kinds
from spark_jobs.dedup.sketches.signatures import signature_rows
from spark_jobs.lake.engine.arrangement import Arranged, dealt, persist
from spark_jobs.lake.session.cluster import checkpointed
from spark_jobs.spark_sql import DataFrame, F

ENDS = ("dataset", "doc_id", "increment", "place", "kind")
"""Columns of either document of a pair."""
SIGNATURE_LOSS = 1e-6
"""Most share of pairs exactly at the threshold that the test of signatures drops."""
SIGNATURE = ("total_weight", "signature", "signature_version")
BAG = ("token_hashes", "units", "levels")
_BLOCK = 65_536
# Candidates of a part: of two documents each at most, a signature of 0.3 KB and a bag of about 3 KB.
_PART_SIGNATURES = 250_000
_PART_BAGS = 50_000
# Up to this number of candidates, the keys of their documents (40 to 120 bytes each) are broadcast to every task that
# reads the index, so that it is scanned and not shuffled, which would dominate the time of an increment of 1%.
_BROADCAST_CANDIDATES = 250_000
_SIDES = ("left", "right")
_ENDS_DDL = ", ".join(
    f"{side}_{name} {kind}"
    for side in _SIDES
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
class Index:
    """Signatures and bags of all increments so far; up to `driver_candidates` candidates are verified on the driver."""

    signatures: DataFrame
    bags: DataFrame
    driver_candidates: int


def verified_pairs(
    candidates: DataFrame, candidate_count: int, index: Index, lowest: KindThreshold
) -> tuple[DataFrame, tuple[DataFrame, ...]]:
    """Verify candidates: keep those that are at least as similar as the lowest threshold of their kind.

    Args:
        candidates: distinct rows (first bigint, second bigint), two places.
        candidate_count: their number, about; decides only how they are joined.
        index: signatures and bags.
        lowest: lowest weighted Jaccard similarity, by kind of document.

    Returns:
        Rows left_* and right_* (dataset, doc_id, increment, place, kind), shared_weight and united_weight, where the
        left document comes first in the order (increment, place, doc_id); and DataFrames to unpersist.
    """
    if candidate_count <= index.driver_candidates:
        rows = verified_in_memory(candidates.toArrow(), index.signatures, index.bags, lowest)
        return candidates.sparkSession.createDataFrame(rows, PAIRS_DDL), ()
    candidates = checkpointed(candidates)  # they are read twice
    parts = max(2, -(-candidate_count // _PART_SIGNATURES))
    signatures = index.signatures.select(*ENDS, *SIGNATURE)
    compare = partial(_agree, lowest=lowest)
    few = candidate_count <= _BROADCAST_CANDIDATES
    known = _brought(candidates, ("first", "second"), signatures, "place", parts, few)
    agreeing = persist(known.map(compare, _ENDS_DDL).to_frame())
    bags = index.bags.select("doc_id", *BAG)
    count = agreeing.count()
    parts = max(2, -(-count // _PART_BAGS))
    both = _brought(agreeing, ("left_doc_id", "right_doc_id"), bags, "doc_id", parts, count <= _BROADCAST_CANDIDATES)
    return both.map(partial(_overlap, lowest=lowest), PAIRS_DDL).to_frame(), (agreeing,)


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
    batches: Iterable[pa.RecordBatch], key: str, compare: Callable[[pa.Table, pa.Table], pa.Table]
) -> Iterator[pa.RecordBatch]:
    """Split a partition into documents (rows with the key) and candidates (without), and compare them."""
    whole = list(batches)
    if whole:
        table = pa.Table.from_batches(whole)
        document = table.column(key).is_valid()
        yield from compare(table.filter(pc.invert(document)), table.filter(document)).to_batches()


def _agree(batches: Iterable[pa.RecordBatch], lowest: KindThreshold) -> Iterator[pa.RecordBatch]:
    """The candidates of a partition whose sizes and signatures allow the lowest threshold."""

    def compare(candidates: pa.Table, known: pa.Table) -> pa.Table:
        ends = agreeing_ends(candidates, known, lowest)
        sides = {f"{side}_{name}": rows.column(name) for side, rows in zip(_SIDES, ends, strict=True) for name in ENDS}
        return pa.table(sides)

    return _parted(batches, "place", compare)


def _overlap(batches: Iterable[pa.RecordBatch], lowest: KindThreshold) -> Iterator[pa.RecordBatch]:
    """The candidates of a partition whose bags reach the threshold, with their exact similarity."""

    def compare(candidates: pa.Table, found: pa.Table) -> pa.Table:
        left, right = (
            candidates.select([f"{side}_{name}" for name in ENDS]).rename_columns(list(ENDS)) for side in _SIDES
        )
        return similar((left, right), found, lowest)

    return _parted(batches, "doc_id", compare)


def agreeing_ends(candidates: pa.Table, known: pa.Table, lowest: KindThreshold) -> tuple[pa.Table, pa.Table]:
    """Candidates of one kind whose sizes and signatures allow the lowest threshold.

    Args:
        candidates: columns first and second (int64), distinct pairs of places.
        known: rows of `signatures` at these places.
        lowest: lowest weighted Jaccard similarity, by kind of document.

    Returns:
        Columns `ENDS` of their left documents, and of their right ones; the left one comes first in the order
        (increment, place, doc_id).
    """
    order = pc.sort_indices(known, [(name, "ascending") for name in ("increment", "place", "doc_id")])
    known = known.take(order).combine_chunks()
    left, right = _agreeing(_ends(candidates, known), known, lowest)
    ends = known.select(list(ENDS))
    return ends.take(pa.array(left)), ends.take(pa.array(right))


def similar(ends: tuple[pa.Table, pa.Table], found: pa.Table, lowest: KindThreshold) -> pa.Table:
    """Pairs that are at least as similar as the threshold, by their bags.

    Args:
        ends: left and right documents, row by row.
        found: rows of `bags` with at least all of them.
        lowest: lowest weighted Jaccard similarity, by kind of document.

    Returns:
        Columns left_* and right_* (`ENDS`), shared_weight and united_weight.
    """
    ids = found.column("doc_id").combine_chunks()
    left, right = (
        pc.index_in(side.column("doc_id"), value_set=ids).combine_chunks().to_numpy(zero_copy_only=False)
        for side in ends
    )
    shared, united = _overlaps(found, left.astype(np.int64), right.astype(np.int64))
    numerators, denominators = _fractions(ends[0].column("kind"), lowest)
    alike = pa.array(shared * denominators >= united * numerators)
    sides = {f"{side}_{name}": rows.column(name) for side, rows in zip(_SIDES, ends, strict=True) for name in ENDS}
    return pa.table({**sides, "shared_weight": shared, "united_weight": united}).filter(alike)


def verified_in_memory(candidates: pa.Table, signatures: DataFrame, bags: DataFrame, lowest: KindThreshold) -> pa.Table:
    """Verify candidates in the driver's memory: keep those as similar as the lowest threshold of their kind.

    Args:
        candidates: columns first and second (int64), distinct pairs of places.
        signatures: rows of `signatures`; those of the candidates' documents are collected.
        bags: rows of `bags`; those of documents whose signatures agree often enough are collected.
        lowest: lowest weighted Jaccard similarity, by kind of document.

    Returns:
        Columns left_* and right_* (`ENDS`), shared_weight and united_weight.
    """
    places = np.unique(np.concatenate([candidates.column(name).to_numpy() for name in ("first", "second")]))
    known = _found(signatures, "place", pa.array(places), (*ENDS, *SIGNATURE))
    ends = agreeing_ends(candidates, known, lowest)
    ids = pc.unique(pa.chunked_array([*ends[0].column("doc_id").chunks, *ends[1].column("doc_id").chunks], pa.string()))
    return similar(ends, _found(bags, "doc_id", ids, ("doc_id", *BAG)), lowest)


def _found(table: DataFrame, key: str, wanted: pa.Array | pa.ChunkedArray, columns: tuple[str, ...]) -> pa.Table:
    """Collect the rows of a table that have one of the wanted keys, by one scan."""
    if not len(wanted):
        return table.select(*columns).where("false").toArrow()
    keys = table.sparkSession.createDataFrame(pa.table({key: wanted}))
    return table.select(*columns).join(F.broadcast(keys), key, "left_semi").select(*columns).toArrow()


def _ends(candidates: pa.Table, known: pa.Table) -> tuple[Int64Array, Int64Array]:
    """Row numbers in `known` of both documents of each candidate, the first in order on the left.

    Where several documents have the same place, all combinations are returned, since a place does not tell them apart.
    """
    places = known.column("place").to_numpy()
    by_place = np.argsort(places, kind="stable")
    ascending = places[by_place]
    first, second = (candidates.column(name).to_numpy() for name in ("first", "second"))
    starts, counts = [], []
    for side in (first, second):
        starts.append(np.searchsorted(ascending, side))
        counts.append(np.searchsorted(ascending, side, side="right") - starts[-1])
    combinations = counts[0] * counts[1]
    candidate = np.repeat(np.arange(len(first)), combinations)
    nth = np.arange(len(candidate)) - np.repeat(np.cumsum(combinations) - combinations, combinations)
    one = by_place[starts[0][candidate] + nth // counts[1][candidate]]
    other = by_place[starts[1][candidate] + nth % counts[1][candidate]]
    low, high = np.minimum(one, other), np.maximum(one, other)
    pairs = np.unique(np.stack([low[low < high], high[low < high]]), axis=1)
    return pairs[0], pairs[1]


def _agreeing(
    ends: tuple[Int64Array, Int64Array], known: pa.Table, lowest: KindThreshold
) -> tuple[Int64Array, Int64Array]:
    """The pairs of documents of one kind whose sizes and signatures allow the lowest threshold."""
    from spark_jobs.dedup.sketches.similarity import agreement_counts, least_agreement

    left, right = ends
    weights = known.column("total_weight").to_numpy()
    lesser, greater = np.minimum(weights[left], weights[right]), np.maximum(weights[left], weights[right])
    numerators, denominators = _fractions(known.column("kind"), lowest)
    possible = lesser * denominators[left] >= greater * numerators[left]
    for name in ("kind", "signature_version"):
        codes = known.column(name).combine_chunks().dictionary_encode().indices.to_numpy()
        possible &= codes[left] == codes[right]
    left, right = left[possible], right[possible]
    values = signature_rows(known.column("signature").combine_chunks())
    least_of = {value: least_agreement(exact(value), SIGNATURE_LOSS) for value in lowest.distinct}
    least = of_kinds(known.column("kind"), lambda kind: least_of[lowest.of(kind)])[left]
    agree = np.zeros(len(left), np.bool_)
    for start in range(0, len(left), _BLOCK):
        block = slice(start, start + _BLOCK)
        agree[block] = agreement_counts(values[left[block]], values[right[block]]) >= least[block]
    return left[agree], right[agree]


def _fractions(kinds: pa.ChunkedArray, lowest: KindThreshold) -> tuple[Int64Array, Int64Array]:
    """(D,) numerators and (D,) denominators of the lowest threshold of each of D documents."""
    return (
        of_kinds(kinds, lambda kind: exact(lowest.of(kind)).numerator),
        of_kinds(kinds, lambda kind: exact(lowest.of(kind)).denominator),
    )


def _overlaps(found: pa.Table, left: Int64Array, right: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The shared and united weights of pairs of bags, given by their row numbers, `_BLOCK` pairs at a time."""
    from spark_jobs.dedup.bags.bag_arrays import bags_from_columns
    from spark_jobs.dedup.sketches.similarity import overlaps

    shared, united = np.zeros(len(left), np.int64), np.zeros(len(left), np.int64)
    columns = [found.column(name).cast(pa.large_binary()).combine_chunks() for name in BAG]
    for start in range(0, len(left), _BLOCK):
        block = slice(start, start + _BLOCK)
        bags = [
            bags_from_columns(*(column.take(pa.array(side[block])) for column in columns)) for side in (left, right)
        ]
        shared[block], united[block] = overlaps(*bags)
    return shared, united

"""Verification: from candidates to pairs with their exact similarity, the cheap tests before the costly one.

    candidates (two places)
      -> with both signatures: sizes that cannot reach the threshold, and signatures that agree too seldom, fall
      -> with both bags: sum of lesser weights / sum of greater weights, exactly

Bags are large, so only those of documents that still have a candidate are moved, and not to every candidate: candidates
are dealt out to parts, and each part is brought every document it needs once. A few candidates are verified in the
driver's memory, with the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.dedup.dense_graph import cut
from spark_jobs.dedup.memory_verification import BAG, ENDS, SIGNATURE, agreeing_ends, similar, verified_in_memory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Candidates of a part: of two documents each at most, a signature of 0.3 KB and a bag of about 3 KB.
_PART_SIGNATURES = 250_000
_PART_BAGS = 50_000
# Candidates whose documents are named to every task that reads the index, 40 to 120 bytes each: so the index is scanned
# and not moved, which an increment of 1% would else wait for.
_BROADCAST_CANDIDATES = 250_000
_SIDES = ("left", "right")
_ENDS_DDL = ", ".join(
    f"{side}_{name} {kind}"
    for side in _SIDES
    for name, kind in zip(ENDS, ("string", "string", "int", "bigint", "string"), strict=True)
)
_PAIRS_DDL = f"{_ENDS_DDL}, shared_weight bigint, united_weight bigint"
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
    """What candidates are verified with.

    Attributes:
        signatures: rows of `signatures` of all increments so far.
        bags: rows of `bags` of the same.
        driver_candidates: candidates up to which they are verified in the driver's memory.
    """

    signatures: DataFrame
    bags: DataFrame
    driver_candidates: int


def verified_pairs(
    candidates: DataFrame, candidate_count: int, index: Index, threshold: Fraction
) -> tuple[DataFrame, tuple[DataFrame, ...]]:
    """Candidates that are at least as similar as the threshold.

    Args:
        candidates: distinct rows (first bigint, second bigint), two places.
        candidate_count: about how many there are; decides only how they are joined.
        index: signatures and bags.
        threshold: lowest weighted Jaccard similarity.

    Returns:
        Rows left_* and right_* (dataset, doc_id, increment, place, kind), shared_weight and united_weight, where the
        left document comes first in the order (increment, place, doc_id); and DataFrames to unpersist.
    """
    if candidate_count <= index.driver_candidates:
        rows = verified_in_memory(candidates.toArrow(), index.signatures, index.bags, threshold)
        return candidates.sparkSession.createDataFrame(rows, _PAIRS_DDL), ()
    candidates = cut(candidates)  # they are read twice
    parts = max(2, -(-candidate_count // _PART_SIGNATURES))
    signatures = index.signatures.select(*ENDS, *SIGNATURE)
    compare = partial(_agree, threshold=threshold)
    few = candidate_count <= _BROADCAST_CANDIDATES
    known = _brought(candidates, ("first", "second"), signatures, "place", parts, few)
    agreeing = known.mapInArrow(compare, _ENDS_DDL).persist()
    bags = index.bags.select("doc_id", *BAG)
    count = agreeing.count()
    parts = max(2, -(-count // _PART_BAGS))
    both = _brought(agreeing, ("left_doc_id", "right_doc_id"), bags, "doc_id", parts, count <= _BROADCAST_CANDIDATES)
    return both.mapInArrow(partial(_overlap, threshold=threshold), _PAIRS_DDL), (agreeing,)


def _brought(
    candidates: DataFrame, ends: tuple[str, str], documents: DataFrame, key: str, part_count: int, few: bool
) -> DataFrame:
    """Candidates and the documents at their ends in one DataFrame: what belongs together lies in one partition.

    Candidates are dealt out by their second end: followers of one leader are spread, the leader comes to every part.
    """
    from pyspark.sql import functions as F

    dealt = candidates.withColumn("part", F.pmod(F.xxhash64(ends[1]), F.lit(part_count)).cast("int"))
    wanted = dealt.select("part", F.explode(F.array(*ends)).alias(key)).distinct()
    brought = documents.join(F.broadcast(wanted) if few else wanted, key)
    return dealt.unionByName(brought, allowMissingColumns=True).repartitionById(part_count, F.col("part"))


def _parted(
    batches: Iterable[pa.RecordBatch], key: str, compare: Callable[[pa.Table, pa.Table], pa.Table]
) -> Iterator[pa.RecordBatch]:
    """Compare the candidates of a partition with the documents of the same; a row with the key is a document."""
    whole = list(batches)
    if whole:
        table = pa.Table.from_batches(whole)
        document = table.column(key).is_valid()
        yield from compare(table.filter(pc.invert(document)), table.filter(document)).to_batches()


def _agree(batches: Iterable[pa.RecordBatch], threshold: Fraction) -> Iterator[pa.RecordBatch]:
    """Candidates whose sizes and signatures allow the threshold, with their documents."""

    def compare(candidates: pa.Table, known: pa.Table) -> pa.Table:
        ends = agreeing_ends(candidates, known, threshold)
        sides = {f"{side}_{name}": rows.column(name) for side, rows in zip(_SIDES, ends, strict=True) for name in ENDS}
        return pa.table(sides)

    return _parted(batches, "place", compare)


def _overlap(batches: Iterable[pa.RecordBatch], threshold: Fraction) -> Iterator[pa.RecordBatch]:
    """Rows with the exact similarity of their bags, of those that reach the threshold."""

    def compare(candidates: pa.Table, found: pa.Table) -> pa.Table:
        left, right = (
            candidates.select([f"{side}_{name}" for name in ENDS]).rename_columns(list(ENDS)) for side in _SIDES
        )
        return similar((left, right), found, threshold)

    return _parted(batches, "doc_id", compare)

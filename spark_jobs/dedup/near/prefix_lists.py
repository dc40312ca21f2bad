"""The lists of tokens in which documents of the pool meet, and the candidates of these lists, as functions of workers.

    prefix_records     document -> a record for each token of its prefix, to the partition of the token
    list_candidates    records of a partition -> a list of documents for each token -> pairs of documents

A prefix has the rarest tokens of a document in the pool (`prefix_join`), so tokens of the pool are counted first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_jobs.arrays import Int64Array, UInt32Array
from spark_jobs.dedup.near.bucket_members import candidate_batch
from spark_jobs.dedup.near.pair_columns import BAG
from spark_jobs.spark_sql import DataFrame, F

if TYPE_CHECKING:
    from spark_jobs.dedup.near.prefix_join import Members
RECORDS_DDL = "part int, records binary"
CHOSEN_DDL = "first bigint, second bigint, shared bigint"
RECORD = np.dtype(
    [("token", "<u8"), ("place", "<i8"), ("total", "<i8"), ("suffix", "<i8"), ("groups", "<i4"), ("earlier", "<i4")]
)
_RECORD_COLUMNS = {"place": "place", "total": "total_weight", "groups": "groups", "earlier": "earlier"}


def pool_counters(pool: DataFrame) -> tuple[bytes, int, int]:
    """Counters of the pool's tokens, and how many tokens and documents they counted."""
    parts = pool.mapInArrow(count_pool_tokens, "counters binary, documents bigint")
    counted = parts.coalesce(1).mapInArrow(sum_counters, "counters binary, documents bigint").toArrow().to_pylist()[0]
    return counted["counters"], int(np.frombuffer(counted["counters"], np.uint32).sum()), counted["documents"]


def count_pool_tokens(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Counters of the tokens of one partition."""
    from spark_jobs.dedup.bags.bag_arrays import bags_from_columns
    from spark_jobs.dedup.near.prefix_join import COUNTERS, count_tokens

    counters, documents = np.zeros(COUNTERS, np.uint32), 0
    for batch in batches:
        count_tokens(bags_from_columns(*(batch.column(name) for name in BAG)).hashes, counters)
        documents += batch.num_rows
    yield _counted(counters, documents)


def sum_counters(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The sum of counters."""
    from spark_jobs.dedup.near.prefix_join import COUNTERS

    counters, documents = np.zeros(COUNTERS, np.uint32), 0
    for batch in batches:
        for part in batch.column("counters"):
            counters += np.frombuffer(part.as_buffer(), np.uint32)
        documents += sum(batch.column("documents").to_pylist())
    yield _counted(counters, documents)


def _counted(counters: UInt32Array, documents: int) -> pa.RecordBatch:
    columns = [pa.array([counters.tobytes()], pa.binary()), pa.array([documents], pa.int64())]
    return pa.RecordBatch.from_arrays(columns, names=["counters", "documents"])


def prefix_records(
    batches: Iterable[pa.RecordBatch], counters: bytes, thresholds: tuple[Fraction, ...], partition_count: int
) -> Iterator[pa.RecordBatch]:
    """Make a record for each token in the prefix of a document, in one block for every partition with records.

    Args:
        batches: documents of the pool with their groups of comparison.
        counters: how often the tokens occur in the pool.
        thresholds: of the groups.
        partition_count: partitions to distribute the blocks to, by token.

    Yields:
        Rows of `RECORDS_DDL`; a block is an array of `RECORD`.
    """
    from spark_jobs.dedup.bags.bag_arrays import bags_from_columns
    from spark_jobs.dedup.near.bucket_records import scatter
    from spark_jobs.dedup.near.prefix_join import prefixes

    counted = np.frombuffer(counters, np.uint32)
    for batch in batches:
        if not batch.num_rows:
            continue
        bags = bags_from_columns(*(batch.column(name) for name in BAG))
        prefix = prefixes(bags, counted, batch.column("groups").to_numpy(), thresholds)
        records = np.empty(len(prefix.tokens), RECORD)
        records["token"], records["suffix"] = prefix.tokens, prefix.suffixes
        for name, column in _RECORD_COLUMNS.items():
            records[name] = batch.column(column).to_numpy(zero_copy_only=False)[prefix.documents]
        offsets, _, order = scatter(prefix.tokens, np.arange(len(records)), partition_count)
        records = records[order]
        some = np.flatnonzero(np.diff(offsets))
        blocks = [records[offsets[part] : offsets[part + 1]].tobytes() for part in some]
        yield pa.RecordBatch.from_arrays(
            [pa.array(some, pa.int32()), pa.array(blocks, pa.binary())], names=["part", "records"]
        )


def list_candidates(
    batches: Iterable[pa.RecordBatch], thresholds: tuple[Fraction, ...], pivots: int | None, most: int, most_pairs: int
) -> Iterator[pa.RecordBatch]:
    """Make the lists of the tokens of one partition, in memory, and pair the members of each.

    Args:
        batches: rows of `RECORDS_DDL`.
        thresholds: of the groups.
        pivots: number of first members of a long list, paired with all others; None for all pairs.
        most: a list with more pairs than this is long.
        most_pairs: all pairs are given up where there are more of them than this.

    Yields:
        Rows of `CHOSEN_DDL`: the places of two documents, and of how many long lists with the second the first is a
        pivot. It is 0 for pairs of short lists, left out with one pivot. At last a row (null, null, members
        of long lists), or (null, null, -1) if there are too many pairs.
    """
    from spark_jobs.dedup.near.prefix_join import list_pairs

    blocks = [np.zeros(0, RECORD)]
    for batch in batches:
        blocks += [np.frombuffer(block.as_buffer(), RECORD) for block in batch.column("records")]
    begins, ends, members = _lists(np.concatenate(blocks))
    sizes = ends - begins
    long = (sizes * (sizes - 1) // 2 > most) & (pivots is not None)
    short = ~long & (pivots != 1)
    pair_count = 0
    for first, second in list_pairs(begins[short], ends[short], members, thresholds):
        pairs = candidate_batch(first, second)
        pair_count += pairs.num_rows
        if pivots is None and pair_count > most_pairs:
            yield _chosen(pa.nulls(1, pa.int64()), pa.nulls(1, pa.int64()), np.array([-1]))
            return
        yield _chosen(pairs.column("first"), pairs.column("second"), np.zeros(pairs.num_rows, np.int64))
    led = list(list_pairs(begins[long], ends[long], members, thresholds, pivots)) if long.any() else []
    for first, second in led:
        ends_of, shared = np.unique(np.stack([first, second]), axis=1, return_counts=True)
        yield _chosen(pa.array(ends_of[0]), pa.array(ends_of[1]), shared)
    yield _chosen(pa.nulls(1, pa.int64()), pa.nulls(1, pa.int64()), np.array([int(sizes[long].sum())]))


def _lists(records: NDArray[np.void]) -> tuple[Int64Array, Int64Array, Members]:
    """Sort records into lists by token, in each the earlier documents first, then by place.

    Returns:
        (L,) where each list of at least two members begins, (L,) where it ends, and the members.
    """
    from spark_jobs.dedup.near.prefix_join import Members

    records = records[np.lexsort((records["place"], records["earlier"] == 0, records["token"]))]
    tokens = records["token"]
    begins = np.flatnonzero(np.append(True, tokens[1:] != tokens[:-1])) if len(tokens) else np.zeros(0, np.int64)
    ends = np.append(begins[1:], len(tokens))[: len(begins)]
    several = ends - begins > 1
    members = Members(
        places=np.ascontiguousarray(records["place"]),
        totals=np.ascontiguousarray(records["total"]),
        suffixes=np.ascontiguousarray(records["suffix"]),
        groups=np.ascontiguousarray(records["groups"]),
        earlier=records["earlier"] == 1,
    )
    return begins[several], ends[several], members


def _chosen(first: pa.Array, second: pa.Array, shared: Int64Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([first, second, pa.array(shared)], names=["first", "second", "shared"])


def one_pivot_each(chosen: DataFrame) -> DataFrame:
    """Keep one pivot for each member: the one of most shared long lists."""
    summed = chosen.groupBy("first", "second").agg(F.sum("shared").alias("shared"))
    return summed.groupBy("second").agg(F.max_by("first", F.struct("shared", -F.col("first"))).alias("first"))

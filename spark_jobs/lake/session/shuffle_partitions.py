"""Into how many partitions a step's shuffles go: as many as its input is worth, on the cores that there are.

Every partition starts work of its own, in Python too: 200 of them, Spark's default, for three lines of text cost 134 s
on a cluster where 1 took 4; and too few of a large input pass the memory of an executor. Rows do not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.compute as pc

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
FOLLOW = "spark.headrace.partitions-follow-input"
_LEAST_BYTES, _LEAST_ROWS, _MOST_BYTES = 1 << 20, 10_000, 64 << 20
_PER_CORE = 2


class Size(NamedTuple):
    """Of an input: bytes as they lie in files, and rows."""

    byte_count: int
    row_count: int


def listed_size(listing: pa.Table) -> Size:
    """What the listing of a source says there is to read: the `byte_count` of its rows, less those `unchanged`."""
    if "unchanged" in listing.column_names:
        listing = listing.filter(pc.invert(listing["unchanged"]))
    byte_count = pc.sum(listing["byte_count"]).as_py() if "byte_count" in listing.column_names else listing.nbytes
    return Size(byte_count or 0, listing.num_rows)


def partition_count(size: Size, cores: int) -> int:
    """Partitions for an input: one for each MiB or 10,000 rows up to two a core, then one for each 64 MiB."""
    small = max(1, ceil(size.byte_count / _LEAST_BYTES), ceil(size.row_count / _LEAST_ROWS))
    return max(min(small, _PER_CORE * cores), ceil(size.byte_count / _MOST_BYTES))


def follow_input(spark: SparkSession, sizes: Iterable[Size]) -> None:
    """Set the partitions of the session's next shuffles by what is read, unless their number was given."""
    if spark.conf.get(FOLLOW, "false") == "true":
        read = list(sizes)
        size = Size(sum(one.byte_count for one in read), sum(one.row_count for one in read))
        spark.conf.set(SHUFFLE_PARTITIONS, partition_count(size, spark.sparkContext.defaultParallelism))


def default_count(cores: int) -> int:
    """Partitions where nothing is known of the input: some for each core, without 200 empty tasks."""
    return max(4, _PER_CORE * cores)

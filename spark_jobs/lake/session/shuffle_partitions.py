"""How many partitions a step's shuffles have, by the size of its input and the number of cores.

Every partition is a task, with a Python worker where the step needs one: Spark's default of 200 partitions cost 134 s
for three lines of text on a cluster, 1 partition 4 s. Too few partitions of a large input exceed the memory of an
executor. Rows do not depend on the number.
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
    """Size of an input: bytes of its files, and rows."""

    byte_count: int
    row_count: int


def listed_size(listing: pa.Table) -> Size:
    """Size of what a source's listing says is to be read: the `byte_count` of its rows, without those `unchanged`."""
    if "unchanged" in listing.column_names:
        listing = listing.filter(pc.invert(listing["unchanged"]))
    byte_count = pc.sum(listing["byte_count"]).as_py() if "byte_count" in listing.column_names else listing.nbytes
    return Size(byte_count or 0, listing.num_rows)


def partition_count(size: Size, cores: int) -> int:
    """Partitions for an input: one for each MiB or 10,000 rows up to two a core, then one for each 64 MiB."""
    small = max(1, ceil(size.byte_count / _LEAST_BYTES), ceil(size.row_count / _LEAST_ROWS))
    return max(min(small, _PER_CORE * cores), ceil(size.byte_count / _MOST_BYTES))


def follow_input(spark: SparkSession, sizes: Iterable[Size]) -> None:
    """Set the partitions of the session's next shuffles by what is read, unless their number was configured."""
    if spark.conf.get(FOLLOW, "false") == "true":
        read = list(sizes)
        size = Size(sum(one.byte_count for one in read), sum(one.row_count for one in read))
        spark.conf.set(SHUFFLE_PARTITIONS, partition_count(size, spark.sparkContext.defaultParallelism))


def default_count(cores: int) -> int:
    """Partitions where nothing is known of the input."""
    return max(4, _PER_CORE * cores)

"""How Spark runs a step, by the size of its input: partitions of its shuffles, and whether its queries are compiled.

Every partition is a task, with a Python worker where the step needs one: Spark's default of 200 partitions cost 134 s
for three lines of text on a cluster, 1 partition 4 s. Too few partitions of a large input exceed the memory of an
executor. Rows do not depend on the number.

Spark compiles each query into Java classes, some tens of milliseconds of all cores for each of its stages. Over a tiny
input that takes longer than evaluating the same expressions one by one: the 39 tables of `tests/main_path` took 57 and
60 s compiled, 51 and 54 s not, and a fifth less CPU. Planning a query again after each of its stages (adaptive
execution) has nothing to gain there either, and took another tenth of the CPU.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.compute as pc

from spark_jobs.lake.engine.embedded import is_embedded
from spark_jobs.spark_sql import SparkSession

if TYPE_CHECKING:
    import pyarrow as pa

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
FOLLOW = "spark.headrace.partitions-follow-input"
_LEAST_BYTES, _LEAST_ROWS, _MOST_BYTES = 1 << 20, 10_000, 64 << 20
_PER_CORE = 2
_TINY_BYTES, _TINY_ROWS = 16 << 20, 10_000


class InputSize(NamedTuple):
    """Size of an input: bytes of its files, and rows."""

    byte_count: int
    row_count: int


def of_what_is_read(listing: pa.Table) -> pa.Table:
    """The rows of a source's listing whose files are to be read: all but those `unchanged`."""
    return listing.filter(pc.invert(listing["unchanged"])) if "unchanged" in listing.column_names else listing


def listed_size(listing: pa.Table) -> InputSize:
    """Size of what a source's listing says is to be read, by the `byte_count` of its rows."""
    listing = of_what_is_read(listing)
    byte_count = pc.sum(listing["byte_count"]).as_py() if "byte_count" in listing.column_names else listing.nbytes
    return InputSize(byte_count or 0, listing.num_rows)


def partition_count(size: InputSize, cores: int) -> int:
    """Partitions for an input: one for each MiB or 10,000 rows up to two a core, then one for each 64 MiB."""
    small = max(1, ceil(size.byte_count / _LEAST_BYTES), ceil(size.row_count / _LEAST_ROWS))
    return max(min(small, _PER_CORE * cores), ceil(size.byte_count / _MOST_BYTES))


def follow_input(spark: SparkSession, sizes: Iterable[InputSize]) -> None:
    """Set up the session's next queries by what is read; the partitions only where their number was not configured."""
    if is_embedded(spark):  # it interprets no plan and starts no task for a partition
        return
    read = list(sizes)
    size = InputSize(sum(part.byte_count for part in read), sum(part.row_count for part in read))
    tiny = size.byte_count <= _TINY_BYTES and size.row_count <= _TINY_ROWS
    spark.conf.set("spark.sql.codegen.wholeStage", not tiny)
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN" if tiny else "FALLBACK")
    spark.conf.set("spark.sql.adaptive.enabled", not tiny)
    if spark.conf.get(FOLLOW, "false") == "true":
        spark.conf.set(SHUFFLE_PARTITIONS, partition_count(size, spark.sparkContext.defaultParallelism))


def default_count(cores: int) -> int:
    """Partitions where nothing is known of the input."""
    return max(4, _PER_CORE * cores)

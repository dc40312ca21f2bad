"""How many partitions an input is worth, and when a session follows that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from spark_jobs.lake.session.shuffle_partitions import (
    FOLLOW,
    SHUFFLE_PARTITIONS,
    InputSize,
    default_count,
    follow_input,
    listed_size,
    partition_count,
)
from tests.conftest import spark_settings
from tests.tiers import needs_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("size", "cores", "count"),
    [
        (InputSize(0, 0), 400, 1),
        (InputSize(60, 3), 400, 1),  # three lines on a large cluster
        (InputSize(5 * MIB, 100), 400, 5),
        (InputSize(MIB, 100_000), 400, 10),  # small rows are work too
        (InputSize(GIB, 100_000), 2, 16),  # two a core are not enough: 64 MiB each
        (InputSize(GIB, 100_000), 400, 800),
        (InputSize(1000 * GIB, 1), 400, 16_000),
    ],
)
def test_partitions_grow_with_the_input_and_the_cores(size: InputSize, cores: int, count: int) -> None:
    """From one, over two for each core, to 64 MiB each."""
    assert partition_count(size, cores) == count


def test_of_a_listing_what_has_not_changed_is_no_input() -> None:
    """A source of a thousand files with a new one is as large as that one; other listings are as large as they are."""
    listing = pa.table({"byte_count": [10, None, 7, 1000], "unchanged": [False, False, False, True]})
    assert listed_size(listing) == InputSize(17, 3)
    assert listed_size(pa.table({"location": ["a", "b"]})).row_count == 2


@needs_spark
def test_a_number_that_was_given_stays(spark: SparkSession) -> None:
    """The session of the tests has its partitions set; one that follows its input sets them by each."""
    session = spark.newSession()
    before = session.conf.get(SHUFFLE_PARTITIONS)
    follow_input(session, [InputSize(GIB, 1), InputSize(GIB, 1)])
    assert session.conf.get(SHUFFLE_PARTITIONS) == before == spark_settings()[SHUFFLE_PARTITIONS]
    session.conf.set(FOLLOW, "true")
    follow_input(session, [InputSize(GIB, 1), InputSize(GIB, 1)])
    assert session.conf.get(SHUFFLE_PARTITIONS) == "32"
    names = "spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode", "spark.sql.adaptive.enabled"
    assert [session.conf.get(name) for name in names] == ["true", "FALLBACK", "true"]
    follow_input(session, [InputSize(MIB, 9000)])
    assert [session.conf.get(name) for name in names] == ["false", "NO_CODEGEN", "false"], "tiny queries"
    assert default_count(1) == 4 and default_count(16) == 32

"""Data versions: sums over rows that see every value, whatever the order, and add up."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.exceptions import TableMismatchError
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.digests import digest, digests
from tests.tiers import on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LONGS = st.integers(-(2**63), 2**63 - 1)


def version(hashes: Sequence[int]) -> DataVersion:
    """What the version of rows with these hashes must be, in plain Python."""
    return DataVersion(len(hashes), sum(hashes), functools.reduce(operator.xor, hashes, 0))


@given(st.lists(_LONGS), st.lists(_LONGS))
def test_versions_add_up(one: list[int], other: list[int]) -> None:
    """The version of a table is the sum of those of its parts, in any order."""
    assert version(one) + version(other) == version(other + one)


@given(st.lists(_LONGS))
def test_a_version_is_read_as_it_was_written(hashes: list[int]) -> None:
    """Text and back, for sums and xors of either sign."""
    assert DataVersion.parse(str(version(hashes))) == version(hashes)


@pytest.mark.parametrize("wrong", ["", "v2", "v3:1:2:3", "v2:a:2:3", "v2:1:2:xyz", "v2:1:2:3:4", "v1:1:2", "files:abc"])
def test_other_texts_are_no_versions(wrong: str) -> None:
    """The message quotes the text."""
    with pytest.raises(TableMismatchError, match="expected v2:count:sum:xor"):
        DataVersion.parse(wrong)


def test_text_of_a_version() -> None:
    """Golden value."""
    assert str(DataVersion(2, -5, -1)) == "v2:2:-5:ffffffffffffffff"
    assert str(DataVersion()) == "v2:0:0:0000000000000000"


def test_versions_of_two_forms_add_up_to_one_of_both() -> None:
    """It is read as it was written; no rows are of any form, and a former version keeps its text."""
    former, empty = DataVersion.parse("v1:2:-5:ffffffffffffffff"), DataVersion.parse("v1:0:0:0000000000000000")
    now = DataVersion(1, 7, 7)
    assert str(former) == "v1:2:-5:ffffffffffffffff" and former != DataVersion(2, -5, -1)
    assert former + DataVersion() == DataVersion() + former == former and str(empty + DataVersion()) == str(empty)
    assert now + empty == empty + now == now
    both = former + now
    assert str(both) == "v1+v2:3:2:fffffffffffffff8" and both == now + former
    assert DataVersion.parse(str(both)) == both and both + now + former == former + now + (now + former)


@on_spark
def test_the_version_is_count_sum_and_xor_of_the_row_hashes(spark: SparkSession) -> None:
    """Against plain Python over the hashes, with rows that come twice; none is what no rows have; by increment too."""
    from spark_jobs.lake.ledger.row_hashes import row_hashes

    frame = spark.range(1000).selectExpr(
        "id % 300 AS n", "cast(id % 7 AS string) AS a", "array(id, null) AS l", "cast(id % 2 AS int) AS increment"
    )
    hashes = [number for batch in frame.toArrow().to_batches() for number in row_hashes(batch).tolist()]
    assert digest(frame) == version(hashes)
    assert digest(frame.where("false")) == DataVersion() and digests(frame.where("false")) == {}
    assert digests(frame) == {number: digest(frame.where(f"increment = {number}")) for number in (0, 1)}


@on_spark
@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_order_and_partitions_do_not_matter(spark: SparkSession, partitions: int) -> None:
    """The same rows in 1, 2 and 7 partitions, backwards."""
    frame = spark.range(500).selectExpr("id", "map('a', id, 'b', id % 3) AS m", "array(id % 5, null) AS l")
    assert digest(frame.orderBy("id", ascending=False).repartition(partitions)) == digest(frame)


def test_the_order_of_a_maps_entries_does_not_matter(spark: SparkSession) -> None:
    """At the top and inside of lists and structs: a map is what it says, not how it was put together."""
    one = "map('a', 1, 'b', 2)"
    other = "map('b', 2, 'a', 1)"
    for shape in ("{}", "array({}, null)", "named_struct('k', array({}))", "map('z', {}, 'y', null)"):
        assert digest(spark.sql(f"SELECT {shape.format(one)} AS m")) == digest(
            spark.sql(f"SELECT {shape.format(other)} AS m")
        )


def test_the_time_zone_of_a_session_does_not_matter(spark: SparkSession) -> None:
    """Moments inside of lists are hashed in UTC."""
    frame = spark.sql("SELECT array(timestamp_seconds(1700000000)) AS t, timestamp_seconds(1700000001) AS u")
    expected = digest(frame)
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        assert digest(frame) == expected
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))

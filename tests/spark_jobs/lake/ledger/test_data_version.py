"""Data versions: sums over rows that see every value, whatever the order, and add up."""

from __future__ import annotations

import datetime
import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.exceptions import TableMismatchError
from spark_jobs.lake.ledger.data_version import DataVersion, digest, row_hash

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


@pytest.mark.parametrize("wrong", ["", "v1", "v2:1:2:3", "v1:a:2:3", "v1:1:2:xyz", "v1:1:2:3:4", "files:abc"])
def test_other_texts_are_no_versions(wrong: str) -> None:
    """The message quotes the text."""
    with pytest.raises(TableMismatchError, match="expected v1:count:sum:xor"):
        DataVersion.parse(wrong)


def test_text_of_a_version() -> None:
    """Golden value."""
    assert str(DataVersion(2, -5, -1)) == "v1:2:-5:ffffffffffffffff"
    assert str(DataVersion()) == "v1:0:0:0000000000000000"


SCHEMA = (
    "a string, b string, n bigint, x double, d decimal(20,3), t timestamp, u timestamp_ntz, ids array<int>, "
    "more array<string>, s struct<p: string, q: int>, m map<string, string>, "
    "deep array<struct<k: map<string, array<int>>>>, times array<timestamp>"
)
_T = datetime.datetime(2026, 1, 2, 3, 4, 5, 600700)
BASE: dict[str, Any] = {
    "a": "x",
    "b": "y",
    "n": 1,
    "x": 0.5,
    "d": None,
    "t": _T.replace(tzinfo=datetime.UTC),
    "u": _T,
    "ids": [1, 2],
    "more": ["p", None],
    "s": {"p": "v", "q": None},
    "m": {"k": "v", "l": None},
    "deep": [{"k": {"a": [1], "b": [2]}}, None],
    "times": [_T.replace(tzinfo=datetime.UTC)],
}


def test_the_version_is_count_sum_and_xor_of_the_row_hashes(spark: SparkSession) -> None:
    """Against plain Python over Spark's own hashes, with rows that come twice; none is what no rows have."""
    frame = spark.range(1000).selectExpr("id % 300 AS n", "cast(id % 7 AS string) AS a", "array(id, id) AS l")
    hashes = [row.h for row in frame.selectExpr(f"{row_hash(frame.schema)} AS h").collect()]
    assert digest(frame) == version(hashes)
    assert digest(frame.where("false")) == DataVersion()


@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_order_and_partitions_do_not_matter(spark: SparkSession, partitions: int) -> None:
    """The same rows in 1, 2 and 7 partitions, backwards."""
    frame = spark.range(500).selectExpr("id", "map('a', id, 'b', id % 3) AS m", "array(id % 5, null) AS l")
    assert digest(frame.orderBy("id", ascending=False).repartition(partitions)) == digest(frame)


def test_every_difference_is_seen(spark: SparkSession) -> None:
    """Rows that differ in one value only, at any depth, have different hashes; nulls and shifted bounds too."""
    changes: list[dict[str, Any]] = [
        {},
        {"a": None, "b": "x"},
        {"a": "x", "b": None},
        {"a": "xy", "b": ""},
        {"a": "", "b": "xy"},
        {"a": None},
        {"a": ""},
        {"n": None},
        {"n": 0},
        {"x": None},
        {"x": 0.0},
        {"x": float("nan")},
        {"x": float("inf")},
        {"t": _T.replace(tzinfo=datetime.UTC, microsecond=600701)},
        {"u": _T.replace(microsecond=600701)},
        {"ids": [1], "more": ["2", "p", None]},
        {"ids": [1, 2, None]},
        {"ids": [None, 1, 2]},
        {"ids": []},
        {"ids": None},
        {"more": [None, "p"]},
        {"more": ["p"]},
        {"more": ["p", ""]},
        {"more": ["p", "null"]},
        {"more": []},
        {"more": None},
        {"more": [None]},
        {"s": {"p": None, "q": None}},
        {"s": None},
        {"s": {"p": "v", "q": 0}},
        {"m": {}},
        {"m": None},
        {"m": {"k": "v"}},
        {"m": {"k": "v", "l": ""}},
        {"m": {"k": None, "l": "v"}},
        {"deep": [{"k": {"a": [2], "b": [1]}}, None]},
        {"deep": [{"k": {"a": [1], "b": [2]}}]},
        {"deep": [None, {"k": {"a": [1], "b": [2]}}]},
        {"deep": [{"k": None}, None]},
        {"deep": [{"k": {"a": [1], "b": None}}, None]},
        {"times": [_T.replace(tzinfo=datetime.UTC, microsecond=600701)]},
    ]
    from decimal import Decimal

    changes += [{"d": Decimal("1.000")}, {"d": Decimal("1.001")}]
    rows = [tuple({**BASE, **change}.values()) for change in changes]
    frame = spark.createDataFrame(rows, SCHEMA)
    hashes = [row.h for row in frame.selectExpr(f"{row_hash(frame.schema)} AS h").collect()]
    assert len(set(hashes)) == len(changes)


def test_required_lists_keep_their_bounds(spark: SparkSession) -> None:
    """[1], [2, 3] is not [1, 2], [3]: lists of required numbers are hashed with their sizes."""
    from pyspark.sql import types as T

    whole = T.ArrayType(T.IntegerType(), containsNull=False)
    schema = T.StructType([T.StructField("a", whole), T.StructField("b", whole)])
    rows = [([1], [2, 3]), ([1, 2], [3]), ([], [1, 2, 3]), ([1, 2, 3], []), (None, [1, 2, 3]), ([1, 2, 3], None)]
    frame = spark.createDataFrame(rows, schema)
    hashes = [row.h for row in frame.selectExpr(f"{row_hash(frame.schema)} AS h").collect()]
    assert len(set(hashes)) == len(rows)


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

"""Rows hashed from Arrow have the hash that Spark gives them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from spark_jobs.exceptions import TableMismatchError
from spark_jobs.lake.files.data_files import can_hash
from spark_jobs.lake.files.row_hashes import row_hashes
from spark_jobs.lake.ledger.data_version import row_hash
from spark_jobs.lake.session.shuffle_partitions import Size, follow_input

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TEXTS = [
    "",
    "a",
    "abcd",
    "12345678",
    "x" * 31,
    "y" * 32,
    "é漢🙂" * 20,
    'quote " and \\',
    "line\nend\ttab\x01",
    "0" * 100,
]
SEGMENT = pa.struct(
    [pa.field("doc_id", pa.string(), False), pa.field("start", pa.int64(), False), pa.field("count", pa.int32(), False)]
)
SCHEMA = pa.schema(
    [
        pa.field("increment", pa.int32(), False),
        pa.field("name", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("number", pa.int32()),
        pa.field("flag", pa.bool_()),
        pa.field("moment", pa.timestamp("us", "UTC")),
        pa.field("input_ids", pa.list_(pa.field("element", pa.int32(), False)), False),
        pa.field("longs", pa.list_(pa.field("element", pa.int64(), False)), False),
        pa.field("segments", pa.list_(pa.field("element", SEGMENT, False)), False),
    ]
)


def rows(seed: int, count: int) -> pa.RecordBatch:
    """Rows with nulls, extremes, empty lists and strings that JSON escapes."""
    generator = random.Random(seed)

    def segment() -> dict[str, object]:
        return {
            "doc_id": generator.choice(_TEXTS),
            "start": generator.choice([0, -1, 2**63 - 1, generator.randrange(2**40)]),
            "count": generator.randrange(-(2**31), 2**31),
        }

    def maybe(value: object) -> object:
        return None if generator.random() < 0.2 else value

    found = [
        {
            "increment": generator.choice([0, 7]),
            "name": maybe(generator.choice(_TEXTS)),
            "size": maybe(generator.choice([0, -1, -(2**63), generator.randrange(2**50)])),
            "number": maybe(generator.choice([0, -1, -(2**31), generator.randrange(2**31)])),
            "flag": maybe(generator.random() < 0.5),
            "moment": maybe(generator.choice([0, -1, generator.randrange(2**50)])),
            "input_ids": [generator.randrange(-5, 2**31) for _ in range(generator.choice([0, 1, 2, 9, 40]))],
            "longs": [generator.randrange(-(2**63), 2**63) for _ in range(generator.randrange(6))],
            "segments": [segment() for _ in range(generator.randrange(4))],
        }
        for _ in range(count)
    ]
    return pa.RecordBatch.from_pylist(found, schema=SCHEMA)


@pytest.mark.parametrize("size", [Size(0, 0), Size(1 << 30, 1 << 20)])
def test_hashes_are_those_of_spark(spark: SparkSession, size: Size) -> None:
    """300 rows of every type and many lengths, one by one; a slice of a batch too; evaluated, and compiled."""
    spark = spark.newSession()
    follow_input(spark, [size])
    batch = rows(1, 300)
    frame = spark.createDataFrame(pa.Table.from_batches([batch]))
    schema = spark.createDataFrame([], frame.schema).schema
    for field, declared in zip(schema.fields, SCHEMA, strict=True):
        field.nullable = declared.nullable
        if pa.types.is_list(declared.type):
            field.dataType.containsNull = False
    typed = spark.createDataFrame(pa.Table.from_batches([batch]), schema)
    expected = [row["hash"] for row in typed.selectExpr(f"{row_hash(schema)} AS hash").collect()]
    assert row_hashes(batch).tolist() == expected
    assert row_hashes(batch.slice(37, 101)).tolist() == expected[37:138]
    assert len(set(expected)) == 300


def test_no_rows_have_no_hashes() -> None:
    """An empty batch is fine."""
    assert row_hashes(rows(1, 0)).tolist() == []


@pytest.mark.parametrize(
    "kind", [pa.float64(), pa.map_(pa.string(), pa.int32()), pa.list_(pa.int32()), pa.list_(pa.string()), SEGMENT]
)
def test_what_cannot_be_hashed_is_known(kind: pa.DataType) -> None:
    """Types that Spark hashes in another way are told beforehand, so that such tables are written by Spark.

    So are tables with times, though their hash is known.
    """
    moment = SCHEMA.get_field_index("moment")
    assert can_hash(SCHEMA.remove(moment)) and not can_hash(SCHEMA)
    assert not can_hash(pa.schema([pa.field("other", kind, False)]))


def test_a_type_without_a_hash_is_refused() -> None:
    """Asked all the same, it raises."""
    with pytest.raises(TableMismatchError, match="double cannot be hashed"):
        row_hashes(pa.RecordBatch.from_pydict({"x": [1.0]}))

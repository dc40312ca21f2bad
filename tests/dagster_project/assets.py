"""Table assets for the tests, written as the README tells a newcomer to."""

from __future__ import annotations

import struct
import zlib
from datetime import UTC, timedelta
from typing import Any

import dagster as dg
import pyarrow as pa
from pydantic import BaseModel, Field

from dagster_project.metadata import Samples
from dagster_project.table_asset import Presentation, table_asset
from spark_jobs.lake.declare.step import Plot, Scope
from spark_jobs.lake.declare.tables import Check, Column, Table

NUMBERS = Table(
    name="numbers",
    comment="One row per number.",
    columns=(Column("n!", "long", "the number"), Column("text", "string", "its name")),
    key=("n",),
    checks=(Check("not_negative", "n >= 0", "numbers count from 0"),),
    sampled=("text",),
)
DOUBLES = Table(
    name="doubles",
    comment="One row per number, multiplied.",
    columns=(Column("n!", "long", "the product"),),
    key=("n",),
    checks=(Check("small", "n < 1000", "products stay below 1000"),),
)
TOTAL = Table(name="total", comment="One row: the sum.", columns=(Column("sum", "long", "sum of all products"),))


class RangeConfig(BaseModel):
    """Which numbers there are."""

    count: int = Field(4, ge=0, le=1000, description="numbers from 0 on")


class FactorConfig(BaseModel):
    """What numbers are multiplied with."""

    factor: int = Field(2, description="factor of every number")


class WeekConfig(BaseModel):
    """A partition's rows."""

    rows: int = Field(2, ge=0, description="rows of the partition")
    stray: bool = Field(False, description="whether one row belongs elsewhere")


def png(rows: pa.Table) -> bytes:
    """A picture of one grey pixel whose shade is the row count: small, and different for other rows."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    body = zlib.compress(bytes([0, rows.num_rows]))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def numbers_asset(
    name: str = "demo.numbers", samples: Samples = Samples.IDS, version: str = "1"
) -> dg.AssetsDefinition:
    """A table without inputs."""

    @table_asset(
        table=name,
        schema=NUMBERS,
        version=version,
        plot=Plot("How many", ("n",), png),
        presentation=Presentation(samples=samples, owners=("team:numbers",), domain="text"),
    )
    def numbers(context: dg.AssetExecutionContext, spark: Any, config: RangeConfig) -> Any:
        """Count from 0."""
        context.log.info("counting to %d", config.count)
        return spark.range(config.count).selectExpr("id AS n", "concat('name of ', id) AS text")

    return numbers


def doubles_asset(version: str = "1") -> dg.AssetsDefinition:
    """A table that follows `demo.numbers`."""

    @table_asset(table="demo.doubles", schema=DOUBLES, version=version)
    def doubles(numbers: Any, config: FactorConfig) -> Any:
        """Multiply each number."""
        return numbers.selectExpr(f"n * {config.factor} AS n")

    return doubles


def total_asset() -> dg.AssetsDefinition:
    """A table that follows `demo.doubles`."""

    @table_asset(table="demo.total", schema=TOTAL)
    def total(doubles: Any) -> Any:
        """Sum everything."""
        return doubles.selectExpr("sum(n) AS sum")

    return total


def parted_asset(
    name: str, partitions: dg.PartitionsDefinition[str], kind: str = "string", field: str = "part"
) -> dg.AssetsDefinition:
    """A table with a column `part` of some type, whose rows are those of the partition."""
    schema = Table(
        name="parted",
        comment="Some rows of every partition.",
        columns=(Column("part!", kind, "the partition"), Column("n!", "long", "number within it")),
        partition=(field,),
    )

    @table_asset(table=name, schema=schema, partitions_def=partitions)
    def parted(context: dg.AssetExecutionContext, spark: Any, config: WeekConfig) -> Any:
        """Number the rows of the partition; the first lies at its start, the others in its last second."""
        first = last = context.partition_key.replace("'", "\\'")
        if isinstance(partitions, dg.TimeWindowPartitionsDefinition) and kind != "string":
            window = context.partition_time_window
            zoned = "%Y-%m-%d %H:%M:%S" + ("%z" if kind == "timestamptz" else "")
            before_end = (window.end.astimezone(UTC) - timedelta(seconds=1)).astimezone(window.end.tzinfo)
            first, last = window.start.strftime(zoned), before_end.strftime(zoned)
        spark_kind = {"timestamptz": "timestamp", "timestamp": "timestamp_ntz", "long": "bigint"}.get(kind, kind)
        rows = spark.range(config.rows).selectExpr(
            f"CASE WHEN id = 0 THEN cast('{first}' AS {spark_kind}) ELSE cast('{last}' AS {spark_kind}) END AS part",
            "id AS n",
        )
        if config.stray:
            rows = rows.selectExpr("'elsewhere' AS part", "n")
        return rows

    return parted


def follower_asset(name: str, source: str, partitions: dg.PartitionsDefinition[str] | None) -> dg.AssetsDefinition:
    """Counts what it is given of a partitioned table: one partition, or all."""
    columns = (Column("part!", "string", "the partition, or all"), Column("n!", "long", "rows read"))
    schema = Table(
        name="counts", comment="Rows read.", columns=columns, partition=("part",) if partitions is not None else ()
    )

    @table_asset(table=name, schema=schema, inputs={"source": source}, partitions_def=partitions)
    def counts(context: dg.AssetExecutionContext, source: Any) -> Any:
        """Count the rows of the input."""
        part = context.partition_key if context.has_partition_key else "all"
        return source.selectExpr(f"'{part}' AS part", "n").groupBy("part").count().selectExpr("part", "count AS n")

    return counts


class LongConfig(BaseModel):
    """Which texts are long."""

    min_characters: int = Field(10, ge=0, description="shortest text that is kept, in characters")


def long_texts_asset() -> dg.AssetsDefinition:
    """A user's own table over a dataset's texts, following its increments."""
    columns = (Column("doc_id!", "string", "identity of the document"), Column("content!", "string", "its text"))
    schema = Table(name="long_texts", comment="Long texts.", columns=columns, key=("doc_id",), partition=("increment",))

    @table_asset(table="notes.long_texts", schema=schema, config=LongConfig, scope=Scope.INCREMENT)
    def long_texts(context: dg.AssetExecutionContext, spark: Any, texts: Any, config: LongConfig) -> Any:
        """Keep texts of at least so many characters."""
        return texts.where(f"length(content) >= {config.min_characters}").select("doc_id", "content")

    return long_texts

"""Packed tables: the documents of one dataset in windows of L tokens, one table per dataset and window length.

    histogram  tokens x ordered (ids not read) -> units per (order bucket, length); the only rows that reach the driver
    plan       best-fit decreasing on the histogram -> slots; prefix sums over the buckets -> each bucket's first slots
    place      per bucket, in metadata order: unit -> slot -> (ordinal, window_start)
    cut        tokens joined with the placements by document: ids sliced into units
    assemble   the one heavy shuffle: ids go straight to the data file of their ordinal, are sorted there and laid out

In `cut` the ids stay where they are: the placements, some 100 bytes per unit, are broadcast while they are few, and
else are the build side of a hash join. On a lake table that join is storage-partitioned: tokens lie by (increment,
shard), and only the placements are shuffled to them (spark.sql.iceberg.planning.preserve-data-grouping and
spark.sql.sources.v2.bucketing.shuffle.enabled). On plain Parquet Spark has nothing to go by and shuffles the ids once
more.

Memory: the driver holds the histogram (24 bytes per (bucket, length) present) and the plan (at most about 3.1 rows of
32 bytes per distinct length); a task holds one data file's ids in Spark's sorter, which spills, and a few batches.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from spark_jobs.exceptions import ConfigError
from spark_jobs.lake.tables import Check, Column, Table
from spark_jobs.packing.histogram_plan import plan_slots
from spark_jobs.packing.permutation import permutation_key
from spark_jobs.packing.placement import Placer
from spark_jobs.packing.units import UnitCounts, count_units
from spark_jobs.packing.utilisation import draw_fill
from spark_jobs.packing.windows import WindowFacts, assemble_windows
from spark_jobs.step import Output, Plot, Scope, Step, step

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

KERNELS = tuple(
    f"spark_jobs.packing.{module}" for module in ("histogram_plan", "permutation", "placement", "units", "windows")
)
_FILE_TOKENS = 1 << 26
_BROADCAST_UNITS = 100_000
_KEYS = ["increment", "shard", "doc_id"]  # all partition columns of tokens, or its files could not be joined in place
_PLACEMENTS_DDL = (
    "increment int, shard int, doc_id string, ordinal bigint, window_start int, document_start bigint, "
    "own_tokens int, ends boolean"
)
_WINDOWS_DDL = (
    "ordinal bigint, token_count int, input_ids array<int>, "
    "segments array<struct<doc_id: string, document_start: bigint, token_count: int, window_start: int>>"
)


class PackedConfig(BaseModel):
    """Which documents become windows of which length, and in which order they are taken."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str = Field(description="dataset whose documents are packed")
    window_tokens: int = Field(ge=2, le=1 << 20, description="tokens in a window, specials included")
    affinity: Literal["document"] = Field("document", description="what is kept together: a document")
    order_buckets: int = Field(
        64,
        ge=1,
        le=4096,
        description="hash buckets of repositories in the metadata order; bounds parallelism, not size",
    )
    seed: int = Field(0, ge=0, description="chooses the order of the windows at rest, with table name and increment")
    rows_per_file: int | None = Field(
        None,
        ge=1,
        description="windows in a data file; default 2^26 tokens' worth, 128-256 MB. Decides no row",
        json_schema_extra={"affects_rows": False},
    )

    @property
    def file_rows(self) -> int:
        """Windows in a data file."""
        return self.rows_per_file or max(1, _FILE_TOKENS // self.window_tokens)


def packed_table(dataset: str, window_tokens: int) -> Table:
    """The packed table of one dataset and window length."""
    return Table(
        name=f"packed_{dataset}_{window_tokens}",
        comment=f"one row per window of {window_tokens} tokens, filled with whole documents of {dataset}",
        columns=(
            Column("ordinal!", "long", "number of the row, dense from 0 over all increments; shuffled at rest"),
            Column("token_count!", "int", "tokens in the window, specials included, padding not"),
            Column("input_ids!", "list<int!>", f"exactly {window_tokens} token ids; the padding id fills the end"),
            Column(
                "segments!",
                "list<struct<doc_id!: string, document_start!: long, token_count!: int, window_start!: int>!>",
                "parts of documents, ascending by window_start: document_start counts the document's own tokens, "
                "token_count includes the end-of-document token",
            ),
        ),
        key=("ordinal",),
        sort=("ordinal",),
        partition=("increment",),
        checks=(
            Check("exact_length", f"size(input_ids) = {window_tokens}", "every window has exactly L ids"),
            Check(
                "filled_window",
                f"token_count between 1 and {window_tokens} and size(segments) >= 1",
                "no window is empty or fuller than L",
            ),
            Check(
                "segments_fill_the_window",
                "aggregate(segments, 0, (sum, s) -> if(s.window_start = sum, sum + s.token_count, -1)) = token_count",
                "segments abut from place 0 to token_count",
            ),
        ),
        properties={
            "headrace.window-tokens": str(window_tokens),
            # Blender reads blocks of 2,048 rows; a row group is about one of them (4 bytes an id before encoding).
            "write.parquet.row-group-size-bytes": str(min(128 << 20, 2048 * 4 * window_tokens)),
        },
        sampled=("input_ids",),
    )


def packed_step(dataset: str, window_tokens: int) -> Step:
    """The step that packs one dataset into windows of one length; its config must name the same two."""
    table = packed_table(dataset, window_tokens)

    @step(
        version="1",
        scope=Scope.INCREMENT,
        tables=(table,),
        name=table.name,
        kernels=KERNELS,
        numbered=True,
        plot=Plot("Fill of the windows", ("token_count",), functools.partial(draw_fill, window_tokens=window_tokens)),
    )
    def packed(
        tokens: DataFrame, ordered: DataFrame, tokenizer: DataFrame, base: int, increment: int, config: PackedConfig
    ) -> Output:
        """Pack the documents of one increment; one row is a window of `window_tokens` ids."""
        if (config.dataset, config.window_tokens) != (dataset, window_tokens):
            raise ConfigError(
                f"{table.name}: config says dataset {config.dataset!r} and window_tokens {config.window_tokens}, "
                f"the step packs {dataset!r} into {window_tokens}; use packed_step({config.dataset!r}, "
                f"{config.window_tokens})"
            )
        return pack(tokens, ordered, tokenizer, base, increment, config)

    return packed


def pack(
    tokens: DataFrame, ordered: DataFrame, tokenizer: DataFrame, base: int, increment: int, config: PackedConfig
) -> Output:
    """Pack the documents of one increment of one dataset.

    Args:
        tokens: rows (dataset, shard, doc_id, input_ids, token_count) of the increment.
        ordered: rows (dataset, shard, doc_id, repository, package, rank) of the increment.
        tokenizer: its one row.
        base: rows of the table in earlier increments; the windows take ordinals from here.
        increment: number of the increment, part of the permutation's key.
        config: dataset, window length and order.

    Returns:
        The rows under the table's name, with the table properties that readers rely on.
    """
    from pyspark.sql import functions as F

    name = packed_table(config.dataset, config.window_tokens).name
    facts, properties = _facts(tokenizer, name, config)
    own = tokens.where(F.col("dataset") == config.dataset)
    if "increment" not in own.columns:
        own = own.withColumn("increment", F.lit(increment))
    documents = _documents(own, ordered, config)
    counts = _count(documents, name, config)
    plan = plan_slots(counts.histogram(), config.window_tokens)
    logger.info("%s: increment %d: %d windows from ordinal %d", name, increment, plan.window_count, base)
    if not plan.window_count:
        empty = tokens.sparkSession.createDataFrame([], _WINDOWS_DDL)
        return Output({name: empty}, properties)

    placer = Placer(
        plan=plan,
        ranks=counts.ranks(*plan.first_slots(), config.order_buckets),
        base=base,
        key=permutation_key(name, increment, config.seed),
    )
    placements = (
        documents.where("token_count > 0")
        .repartition("bucket")
        .sortWithinPartitions("bucket", "repository", "rank", "doc_id")
        .select("bucket", *_KEYS, "token_count")
        .mapInArrow(placer.place_batches, _PLACEMENTS_DDL)
    )
    unit_count = int(plan.counts.sum())
    placements = F.broadcast(placements) if unit_count <= _BROADCAST_UNITS else placements.hint("shuffle_hash")
    file_count = -(-plan.window_count // config.file_rows)
    windows = (
        own.select(*_KEYS, "input_ids")
        .join(placements, _KEYS)
        .select(
            "ordinal",
            "window_start",
            "doc_id",
            "document_start",
            F.slice("input_ids", (F.col("document_start") + 1).cast("int"), F.col("own_tokens")).alias("ids"),
            "ends",
        )
        .repartitionById(file_count, F.expr(f"cast((ordinal - {base}L) div {config.file_rows} as int)"))
        .sortWithinPartitions("ordinal", "window_start")
        .mapInArrow(functools.partial(assemble_windows, facts=facts), _WINDOWS_DDL)
    )
    return Output({name: windows}, properties)


def _facts(tokenizer: DataFrame, name: str, config: PackedConfig) -> tuple[WindowFacts, dict[str, str]]:
    """What the windows share, and the same as table properties."""
    row = tokenizer.select("sha256", "vocabulary_size", "end_of_document_id", "padding_id").first()
    if row is None:
        raise ConfigError(f"{name}: the tokenizer table has no row; materialize tokenizer first")
    properties = {
        "headrace.window-tokens": str(config.window_tokens),
        "headrace.tokenizer-sha256": row["sha256"],
        "headrace.vocabulary-size": str(row["vocabulary_size"]),
        "headrace.end-of-document-id": str(row["end_of_document_id"]),
        "headrace.padding-id": str(row["padding_id"]),
    }
    facts = WindowFacts(config.window_tokens, row["end_of_document_id"], row["padding_id"], row["vocabulary_size"])
    return facts, properties


def _documents(own: DataFrame, ordered: DataFrame, config: PackedConfig) -> DataFrame:
    """Every document with its place in the metadata order; one that `ordered` lacks is ordered by its id alone."""
    from pyspark.sql import functions as F

    order = ordered.where(F.col("dataset") == config.dataset).select("shard", "doc_id", "repository", "rank")
    return (
        own.select(*_KEYS, "token_count")
        .join(order, ["shard", "doc_id"], "left")
        .withColumn("bucket", _bucket(config.order_buckets))
    )


def _bucket(order_buckets: int) -> SparkColumn:
    """Order bucket of a document: a repository is never split."""
    from pyspark.sql import functions as F

    hashed = F.xxhash64(F.coalesce("repository", "doc_id"))
    return F.pmod(hashed, F.lit(order_buckets)).cast("int")


def _count(documents: DataFrame, name: str, config: PackedConfig) -> UnitCounts:
    """Count the units per (bucket, length), by what is left of each document after its full pieces."""
    from pyspark.sql import functions as F

    full = F.expr(f"token_count div {config.window_tokens}")
    rows = (
        documents.withColumn("full", full)
        .groupBy("bucket", (F.col("token_count") + 1 - F.col("full") * config.window_tokens).cast("int").alias("tail"))
        .agg(
            F.count_if(F.col("token_count") > 0).alias("documents"),
            F.sum("full").alias("full"),
            F.count_if(F.col("token_count") == 0).alias("empty"),
        )
        .toArrow()
    )
    logger.info("%s: %d empty documents make no unit", name, int(np.sum(rows.column("empty").to_numpy())))
    bucket, tail, count, pieces = (
        rows.column(column).to_numpy().astype(np.int64) for column in ("bucket", "tail", "documents", "full")
    )
    return count_units(bucket, tail, count, pieces, config.window_tokens)

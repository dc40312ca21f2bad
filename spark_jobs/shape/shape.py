"""The step `shape`: the survivors that it leaves out, with the reason of each; and its frozen table `shape_histogram`.

Its side table `shaped` has the columns of `survivors`; later steps read it in place of that. Who stays is decided by
hashes of the document's id (`rates`), not by the documents beside it.

`shape_histogram` counts the documents of each topic and each length in the first increment. It is frozen, so that a
document that stays does not leave because others came after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from spark_jobs.dedup.removal.survivors import SURVIVORS
from spark_jobs.exceptions import InputError, did_you_mean
from spark_jobs.lake.declare.step import Output, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.engine.arrangement import persist
from spark_jobs.shape.rates import NO_CLUSTER, ClassRates, ShapeConfig, rules
from spark_jobs.spark_sql import Column as SparkColumn
from spark_jobs.spark_sql import DataFrame, F

if TYPE_CHECKING:
    import pyarrow as pa


SHAPE_HISTOGRAM = Table(
    name="shape_histogram",
    comment="One row per class of documents: how many the corpus had when it was frozen.",
    columns=(
        Column("classified_by!", "string", "coarse or cluster (then class is its number, -1 for none), or length"),
        Column("class!", "long", "the class; of lengths, L stands for 2^L bytes up to 2^(L + 1)"),
        Column("document_count!", "long", "survivors of the first increment that are in it"),
        Column("byte_count!", "long", "bytes of these documents as they came"),
    ),
    key=("classified_by", "class"),
    partition=("increment",),
    sort=("classified_by", "class"),
    checks=(Check("not_empty", "document_count >= 1", "a class without documents is no row"),),
)


@step(version="1", scope=Scope.FROZEN, tables=(SHAPE_HISTOGRAM,))
def shape_histogram(survivors: DataFrame, members: DataFrame, clusters: DataFrame | None = None) -> DataFrame:
    """Count documents by coarse cluster, cluster and length; one row per class."""
    found = classified(survivors, members, clusters)
    names = ["length"] if clusters is None else ["length", "coarse", "cluster"]
    classes = [F.struct(F.lit(name).alias("classified_by"), F.col(name).alias("class")) for name in names]
    return (
        found.select("byte_count", F.explode(F.array(*classes)).alias("one"))
        .groupBy("one.classified_by", "one.class")
        .agg(F.count("*").alias("document_count"), F.sum("byte_count").alias("byte_count"))
    )


def classified(survivors: DataFrame, members: DataFrame, clusters: DataFrame | None) -> DataFrame:
    """Survivors (dataset, shard, doc_id) with byte_count and their classes: length, and coarse and cluster if any."""
    keys = ["dataset", "shard", "doc_id"]
    found = survivors.select(keys).join(members.select(*keys, "byte_count"), keys)
    found = found.withColumn("length", _bit_length(F.col("byte_count")))
    if clusters is None:
        return found
    numbers = (F.coalesce(F.col(name), F.lit(NO_CLUSTER)).cast("long").alias(name) for name in ("coarse", "cluster"))
    return found.join(clusters.select(*keys, *numbers), keys)


def _bit_length(byte_count: SparkColumn) -> SparkColumn:
    """Binary logarithm, rounded down, in integers; 0 for 0."""
    return (F.length(F.bin(byte_count)) - 1).cast("long")


_KEYS: Final = ["dataset", "shard", "doc_id"]
_DRAW_BITS: Final = 53  # whole numbers that a double holds
_LOST_DDL = "array<struct<rule: string, value: double, threshold: double>>"

SHAPE = Table(
    name="shape",
    comment="One row per surviving document that does not go on, with every rule by which it is left out.",
    columns=(
        *SURVIVORS.columns,
        Column(
            "failed!",
            "list<struct<rule!: string, value: double, threshold: double>!>",
            "every rule that it failed: loss_too_high and loss_too_low with the loss of its cluster and the bound; "
            "dropped_cluster, downsampled_cluster, frequent_topic and frequent_length with the number from 0 to 1 "
            "that its id gives, and the rate of its class, which the number is not below",
        ),
    ),
    key=("doc_id",),
    partition=("increment", "shard"),
    checks=(Check("has_a_reason", "size(failed) > 0", "a document that is left out fails a rule"),),
)
SHAPED = Table(
    name="shaped",
    comment="One row per document that goes on: a survivor that failed no rule of the shape.",
    columns=SURVIVORS.columns,
    key=("doc_id",),
    partition=("increment", "shard"),
)


@step(version="1", scope=Scope.INCREMENT, tables=(SHAPE, SHAPED))
def shape(
    survivors: DataFrame,
    members: DataFrame,
    shape_histogram: DataFrame,
    config: ShapeConfig,
    clusters: DataFrame | None = None,
    losses: DataFrame | None = None,
) -> Output:
    """Leave out survivors by the rates of their classes; one row per document that is left out.

    `clusters` is None for a corpus without clusters, `losses` where no rule asks for them.
    """
    counted = {"classified_by": "string", "class": "long", "document_count": "long"}
    measured = None if losses is None else _rows(losses, {"cluster": "long", "loss": "double"})
    documents = classified(survivors, members, clusters)
    failed = [F.lit(None).cast(_LOST_DDL.removeprefix("array<").removesuffix(">"))]
    for rule in rules(config, _rows(shape_histogram, counted), measured):
        rates = survivors.sparkSession.createDataFrame(rule.rows())
        packed = rates.select(
            F.col("class").alias(rule.classified_by), F.struct("rate", "value", "threshold").alias(rule.name)
        )
        documents = documents.join(F.broadcast(packed), rule.classified_by, "left")
        failed.append(_failed(rule, config.seed))
    judged = persist(documents.select(*_KEYS, F.array_compact(F.array(*failed)).alias("failed")))
    lost = judged.where(F.size("failed") > 0)
    stays = judged.where(F.size("failed") == 0).select(_KEYS)
    return Output({SHAPE.name: lost, SHAPED.name: stays}, persisted=(judged,))


def _rows(frame: DataFrame, types: Mapping[str, str]) -> pa.Table:
    """The columns of `types`, cast to these types, of a small table, on the driver."""
    for name in types:
        if name not in frame.columns:
            raise InputError(f"shape: losses have no column {name!r}{did_you_mean(name, frame.columns)}; rename one")
    return frame.select(*(F.col(name).cast(kind).alias(name) for name, kind in types.items())).toArrow()


def _failed(rule: ClassRates, seed: int) -> SparkColumn:
    """(rule, value, threshold) of a document that fails the rule, else null; column `rule.name` has its rates."""
    bits = F.xxhash64("doc_id", F.lit(rule.name), F.lit(seed)).bitwiseAND(F.lit((1 << _DRAW_BITS) - 1))
    drawn = bits.cast("double") / F.lit(float(1 << _DRAW_BITS))
    rates = F.col(rule.name)
    reason = F.struct(
        F.lit(rule.name).alias("rule"),
        F.coalesce(rates["value"], drawn).alias("value"),
        F.coalesce(rates["threshold"], rates["rate"]).alias("threshold"),
    )
    return F.when(drawn >= rates["rate"], reason)

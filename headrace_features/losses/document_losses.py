"""The step `document_losses`: what a training run lost on each document, in all epochs and from first to last.

A document with a high loss that does not fall is noise, or foreign to the rest; one whose loss falls far from one epoch
to the next is memorised, as are repeats; what lies between is being learnt. Selections and cells read the columns.
Losses are added up as whole numbers of 2**-20 nats, so that no order of rows changes a bit; segments whose loss is not
finite, of a run that diverged, do not count.
"""

from __future__ import annotations

from typing import ClassVar, Final

from pydantic import Field

from spark_jobs.lake.declare.step import ConfigModel, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.selection.kept import IDENTITY, KEYS
from spark_jobs.spark_sql import DataFrame, F

UNIT: Final = 1 << 20  # parts of a nat


class DocumentLossesConfig(ConfigModel):
    """Which losses are added up."""

    appended: ClassVar = ("losses",)

    run: str = Field("", description="training run whose losses count; by default all runs'")


DOCUMENT_LOSSES: Final = Table(
    name="document_losses",
    comment="One row per document that a training run took a loss on: mean loss, and how it fell between epochs.",
    columns=(
        *IDENTITY,
        Column("source!", "string", "source of the blend that it was read from; the first of several by name"),
        Column("table!", "string", "table of that source"),
        Column("run", "string", "the run; null where all count"),
        Column("epoch_count!", "int", "epochs in which a loss was taken on it"),
        Column("tokens!", "long", "tokens that a loss was taken on, in all of them"),
        Column("loss!", "double", "mean loss of these tokens, in nats"),
        Column("first_loss!", "double", "mean loss in the first of these epochs"),
        Column("last_loss!", "double", "mean loss in the last one"),
        Column("fall", "double", "first_loss less last_loss; null with one epoch"),
    ),
    key=("doc_id",),
    sort=("doc_id",),
    checks=(Check("has_tokens", "tokens > 0 and epoch_count > 0", "a document has tokens of an epoch"),),
)


@step(version="1", scope=Scope.WHOLE, tables=(DOCUMENT_LOSSES,))
def document_losses(losses: DataFrame, members: DataFrame, config: DocumentLossesConfig) -> DataFrame:
    """Add up the losses of each document of a corpus; one row per document."""
    chosen = losses.where(F.col("run") == config.run) if config.run else losses
    values = ("doc_id", "source", "table", "epoch", "tokens", "sum")
    last = [F.max_by(name, "commit").alias(name) for name in values]
    counting = chosen.groupBy("run", "offset", "segment").agg(*last)
    # No number that is not finite is less than infinity on either side: NaN is above it.
    finite = counting.where((F.col("sum") < float("inf")) & (F.col("sum") > float("-inf")))
    units = F.round(F.col("sum").cast("double") * UNIT).cast("bigint")
    epochs = finite.groupBy("doc_id", "epoch").agg(
        F.sum(units).alias("units"),
        F.sum("tokens").alias("tokens"),
        F.min("source").alias("source"),
        F.min("table").alias("table"),
    )
    loss = F.col("units") / (F.col("tokens") * UNIT)
    documents = epochs.groupBy("doc_id").agg(
        F.min("source").alias("source"),
        F.min("table").alias("table"),
        F.count("*").cast("int").alias("epoch_count"),
        (F.sum("units") / (F.sum("tokens") * UNIT)).alias("loss"),
        F.sum("tokens").alias("tokens"),
        F.min_by(loss, "epoch").alias("first_loss"),
        F.max_by(loss, "epoch").alias("last_loss"),
    )
    fall = F.when(F.col("epoch_count") > 1, F.col("first_loss") - F.col("last_loss"))
    run = F.lit(config.run or None).cast("string")
    columns = (column.name for column in DOCUMENT_LOSSES.columns)
    return documents.withColumns({"run": run, "fall": fall}).join(members.select(*KEYS), "doc_id").select(*columns)

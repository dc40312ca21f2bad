"""The step `document_losses`: what a training run lost on each document, in all epochs and from first to last.

A document with a high loss that does not fall is noise, or foreign to the rest; one whose loss falls far is memorised,
as are repeats; the others are being learnt. All losses fall while a run begins, so `excess` compares a document with
the steps that it was read in, whenever that was. Selections and cells read the columns.
Losses are added up as whole numbers of 2**-20 nats, so that no order of rows changes a bit; segments whose loss is not
finite or above 10^9 nats, of a run that diverged, do not count. The explorer adds small tables up by the same function.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from headrace_features.losses.tables import MOST_NATS
from spark_jobs.lake.declare.step import ConfigModel, Output, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.engine.arrangement import grouped, persist
from spark_jobs.selection.kept import IDENTITY, KEYS
from spark_jobs.spark_sql import DataFrame, F

ORDERS: Final = ("loss", "excess", "fall")
MOST_WORST: Final = 200
_UNIT: Final = 1 << 20  # parts of a nat
SCHEMA: Final = pa.schema(
    {
        **dict.fromkeys(("doc_id", "source", "table"), pa.string()), "epoch_count": pa.int32(), "tokens": pa.int64(),
        **dict.fromkeys(("loss", "excess", "first_loss", "last_loss", "fall"), pa.float64()),
    }
)  # fmt: skip
_IN_SQL: Final = {"string": "string", "int32": "int", "int64": "bigint", "double": "double"}
_DDL: Final = ", ".join(f"{column.name} {_IN_SQL[str(column.type)]}" for column in SCHEMA)


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
        Column("excess!", "double", "loss less the mean loss of the steps that the document was read in"),
        Column("first_loss!", "double", "mean loss in the first of these epochs"),
        Column("last_loss!", "double", "mean loss in the last one"),
        Column("fall", "double", "first_loss less last_loss; null with one epoch"),
    ),
    key=("doc_id",),
    sort=("doc_id",),
    checks=(Check("has_tokens", "tokens > 0 and epoch_count > 0", "a document has tokens of an epoch"),),
)
WORST: Final = Table(
    name="worst_documents",
    comment=f"One row per document and order that it is among the first {MOST_WORST} of, for pages on many documents.",
    columns=(Column("order!", "string", f"{', '.join(ORDERS)}"), *DOCUMENT_LOSSES.columns),
    key=("order", "doc_id"),
    sort=("order", "doc_id"),
)


@step(version="1", scope=Scope.WHOLE, tables=(DOCUMENT_LOSSES, WORST))
def document_losses(losses: DataFrame, members: DataFrame, config: DocumentLossesConfig) -> Output:
    """Add up the losses of each document of a corpus; one row per document."""
    chosen = losses.where(F.col("run") == config.run) if config.run else losses
    values = ("doc_id", "source", "table", "epoch", "tokens", "sum", "step_loss")
    counting = chosen.groupBy("run", "offset", "segment").agg(
        *(F.max_by(name, "commit").alias(name) for name in values)
    )
    added = grouped(counting.select(*values), ["doc_id"]).map(_added_up, _DDL).to_frame()
    named = added.join(members.select(*KEYS), "doc_id").withColumn("run", F.lit(config.run or None).cast("string"))
    documents = persist(named.select(*(column.name for column in DOCUMENT_LOSSES.columns)))
    worst = [
        documents.where(F.col(name).isNotNull()).orderBy(F.desc(name), "doc_id").limit(MOST_WORST)
        .select(F.lit(name).alias("order"), "*")
        for name in ORDERS
    ]  # fmt: skip
    frames = {DOCUMENT_LOSSES.name: documents, WORST.name: worst[0].unionAll(worst[1]).unionAll(worst[2])}
    return Output(frames, persisted=(documents,))


def _added_up(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Documents of a task, which has all rows of each."""
    if taken := list(batches):
        yield from by_document(pa.Table.from_batches(taken)).to_batches()


def by_document(rows: pa.Table) -> pa.Table:
    """Add rows that count up by document, in the order of their ids."""
    sums = rows["sum"].cast(pa.float64())
    over = pc.subtract(sums, pc.multiply(rows["step_loss"].cast(pa.float64()), rows["tokens"]))
    measured = rows.append_column("units", sums).append_column("excess", over)
    finite = measured.filter(pc.and_(*(pc.less(pc.abs(nats), MOST_NATS) for nats in (sums, over))))
    counted = finite
    for name in ("units", "excess"):
        counted = counted.set_column(counted.schema.get_field_index(name), name, _units(counted[name]))
    grouped_rows = counted.group_by(["doc_id", "epoch"], use_threads=False)
    summed = grouped_rows.aggregate([("units", "sum"), ("excess", "sum"), ("tokens", "sum")])
    epochs = summed.sort_by([("doc_id", "ascending"), ("epoch", "ascending")])
    ids = epochs["doc_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    firsts = np.flatnonzero(np.diff(ids, prepend=-1))
    if not firsts.size:
        return SCHEMA.empty_table()
    lasts, counts = np.append(firsts[1:], ids.size) - 1, np.diff(firsts, append=ids.size)
    parts, above, tokens = (epochs[f"{name}_sum"].to_numpy() for name in ("units", "excess", "tokens"))
    losses, all_tokens = parts / (tokens * _UNIT), np.add.reduceat(tokens, firsts)
    falls = np.where(counts > 1, losses[firsts] - losses[lasts], np.nan)
    named = finite.group_by("doc_id", use_threads=False).aggregate([("source", "min"), ("table", "min")])
    heads = named.sort_by("doc_id")
    columns: dict[str, Any] = {
        "doc_id": heads["doc_id"], "source": heads["source_min"], "table": heads["table_min"],
        "epoch_count": counts.astype(np.int32), "tokens": all_tokens,
        "loss": np.add.reduceat(parts, firsts) / (all_tokens * _UNIT),
        "excess": np.add.reduceat(above, firsts) / (all_tokens * _UNIT),
        "first_loss": losses[firsts], "last_loss": losses[lasts], "fall": pa.array(falls, from_pandas=True),
    }  # fmt: skip
    return pa.table(columns).cast(SCHEMA)


def _units(nats: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.round(pc.multiply(nats, _UNIT)).cast(pa.int64())

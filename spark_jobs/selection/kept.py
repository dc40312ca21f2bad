"""The documents kept by a selection, from the list of its rejected ones."""

from __future__ import annotations

from typing import Final

from spark_jobs.lake.declare.step import Scope, Step, step
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.selection.stages import SURVIVORS, SelectionStage
from spark_jobs.spark_sql import DataFrame

IDENTITY: Final = (
    Column("dataset!", "string", "dataset that the document came from"),
    Column("shard!", "int", "hash of the repository (else the doc_id) modulo the dataset's shards"),
    Column("doc_id!", "string", "identity of the document"),
)
KEYS: Final = [column.name for column in IDENTITY]


def kept_table(stage: SelectionStage, name: str) -> Table:
    """The table of kept documents under a name; `survivors` states nothing, since other steps make it too."""
    return Table(
        name=name,
        comment=f"One row per document that goes on: {stage.words}.",
        columns=IDENTITY,
        key=("doc_id",),
        partition=("increment", "shard"),
        properties={} if name == SURVIVORS else stage.properties,
    )


def kept_step(stage: SelectionStage, name: str) -> Step:
    """The step for documents of the stage before without a row in `rejected`."""

    @step(version="1", scope=Scope.INCREMENT, tables=(kept_table(stage, name),), name=name)
    def kept(passed: DataFrame, rejected: DataFrame) -> DataFrame:
        """Leave out the rejected documents; one row per kept document."""
        return passed.select(*KEYS).join(rejected.select("doc_id"), "doc_id", "left_anti").select(*KEYS)

    return kept

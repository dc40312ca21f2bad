"""The table `system.evaluations`: a row for each run of an experiment, with its data, its losses and its scores."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo

from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.files.lookups import EVERYTHING, read_rows
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, catalogue_errors, ensure_table
from spark_jobs.lake.session.tidiness import tidy

TABLE: Final = "system.evaluations"
EVALUATIONS: Final = Table(
    name="evaluations",
    comment="One row per run of an experiment: what it was trained on, how, and how it did.",
    columns=(
        Column("key!", "string", "SHA-256 of what decides the weights and of the sets that they are measured by"),
        Column("run!", "string", "SHA-256 of what decides the weights: rows, model, budget, rate, seeds, code"),
        Column("experiment!", "string", "name of the experiment"),
        Column("variant!", "string", "name of the variant"),
        Column("seed!", "int", "seed of initial weights, order and sample"),
        Column("learning_rate!", "double", "highest learning rate of the run"),
        Column("model!", "string", "size of the model, or the command that trained it"),
        Column("blend!", "string", "id of the blend"),
        Column("snapshots!", "list<string!>", "namespace.table@snapshot of each source"),
        Column("rows_digest!", "string", "SHA-256 of the rows read, in order; empty for a user's program"),
        Column("tokens!", "long", "tokens trained on, without padding"),
        Column("sources!", "string", "JSON: tokens and epochs by source"),
        Column("left_out!", "string", "JSON: documents left out for the held-out sets, by reason"),
        Column("document_count!", "long", "documents that were read"),
        Column("losses!", "list<struct<offset!: long, loss!: double>!>", "mean loss between an offset and the next"),
        Column("scores!", "list<struct<set!: string, measure!: string, value!: double, chance: double>!>", "results"),
        Column("seconds!", "double", "seconds of training"),
        Column("device!", "string", "processor that it was trained on, and the versions of what computed it"),
        Column("commit!", "string", "commit of the code; empty where unknown"),
        Column("recorded_at!", "timestamptz", "when the row was written"),
    ),
    key=("key", "experiment", "variant", "seed"),
)


def known_rows(catalogue: Catalog, experiment: str | None = None) -> list[dict[str, Any]]:
    """The rows of an experiment, or of all, in the order in which they were recorded."""
    condition = EVERYTHING if experiment is None else EqualTo("experiment", experiment)
    rows = read_rows(catalogue, TABLE, [column.name for column in EVALUATIONS.columns], condition)
    return sorted(rows, key=lambda row: (row["recorded_at"], row["variant"], row["seed"]))


def record(catalogue: Catalog, row: Mapping[str, Any]) -> dict[str, Any]:
    """Write the row of a run."""
    full = {**row, "recorded_at": datetime.now(UTC)}
    with catalogue_errors():
        table = ensure_table(catalogue, TABLE, EVALUATIONS, {SCOPE_PROPERTY: "audit"})
        table.append(pa.Table.from_pylist([full], schema=table.schema().as_arrow()))
        tidy(catalogue, table)
    return full

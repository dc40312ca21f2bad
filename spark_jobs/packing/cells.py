"""The table `cells`: by what documents are packed apart (`order_buckets`)."""

from __future__ import annotations

from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.selection.kept import IDENTITY

CELLS = Table(
    name="cells",
    comment="One row per document that goes on to packing: its cell.",
    columns=(
        *IDENTITY,
        Column("cell!", "string", 'value of each dimension, as JSON by name: {"quality":15,"topic":null}'),
    ),
    key=("doc_id",),
    partition=("increment", "shard"),
    checks=(Check("is_an_object", "cell like '{%}'", "a cell is a JSON object"),),
)

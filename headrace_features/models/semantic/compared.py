"""The documents compared by meaning: those with a vector by now; and their families."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_jobs.arrays import Int16Array
from spark_jobs.dedup.graph.connected_components import connected_components
from spark_jobs.exceptions import InputError
from spark_jobs.spark_sql import DataFrame, F


def compared(survivors: DataFrame, members: DataFrame, vectors: DataFrame) -> DataFrame:
    """Rows (dataset, doc_id, place, vector, encoder) of the documents with a vector."""
    left = survivors.select("doc_id")
    encoded = vectors.where("vector IS NOT NULL").select("doc_id", "vector", "encoder")
    return members.select("dataset", "doc_id", "place").join(left, "doc_id", "left_semi").join(encoded, "doc_id")


def families(documents: DataFrame | None, like: DataFrame, driver_edges: int) -> DataFrame:
    """Rows (doc_id, family) of documents made from others by a model or an execution, and of their parents.

    A family is a component of the links child - parent, named by a hash. Without `documents` there is no row.
    """
    if documents is None:
        return like.sparkSession.createDataFrame([], "doc_id string, family bigint")
    parent = F.element_at("metadata", "parent")
    written = documents.where(parent.isNotNull() & F.element_at("metadata", "parent_dataset").isNotNull())
    edges = written.select(F.lit(1).alias("groups"), F.col("doc_id").alias("left"), parent.alias("right"))
    components = connected_components(edges, driver_edges)
    # Sail 0.7.2 reads a column with one value in a file as a scalar, and fails to hash scalars alone: of one family.
    named = F.concat("component", F.substring("vertex", 1, 0))
    return components.select(F.col("vertex").alias("doc_id"), F.xxhash64(named).alias("family"))


def with_families(rows: DataFrame, families_of_documents: DataFrame) -> DataFrame:
    """Rows with the column `family`, 0 where a document has none."""
    return rows.join(families_of_documents, "doc_id", "left").withColumn(
        "family", F.coalesce("family", F.lit(0).cast("bigint"))
    )


def only_encoder(rows: DataFrame, expected: str | None = None) -> None:
    """Raise unless all vectors have one encoder, the expected one if given.

    Raises:
        InputError: there are two encoders, or the one is not `expected`.
    """
    encoders = sorted({str(row["encoder"]) for row in rows.select("encoder").distinct().collect()})
    encoders += [expected] if expected is not None and expected not in encoders else []
    if len(encoders) > 1:
        raise InputError(
            f"semantic: vectors are of encoders {encoders[0][:12]} and {encoders[1][:12]}, which cannot be compared; "
            "name one NAME@VERSION in the scorers of all datasets, then begin a new generation: headrace corpus refresh"
        )


def vectors_of(column: pa.Array | pa.ChunkedArray) -> Int16Array:
    """(D, V) vectors of (D,) binary values, each V little-endian int16."""
    rows = column.to_pylist()
    return np.frombuffer(b"".join(rows), "<i2").astype(np.int16).reshape(len(rows), -1)

"""The provenance of an increment: where its bytes are from, how many they are, and one digest over all of them.

When it was made, by which run and which commit of the code, is in the ledger, since rows hold no clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.ledger.step_key import canonical_json

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from spark_jobs.sources.config.source_config import DocumentsConfig

PROVENANCE = Table(
    name="provenance",
    comment="One row for each increment: where its bytes are from, and the digest that they are checked by.",
    columns=(
        Column("source!", "string", "the source as it was declared, as JSON"),
        Column("licence", "string", "licence of the whole as it was declared; that of a document is its own"),
        Column("licence_evidence", "string", "where that licence is written"),
        Column("collected_by", "string", "person or team who answers for the dataset"),
        Column("object_count!", "long", "files (versions of files, for git) that landed"),
        Column("byte_count!", "long", "their size together, bytes"),
        Column("oldest", "timestamptz", "earliest time of change of such a file; of what was fetched, of its fetching"),
        Column("newest", "timestamptz", "latest such time"),
        Column(
            "digest!",
            "string",
            "SHA-256 over the hashes of all of them in hex, sorted, with a line feed after each",
        ),
    ),
    key=("increment",),
    partition=("increment",),
    checks=(Check("digest_is_hex", "digest RLIKE '^[0-9a-f]{64}$'", "hashes have one form"),),
)


def provenance(arrivals: DataFrame, config: DocumentsConfig) -> DataFrame:
    """The row of `provenance` for an increment, from its arrivals."""
    from pyspark.sql import functions as F

    landed = arrivals.where("status = 'landed'")
    size = F.when(F.col("content_sha256").isNotNull(), F.col("byte_count"))
    stated = config.provenance.model_dump()
    return landed.agg(
        F.lit(canonical_json(config.source.model_dump(mode="json"))).alias("source"),
        *(F.lit(value).cast("string").alias(name) for name, value in stated.items()),
        F.count("content_sha256").alias("object_count"),
        F.coalesce(F.sum(size), F.lit(0)).alias("byte_count"),
        F.min("modified").alias("oldest"),
        F.max("modified").alias("newest"),
        landed_digest().alias("digest"),
    )


def landed_digest() -> SparkColumn:
    """The digest of what landed, as an aggregate over arrivals."""
    from pyspark.sql import functions as F

    line = F.when(F.col("status") == "landed", F.concat("content_sha256", F.lit("\n")))
    return F.sha2(F.concat_ws("", F.array_sort(F.collect_list(line))), 256)

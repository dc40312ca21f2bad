"""Vocabulary: the tokens of a corpus, how many documents hold each, and what one occurrence of it weighs.

The weight of one occurrence is a quantised inverse document frequency, an integer, so that the similarity of two bags
is an exact fraction:

    unit = clip(round(8 ln((N + 1) / (df + 1))), 1, 255)        N documents of the kind, df of them hold the token

The vocabulary is frozen with the corpus's first increment. A token outside of it weighs what a token of one
document weighs, so leaving out the tokens of a single document (most of them) changes no weight. Kinds have
vocabularies of their own: a token's hash is salted with the kind, documents of different kinds share no token.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from pydantic import Field

from spark_jobs.dedup.bags.features import Features
from spark_jobs.lake.declare.step import ConfigModel, Output, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.engine.arrangement import persist
from spark_jobs.sources.config.file_reading import KINDS
from spark_jobs.spark_sql import Column as SparkColumn
from spark_jobs.spark_sql import DataFrame, F

UNIT_SCALE = 8.0  # eighths of a nat: a byte holds the weights of 1e14 documents
_MOST_TOKENS = 1_000_000  # of a table: some 100 MB while it grows
_ROW_DDL = "kind string, token_hash bigint, token string, document_count bigint, occurrence_count bigint"


class VocabularyConfig(ConfigModel):
    """The counted features, and the most distinct ones to keep."""

    features: Features = Field(Features(), description="what a token is, by kind; see docs/prepare/deduplication.md")
    max_tokens: int = Field(
        4_000_000,
        ge=1,
        le=50_000_000,
        description="most tokens kept; beyond it the rarest go, and weigh as unknown ones. A worker holds 9 bytes each",
    )


VOCABULARY = Table(
    name="vocabulary",
    comment="One row per token that at least two documents of the corpus hold, and one without a token per kind: "
    "what every other token weighs.",
    columns=(
        Column("kind!", "string", "code, prose, markup or data"),
        Column("token_hash", "long", "the token's hash, salted by kind; null in the row for all other tokens"),
        Column("token", "string", "a word in lower case, to be read by people; null of pairs, n-grams, and as above"),
        Column("document_count!", "long", "documents that hold it"),
        Column("occurrence_count!", "long", "times it occurs"),
        Column("unit!", "int", "weight of one occurrence, 1 to 255"),
        Column("tokens_version!", "string", "rules, Unicode tables and features that made the tokens"),
    ),
    key=("kind", "token_hash"),
    partition=("increment",),
    sort=("kind", "token_hash"),
    checks=(
        Check("unit_in_bounds", "unit between 1 and 255", "a weight is one byte, and not 0"),
        Check(
            "counts_agree",
            "document_count >= 1 and occurrence_count >= document_count",
            "a token occurs in every document that holds it",
        ),
    ),
    sampled=("token",),
)


@step(version="5", scope=Scope.FROZEN, tables=(VOCABULARY,))
def vocabulary(members: DataFrame, exact_duplicates: DataFrame, texts: DataFrame, config: VocabularyConfig) -> Output:
    """Count each token's documents and compute its weight; one row per token."""
    from spark_jobs.dedup.bags.token_counts import token_version

    compared = compared_members(members, exact_duplicates)
    parts = compared_texts(texts, compared).select("kind", "language", "content")
    counted = (
        parts.mapInArrow(partial(_count_partition, features=config.features), _ROW_DDL)
        .groupBy("kind", "token_hash")
        .agg(
            F.min("token").alias("token"),
            F.sum("document_count").alias("document_count"),
            F.sum("occurrence_count").alias("occurrence_count"),
        )
        .where("document_count >= 2")
    )
    counted = persist(counted)
    least = _least_document_count(counted, config.max_tokens)
    sizes = compared.groupBy("kind").agg(F.count("*").alias("documents"))
    kinds = compared.sparkSession.createDataFrame([(kind,) for kind in KINDS], "kind string")
    others = kinds.select(
        "kind",
        F.lit(None).cast("bigint").alias("token_hash"),
        F.lit(None).cast("string").alias("token"),
        F.lit(1).cast("bigint").alias("document_count"),
        F.lit(1).cast("bigint").alias("occurrence_count"),
    )
    rows = (
        counted.where(F.col("document_count") >= least)
        .unionByName(others)
        .join(F.broadcast(sizes), "kind", "left")
        .withColumn("unit", _unit(F.coalesce("documents", F.lit(0)), F.col("document_count")))
        .select("kind", "token_hash", "token", "document_count", "occurrence_count", "unit")
        .withColumn("tokens_version", F.lit(token_version(config.features)))
        .repartition(1)
    )
    return Output({"vocabulary": rows}, persisted=(counted,))


def _unit(documents: SparkColumn, document_count: SparkColumn) -> SparkColumn:
    """Weight of one occurrence of a token. It is stored, so that another machine's logarithm cannot change it later."""
    scaled = F.rint(UNIT_SCALE * F.log((documents + 1) / (document_count + 1)))
    return F.greatest(F.lit(1), F.least(F.lit(255), scaled)).cast("int")


def _least_document_count(counted: DataFrame, max_tokens: int) -> int:
    """The least document count, at least 2, so that at most `max_tokens` tokens have it or more."""
    tokens_by_count = counted.groupBy("document_count").agg(F.count("*").alias("tokens")).toArrow()
    counts, tokens = (tokens_by_count.column(name).to_numpy() for name in ("document_count", "tokens"))
    order = np.argsort(counts)[::-1]
    fits = np.cumsum(tokens[order]) <= max_tokens
    if fits.all():
        return 2
    return int(counts[order][np.flatnonzero(~fits)[0]]) + 1


def _count_partition(batches: Iterable[pa.RecordBatch], features: Features) -> Iterator[pa.RecordBatch]:
    """Count the tokens of a partition's texts; one row per distinct token, with its counts and a spelling."""
    from spark_jobs.dedup.bags.features import token_rules
    from spark_jobs.dedup.bags.token_counts import count_tokens
    from spark_jobs.dedup.bags.token_table import TokenTable
    from spark_jobs.text.text_columns import utf8_buffer

    table = TokenTable()
    names = list(KINDS)
    for batch in batches:
        kinds = batch.column("kind").to_pylist()
        rules = token_rules(kinds, batch.column("language").to_pylist(), features)
        counted = count_tokens(batch.column("content"), *rules)
        numbers = np.array([names.index(kind) for kind in kinds], np.uint8)
        _, data = utf8_buffer(batch.column("content"))
        table.add(counted, numbers, np.frombuffer(data, np.uint8))
        if len(table) > _MOST_TOKENS:  # bounds the worker's memory; Spark adds the counts of several tables
            yield table.rows(names)
            table = TokenTable()
    yield table.rows(names)


def compared_members(members: DataFrame, exact_duplicates: DataFrame) -> DataFrame:
    """The members to compare, without exact duplicates: dataset, shard, doc_id, kind, place."""
    others = members.join(exact_duplicates.select("doc_id"), "doc_id", "left_anti")
    return others.select("dataset", "shard", "doc_id", "kind", "place")


def compared_texts(texts: DataFrame, compared: DataFrame) -> DataFrame:
    """The texts of compared members: dataset, shard, doc_id, place, kind, language, content.

    Identities come first: of a hash join Sail holds the left side, unless it knows that the other one is smaller.
    """
    identity = ["dataset", "shard", "doc_id"]
    read = texts.select(*identity, "kind", "language", "content")
    return compared.select(*identity, "place").join(read, identity)

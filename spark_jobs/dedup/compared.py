"""Which documents near-duplicates are looked for among, with their texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOKEN_KERNELS = tuple(
    f"spark_jobs.{name}"
    for name in (
        "dedup.features",
        "dedup.kinds",
        "dedup.language_syntax",
        "dedup.lexer_memory",
        "dedup.lexers",
        "dedup.regions",
        "dedup.token_counting",
        "dedup.token_counts",
        "dedup.token_lexing",
        "dedup.word_characters",
        "dedup.words",
        "text.characters",
        "text.letters",
        "text.normalization",
        "text.text_columns",
    )
)
"""Modules that make tokens out of texts."""


def compared_members(members: DataFrame, exact_duplicates: DataFrame) -> DataFrame:
    """Members that repeat no other one exactly: dataset, shard, doc_id, kind, place."""
    standing = members.join(exact_duplicates.select("doc_id"), "doc_id", "left_anti")
    return standing.select("dataset", "shard", "doc_id", "kind", "place")


def compared_texts(texts: DataFrame, compared: DataFrame) -> DataFrame:
    """Their texts: dataset, shard, doc_id, place, kind, language, content."""
    identity = ["dataset", "shard", "doc_id"]
    read = texts.select(*identity, "kind", "language", "content")
    return read.join(compared.select(*identity, "place"), identity)

"""The texts of a corpus for the steps after deduplication: those that it cut (`trimmed`) in the place of the whole."""

from __future__ import annotations

from typing import Final

from spark_jobs.spark_sql import DataFrame

TEXT_COLUMNS: Final = ["dataset", "shard", "doc_id", "kind", "language", "content"]


def with_cuts(texts: DataFrame, cut_texts: DataFrame | None) -> DataFrame:
    """The texts of a corpus (`TEXT_COLUMNS`), those that it cut in the place of the whole ones."""
    if cut_texts is None:
        return texts
    whole = texts.join(cut_texts.select("doc_id"), "doc_id", "left_anti")
    return whole.select(TEXT_COLUMNS).unionByName(cut_texts.select(TEXT_COLUMNS))

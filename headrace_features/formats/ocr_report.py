"""Say of every page of PDF files and scans where its text is from, and how far it is to be believed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace_features.formats.pages.ocr import PAGES
from spark_jobs.lake.declare.step import NoConfig, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PAGES = (
    "array<struct<page int, layer_score double, used string, ocr_score double, confidence double, "
    "character_count int, fault string>>"
)

OCR_REPORT = Table(
    name="ocr_report",
    comment="One row for each page of a document of pages: whether its text is from the text layer or was recognised. "
    "A file without any text is no document, and is in arrivals.",
    columns=(
        Column("shard!", "int", "that of the document"),
        Column("doc_id!", "string", "document that the page belongs to"),
        Column("path!", "string", "its path"),
        Column("page!", "int", "number of the page, from 1"),
        Column(
            "used!", "string", "what its text is: the text layer (layer), recognised (ocr), or there is none (none)"
        ),
        Column("character_count!", "int", "characters of that text"),
        Column("layer_score!", "double", "how far the text layer looks like writing, 0 to 1; 0 where there is none"),
        Column("engine", "string", "what recognised the page, with its version; null where nothing did"),
        Column("ocr_score", "double", "the score of what it read, as that of a text layer"),
        Column("confidence", "double", "how sure the engine was, 0 to 1: mean of its characters; 0 if it read nothing"),
        Column(
            "fault",
            "string",
            "why it was not recognised: corrupt_file, too_complex (page_seconds, memory_mb), too_large, max_pages; or "
            "why what was recognised is not taken: min_confidence",
        ),
    ),
    key=("doc_id", "page"),
    sort=("path", "doc_id", "page"),
    partition=("increment", "shard"),
    checks=(
        Check("used_is_known", "used IN ('layer', 'ocr', 'none')", "a text has one of two sources"),
        Check("scores_are_fractions", "layer_score BETWEEN 0 AND 1", "a score is a fraction"),
    ),
)


@step(version="1", scope=Scope.INCREMENT, tables=(OCR_REPORT,))
def ocr_report(documents: DataFrame, config: NoConfig) -> DataFrame:
    """The reports of pages in the metadata of `documents`, a row each."""
    from pyspark.sql import functions as F

    by_document = documents.select(
        "shard", "doc_id", "path", F.col("metadata")["ocr_engine"].alias("by"), F.col("metadata")[PAGES].alias("pages")
    ).where("pages IS NOT NULL")
    rows = by_document.withColumn("page", F.explode(F.from_json("pages", _PAGES))).select(
        "shard", "doc_id", "path", "by", "page.*"
    )
    engine = F.when(F.col("confidence").isNotNull(), F.col("by"))
    return rows.withColumn("engine", engine).select([column.name for column in OCR_REPORT.columns])

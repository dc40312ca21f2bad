"""The reports of pages become rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from headrace_features.formats.ocr_report import OCR_REPORT, ocr_report
from headrace_features.formats.pages.ocr import PAGES
from spark_jobs.lake.declare.step import NoConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_every_page_of_a_document_of_pages_is_a_row(spark: SparkSession) -> None:
    """With null where nothing was recognised; documents without pages have no row."""
    layer = {"page": 1, "layer_score": 0.9, "used": "layer", "character_count": 12}
    read = {"page": 2, "layer_score": 0, "used": "ocr", "character_count": 7, "ocr_score": 1.0, "confidence": 0.98}
    failed = {"page": 3, "layer_score": 0.0, "used": "none", "character_count": 0, "fault": "too_complex"}
    said = {PAGES: json.dumps([layer, read, failed]), "ocr_engine": "rapidocr 3.10.0"}
    documents = spark.createDataFrame(
        [(0, "d1", "a.pdf", said), (0, "d2", "b.html", {"title": "x"})],
        "shard int, doc_id string, path string, metadata map<string, string>",
    )
    rows = [row.asDict() for row in ocr_report(documents, NoConfig()).sort("page").collect()]
    nothing = dict.fromkeys(column.name for column in OCR_REPORT.columns)
    of = {"shard": 0, "doc_id": "d1", "path": "a.pdf"}
    assert rows == [
        {**nothing, **of, **layer},
        {**nothing, **of, **read, "engine": "rapidocr 3.10.0"},
        {**nothing, **of, **failed},
    ]

"""How benchmarks read a source without Spark: its listing, and rows of it as the step `documents` reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.listing.changes import discover
from spark_jobs.sources.reading.files import read_files
from spark_jobs.sources.reading.rows import ReadingRules
from tests.spark_jobs.sources.conftest import ARRIVAL_ROWS


def files_config(path: object, **source: Any) -> DocumentsConfig:
    """A dataset of files."""
    given = {"dataset": "bench", "source": {"kind": "files", "path": str(path), **source}}
    return DocumentsConfig.model_validate(given)


def listed(config: DocumentsConfig) -> pa.Table:
    """All that a source has, where nothing is known of it."""
    listing = discover(config, ARRIVAL_ROWS.empty_table())
    assert listing is not None
    return listing


def rows_of(config: DocumentsConfig, kept_in: str | None = None) -> Iterator[pa.RecordBatch]:
    """All rows of a source; copies of its files are kept in a folder, where one is given."""
    folder = None if kept_in is None else ObjectFolder(kept_in)
    rules = ReadingRules(config.dataset, 1, config.max_document_bytes, config.source, folder, folder is not None)
    return read_files(iter(listed(config).to_batches()), rules)

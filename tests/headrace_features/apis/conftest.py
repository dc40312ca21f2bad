"""What the tests of APIs share: a source over the server for tests, and what its pages become without Spark."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from headrace.tables.settings import settings_at
from headrace_features.apis.api_config import ApiSource
from headrace_features.apis.fetch import Fetched, fetch_pages
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.listed_file import ListedFile
from spark_jobs.sources.listing.changes import discover
from spark_jobs.sources.paged.checkpoints import Checkpoints
from spark_jobs.sources.reading.rows import ReadingRules
from tests.headrace_features.apis.api_server import Api
from tests.spark_jobs.sources.conftest import ARRIVAL_ROWS, read_file

PAGINATORS: dict[str, dict[str, Any]] = {
    "cursor": {"kind": "cursor", "path": "meta.next"},
    "next_url": {"kind": "next_url", "path": "meta.next"},
    "link_header": {"kind": "link_header"},
    "page_number": {"kind": "page_number"},
    "offset": {"kind": "offset", "limit": 7},
    "single": {"kind": "single"},
}
QUICK = {"start_per_second": 1000, "max_per_second": 1000, "backoff_seconds": 0.01, "timeout_seconds": 0.5}


def api_config(api: Api, **more: Any) -> DocumentsConfig:
    """A dataset of the server's records; limits are added to those of tests."""
    limits = {**QUICK, "tries": 8, "readings": 8, **more.pop("limits", {})}
    mapping = {"records": "data", "text_column": "text", "id_column": "id", "total": "total", "error": "error"}
    source = {"kind": "api", "url": api.url, "paginator": PAGINATORS[api.style], **mapping, **more, "limits": limits}
    return DocumentsConfig.model_validate({"dataset": "items", "source": source})


@dataclass
class Inbox:
    """A lake with the pages of one dataset, and the arrivals that have been listed so far."""

    catalogue: Catalog
    arrived: list[dict[str, Any]] = field(default_factory=list)
    increments: int = 0

    def fetch(self, config: DocumentsConfig, seed: int = 0) -> Fetched:
        """Ask the server once."""
        source = config.source
        assert isinstance(source, ApiSource)
        store, objects = Checkpoints(self.catalogue, "items"), ObjectFolder.of(self.catalogue, "items")
        return asyncio.run(fetch_pages(source, store, objects, seed))

    def land(self, config: DocumentsConfig, reread: bool = False) -> tuple[list[Any], list[Any]] | None:
        """Documents and arrivals of the pages that have not arrived, None where there are none."""
        known = pa.Table.from_pylist(self.arrived, ARRIVAL_ROWS)
        listing = discover(config, known, reread, self.catalogue)
        if listing is None:
            return None
        rules = ReadingRules("items", 1, 10**8, config.source, ObjectFolder.of(self.catalogue, "items"))
        files = listing.to_pylist()
        left = [file for file in files if file["unchanged"] or file["gone"]]
        rows = [
            row
            for file in files
            if file not in left
            for row in read_file(ListedFile.of(file), rules)
            if not row.get("facts")
        ]
        arrivals = [row for row in rows if not row["doc_id"]]
        arrivals += [{**file, "doc_id": None, "status": "gone" if file["gone"] else "unchanged"} for file in left]
        self.increments += 1
        told = ({**row, "increment": self.increments} for row in arrivals)
        self.arrived += [{name: row.get(name) for name in ARRIVAL_ROWS.names} for row in told]
        return [row for row in rows if row["doc_id"]], arrivals


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    """A lake that holds nothing."""
    return Inbox(open_catalogue(settings_at(tmp_path / "lake")))


def texts_of(documents: list[Any]) -> dict[int, list[str]]:
    """Every text of each record, each document once however many pages it is on."""
    once = {row["doc_id"]: row for row in documents}
    found: dict[int, list[str]] = {}
    for row in once.values():
        found.setdefault(int(row["path"].partition("#")[2]), []).append(row["content"])
    return found

"""What the tests of sources share: configs of small trees, and increments as the lake would make them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.kinds import opening
from spark_jobs.sources.landing.deleted import Gone, tombstones
from spark_jobs.sources.listed_file import ListedFile
from spark_jobs.sources.listing.changes import discover
from spark_jobs.sources.reading.files import read_parts
from spark_jobs.sources.reading.record_rows import each_row
from spark_jobs.sources.reading.rows import ReadingRules

Row = dict[str, Any]

ARRIVAL_ROWS = pa.schema(
    [
        ("increment", pa.int32()),
        ("location", pa.string()),
        ("repository", pa.string()),
        ("path", pa.string()),
        ("content_sha256", pa.string()),
        ("object", pa.string()),
        ("byte_count", pa.int64()),
        ("modified", pa.timestamp("us", "UTC")),
        ("status", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("doc_id", pa.string()),
    ]
)


def read_file(file: ListedFile, rules: ReadingRules) -> Iterator[Row]:
    """The rows of a file one by one, those of records with `unit`; the source is opened for it alone."""
    with opening(rules.source, rules.objects) as opens:
        for part in read_parts(file, rules._replace(opens=opens)):
            yield from each_row(part)


class Landing:
    """Lands a source increment by increment with the kernels alone, as the step and the lake do it with Spark."""

    def __init__(self) -> None:
        self.arrivals: list[Row] = []
        self.documents: list[Row] = []
        self.increments = 0

    def land(
        self, config: DocumentsConfig, objects: ObjectFolder | None = None, reread: bool = False
    ) -> tuple[list[Row], list[Row]] | None:
        """The next increment: its documents and its arrivals, or None where nothing is new."""
        listing = discover(config, pa.Table.from_pylist(self.arrivals, ARRIVAL_ROWS), reread)
        if listing is None:
            return None
        copies = config.landing == "copy"
        rules = ReadingRules(config.dataset, config.shards, config.max_document_bytes, config.source, objects, copies)
        known = {row["doc_id"] for row in (*self.documents, *self.arrivals)}
        documents: list[Row] = []
        arrivals: list[Row] = []
        for file in listing.to_pylist():
            if file["unchanged"] or file["gone"]:
                arrivals += [{**file, "status": "gone"}] if file["gone"] else []
                continue
            *records, arrival = (row for row in read_file(ListedFile.of(file), rules) if not row.get("facts"))
            new = [row for row in records if row["doc_id"] and row["doc_id"] not in known]
            if arrival["status"] == "landed" and not new:
                arrival = {**arrival, "status": "unchanged"}
            documents += new
            arrivals += [*(row for row in records if not row["doc_id"]), arrival]
        self.documents += [{**row, "increment": self.increments} for row in documents]
        names = ARRIVAL_ROWS.names
        arrivals = [{name: row.get(name) for name in names} | {"increment": self.increments} for row in arrivals]
        self.arrivals += arrivals
        self.increments += 1
        return documents, arrivals

    def delete(self, increment: int) -> Gone:
        """Delete an increment for good, as `headrace dataset delete` does; gives what goes beside its rows."""
        gone = Gone.of(pa.Table.from_pylist(self.arrivals, ARRIVAL_ROWS), increment)
        own = [row for row in self.arrivals if row["increment"] == increment]
        read = [row for row in self.documents if row["increment"] == increment]
        others = pa.Table.from_pylist([row for row in self.arrivals if row["increment"] != increment], ARRIVAL_ROWS)
        self.arrivals = [*gone.updated(others).to_pylist(), *tombstones(own, read)]
        self.documents = [row for row in self.documents if row["increment"] != increment]
        return gone


@pytest.fixture
def landing() -> Landing:
    """A dataset without increments yet."""
    return Landing()


@pytest.fixture
def files_config(tmp_path: Path) -> Callable[..., DocumentsConfig]:
    """Configs of kind `files` over `tmp_path / "data"`."""
    (tmp_path / "data").mkdir()

    def make(**source: object) -> DocumentsConfig:
        others = {key: source.pop(key) for key in ("max_document_bytes", "shards", "landing") if key in source}
        mapping = {"kind": "files", "path": str(tmp_path / "data"), **source}
        return DocumentsConfig.model_validate({"dataset": "notes", "source": mapping, **others})

    return make


@pytest.fixture
def data(tmp_path: Path, files_config: object) -> Path:
    """The directory that `files_config` reads."""
    return tmp_path / "data"


@pytest.fixture
def empty_arrivals() -> pa.Table:
    """Arrivals before the first increment."""
    return ARRIVAL_ROWS.empty_table()

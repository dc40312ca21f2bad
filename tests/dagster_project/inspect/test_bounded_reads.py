"""Questions about one document or dataset read what they are about, however much the tables hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from dagster_project.cli import run_command
from dagster_project.inspect.documents import document_lookup
from dagster_project.inspect.documents.document_lookup import find_document, landings_of
from dagster_project.inspect.lake.empty_datasets import empty_datasets
from headrace.tables.settings import load_settings
from spark_jobs.lake.files.lookups import read_rows
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.sources.documents import ARRIVALS, DOCUMENTS
from tests.dagster_project.inspect.test_lake_status import put

Said = pytest.CaptureFixture[str]


@pytest.fixture
def lake(lake_env: Path) -> Catalog:
    """An empty lake."""
    return open_catalogue(load_settings())


def test_the_file_of_a_document_is_looked_up_alone(lake: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the arrivals of an increment the rows at the document's path, not all that landed with it."""
    arrived = [{"status": "landed", "location": f"/in/{n}.md", "path": f"{n}.md"} for n in range(5000)]
    put(lake, "notes", ARRIVALS, 0, arrived)
    put(lake, "notes", DOCUMENTS, 0, [{"doc_id": f"{7:032x}", "path": "7.md#part"}])
    sizes: list[int] = []

    def counted(*arguments: Any) -> list[dict[str, Any]]:
        rows = read_rows(*arguments)
        sizes.append(len(rows))
        return rows

    monkeypatch.setattr(document_lookup, "read_rows", counted)
    (file,) = landings_of(lake, find_document(lake, f"{7:032x}"))
    assert file["location"] == "/in/7.md" and max(sizes) == 1


def test_why_a_file_is_no_document(lake: Catalog, capfd: Said) -> None:
    """The reason that its arrival has, by path or location; of a file that landed once there is a document."""
    row = {"status": "rejected", "location": "/in/a.bin", "path": "a.bin", "reason": "binary", "detail": "a null at 3"}
    put(lake, "notes", DOCUMENTS, 0, [{"doc_id": "b", "path": "b.md"}])
    put(lake, "notes", ARRIVALS, 0, [row, {"status": "landed", "location": "/in/b.md", "path": "b.md"}])
    for given in ("a.bin", "/in/a.bin"):
        assert run_command(["doc", "why", given]) == 2
        assert "is no document of notes: it was refused in increment 0 (binary: a null at 3)" in capfd.readouterr().err
    put(lake, "notes", ARRIVALS, 1, [{**row, "status": "gone", "reason": None}])
    assert run_command(["doc", "why", "a.bin"]) == 2
    assert "is in no table of documents" in capfd.readouterr().err


def test_a_dataset_without_a_document_says_why(lake: Catalog) -> None:
    """What was refused, by reason and with one sentence; nothing of a dataset that has documents."""
    refused = {"status": "rejected", "reason": "no_repository", "detail": "no git repository"}
    put(lake, "gits", ARRIVALS, 0, [refused, refused, {**refused, "reason": "binary"}])
    put(lake, "gits", DOCUMENTS, 0, [])
    put(lake, "void", ARRIVALS, 0, [])
    put(lake, "notes", ARRIVALS, 0, [{"status": "landed"}])
    put(lake, "notes", DOCUMENTS, 0, [{"doc_id": "a"}])
    assert list(empty_datasets(Ledger.fresh(lake), {"gits", "void", "notes", "main"})) == [
        "gits has no document: all that arrived was refused (no_repository 2, binary 1; such as: no git repository); "
        "look: headrace table show gits.arrivals --rows 20",
        "void has no document: its source holds no file; see what its declaration names",
    ]

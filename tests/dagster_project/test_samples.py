"""Rows that a page of Dagster shows as examples: rejected documents are named by their paths."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.expressions import EqualTo

from dagster_project.metadata import Samples, sample_rows
from headrace.tables.catalogue import load_table
from headrace.tables.settings import settings_at
from spark_jobs.filters.verdicts import VERDICTS
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.sources.documents import DOCUMENTS
from tests.dagster_project.inspect.test_lake_status import put
from tests.tiers import sampled


@sampled()
@pytest.mark.parametrize("samples", Samples)
def test_rejected_documents_have_their_paths(tmp_path: Path, samples: Samples) -> None:
    """Of any shard and increment, beside documents that another increment had under the same id."""
    catalogue = open_catalogue(settings_at(tmp_path / "lake"))
    for increment in range(2):
        documents = [{"doc_id": f"{n:032x}", "shard": n % 3, "path": f"{increment}/{n}.md"} for n in range(6)]
        put(catalogue, "notes", DOCUMENTS, increment, documents)
        verdicts = [
            {"doc_id": row["doc_id"], "shard": row["shard"], "kept": n % 2 == 0} for n, row in enumerate(documents)
        ]
        put(catalogue, "notes", VERDICTS, increment, verdicts)
    tables = [load_table(catalogue, f"notes.{table.name}") for table in (VERDICTS, DOCUMENTS)]
    assert tables[0] is not None
    shown = EqualTo("kept", False) & EqualTo("increment", 1)
    text = sample_rows(tables[0], VERDICTS, shown, samples, tables[1])
    if samples is Samples.NONE:
        assert text == ""
        return
    heads, _, *rows = text.splitlines()
    assert heads.startswith("| path | kept | doc_id |")
    assert sorted(row.split(" | ")[0] for row in rows) == ["| 1/1.md", "| 1/3.md", "| 1/5.md"]
    without = sample_rows(tables[0], VERDICTS, shown, samples)
    assert without.startswith("| kept |") and without.count("\n") == len(rows) + 1

"""A page of a package outside, by docs/extend/extending.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from dagster_project.exceptions import DefinitionError
from dagster_project.pages import PageAnswer, Pages
from headrace_features.explore import app
from headrace_features.explore.added_pages import _routes
from spark_jobs.lake.session.catalogue import ensure_table
from spark_jobs.sources.documents import DOCUMENTS
from tests.blender_service.packed_tables import open_lake
from tests.headrace_features.explore.served import asked, pages
from tests.spark_jobs.sources.test_extending import site

__all__ = ["site"]


@pytest.fixture
def lake(tmp_path: Path, site: Path) -> Iterator[Catalog]:
    """Two datasets without documents, and the package of the page."""
    app.other_pages.cache_clear()
    catalogue = open_lake(tmp_path / "lake")
    for name in ("notes", "web"):
        ensure_table(catalogue, f"{name}.documents", DOCUMENTS, {})
    yield catalogue
    app.other_pages.cache_clear()


def test_a_page_of_a_package_is_one_of_the_explorer(lake: Catalog, tmp_path: Path) -> None:
    """Linked from the first, with its values as JSON, and with what its reader may see alone."""
    client = pages(lake, tmp_path)
    assert 'href="/mill"' in client.get("/lake").text
    assert asked(client, "/mill") == {"rows": {"notes": 0, "web": 0}}
    assert "<li>notes: 0</li>" in client.get("/mill").text
    few = pages(lake, tmp_path, reader=lambda who: lambda table: table.startswith("web."))
    assert asked(few, "/mill") == {"rows": {"web": 0}}


def test_addresses_of_others_cannot_be_taken(tmp_path: Path) -> None:
    """Each begins with the name of the entry point."""
    taken = Pages(
        {"/mill": lambda request: PageAnswer("x", {}), "/blends": lambda request: PageAnswer("x", {})}, tmp_path
    )
    with pytest.raises(DefinitionError, match="pages mill: /blends does not begin with /mill"):
        _routes("mill", taken)

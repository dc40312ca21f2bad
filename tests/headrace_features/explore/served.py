"""Pages of a lake for tests, as somebody with a token."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from starlette.testclient import TestClient

from headrace_features.explore.app import make_app
from headrace_features.explore.explorer import Explorer


def pages(
    catalogue: Catalog,
    folder: Path,
    shown: Callable[[str], bool] = lambda dataset: True,
    reader: Callable[[str], Any] = lambda principal: None,
) -> TestClient:
    """The pages of a lake, as `ann`."""
    explorer = Explorer(catalogue, folder / "explore", shown, reader)
    app = make_app(explorer, frozenset({"testserver"}), lambda token: token)
    return TestClient(app, headers={"Authorization": "Bearer ann"}, follow_redirects=False)  # type: ignore[arg-type]


def asked(client: TestClient, path: str) -> Any:
    """The values of a page, which is there as HTML too."""
    where, mark, query = path.partition("?")
    page, values = client.get(path), client.get(f"{where}.json{mark}{query}")
    assert (page.status_code, values.status_code) == (200, 200), f"{page.text[:3000]}\n{values.text[:2000]}"
    assert page.headers["content-type"].startswith("text/html")
    return values.json()

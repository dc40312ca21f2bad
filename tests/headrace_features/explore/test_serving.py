"""The first page is there before the lake is open; all else waits for it."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import anyio
import pytest
from pyiceberg.catalog import Catalog
from starlette.requests import Request
from starlette.responses import Response
from starlette.testclient import TestClient

from headrace.tables.exceptions import CatalogueError
from headrace.tables.settings import settings_at
from headrace_features.explore import serving
from headrace_features.explore.app import make_app
from headrace_features.explore.browser_left import HAS_LEFT, while_asked
from headrace_features.explore.explorer import Explorer
from spark_jobs.lake.session.catalogue import open_catalogue


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalog:
    """An empty lake."""
    return open_catalogue(settings_at(tmp_path))


def test_the_first_page_does_not_wait_for_the_lake(catalogue: Catalog, tmp_path: Path) -> None:
    """It says that the lake is being opened and where its cards will be; other pages wait; then it is whole."""
    opened: Future[Explorer] = Future()
    app: Any = make_app(opened, frozenset({"testserver"}), lambda token: token)
    client = TestClient(app, headers={"Authorization": "Bearer ann"})
    first = client.get("/")
    assert first.status_code == 200 and "being opened" in first.text and 'data-late="/lake"' in first.text
    explorer = Explorer(catalogue, tmp_path / "explore", lambda dataset: True)
    threading.Timer(0.2, opened.set_result, [explorer]).start()
    assert 'id="late"' in client.get("/lake").text and opened.done()
    assert "no dataset yet" in client.get("/").text
    assert client.get("/blends").status_code == 200


def test_what_the_first_page_waits_for_is_little() -> None:
    """The server listens before anything of the lake, of PyIceberg or of Arrow is imported."""
    program = "import sys, headrace_features.explore.command, headrace_features.explore.serving; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pydantic", "pyiceberg", "pyarrow", "numpy", "sqlalchemy", "grpc", "dagster"} & set(loaded)


def test_a_lake_that_cannot_be_opened_ends_the_server(monkeypatch: pytest.MonkeyPatch, lake_env: Path) -> None:
    """With the error of the lake, which commands print as one line."""

    def fails(*given: object) -> None:
        raise CatalogueError("catalogue lake at nowhere: no such server")

    monkeypatch.setattr(serving, "open_explorer", fails)
    with pytest.raises(CatalogueError, match="nowhere"):
        serving.serve_pages("127.0.0.1", 0, None, None, ())


def test_a_query_ends_when_the_browser_leaves() -> None:
    """Another page does not wait for it."""
    left, ended = threading.Event(), threading.Event()

    def counting(request: Request) -> Response:
        has_left = HAS_LEFT.get()
        left.set()
        while not has_left() and not ended.wait(0.01):
            pass
        return Response("left" if has_left() else "")

    async def receive() -> dict[str, object]:
        return {"type": "http.disconnect" if left.is_set() else "http.request"}

    timer = threading.Timer(60, ended.set)
    timer.start()
    request = Request({"type": "http", "method": "GET", "path": "/"}, receive)
    assert anyio.run(while_asked(counting), request).body == b"left"
    timer.cancel()

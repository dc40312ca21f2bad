"""Dagster's pages behind the guard: no other host, no request of another site's page, a token where there are any."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from dagster_project import dagster_pages
from dagster_project.dagster_pages import guarded
from tests.waiting import until

TOKEN = "a-token-of-somebody-0123456789abcdef"
OURS = {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-origin"}
PROGRAM: dict[str, str] = {}
NAVIGATION = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
FOREIGN = (
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://localhost:4141"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
)


async def _echo(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text("open")


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """A stand-in for Dagster's server behind the guard."""
    monkeypatch.setenv(dagster_pages.HOSTS, "mill.example, ")
    routes = [Route(path, lambda _: PlainTextResponse("hi"), methods=["GET", "POST"]) for path in ("/", "/graphql")]
    routes += [Route("/server_info", lambda _: PlainTextResponse("1"))]
    app = guarded(Starlette(routes=[*routes, WebSocketRoute("/graphql", _echo)]))
    return TestClient(app, base_url="http://localhost:3000", follow_redirects=False)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:3000", "localhost.evil.example", "10.0.0.1", ""])
@pytest.mark.parametrize("path", ["/", "/graphql", "/server_info"])
def test_other_hosts_get_nothing(client: TestClient, host: str, path: str) -> None:
    """A name that a site resolves to this machine is not ours."""
    assert client.get(path, headers={"Host": host}).status_code == 421
    assert client.get(path, headers={"Host": "MILL.example:3000"}).status_code == 200


@pytest.mark.parametrize("headers", FOREIGN)
def test_a_page_of_another_site_sends_nothing(client: TestClient, headers: dict[str, str]) -> None:
    """By GET, POST or a web socket; a link to a page may be followed, one to GraphQL may not."""
    assert client.get("/graphql", headers=headers).status_code == 403
    assert client.post("/graphql", headers=headers).status_code == 403
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/graphql", headers=headers):
        pass
    assert client.get("/", headers=NAVIGATION).status_code == 200
    assert client.get("/graphql", headers=NAVIGATION).status_code == 403


@pytest.mark.parametrize("headers", [OURS, PROGRAM])
def test_our_pages_and_programs_go_on(client: TestClient, headers: dict[str, str]) -> None:
    """With and without what a browser adds."""
    assert [client.get("/graphql", headers=headers).text, client.post("/graphql", headers=headers).text] == ["hi", "hi"]
    with client.websocket_connect("/graphql", headers={"Host": "localhost:3000", **headers}) as opened:
        assert opened.receive_text() == "open"


def test_with_tokens_nobody_comes_in_without_one(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the address, then in a cookie; a program sends it as bearer; health checks need none."""
    file = tmp_path / "tokens"
    file.write_text(f"ada {TOKEN}\n")
    monkeypatch.setenv(dagster_pages.TOKENS, str(file))
    client.app = guarded(client.app._app)  # type: ignore[attr-defined]
    client = TestClient(client.app, base_url="http://localhost:3000", follow_redirects=False)
    for method in ("GET", "POST"):
        assert client.request(method, "/graphql").status_code == 401
        assert client.request(method, "/graphql", headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert client.request(method, "/graphql", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/graphql", headers={"Host": "localhost"}):
        pass
    assert client.get("/server_info").status_code == 200
    assert client.get("/?token=wrong").status_code == 401
    assert client.get(f"/?token={TOKEN}").headers["location"] == "/"
    assert client.post("/graphql", headers=OURS).status_code == 200
    signed = {"Host": "localhost:3000", "Cookie": f"headrace_ui={TOKEN}"}
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/graphql", headers={**signed, **FOREIGN[0]}):
        pass
    with client.websocket_connect("/graphql", headers={**signed, **OURS}) as opened:
        assert opened.receive_text() == "open"


@pytest.mark.nightly
def test_dagsters_own_server_runs_behind_the_guard(tmp_path: Path) -> None:
    """The real one, as `headrace ui` and compose start it."""
    (tmp_path / "workspace.yaml").write_text("load_from: []\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "dagster_project.dagster_pages",
        "webserver",
        "-w",
        "workspace.yaml",
        "-p",
        str(port),
    ]
    environment = {**os.environ, "DAGSTER_HOME": str(tmp_path)}

    def status(host: str) -> int:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/server_info", headers={"Host": host})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL) as server:
        try:
            until(lambda: status(f"127.0.0.1:{port}") == 200)
            assert status("evil.example") == 421
        finally:
            server.terminate()

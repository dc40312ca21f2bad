"""A list of web addresses: each lands or is a row with its reason, and is asked politely."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headrace_features.apis.addresses import fetch_addresses
from headrace_features.apis.endpoint import Fetched
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.sources.config.source_config import DocumentsConfig, FilesSource
from spark_jobs.sources.paged.checkpoints import Checkpoints
from tests.headrace_features.apis.conftest import Inbox

PAGE = b"<html><head><title>T</title></head><body><main><p>" + b"A page of words and more words. " * 20 + b"</p></main>"
ANSWERS: dict[str, tuple[int, bytes, dict[str, str]]] = {
    "/": (200, PAGE, {"ETag": '"1"'}),
    "/a.txt": (200, b"one", {"Last-Modified": "Tue, 24 Nov 2026 12:00:00 GMT"}),
    "/view.php?id=3": (200, PAGE.replace(b"words", b"texts"), {}),
    "/none": (404, b"", {}),
    "/busy": (429, b"", {"Retry-After": "0"}),
    "/loop": (302, b"", {"Location": "/loop"}),
    "/short": (200, b"short", {"Content-Length": "50"}),
}


class _Handler(BaseHTTPRequestHandler):
    asked: list[tuple[str, float]]
    answers = ANSWERS

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        """The answer of the address; without a body where the client has it."""
        self.asked.append((self.path, time.monotonic()))
        status, body, headers = self.answers[self.path]
        known = {self.headers.get("If-None-Match"), self.headers.get("If-Modified-Since")} - {None}
        if known & set(headers.values()):
            status, body = 304, b""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            if status != 304:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def handler() -> Iterator[Any]:
    """A server of the answers, with what it was asked and its address."""
    made = type("Handler", (_Handler,), {"asked": [], "answers": dict(ANSWERS)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), made)
    server.daemon_threads = True
    made.url = f"http://127.0.0.1:{server.server_port}"  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield made
    server.shutdown()
    server.server_close()


def _config(folder: Path, lines: list[str], **limits: float) -> DocumentsConfig:
    (folder / "urls.txt").write_text("\n".join(lines), encoding="utf-8")
    quick = {"start_per_second": 1000, "max_per_second": 1000, "backoff_seconds": 0.01, "tries": 2, **limits}
    hosts = sorted({line.split("/")[2] for line in lines if line.startswith("http://127")})
    source = {"kind": "files", "urls": str(folder / "urls.txt"), "limits": quick, "allowed_hosts": hosts}
    return DocumentsConfig.model_validate({"dataset": "items", "source": source})


def _fetch(inbox: Inbox, config: DocumentsConfig) -> Fetched:
    assert isinstance(config.source, FilesSource)
    objects = ObjectFolder.of(inbox.catalogue, "items")
    return fetch_addresses(config.source, Checkpoints(inbox.catalogue, "items"), objects)


def test_each_address_lands_or_is_a_row_with_its_reason(handler: Any, inbox: Inbox, tmp_path: Path) -> None:
    """By its content where its name says nothing; what is as it was lands nothing, what left the list is gone."""
    lines = ["# ours", "", *(f"{handler.url}{path}" for path in ANSWERS), f"{handler.url}/a.txt#part", "no address"]
    config = _config(tmp_path, [*lines, "http://me:secret@127.0.0.1/", "http://127.0.0.1:9/x"])
    assert inbox.land(config) is None  # before anything was fetched
    _fetch(inbox, config)
    landed = inbox.land(config)
    assert landed is not None
    documents, arrivals = landed
    texts = {row["path"].removeprefix(handler.url): row["content"][:20] for row in documents}
    assert texts == {"": "A page of words and ", "/a.txt": "one", "/view.php?id=3": "A page of texts and "}
    reasons = {row["location"].removeprefix(handler.url).rpartition("/")[2]: row["reason"] for row in arrivals}
    assert {name: reason for name, reason in reasons.items() if reason} == {
        "none": "http_error",
        "busy": "http_error",
        "loop": "http_error",
        "short": "no_answer",
        "urls.txt#line:11": "bad_record",
        "urls.txt#line:12": "bad_record",
        "x": "no_answer",
    }
    assert not any("secret" in str(row) for row in arrivals)
    assert sum(path == "/a.txt" for path, _ in handler.asked) == 1
    assert _fetch(inbox, config).pages == 0 and inbox.land(config) is None
    handler.answers["/a.txt"] = (200, b"two", {})
    (tmp_path / "urls.txt").write_text(f"{handler.url}/a.txt\n")
    _fetch(inbox, config)
    landed = inbox.land(config)
    assert landed is not None and [row["content"] for row in landed[0]] == ["two"]
    assert len([row for row in landed[1] if row["status"] == "gone"]) == len(arrivals) - 1


def test_a_host_is_asked_at_its_rate_and_no_more_once_it_is_silent(handler: Any, inbox: Inbox, tmp_path: Path) -> None:
    """The others are not kept waiting; a fetch that was stopped goes on with what is left."""
    many = [f"{handler.url}/a.txt?{number}" for number in range(5)]
    handler.answers |= {f"/a.txt?{number}": (200, b"one", {}) for number in range(5)}
    dead = [f"http://127.0.0.1:9/{number}" for number in range(20)]
    config = _config(tmp_path, [*dead, *many], start_per_second=10, max_per_second=10)
    started = time.monotonic()
    done = _fetch(inbox, config)
    assert len(handler.asked) == 5 and handler.asked[-1][1] - started > 0.39
    assert len(done.refusals) == 20 and done.requests == 5 + 3 * 2
    assert "is asked no more in this run: ConnectError" in done.refusals[-1]
    handler.answers |= {path: (429, b"", {"Retry-After": "3600"}) for path in ("/", "/a.txt")}
    waiting = _config(tmp_path, [f"{handler.url}{path}" for path in ("/", "/a.txt", "/none")])
    count = len(handler.asked)
    assert [("asks to wait 3600 s" in one) for one in _fetch(inbox, waiting).refusals] == [True] * 3
    assert len(handler.asked) == count + 1
    late = _config(tmp_path, many, fetch_seconds=1e-9)
    assert [_fetch(inbox, late).paused, _fetch(inbox, config).requests] == [True, 5]


def test_what_was_deleted_is_neither_kept_again_nor_gone(handler: Any, inbox: Inbox, tmp_path: Path) -> None:
    """Though its server still gives it, and after other bytes or none; 304 of what is not known is a fault."""
    handler.answers |= {"/b.txt": (200, b"two", {"ETag": '"x"'}), "/new": (304, b"", {})}
    config = _config(tmp_path, [f"{handler.url}{path}" for path in ("/a.txt", "/b.txt", "/new")])
    handler.answers["/a.txt"] = (200, b"one", {})
    _fetch(inbox, config)
    landed = inbox.land(config)
    assert landed is not None and {row["location"][-3:]: row["reason"] for row in landed[1]}["new"] == "http_error"
    objects = ObjectFolder.of(inbox.catalogue, "items")
    told = {"status": "deleted", "reason": "deleted", "object": None}
    names = {row["content_sha256"] for row in inbox.arrived if row["content_sha256"]}
    Checkpoints(inbox.catalogue, "items").forget(names)
    assert len(names) == 2 and all(map(objects.delete, names))
    inbox.arrived = [row | told if row["content_sha256"] else row for row in inbox.arrived]
    for body, lands in ((b"one", 0), (b"other", 1), (b"one", 0), (b"", 0), (b"one", 0)):
        handler.answers["/a.txt"] = (200 if body else 404, body, {})
        assert _fetch(inbox, config).pages == lands
        landed = inbox.land(config) or ([], [])
        assert len(landed[0]) == lands and not any(row["status"] == "gone" for row in landed[1])
        assert {Path(one).read_bytes() for one in objects.older(float("inf"))} <= {b"other"}


def test_an_address_with_and_without_a_slash_are_two_documents(handler: Any, inbox: Inbox, tmp_path: Path) -> None:
    """Most servers give the same page for both; two documents of one identity would stop all others from landing."""
    handler.answers |= dict.fromkeys(("/p", "/p/", "/q/"), (200, PAGE, {}))
    config = _config(tmp_path, [f"{handler.url}{path}" for path in ("/p", "/p/", "/q/")])
    _fetch(inbox, config)
    landed = inbox.land(config)
    assert landed is not None and len({row["doc_id"] for row in landed[0]}) == 3
    assert {row["path"].removeprefix(handler.url) for row in landed[0]} == {"/p", "/p/", "/q"}

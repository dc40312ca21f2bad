"""A stand-in for the Hugging Face Hub: commits of one data set, a store on another port, faults that tests choose."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

Answer = tuple[int, dict[str, str], bytes]
REPO = "mill/pages"


@dataclass
class HubServer:
    """What the servers have, and what they were asked.

    Attributes:
        commits: files of each commit; the last is that of `main`.
        token: that a request needs; None for a public data set.
        is_gated: whether the token alone is not enough.
        faults: answers that come first, one a request to the Hub.
        cuts: after how many bytes each of the next answers of the store breaks off.
        takes_ranges: whether the store does.
        wrong_bytes: how many of the next answers of the store have other bytes.
        page: files in a page of the tree.
        asked: the address and headers of every request, those to the store with `store:` before.
    """

    commits: list[dict[str, bytes]] = field(default_factory=list)
    token: str | None = None
    is_gated: bool = False
    faults: list[Answer] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    takes_ranges: bool = True
    wrong_bytes: int = 0
    page: int = 2
    redirects_to: str = ""
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    url: str = ""
    store: str = ""

    def sha(self, number: int) -> str:
        """The id of a commit."""
        return hashlib.sha1(b"%d" % number, usedforsecurity=False).hexdigest()

    def files_at(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
        """Commit and files of a revision."""
        shas = {self.sha(number): number for number in range(len(self.commits))}
        number = len(self.commits) - 1 if revision == "main" else shas.get(revision)
        return None if number is None or number < 0 else (self.sha(number), self.commits[number])

    def store_headers(self) -> list[dict[str, str]]:
        """The headers of each request to the store."""
        return [headers for address, headers in self.asked if address.startswith("store:")]

    def of_hub(self, address: str, headers: dict[str, str]) -> Answer:
        """The answer of the Hub."""
        if self.faults:
            return self.faults.pop(0)
        path, query = urlsplit(address).path, parse_qs(urlsplit(address).query)
        if path == "/api/datasets":
            return _json([{"id": REPO}, {"id": "mill/books"}])
        parts = [unquote(part) for part in path.removeprefix("/api").removeprefix("/datasets/").split("/")]
        if refusal := self.refused("/".join(parts[:2]), headers):
            return refusal
        what, revision, rest = parts[2], parts[3], "/".join(parts[4:])
        if (there := self.files_at(revision)) is None:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
        sha, files = there
        if what == "revision":
            return _json({"sha": sha, "id": REPO})
        if what == "tree":
            return self.tree(sha, files, int(query.get("cursor", ["0"])[0]))
        if rest not in files:
            return 404, {"X-Error-Code": "EntryNotFound"}, b"{}"
        return 302, {"Location": f"{self.redirects_to or self.store}/{sha}/{quote(rest)}"}, b""

    def refused(self, repo: str, headers: dict[str, str]) -> Answer | None:
        """The answer to a request for another data set, or without the token that it needs."""
        if repo != REPO:
            return 401, {"X-Error-Code": "RepoNotFound"}, b"{}"
        if self.token is None:
            return None
        shown = headers.get("authorization")
        if shown is not None and shown != f"Bearer {self.token}":
            return 401, {"X-Error-Message": "Invalid credentials in Authorization header"}, b"{}"
        if self.is_gated:
            return 403 if shown else 401, {"X-Error-Code": "GatedRepo"}, b"{}"
        return None if shown else (401, {"X-Error-Code": "RepoNotFound"}, b"{}")

    def tree(self, sha: str, files: dict[str, bytes], start: int) -> Answer:
        """A page of the tree; large files are in LFS, others are blobs of git."""
        names = sorted(files)
        entries: list[dict[str, Any]] = [{"type": "directory", "path": "data", "oid": "0", "size": 0}]
        for name in names[start : start + self.page]:
            data = files[name]
            blob = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
            entry = {"type": "file", "path": name, "oid": blob, "size": len(data)}
            lfs = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
            entries.append(entry if name.startswith("small") else {**entry, "lfs": lfs})
        after = start + self.page
        link = f'<https://huggingface.co/api/datasets/{REPO}/tree/{sha}?recursive=true&cursor={after}>; rel="next"'
        status, headers, body = _json(entries)
        return status, {**headers, **({"Link": link} if after < len(names) else {})}, body

    def of_store(self, address: str, headers: dict[str, str]) -> Answer:
        """The answer of the store; `X-Cut` is for the handler."""
        _, sha, path = unquote(urlsplit(address).path).split("/", 2)
        there = self.files_at(sha)
        data = there[1][path] if there else b""
        if self.wrong_bytes:
            self.wrong_bytes -= 1
            data = data[::-1]
        cut = {"X-Cut": str(self.cuts.pop(0))} if self.cuts else {}
        if "range" in headers and self.takes_ranges:
            start = int(headers["range"].removeprefix("bytes=").rstrip("-"))
            return 206, {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}", **cut}, data[start:]
        return 200, cut, data


def _json(value: Any) -> Answer:
    return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()


@contextmanager
def hub_server() -> Iterator[HubServer]:
    """The two servers, until the end of the block."""
    hub = HubServer()

    def handler(is_store: bool) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                hub.asked.append((("store:" if is_store else "") + self.path, headers))
                status, more, body = (hub.of_store if is_store else hub.of_hub)(self.path, headers)
                cut = more.pop("X-Cut", None)
                self.send_response(status)
                for name, value in more.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body if cut is None else body[: int(cut)])
                self.close_connection = cut is not None

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        return Handler

    servers = [ThreadingHTTPServer(("127.0.0.1", 0), handler(is_store)) for is_store in (False, True)]
    hub.url, hub.store = (f"http://127.0.0.1:{server.server_port}" for server in servers)
    threads = [threading.Thread(target=server.serve_forever, daemon=True) for server in servers]
    try:
        for thread in threads:
            thread.start()
        yield hub
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()

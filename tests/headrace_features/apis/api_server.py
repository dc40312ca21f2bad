"""An API on loopback that gives its records page by page, and misbehaves as often as it is told to, by a seed.

Each fault is one that real servers have; the server counts them and knows the truth: the records that it has.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

TRANSIENT = ("throttle", "throttle_date", "error_500", "error_503", "cut", "endless", "drip", "html", "error_inside")
MOVES = ("repeat", "drop_cursor", "expire", "page_size", "delete", "change", "add", "schema")


@dataclass
class Api:
    """The records and the manners of the server.

    Attributes:
        records: by id, in the order of the list; a record's `text` is its content.
        style: cursor, next_url, link_header, page_number, offset or single.
        page_size: records a page.
        seed: of the faults.
        faults: kinds that are drawn from, and how many requests misbehave until it is well.
        etags: whether it answers conditional requests.
        asked: every request: path, parameters and headers.
    """

    records: dict[int, dict[str, Any]]
    style: str = "cursor"
    page_size: int = 7
    seed: int = 0
    faults: tuple[str, ...] = ()
    budget: int = 0
    etags: bool = False
    needed: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str], dict[str, str]]] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    delay_seconds: float = 0.0
    redirect: str = ""
    port: int = 0
    next_port: int = 0  # of the server that has the next pages, where it is another

    def __post_init__(self) -> None:
        self.random, self.lock, self.epoch = random.Random(self.seed), threading.Lock(), 0
        self.every = {(one["id"], one["text"]) for one in self.records.values()}

    @property
    def url(self) -> str:
        """Address of the list."""
        return f"http://127.0.0.1:{self.port}/v1/items"

    @property
    def next_url(self) -> str:
        """Address of the list at the server that has the next page."""
        return self.url.replace(f":{self.port}/", f":{self.next_port or self.port}/")

    @property
    def truth(self) -> dict[int, str]:
        """The text of each record that there is now."""
        return {key: one["text"] for key, one in self.records.items()}

    def put(self, key: int, text: str, **more: Any) -> None:
        """Add or change a record."""
        self.records[key] = {"id": key, "text": text, **more}
        self.every.add((key, text))

    def draw(self) -> str:
        """The fault of a request; empty where it is answered well."""
        if self.budget <= 0 or self.random.random() < 0.5:
            return ""
        self.budget -= 1
        fault = self.random.choice(self.faults)
        self.done[fault] += 1
        return fault

    def page(self, params: dict[str, str], fault: str) -> tuple[int, dict[str, Any], str | None]:
        """Status, body and next address of a page."""
        self.move(fault)
        rows = list(self.records.values())
        size = int(params.get("limit", self.page_size)) if self.style == "offset" else self.page_size
        if self.style == "page_number":
            start = (int(params.get("page", 1)) - 1) * size
        elif self.style == "offset":
            start = int(params.get("offset", 0))
            size = min(size, self.page_size)
        elif self.style == "single":
            start, size = 0, len(rows)
        else:  # cursors name the id after which they go on, so that they stand still while records come and go
            epoch, _, after = params.get("cursor", f"{self.epoch}:-1").partition(":")
            if int(epoch) != self.epoch:
                return 410, {"error": "the cursor has expired"}, None
            rows = [one for one in rows if one["id"] > int(after)]
            start = 0
        if fault == "repeat" and self.style in ("page_number", "offset"):
            start = max(0, start - size)
        shown = rows[start : start + size]
        following = None
        if self.style in ("cursor", "next_url", "link_header") and len(rows) > size and fault != "drop_cursor":
            following = f"{self.epoch}:{shown[-1]['id']}"
        if fault == "repeat" and following is not None:
            following = params.get("cursor", following)
        body = {"data": shown, "total": len(self.records), "meta": {"next": following}, "at": time.time_ns()}
        return 200, body, following

    def move(self, fault: str) -> None:
        """Change what there is, while it is read."""
        if fault == "page_size":
            self.page_size = self.random.choice((3, 5, 7, 11))
        elif fault == "expire":
            self.epoch += 1
        elif fault == "delete" and len(self.records) > 5:
            del self.records[self.random.choice(list(self.records))]
        elif fault == "change":
            key = self.random.choice(list(self.records))
            self.put(key, f"{self.records[key]['text']} again {self.budget}")
        elif fault == "add":
            key = max(self.records) + 1
            self.put(key, f"late {key}")
        elif fault == "schema":
            for one in self.records.values():
                one["stars"] = self.random.choice((1, "many", [1], None, {"of": 2}))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: Api

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        """One page, or a fault."""
        api, parts = self.api, urlsplit(self.path)
        params = dict(parse_qsl(parts.query))
        time.sleep(api.delay_seconds)
        with api.lock:
            api.asked.append((parts.path, params, {name.lower(): value for name, value in self.headers.items()}))
            fault = api.draw()
            if api.redirect:
                self.send(302, {}, {"Location": api.redirect})
                return
            if any(self.headers.get(name) != value for name, value in api.needed.items()):
                self.send(401, {"error": "who are you"})
                return
            status, body, following = api.page(params, fault)
        if fault in TRANSIENT:
            self.misbehave(fault, body)
            return
        headers = {}
        if following is not None and api.style == "next_url":
            address = api.next_url if api.next_port else "/v1/items"
            body["meta"]["next"] = f"{address}?cursor={following}"
        if following is not None and api.style == "link_header":
            headers["Link"] = f'</v1/items>; rel="first", <{api.next_url}?cursor={following}>; rel="last Next"'
            body["meta"] = {}
        if api.etags:
            stable = json.dumps({**body, "at": 0}, sort_keys=True).encode()
            headers["ETag"] = f'"{sha256(stable).hexdigest()}"'
            if self.headers.get("If-None-Match") == headers["ETag"]:
                self.send_response(304)
                self.end_headers()
                return
        self.send(status, body, headers)

    def do_POST(self) -> None:
        """A token."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send(200, {"access_token": "t0ken", "expires_in": 3600})

    def send(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        """An answer in JSON."""
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(data)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def misbehave(self, fault: str, body: Any) -> None:
        """What a server does on a bad day."""
        data = json.dumps(body).encode()
        if fault == "throttle":
            self.send(429, {}, {"Retry-After": "0"})
        elif fault == "throttle_date":
            self.send(503, {}, {"Retry-After": formatdate(time.time() - 5, usegmt=True)})
        elif fault.startswith("error_5"):
            self.send(int(fault[-3:]), {"error": "broken"})
        elif fault == "html":
            self.send_response(200)
            self.send_header("Content-Length", "15")
            self.end_headers()
            self.wfile.write(b"<html>hi</html>")
        elif fault == "error_inside":
            self.send(200, {"error": {"code": 17}, "data": []})
        elif fault == "drip":
            self.drip(b"HTTP/1.1 200 OK\r\n" + b"X-Slow: 1\r\n" * 1000)
        else:
            self.send_response(200)
            self.send_header("Content-Length" if fault == "cut" else "X-Length", str(len(data) + 10))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2])
            if fault == "endless":
                self.drip(b" " * 1000)
            self.close_connection = True

    def drip(self, data: bytes) -> None:
        """A byte now and then, until the client has enough."""
        self.close_connection = True
        try:
            for byte in data:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(0.05)
        except OSError:
            return


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away."""


@contextmanager
def serving(api: Api) -> Iterator[Api]:
    """Serve an API on loopback while the block runs."""
    handler = type("Handler", (_Handler,), {"api": api})
    server = _Server(("127.0.0.1", 0), handler)
    api.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def records(count: int) -> dict[int, dict[str, Any]]:
    """Records with texts of their own."""
    return {
        key: {"id": key, "text": f"text {key} é", "updated": f"2026-01-01T00:{key % 60:02}:00Z"} for key in range(count)
    }

"""Answers that are built to break a reader: each is a record or a row with a reason, and never a hang."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.headrace_features.apis.api_server import Api, records
from tests.headrace_features.apis.conftest import Inbox, api_config
from tests.tiers import sampled

_ONE = '{"data": [{"id": %s, "text": %s}], "meta": {"next": %s}}'
ANSWERS: dict[str, tuple[str | bytes, list[str], str]] = {
    "nested": (_ONE % ("1", '"a", "d": ' + "[" * 100_000, "null"), [], "recursion"),
    "surrogate_id": (_ONE % ('"\\ud800"', '"a"', "null"), [], ""),
    "surrogate_cursor": (_ONE % ("1", '"a"', '"\\ud800"'), ["a"], "no_answer"),
    "null_character": (_ONE % ("1", '"a\\u0000b"', "null"), [], ""),
    "other_scripts": (_ONE % ("1", '"мир 你好 🙂"', "null"), ["мир 你好 🙂"], ""),
    "number": ("17", [], "no list at 'data'"),
    "nothing": ("", [], "not JSON"),
    "long_number": (_ONE % ("9" * 5000, '"a"', "null"), [], "not JSON"),
    "utf_16": ((_ONE % ("1", '"ü"', "null")).encode("utf-16"), ["ü"], ""),
    "byte_order_mark": ("\ufeff" + _ONE % ("1", '"b"', "null"), ["b"], ""),
    "latin_1": ((_ONE % ("1", '"ü"', "null")).encode("latin-1"), [], "not JSON"),
    "cursor_true": (_ONE % ("1", '"a"', "true"), ["a"], "its next cursor is that of a page before it"),
    "cursor_object": (_ONE % ("1", '"a"', '{"a": 1}'), ["a"], "its next cursor is that of a page before it"),
    "not_a_number": (_ONE % ("NaN", '"a", "stars": -Infinity', "NaN"), ["a"], ""),
    "text_not_a_number": (_ONE % ("1", "NaN", "null"), [], ""),
    "keys_twice": (_ONE % ('2, "id": 1', '"a", "text": "b"', '"x", "next": null'), [], ""),
    "ten_megabytes": (_ONE % ("1", f'"{"é" * 4_500_000}"', "null"), ["é" * 4_500_000], ""),
    "overlap": ('{"data": [{"id": 1, "text": "a"}, {"id": 1, "text": "a"}], "meta": {}}', ["a"], ""),
    "empty_id": (_ONE % ('""', '"a"', "null"), [], ""),
    "bomb": (gzip.compress(b'{"data": ["' + b"a" * 50_000_000), [], "limits.max_page_bytes"),
}


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        """The answer of the address."""
        name = self.path.rpartition("/")[2].partition("?")[0]
        said = ANSWERS[name][0]
        body = said if isinstance(said, bytes) else said.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        if name == "bomb":
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has had enough."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A server that gives each of the answers."""
    server = _Server(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@sampled(4)
@pytest.mark.parametrize("name", ANSWERS)
def test_a_hostile_answer_is_a_record_or_a_row(name: str, port: int, inbox: Inbox) -> None:
    """What can be used lands, the fetch says what was wrong with the answer, arrivals what with a record."""
    api = Api(records(1))
    api.port = port
    limits = {"tries": 2, "timeout_seconds": 20, "max_page_bytes": 10_000_000}
    done = inbox.fetch(api_config(api, url=f"http://127.0.0.1:{port}/{name}", total=None, limits=limits))
    documents, arrivals = inbox.land(api_config(api, url=f"http://127.0.0.1:{port}/{name}", total=None)) or ([], [])
    _, texts, refusal = ANSWERS[name]
    assert [row["content"] for row in documents] == texts
    assert refusal in "".join(done.refusals) and bool(refusal) == bool(done.refusals)
    assert texts or any(row["reason"] for row in arrivals)

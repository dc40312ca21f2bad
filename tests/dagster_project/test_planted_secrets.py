"""Secrets that are planted in the environment are in no file of a lake or of Dagster's, and are not printed."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import random
import sqlite3
import string
import threading
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest

from dagster_project.cli import run_command
from headrace.tables.settings import settings_at
from spark_jobs import credentials
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.conftest import WriteDefs
from tests.tiers import is_nightly

NAMES = ("IN_QUERY", "IN_PARAM", "IN_HEADER", "IN_AUTH", "IN_USER", "IN_PASSWORD", "IN_KEY", "IN_STORE", "IN_CATALOGUE")


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Secrets by the variable that holds each."""
    drawn = random.Random(7)
    letters = string.ascii_letters + string.digits + "/+&=%$"
    secrets = {name: f"s3{''.join(drawn.choices(letters, k=24))}" for name in NAMES}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(credentials, "_known", [()])
    return secrets


class _Echo(BaseHTTPRequestHandler):
    """A server that repeats all it is asked: in texts, tags, next addresses, redirects and errors."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        """Pages of /items, a redirect of /moved to a port of nobody, and errors elsewhere."""
        said = f"{self.path} {dict(self.headers)}"
        path = self.path.partition("?")[0]
        more = "&page=2" not in self.path
        here = f"http://127.0.0.1:{self.server.server_address[1]}"
        status = {"/items": 200, "/moved": 302}.get(path, 403)
        following = f"{here}{self.path}&page=2" if more else None
        body = {
            "next": following,
            "data": [{"id": f"{more}", "text": f"A text. {said}"}],
            "error": said * (status == 403),
        }
        data = json.dumps(body).encode()
        self.send_response(status, None if status == 200 else said[:80].replace("\n", " "))
        self.send_header("ETag", f'"{said[:200]}"')
        if status == 302:
            self.send_header("Location", f"http://127.0.0.1:9{self.path}")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def echo() -> Iterator[str]:
    """Its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def _declared(name: str, source: dict[str, Any]) -> str:
    return json.dumps({"type": "headrace.Dataset", "attributes": {"name": name, "source": source}})


def _hits(folder: Path, printed: str, secrets: dict[str, str]) -> list[tuple[str, str]]:
    """Secrets, in any form, with the file that has one, those in Parquet columns and compressed streams too."""
    forms = {
        form.encode(): name
        for name, value in secrets.items()
        for form in (value, quote(value, safe=""), json.dumps(value)[1:-1], base64.b64encode(value.encode()).decode())
    }
    found = [(name, "printed") for form, name in forms.items() if form in printed.encode()]
    for file in folder.rglob("*"):
        if not file.is_file():
            continue
        data = file.read_bytes()
        if file.suffix == ".parquet":
            data += json.dumps(pq.read_table(file).to_pylist(), default=str).encode()
        if data.startswith(b"SQLite format 3"):
            data += b"".join(map(_plain, _cells(file)))
        if data.startswith(b"\x1f\x8b"):
            data += gzip.decompress(data)
        found += [(name, str(file)) for form, name in forms.items() if form in data]
    return found


def _cells(file: Path) -> Iterator[Any]:
    """Every value of a database."""
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in database.execute(f'SELECT * FROM "{table}"'):
                yield from row


def _plain(value: Any) -> bytes:
    """A value as bytes; Dagster keeps snapshots of jobs compressed."""
    data = value if isinstance(value, bytes) else str(value).encode()
    with contextlib.suppress(zlib.error):
        return zlib.decompress(data)
    return data


@pytest.mark.nightly
def test_planted_secrets_are_nowhere(
    declare: WriteDefs,
    lake_env: Path,
    echo: str,
    planted: dict[str, str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Of a server that repeats them, of clients that fail, and of catalogues; the data lands all the same."""
    api = {"kind": "api", "records": "data", "text_column": "text", "id_column": "id", "limits": {"tries": 1}}
    api |= {"params": {"sig": "${IN_PARAM}"}, "headers": {"X-Secret": "${IN_HEADER}"}}
    api |= {
        "auth": {"kind": "bearer", "token": "IN_AUTH"},
        "paginator": {"kind": "next_url"},
        "unknown_fields": "metadata",
    }
    declare("items", _declared("items", api | {"url": f"http://{echo}/items?jwt=${{IN_QUERY}}"}))
    basic = {name: value for name, value in api.items() if name != "auth"}
    basic |= {"url": f"http://${{IN_USER}}:${{IN_PASSWORD}}@{echo}/items?a=1"}
    declare("basic", _declared("basic", basic))
    declare("moved", _declared("moved", api | {"url": f"http://{echo}/moved?k=${{IN_QUERY}}", "error": "error"}))
    keyed = api | {"url": f"http://{echo}/denied?k=${{IN_QUERY}}"}
    declare(
        "denied",
        _declared("denied", keyed | {"auth": {"kind": "key", "key": "IN_KEY", "name": "sk", "place": "query"}}),
    )
    catalogue = {"type": "rest", "uri": "http://127.0.0.1:9/${IN_CATALOGUE}", "token": "${IN_CATALOGUE}"}
    lake = {"kind": "iceberg", "table": "a.b", "text_column": "t", "id_column": "i", "catalogue": catalogue}
    declare("lake", _declared("lake", lake))
    store = "s3://IN${IN_STORE}:${IN_STORE}@bucket/x?endpoint_override=127.0.0.1:9&scheme=http"
    declare("store", _declared("store", {"kind": "files", "path": store}))
    capfd.readouterr()
    failing = ("basic", "moved", "denied", "lake", "store") if is_nightly() else ("lake",)
    for dataset in ("items", *failing):
        run_command(["run", f"{dataset}.documents", f"{dataset}.provenance"])
    for dataset in ("items", *failing):
        run_command(["plan", dataset])
        run_command(["dataset", "show", dataset, "--json"])
    assert run_command(["table", "show", "items.documents", "--rows", "5"]) == 0
    for words in (
        ["runs", "show", "--json"],
        ["status"],
        ["dataset", "show", "items", "--card"],
        ["table", "show", "items.arrivals"],
    ):
        run_command(words)
    out, err = capfd.readouterr()
    assert "landed" in out + err or "A text." in out, out + err
    assert not (hits := _hits(tmp_path, out + err, planted)), (sorted(set(hits))[:12], out[-3000:], err[-3000:])
    documents = open_catalogue(settings_at(lake_env)).load_table("items.documents")
    texts = documents.scan().to_arrow()["content"].to_pylist()
    assert len(texts) == 2 and all("${IN_QUERY}" in text and "${IN_AUTH}" in text for text in texts), texts


def test_literals_that_stand_in_yaml_are_not_printed(
    declare: WriteDefs, lake_env: Path, planted: dict[str, str], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Of a declaration that is refused as of one that is shown: one line that says what, where and the mend."""
    value = planted["IN_KEY"]
    places: tuple[dict[str, Any], ...] = (
        {
            "kind": "iceberg",
            "table": "a.b",
            "text_column": "t",
            "id_column": "i",
            "catalogue": {"token": value, "x": value},
        },
        {"kind": "api", "url": f"http://h.example/?k={quote(value, safe='')}", "text_column": "t", "id_column": "i"},
        {"kind": "api", "url": f"ftp://u:{quote(value, safe='')}@h.example/", "text_column": "t", "id_column": "i"},
        {
            "kind": "api",
            "url": "http://h.example/",
            "text_column": "t",
            "id_column": "i",
            "auth": {"kind": "bearer", "token": value},
        },
        {"kind": "api", "url": "http://h.example/", "text_column": "t", "id_column": "i", "headers": {"X-A": value}},
    )
    for number, source in enumerate(places):
        declare("one", _declared("one", source))
        capfd.readouterr()
        for words in (
            ["plan", "one"],
            *([["run", "one"], ["doctor"]] if is_nightly() or not number else []),
            ["dataset", "show", "one"],
            ["dataset", "show", "one", "--json"],
        ):
            run_command(words)
            out, err = capfd.readouterr()
            assert not _hits(lake_env, out + err, {"IN_KEY": value}), (number, words, out, err)
            if words[0] == "plan":
                assert err.count("\n") == 1 and "source" in err, err

"""At ingest: who said no is a row with the reason, who could not be asked is asked again, and each answer is kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from headrace_features.apis import site_asking
from headrace_features.apis.fetch import fetch_source
from headrace_features.rights.landing.answers import ANSWERS, answer_row, keep_answers
from headrace_features.rights.register import register
from headrace_features.rights.register.register import OptOut
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.sources.config.permissions import permissions_of
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.documents import documents
from spark_jobs.sources.listing.changes import discover
from tests.blender_service.packed_tables import open_lake
from tests.conftest import LakeAt
from tests.spark_jobs.sources.conftest import ARRIVAL_ROWS
from tests.spark_jobs.sources.git_repositories import Repository

# Spark leaves the socket of each collect() to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

TEXT = (200, b"A page of words.", {"Content-Type": "text/plain"})
LINES = (
    '{"text": "one", "id": "1", "url": "https://a.example/x"}\n{"text": "two", "id": "2", "url": "https://b.example"}\n'
)
FILES = ("/robots.txt", "/.well-known/tdmrep.json", "/ai.txt")


class _Handler(BaseHTTPRequestHandler):
    asked: list[str]
    agents: set[str]
    answers: dict[str, Any]

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        """The answer of the address; 404 where there is none, silence where it is None."""
        self.asked.append(self.path)
        self.agents.add(self.headers["User-Agent"])
        answer = self.answers.get(self.path, (404, b"", {}))
        if answer is None:
            self.connection.close()
            return
        status, body, headers = answer
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server() -> Iterator[Any]:
    """A site that says nothing, with two pages and what it was asked."""
    made: Any = type("Handler", (_Handler,), {"asked": [], "agents": set(), "answers": {"/a": TEXT, "/b": TEXT}})
    there = ThreadingHTTPServer(("127.0.0.1", 0), made)
    there.daemon_threads = True
    made.host = f"127.0.0.1:{there.server_port}"
    made.url = f"http://{made.host}"
    threading.Thread(target=there.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield made
    there.shutdown()
    there.server_close()


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalog:
    """An empty lake."""
    return open_lake(tmp_path)


def config_of(folder: Path, urls: list[str], **source: Any) -> DocumentsConfig:
    """A dataset of addresses."""
    (folder / "urls.txt").write_text("\n".join(urls), encoding="utf-8")
    limits = {"start_per_second": 1000, "max_per_second": 1000, "backoff_seconds": 0.01, "tries": 2}
    hosts = sorted({url.split("/")[2] for url in urls})
    declared = {"kind": "files", "urls": str(folder / "urls.txt"), "limits": limits, "allowed_hosts": hosts, **source}
    return DocumentsConfig.model_validate({"dataset": "pages", "source": declared})


def fetched(catalogue: Catalog, config: DocumentsConfig) -> dict[str, str]:
    """Asks once; the refusals by address."""
    done = fetch_source("pages", config.source, catalogue, ObjectFolder.of(catalogue, "pages"), 5)  # type: ignore[arg-type]
    return dict(refusal.split(": ", 1) for refusal in done.refusals)


def answers(catalogue: Catalog) -> list[dict[str, Any]]:
    """What is kept of the answers of sites."""
    return catalogue.load_table(ANSWERS).scan().to_arrow().sort_by("at").to_pylist()


@pytest.mark.parametrize(
    ("robots", "state", "reason", "said"),
    [
        ((200, b"User-agent: *\nDisallow: /a\n", {}), "said", "opted_out", "robots.txt line 2 (*): Disallow: /a"),
        ((200, b"User-agent: headrace\nDisallow: /\n\nUser-agent: *\nAllow: /\n", {}), "said", "opted_out", "line 2"),
        ((200, b"User-agent: other\nDisallow: /\n", {}), "said", None, ""),
        ((200, b"User-agent: *\nCrawl-delay: 9\n\nUser-agent: x\nDisallow: /\n", {}), "said", "opted_out", "otherwise"),
        ((404, b"Disallow: /", {}), "silent", None, ""),
        ((403, b"", {}), "silent", None, ""),
        ((410, b"", {}), "silent", None, ""),
        ((500, b"", {}), "unreachable", "site_unreachable", "status 500"),
        ((429, b"", {"Retry-After": "9999"}), "unreachable", "site_unreachable", "it is asked again by the next run"),
        (None, "unreachable", "site_unreachable", "no answer"),
        ((302, b"", {"Location": "/robots.txt"}), "unreachable", "site_unreachable", "no answer"),
        ((302, b"", {"Location": "/elsewhere"}), "said", "opted_out", "line 2"),
    ],
)
def test_a_silent_site_is_taken_from_and_an_unreachable_one_is_not(
    server: Any, catalogue: Catalog, tmp_path: Path, robots: Any, state: str, reason: str | None, said: str
) -> None:
    """One robots.txt a run, tried as often as a page; the state and the bytes are kept, and the next run asks again."""
    server.answers |= {"/robots.txt": robots, "/elsewhere": (200, b"User-agent: *\nDisallow: /a\n", {})}
    config = config_of(tmp_path, [f"{server.url}/a", f"{server.url}/b"])
    refusals = fetched(catalogue, config)
    refusal = refusals.get(f"{server.url}/a", "")
    assert not refusal if reason is None else refusal.endswith(f"({reason})") and said in refusal
    assert ("/a" in server.asked) == (reason is None)
    kept = [row for row in answers(catalogue) if row["what"] == "robots.txt"]
    assert [row["state"] for row in kept] == [state] and kept[0]["site"] == server.url
    assert (kept[0]["body"] is not None) == (state == "said")
    if state == "said":
        assert server.asked.count("/robots.txt") == 1
    server.answers["/robots.txt"] = (404, b"", {})
    assert fetched(catalogue, config) == {} and "/a" in server.asked


def test_each_file_is_asked_for_once_at_the_pace_and_the_destinations_of_the_list(
    server: Any, catalogue: Catalog, tmp_path: Path
) -> None:
    """Addresses that redirect to another host have it asked once too; a private host not allowed is not asked."""
    other = server.url.replace("127.0.0.1", "localhost")
    server.answers |= {"/a": (302, b"", {"Location": f"{other}/b"}), "/c": (302, b"", {"Location": f"{other}/a2"})}
    server.answers |= {"/a2": TEXT, "/d": (302, b"", {"Location": "http://10.0.0.1/x"})}
    urls = [f"{server.url}/a", f"{server.url}/c", f"{server.url}/d", f"{server.url}/b"]
    limits = {"start_per_second": 20, "max_per_second": 20, "tries": 1}
    hosts = [server.host, server.host.replace("127.0.0.1", "localhost")]
    started = time.monotonic()
    refusals = fetched(catalogue, config_of(tmp_path, urls, limits=limits, allowed_hosts=hosts))
    assert [server.asked.count(path) for path in FILES] == [2, 2, 2]
    assert time.monotonic() - started > 6 / 20  # seven requests to the first host, its files among them
    assert list(refusals) == [f"{server.url}/d"] and "forbidden_address" in str(refusals)


@pytest.mark.parametrize("robots", [(200, b"User-agent: *\nDisallow: /\n", {}), (503, b"", {})])
def test_a_page_that_its_site_lets_be_taken_again_is_listed_again(
    server: Any, catalogue: Catalog, tmp_path: Path, robots: Any
) -> None:
    """Though its bytes are as they were; meanwhile it is refused once, and then nothing new."""
    config, arrived = config_of(tmp_path, [f"{server.url}/a"]), list[dict[str, Any]]()

    def listed() -> list[str | None]:
        fetched(catalogue, config)
        rows = discover(config, pa.Table.from_pylist(arrived, ARRIVAL_ROWS), False, catalogue)
        for row in [] if rows is None else rows.to_pylist():
            status = "rejected" if row["reason"] else "landed"
            facts = {name: row.get(name) for name in ARRIVAL_ROWS.names}
            arrived.append({**facts, "status": status, "increment": len(arrived)})
        return [] if rows is None else rows["reason"].to_pylist()

    assert listed() == [None] and listed() == []
    server.answers["/robots.txt"] = robots
    reason = "opted_out" if robots[0] == 200 else "site_unreachable"
    assert listed() == [reason] and listed() == []
    del server.answers["/robots.txt"]
    assert listed() == [None] and listed() == []


def test_an_answer_is_used_for_a_day(
    server: Any, catalogue: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RFC 9309, 2.4; then the site is asked again, by the name to which it may speak."""
    config = config_of(tmp_path, [f"{server.url}/a", f"{server.url}/b"], rights={"agent": "millbot"})
    server.answers["/robots.txt"] = (200, b"User-agent: millbot\nDisallow: /b\n", {})
    assert list(fetched(catalogue, config)) == [f"{server.url}/b"] and server.agents == {"millbot"}
    monkeypatch.setattr(site_asking, "_KEPT_SECONDS", 0)
    fetched(catalogue, config)
    assert server.asked.count("/robots.txt") >= 1 + 2


def test_where_a_redirect_leads_is_asked_too(server: Any, catalogue: Catalog, tmp_path: Path) -> None:
    """By the register and by its site: what came from there is not kept."""
    other = server.url.replace("127.0.0.1", "localhost")
    server.answers["/robots.txt"] = (200, b"User-agent: *\nDisallow: /closed\n", {})
    server.answers |= {f"/{name}": (302, b"", {"Location": f"{other}/{name}2"}) for name in ("x", "y")}
    server.answers |= {"/x2": (302, b"", {"Location": "/closed"}), "/y2": TEXT, "/closed": TEXT}
    register.add_entries(catalogue, [OptOut("o", "url_prefix", (f"{other}/y2",))])
    hosts = [server.host, server.host.replace("127.0.0.1", "localhost")]
    refusals = fetched(catalogue, config_of(tmp_path, [f"{server.url}/x", f"{server.url}/y"], allowed_hosts=hosts))
    assert "Disallow: /closed (opted_out)" in refusals[f"{server.url}/x"]
    assert "url_prefix" in refusals[f"{server.url}/y"]


def test_a_page_that_says_no_is_not_kept(server: Any, catalogue: Catalog, tmp_path: Path) -> None:
    """By its header, of several one, or by its markup; what it says is kept, with any other that says something."""
    text, html = {"Content-Type": "text/plain"}, {"Content-Type": "text/html"}
    words = b"noai is a word, and <meta name=robots content=noai> stands in a text."
    server.answers |= {
        "/a": (200, words, {"X-Robots-Tag": "noai", **text}),
        "/b": (200, b"<html><head><meta name=robots content=noai></head><body>A page.</body>", html),
        "/c": (200, words, {"X-Robots-Tag": "otherbot: noindex\r\nX-Robots-Tag: noai", **text}),
        "/d": (200, words, {"X-Robots-Tag": "otherbot: noindex, noai", **text}),
        "/e": (200, words, {"tdm-reservation": "0", **text}),
    }
    refusals = fetched(catalogue, config_of(tmp_path, [f"{server.url}/{name}" for name in "abcde"]))
    assert list(refusals) == [f"{server.url}/{name}" for name in "abc"] and str(refusals).count("opted_out") == 3
    verdicts = {row["url"][-1]: row["verdict"] for row in answers(catalogue) if row["what"] == "page"}
    assert sorted(verdicts) == ["a", "b", "c", "e"] and all("noai" in verdicts[name] for name in "abc")


def test_answers_of_runs_side_by_side_are_all_kept(catalogue: Catalog) -> None:
    """Of several datasets, too."""

    def write(number: int) -> None:
        for name in ("robots.txt", "ai.txt"):
            row = answer_row(name, f"http://h{number}.example/{name}", "said", "nothing", 200, b"x")
            keep_answers(catalogue, f"pages{number}", [row], None)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = {(row["dataset"], row["url"], row["sha256"]) for row in answers(catalogue)}
    assert len(kept) == len(answers(catalogue)) == 6


def landed(lake: Lake, config: DocumentsConfig) -> tuple[str, ...]:
    """The increments that a run lands."""
    name = config.dataset
    return materialize(lake, Binding(documents, name, {}, config, driving_table=f"{name}.arrivals"))[0].computed


def rows_of(lake: Lake, table: str) -> list[dict[str, Any]]:
    """The rows of a table of the lake."""
    return lake.catalogue.load_table(table).scan().to_arrow().to_pylist()


def reasons(lake: Lake, dataset: str) -> dict[str, str | None]:
    """The reason of each newest arrival, by the end of its location."""
    rows = sorted(rows_of(lake, f"{dataset}.arrivals"), key=lambda row: row["increment"])
    return {Path(row["location"]).name: row["reason"] for row in rows}


def test_licences_that_robots_txt_names_are_asked_for_too(server: Any, catalogue: Catalog, tmp_path: Path) -> None:
    """Once; one that cannot be had closes the site for this run, one that is not there says nothing."""
    permit = '<license><permits type="usage">search</permits></license>'
    rsl = f'<rsl xmlns="https://rslstandard.org/rsl"><content url="/a">{permit}</content></rsl>'
    server.answers |= {"/robots.txt": (200, b"License: /rsl.xml\n", {}), "/rsl.xml": (200, rsl.encode(), {})}
    config = config_of(tmp_path, [f"{server.url}/a", f"{server.url}/b"])
    assert list(refusals := fetched(catalogue, config)) == [f"{server.url}/a"] and "(opted_out)" in str(refusals)
    assert [row["state"] for row in answers(catalogue) if row["what"] == "rsl"] == ["said"]
    server.answers["/rsl.xml"] = (503, b"", {})
    assert len(fetched(catalogue, config)) == 2
    del server.answers["/rsl.xml"]
    assert fetched(catalogue, config) == {} and server.asked.count("/rsl.xml") == 1 + 2 + 1


def test_an_address_of_the_register_asks_nobody(server: Any, catalogue: Catalog, tmp_path: Path) -> None:
    """Not even the site; one whose day has not come, or that was refused, holds nothing back."""
    other = server.url.replace("127.0.0.1", "localhost")
    later = OptOut("o", "domain", ("localhost",), since=datetime(2999, 1, 1, tzinfo=UTC))
    refused, holds = OptOut("o", "domain", ("local",)), OptOut("o", "url_prefix", (f"{server.url}/a",))
    register.add_entries(catalogue, [later, refused, holds])
    register.decide(catalogue, [refused.entry], "refused", "not theirs")
    refusals = fetched(catalogue, config_of(tmp_path, [f"{server.url}/a?x=1", f"{other}/b"]))
    assert list(refusals) == [f"{server.url}/a?x=1"] and holds.entry in str(refusals)
    assert server.asked == [*FILES, "/b"]


def test_who_asks_nobody_says_why_and_is_counted(server: Any, catalogue: Catalog, tmp_path: Path) -> None:
    """With each increment; without a reason, or with one for nothing, the setting is refused."""
    server.answers["/robots.txt"] = (200, b"User-agent: *\nDisallow: /\n", {})
    register.add_entries(catalogue, [OptOut("o", "domain", ("127.0.0.1",))])
    config = config_of(tmp_path, [f"{server.url}/a"], rights={"ask": "nobody", "reason": "our own site"})
    assert fetched(catalogue, config) == {} and server.asked == ["/a"]
    assert permissions_of(config, catalogue) is None
    assert [(row["state"], row["verdict"]) for row in answers(catalogue)] == [("not_asked", "our own site")]
    assert permissions_of(config_of(tmp_path, [f"{server.url}/a"], rights={"ask": "register"}), catalogue) is not None
    for rights in ({"ask": "nobody"}, {"reason": "none"}):
        with pytest.raises(ValueError, match="reason"):
            config_of(tmp_path, [f"{server.url}/a"], rights=rights)


@pytest.mark.parametrize("ask", ["register", "site"])
def test_an_api_asks_the_register_and_its_site_if_it_is_to(
    server: Any, catalogue: Catalog, tmp_path: Path, ask: str
) -> None:
    """By default the register alone; a refused list is a row, the others are read."""
    listing = (200, b'[{"id": "1", "text": "one"}]', {"Content-Type": "application/json"})
    server.answers |= {"/v1/a": listing, "/v1/b": listing}
    server.answers["/robots.txt"] = (200, b"User-agent: *\nDisallow: /v1/b\n", {})
    limits = {"start_per_second": 1000, "max_per_second": 1000, "tries": 1}
    lists = {name: {"url": f"{server.url}/v1/{name}"} for name in "ab"}
    source = {"kind": "api", "endpoints": lists, "text_column": "text", "id_column": "id", "limits": limits}
    rights = {"rights": {"ask": "site"}} if ask == "site" else {}
    config = DocumentsConfig.model_validate({"dataset": "pages", "source": source | rights})
    refusals = fetched(catalogue, config)
    if ask == "site":
        assert list(refusals) == ["b"] and "Disallow: /v1/b (opted_out)" in refusals["b"]
    else:
        assert refusals == {} and "/robots.txt" not in server.asked
    asked = OptOut("o", "url_prefix", (f"{server.url}/v1/a",))
    register.add_entries(catalogue, [asked])
    assert asked.entry in fetched(catalogue, config)["a"]
    listing_rows = discover(config, ARRIVAL_ROWS.empty_table(), False, catalogue)
    assert listing_rows is not None and "opted_out" in listing_rows["reason"].to_pylist()


def test_a_repository_that_opted_out_is_one_row(catalogue: Catalog, tmp_path: Path) -> None:
    """It is not read, and not looked into again until it changes or the entry is withdrawn; one that landed stays."""
    for name in ("pump", "mill"):
        Repository(tmp_path / "code" / name).commit(a_py="x = 1\n")
    source = {"kind": "git", "repositories": [str(tmp_path / "code" / "*")]}
    config = DocumentsConfig.model_validate({"dataset": "code", "source": source})
    empty = ARRIVAL_ROWS.empty_table()
    register.add_entries(catalogue, [OptOut("o", "repository", ("pump",))])
    rows = discover(config, empty, False, catalogue).to_pylist()  # type: ignore[union-attr]
    pump = [row for row in rows if row["repository"] == "pump"]
    assert [row["reason"] for row in pump] == ["opted_out"] and len(rows) == 3
    seen = [{name: row.get(name) for name in ARRIVAL_ROWS.names} for row in rows]
    for row in seen:
        row |= {"increment": 0, "status": "rejected" if row["reason"] else "landed"}
    arrived = pa.Table.from_pylist(seen, ARRIVAL_ROWS)
    assert discover(config, arrived, False, catalogue) is None
    register.add_entries(catalogue, [OptOut("o", "repository", ("mill",))])
    assert discover(config, arrived, False, catalogue) is None
    register.decide(catalogue, [register.entries(catalogue)[0].entry], "withdrawn", "a mistake")
    again = discover(config, arrived, False, catalogue)
    assert again is not None and again["repository"].unique().to_pylist() == ["pump"] and again.num_rows == 2


@pytest.mark.nightly
def test_a_domain_entered_between_two_runs_is_not_asked_again(server: Any, lake_at: LakeAt, tmp_path: Path) -> None:
    """And what landed before stays as it is, to the step key: what is in is for `rights plan`."""
    lake = lake_at(tmp_path / "lake")
    config = config_of(tmp_path, [f"{server.url}/a", f"{server.url}/b"])
    assert landed(lake, config) == ("0",) and len(rows_of(lake, "pages.documents")) == 2
    before = rows_of(lake, "system.materializations")
    register.add_entries(lake.catalogue, [OptOut("o", "domain", ("127.0.0.1",))])
    server.asked.clear()
    server.answers |= {"/a": (200, b"Other words.", {}), "/c": TEXT}
    assert landed(lake, config) == ("1",)
    assert server.asked == [] and len(rows_of(lake, "pages.documents")) == 2
    assert reasons(lake, "pages") == {"a": "opted_out", "b": "opted_out"}
    assert landed(lake, config) == ()
    now = {row["step_key"] for row in rows_of(lake, "system.materializations")}
    assert {row["step_key"] for row in before} < now
    [entry] = register.entries(lake.catalogue)
    register.decide(lake.catalogue, [entry.entry], "withdrawn", "a mistake")
    assert landed(lake, config) == ("2",) and len(rows_of(lake, "pages.documents")) == 3


def files_of(folder: Path) -> DocumentsConfig:
    """A dataset of records with addresses, of which one file is there."""
    folder.mkdir()
    (folder / "a.jsonl").write_text(LINES)
    columns = {"text_column": "text", "id_column": "id", "metadata_columns": ["url"]}
    source = {"kind": "files", "path": str(folder), **columns}
    return DocumentsConfig.model_validate({"dataset": "files", "source": source})


def test_an_entry_computes_nothing_again(lake_at: LakeAt, tmp_path: Path) -> None:
    """What landed stays, and so do the keys of its increments; a new file is refused in part, with the entry."""
    lake, config = lake_at(tmp_path / "lake"), files_of(tmp_path / "data")
    assert landed(lake, config) == ("0",)
    before = rows_of(lake, "system.materializations")
    [entry] = register.add_entries(lake.catalogue, [OptOut("o", "domain", ("a.example",))])
    assert landed(lake, config) == () and rows_of(lake, "system.materializations") == before
    (tmp_path / "data" / "b.jsonl").write_text(LINES.replace("one", "three").replace("two", "four"))
    assert landed(lake, config) == ("1",) and landed(lake, config) == ()
    assert {row["content"] for row in rows_of(lake, "files.documents")} == {"one", "two", "four"}
    assert reasons(lake, "files") == {"a.jsonl": None, "b.jsonl": None, "b.jsonl#line:1": "opted_out"}
    [detail] = [row["detail"] for row in rows_of(lake, "files.arrivals") if row["location"].endswith("#line:1")]
    assert detail.startswith(f"opt-out {entry.entry}: domain a.example")


@pytest.mark.nightly
def test_what_an_entry_kept_out_lands_once_that_is_withdrawn(lake_at: LakeAt, tmp_path: Path) -> None:
    """A file, and records of a file; another entry's withdrawal reads nothing again."""
    lake, config = lake_at(tmp_path / "lake"), files_of(tmp_path / "data")
    (tmp_path / "data" / "c.jsonl").write_text(LINES.replace("example", "example.org"))
    asked = [
        OptOut("o", "domain", ("a.example",)),
        OptOut("o", "path", ("c.jsonl",)),
        OptOut("o", "domain", ("z.example",)),
    ]
    register.add_entries(lake.catalogue, asked)
    assert landed(lake, config) == ("0",) and len(rows_of(lake, "files.documents")) == 1
    for number, opt_out in enumerate([asked[2], asked[0], asked[1]]):
        register.decide(lake.catalogue, [opt_out.entry], "withdrawn", "a mistake")
        assert landed(lake, config) == ((str(number),) if number else ()) and landed(lake, config) == ()
        assert len(rows_of(lake, "files.documents")) == (1, 2, 4)[number]

"""Pages of web archives: what their sites said in the same file, and what they say of themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("fastwarc")
pytest.importorskip("resiliparse")

from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.listing.changes import discover
from spark_jobs.sources.reading.files import read_files
from spark_jobs.sources.reading.rows import ReadingRules
from tests.headrace_features.formats.test_web_archives import HTML, http, record
from tests.spark_jobs.sources.conftest import ARRIVAL_ROWS

ROBOTS = b"User-agent: *\nDisallow: /private\n"


def site_file(number: int, url: str, body: bytes, status: str = "200 OK") -> bytes:
    """A record of a file that a site has about its pages."""
    return record(number, http(body, "Content-Type: text/plain", status=status), WARC_Target_URI=url)


def page_of(number: int, url: str, *headers: str, head: str = "") -> bytes:
    """A record of a page."""
    html = HTML.format(f"Page {number}").replace("<title>", f"{head}<title>").encode()
    return record(number, http(html, "Content-Type: text/html", *headers), WARC_Target_URI=url)


def read(folder: Path, **source: Any) -> tuple[set[str], dict[str, tuple[str, str]]]:
    """The addresses of documents, and reason and detail of each refused record."""
    declared = {"kind": "files", "path": str(folder), "extractor": "resiliparse", **source}
    config = DocumentsConfig.model_validate({"dataset": "web", "source": declared})
    listing = discover(config, ARRIVAL_ROWS.empty_table())
    assert listing is not None
    rules = ReadingRules("web", 1, 10**6, config.source)
    rows = [row for batch in read_files(iter(listing.to_batches()), rules) for row in batch.to_pylist()]
    refused = {row["location"]: (row["reason"], row["detail"]) for row in rows if row["reason"]}
    return {dict(row["metadata"])["url"] for row in rows if row["doc_id"]}, refused


def test_robots_txt_of_an_archive_holds_for_the_pages_behind_it(tmp_path: Path) -> None:
    """By scheme, host and port, with the time of its record; what stands before it was taken unasked, and lands."""
    at = "https://example.org"
    (tmp_path / "a.warc").write_bytes(
        b"".join(
            [
                page_of(1, f"{at}/private/before"),
                site_file(2, "https://Example.org/robots.txt", ROBOTS),
                page_of(3, f"{at}/private/behind"),
                page_of(4, f"{at}/open"),
                page_of(5, "https://other.example/private/x"),
                page_of(6, "http://example.org/private/x"),
                site_file(7, "https://busy.example/robots.txt", b"", "503 Busy"),
                page_of(8, "https://busy.example/x"),
                site_file(13, "https://busy.example/robots.txt", b"User-agent: *\nAllow: /\n"),
                page_of(14, "https://busy.example/later"),
                site_file(9, "https://none.example/robots.txt", b"Disallow: /", "404 Not Found"),
                page_of(10, "https://none.example/x"),
                site_file(11, f"{at}/robots.txt", b""),
                page_of(12, f"{at}/private/later"),
            ]
        )
    )
    documents, refused = read(tmp_path)
    said = {detail: reason for reason, detail in refused.values() if reason in ("opted_out", "site_unreachable")}
    line = "robots.txt line 2 (*): Disallow: /private of 2026-01-02T03:04:05Z"
    assert said.pop(line) == "opted_out" and list(said.values()) == ["site_unreachable"]
    assert "busy.example" in next(iter(said))
    hosts = [f"{at}/private/before", f"{at}/open", "https://other.example/private/x", "http://example.org/private/x"]
    hosts += ["https://busy.example/robots.txt", "https://busy.example/later"]
    files = ["https://Example.org/robots.txt", "https://none.example/x", f"{at}/private/later"]
    assert documents == {*hosts, *files}
    assert f"{at}/private/behind" in read(tmp_path, rights={"ask": "register"})[0]


RSL = (
    '<rsl xmlns="https://rslstandard.org/rsl"><content url="/"><license><prohibits type="usage">ai-train</prohibits>'
    "</license></content></rsl>"
)
SAYS = {
    "nothing": ((), "", True),
    "X-Robots-Tag": (("X-Robots-Tag: noindex, noai",), "", False),
    "another agent": (("X-Robots-Tag: otherbot: noindex, noai",), "", True),
    "two headers": (("X-Robots-Tag: otherbot: noindex", "X-Robots-Tag: noai"), "", False),
    "noindex": (("X-Robots-Tag: noindex",), "", True),
    "meta": ((), '<meta name="robots" content="noai, noimageai">', False),
    "tdm": (("TDM-Reservation: 1",), "", False),
    "tdm meta": ((), '<meta name="tdm-reservation" content="1">', False),
    "in capitals": ((), '<META NAME=ROBOTS CONTENT="NoImageAI">', False),
    "a licence": ((), f'<script type="application/rsl+xml">{RSL}</script>', False),
    "tdm 0": (("tdm-reservation: 0",), "", True),
}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=12)
@given(said=st.lists(st.sampled_from(sorted(SAYS)), min_size=1, max_size=6))
def test_each_page_speaks_for_itself(said: list[str], tmp_path: Path) -> None:
    """In its headers or its head; the others land as they do where nobody is asked."""
    pages = [
        page_of(number, f"https://e.example/{number}", *SAYS[name][0], head=SAYS[name][1])
        for number, name in enumerate(said)
    ]
    (tmp_path / "a.warc").write_bytes(b"".join(pages))
    documents, refused = read(tmp_path)
    assert documents == {f"https://e.example/{number}" for number, name in enumerate(said) if SAYS[name][2]}
    noes = [detail for reason, detail in refused.values() if reason == "opted_out" and "offset" in detail]
    assert len(documents) + sum("#offset" in location for location in refused) == len(said) and not noes
    everything, _ = read(tmp_path, rights={"ask": "nobody", "reason": "a test"})
    assert len(everything) == len(said)

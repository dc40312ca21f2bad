"""Pages become their main text with what they say of themselves; a bad page is a row with a reason, never a hang."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("resiliparse")

from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.identity import sha256_hex
from spark_jobs.sources.opening.parser_process import run_apart
from spark_jobs.sources.reading import built_in
from spark_jobs.sources.refusals import Reason, Refusal
from tests.spark_jobs.sources.conftest import Landing

Configs = Callable[..., DocumentsConfig]
BODY = "A paragraph that says enough to be taken for the text of the page. " * 3
PAGE = f"""<!doctype html><html lang="en-GB"><head><title>  A
 title </title><meta property="article:published_time" content="2026-01-02"></head>
<body><nav><a href="/">Home</a> <a href="/x">Elsewhere</a></nav><article><h1>A title</h1><p>{BODY}</p></article>
</body></html>"""


def test_a_page_is_its_main_text_and_what_it_says_of_itself(files_config: Configs, data: Path, landing: Any) -> None:
    """The document is the text: its hash and size are of that, those of the file are in its arrival."""
    (data / "a.html").write_text(PAGE)
    ((document,), (arrival,)) = landing.land(files_config())
    text = document["content"]
    assert BODY.strip() in text and "Elsewhere" not in text
    assert (document["path"], document["kind"], document["media_type"]) == ("a.html", "prose", "text/plain")
    assert document["content_sha256"] == sha256_hex(text.encode()) and document["byte_count"] == len(text.encode())
    assert arrival["content_sha256"] == sha256_hex(PAGE.encode()) and arrival["byte_count"] == len(PAGE.encode())
    metadata = document["metadata"]
    assert metadata.pop("headrace.extracted_by").startswith("resiliparse ")
    assert 0 < float(metadata.pop("link_density")) < 0.2
    assert metadata == {
        "title": "A title",
        "language": "en-GB",
        "published": "2026-01-02",
        "source_encoding": "utf-8",
        "source_encoding_by": "its bytes",
    }


def test_a_user_chooses_the_extractor(files_config: Configs, data: Path, landing: Any) -> None:
    """The text of one extractor, of both, or the markup as it is."""
    pytest.importorskip("trafilatura")
    (data / "a.html").write_text(PAGE)
    for extractor in ("trafilatura", "resiliparse", "both"):
        ((document,), _) = type(landing)().land(files_config(extractor=extractor))
        assert BODY.strip() in document["content"]
        told = document["metadata"]["headrace.extracted_by"]
        assert [name for name in ("resiliparse ", "trafilatura ") if name in told] == (
            ["resiliparse ", "trafilatura "] if extractor == "both" else [f"{extractor} "]
        )
    ((document,), _) = type(landing)().land(config_of(data, extractor="none"))
    assert (document["content"], document["kind"], document["language"]) == (PAGE, "markup", "HTML")


def config_of(data: Path, **source: object) -> DocumentsConfig:
    """Another config of the same folder."""
    mapping = {"kind": "files", "path": str(data), **source}
    return DocumentsConfig.model_validate({"dataset": "notes", "source": mapping})


@pytest.mark.nightly
def test_every_bad_page_is_told(files_config: Configs, data: Path, landing: Any) -> None:
    """And the good one lands, whatever happened to the process that reads them."""
    pages = {
        "attributes": "<p " + " ".join(f"a{number}=1" for number in range(100_000)) + ">x",
        "binary": "%PDF-1.7\n\0",
        "blank": " \n",
        "deep": "<div>" * 100_000 + "deep",
        "empty": "",
        "memory": "<p>hello world</p>" * 3_000_000,
        "no_tag": "only text",
        "only_script": "<html><script>var x = 1</script></html>",
    }
    for name, page in pages.items():
        (data / f"{name}.html").write_text(page)
    (data / "legacy.html").write_bytes(b"<meta charset=utf-8><p>\xff\x81")
    (data / "zz_good.HTM").write_text(PAGE)
    with (data / "large.html").open("wb") as large:
        large.truncate(60_000_001)
    documents, arrivals = landing.land(files_config(extract_seconds=1, max_document_bytes=60_000_000))
    assert {document["path"] for document in documents} == {"deep.html", "zz_good.HTM"}
    assert {os.path.basename(row["location"]): row["reason"] for row in arrivals} == {
        "attributes.html": "too_complex",
        "binary.html": "binary",
        "blank.html": "empty",
        "deep.html": None,
        "empty.html": "empty",
        "large.html": "too_large",
        "legacy.html": "undecodable",
        "memory.html": "too_complex",
        "no_tag.html": "corrupt_file",
        "only_script.html": "empty",
        "zz_good.HTM": None,
    }
    details = {os.path.basename(row["location"]): row["detail"] for row in arrivals}
    assert (
        "more than 1 seconds" in details["attributes.html"]
    )  # which limit ends memory.html first depends on the machine


def _raises(error: type[BaseException]) -> None:
    raise error("first line\nsecond line")


def _prints() -> str:
    os.write(1, b"noise")
    return "answer"


@pytest.mark.nightly
def test_what_a_parser_does_harms_no_later_call() -> None:
    """It may print, raise, end its process, and lack a package."""
    assert run_apart(_prints, 5) == "answer"
    failed = run_apart(_raises, 5, RuntimeError)
    assert isinstance(failed, Refusal) and failed.reason == Reason.CORRUPT_FILE and "second" not in failed.detail
    ended = run_apart(os.abort, 5)
    assert isinstance(ended, Refusal) and ended.reason == Reason.TOO_COMPLEX and "status -6" in ended.detail
    lacking = run_apart(_raises, 5, ImportError)
    assert isinstance(lacking, Refusal) and lacking.reason == Reason.NOT_INSTALLED
    assert re.search(r"(?s)first line.* pip install 'headrace\[ingest,ocr\]'", lacking.detail)
    assert run_apart(_prints, 5) == "answer"


def test_a_missing_package_refuses_its_files_alone(
    files_config: Configs, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the extra that brings it; once it is there, the next run reads them."""
    (data / "a.html").write_text(PAGE)
    (data / "b.txt").write_text("a text")
    landing = Landing()
    with monkeypatch.context() as patch:
        patch.setattr(built_in.importlib.util, "find_spec", lambda name: None)
        documents, arrivals = landing.land(files_config()) or ([], [])
        assert [row["path"] for row in documents] == ["b.txt"]
        (refused,) = (row for row in arrivals if row["status"] == "rejected")
        assert refused["reason"] == Reason.NOT_INSTALLED
        assert refused["detail"].endswith(
            "resiliparse, which is not installed; pip install 'headrace[html]' and run again"
        )
        assert landing.land(files_config()) is None
    documents, _ = landing.land(files_config()) or ([], [])
    assert [row["path"] for row in documents] == ["a.html"]

"""What was refused for want of a package is read by the next run that has it, and by no run before."""

from __future__ import annotations

import importlib.util
import io
import sys
import zipfile
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("resiliparse")
pytest.importorskip("fastwarc")
pytest.importorskip("trafilatura")

from spark_jobs import importing
from spark_jobs.child_processes import end_idle_children
from spark_jobs.sources.config.file_source import FileSource
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.reading import built_in
from spark_jobs.sources.reading.readers import reader_by_name
from spark_jobs.sources.refusals import Reason
from tests.headrace_features.formats.made_pdf import pdf
from tests.headrace_features.formats.made_word import p, r, word_package
from tests.headrace_features.formats.test_epub import CONTAINER, chapter, packed
from tests.headrace_features.formats.test_mhtml import part
from tests.headrace_features.formats.test_web_archives import HTML, page
from tests.tiers import sampled

Configs = Callable[..., DocumentsConfig]
LINE = "BT /F1 12 Tf 14 TL 72 700 Td (Some words of a page) Tj ET"
PACKAGE = """<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata/>
<manifest><item id="a" href="a.xhtml" media-type="application/xhtml+xml"/></manifest>
<spine><itemref idref="a"/></spine></package>"""


def _mail() -> bytes:
    mail = EmailMessage()
    mail["Subject"], mail["Message-ID"] = "S", "<1@example.org>"
    mail.set_content("Text of a mail\n")
    return mail.as_bytes()


def _zip(**members: bytes) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, data in members.items():
            archive.writestr(name.replace("_", "."), data)
    return held.getvalue()


PAGE = HTML.format("A page").encode()
BOOK = packed(
    {"META-INF/container.xml": CONTAINER % "a.opf", "a.opf": PACKAGE, "a.xhtml": chapter("Words of it. " * 9)}
)
FILES: dict[str, tuple[bytes, dict[str, Any]]] = {
    "a.html": (PAGE, {}),
    "a.xhtml": (chapter("Words of a page. " * 9).encode(), {}),
    "a.mhtml": (
        b"MIME-Version: 1.0\r\nContent-Type: multipart/related; boundary=b\r\n\r\n--b\r\n"
        + part("text/html; charset=utf-8", PAGE, "quoted-printable")
        + b"\r\n--b--\r\n",
        {},
    ),
    "a.epub": (BOOK, {}),
    "a.docx": (word_package(p(r("Text"))), {}),
    "a.eml": (_mail(), {}),
    "a.mbox": (b"From ada@example.org Thu Nov 12 09:00:00 2026\n" + _mail() + b"\n", {}),
    "a.pdf": (pdf("600 800", LINE), {}),
    "a.warc": (page(1) + page(2), {}),
    "a.log": (b"1 a\n2 b\n", {"line_pattern": r"(?P<n>\d+) (?P<text>.*)", "text_column": "text"}),
    "a.jsonl": ('{"text": "né à Zürich"}\n'.encode("cp1252"), {"text_column": "text", "encoding": "detect"}),
    "a.txt": ("né à Zürich, où l'été est long".encode("cp1252"), {"encoding": "detect"}),
    "a.zip": (_zip(a_html=PAGE, b_txt=b"a text"), {}),
    "unnamed": (PAGE, {"unknown": "detect"}),
}
"""A file of each reader that needs a package, and the source's settings: as few documents as can be lacking."""


def test_every_reader_with_packages_has_a_file() -> None:
    """But for pictures, whose packages are large."""
    of_files = {
        reader_by_name(name, FileSource.model_validate({"kind": "x", **options}), "auto")[0]
        for name, (_, options) in FILES.items()
    }
    with_packages = {name for name, of in built_in.READERS.items() if of.packages}
    assert with_packages - of_files <= {"picture"}


@pytest.fixture(autouse=True)
def without_memory() -> Iterator[None]:
    """No package counts as imported before, and no child has it; nor afterwards those that were broken."""
    importing._importable.clear()
    end_idle_children()
    yield
    end_idle_children()


def _refused(arrivals: list[dict[str, Any]]) -> set[str | None]:
    return {row["reason"] for row in arrivals if row["status"] == "rejected"}


def _without(package: str) -> Callable[..., Any]:
    """`find_spec` that does not find a package."""
    find = importlib.util.find_spec
    return lambda name, *more: None if name == package else find(name, *more)


@sampled()
@pytest.mark.parametrize("name", FILES)
def test_what_lacked_an_absent_package_is_read_once_it_is_there(
    name: str, files_config: Configs, data: Path, landing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any of the packages of its reader: the next run has no news, and the one after the installation all documents."""
    content, options = FILES[name]
    (data / name).write_bytes(content)
    config = files_config(**options)
    inner = "html" if name in ("a.zip", "unnamed") else None
    reader = inner or reader_by_name(name, config.source, "auto")[0] or ""
    for package in dict.fromkeys(built_in.packages_of(reader, config.source)):
        of_package = type(landing)()
        importing._importable.clear()
        with monkeypatch.context() as patch:
            patch.setattr(importlib.util, "find_spec", _without(package))
            documents, arrivals = of_package.land(config) or ([], [])
            assert {row["path"] for row in documents} <= {"a.zip#b.txt"}, package
            assert Reason.NOT_INSTALLED in _refused(arrivals), package
            if name != "unnamed":  # whose reader no name tells
                assert of_package.land(config) is None, package
        documents, arrivals = of_package.land(config) or ([], [])
        assert documents and not _refused(arrivals), package
        assert of_package.land(config) is None


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in FILES if name not in ("a.docx", "a.log", "unnamed")])
def test_what_lacked_a_broken_package_is_read_once_it_is_mended(
    name: str, files_config: Configs, data: Path, landing: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a package is there and does not import, as trafilatura without lxml_html_clean: documents of all parts."""
    content, options = FILES[name]
    (data / name).write_bytes(content)
    config = files_config(**options)
    whole = type(landing)().land(config)
    assert whole is not None
    needed = {"a.jsonl": "charset_normalizer", "a.txt": "charset_normalizer", "a.pdf": "pypdfium2"}.get(
        name, "resiliparse"
    )
    with monkeypatch.context() as patch:
        broken = tmp_path / "broken" / needed
        broken.mkdir(parents=True)
        (broken / "__init__.py").write_text("raise ImportError('libmissing.so: no such file')")
        patch.setattr(sys, "path", [str(broken.parent), *sys.path])
        end_idle_children()
        importing._importable.clear()
        _, arrivals = landing.land(config) or ([], [])
        assert Reason.NOT_INSTALLED in _refused(arrivals)
        assert any("libmissing.so" in (row["detail"] or "") for row in arrivals)
        assert landing.land(config) is None
    end_idle_children()
    documents, arrivals = landing.land(config) or ([], [])
    assert documents and not _refused(arrivals)
    assert {row["doc_id"] for row in landing.documents} == {row["doc_id"] for row in whole[0]}
    assert landing.land(config) is None

"""PDF, Word documents and mails become text; broken ones are rows with reasons."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("docx")
pytest.importorskip("pypdfium2")
pytest.importorskip("resiliparse")

from spark_jobs.sources.config.source_config import DocumentsConfig
from tests.headrace_features.formats.made_pdf import pdf

Configs = Callable[..., DocumentsConfig]


def pages(*texts: str) -> bytes:
    """A PDF file with a page for each text."""
    return pdf("600 800", *(f"BT /F1 12 Tf 72 700 Td ({text}) Tj ET" for text in texts))


def word() -> bytes:
    """A Word document with a paragraph, a table and a paragraph."""
    import docx

    document = docx.Document()
    document.core_properties.title = "Word title"
    document.add_paragraph("Before")
    table = document.add_table(rows=1, cols=2)
    table.cell(0, 0).text, table.cell(0, 1).text = "left", "right"
    document.add_paragraph("After")
    document.save(file := io.BytesIO())
    return file.getvalue()


def mail() -> bytes:
    """A mail with a text in Latin-1, a page, and an attachment."""
    message = EmailMessage()
    message["Subject"], message["From"] = "Grüße", "someone@example.org"
    message.set_content("Schöne Grüße\n", charset="iso-8859-1")
    message.add_alternative("<p>a page", subtype="html")
    message.add_attachment(b"x", maintype="application", subtype="zip")
    return message.as_bytes()


def test_each_becomes_its_text(files_config: Configs, data: Path, landing: Any) -> None:
    """With what it says of itself; pages without text are counted, senders left out."""
    (data / "a.pdf").write_bytes(pages("Hello", "", "World"))
    (data / "b.docx").write_bytes(word())
    (data / "c.eml").write_bytes(mail())
    documents, _ = landing.land(files_config())
    assert [row["content"].strip() for row in documents] == [
        "Hello\n\nWorld",
        "Before\nleft\tright\nAfter",
        "Schöne Grüße",
    ]
    told = [row["metadata"] for row in documents]
    assert (told[0]["page_count"], told[0]["pages_without_text"]) == ("3", "1")
    assert told[1]["title"] == "Word title" and told[1]["headrace.extracted_by"].startswith("headrace (Office")
    assert (told[2]["title"], told[2]["attachment_count"], told[2]["source_encoding"]) == ("Grüße", "1", "cp1252")
    assert "someone" not in str(told[2])
    assert {row["media_type"] for row in documents} == {"text/plain"}


@pytest.mark.nightly
def test_every_bad_one_is_told(files_config: Configs, data: Path, landing: Any) -> None:
    """No text, no such format, a bomb, and parts without end."""
    bomb = io.BytesIO(word())
    with zipfile.ZipFile(bomb) as whole, zipfile.ZipFile(data / "bomb.docx", "w", zipfile.ZIP_DEFLATED) as packed:
        for name in whole.namelist():
            packed.writestr(name, whole.read(name) if name != "word/document.xml" else b" " * 1_000_000_000)
    deep = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (n, n) for n in range(5000))
    broken = {
        "cut.pdf": (pages("x")[:60], "corrupt_file"),
        "scan.pdf": (pages("", ""), "empty"),
        "text.pdf": (b"only text", "corrupt_file"),
        "empty.docx": (b"", "corrupt_file"),
        "zip.docx": (b"PK\3\4" + b"x" * 100, "corrupt_file"),
        "deep.eml": (deep, None),
        "text.eml": (b"\n\nonly text", "corrupt_file"),
        "no_text.eml": (b"Subject: x\n\n", "empty"),
    }
    for name, (content, _) in broken.items():
        (data / name).write_bytes(content)
    documents, arrivals = landing.land(files_config(extract_seconds=5))
    reasons = {os.path.basename(row["location"]): row["reason"] for row in arrivals}
    assert documents == [] and reasons.pop("bomb.docx") == "too_complex"
    assert reasons.pop("deep.eml") in ("corrupt_file", "empty", "too_complex")
    assert reasons == {name: reason for name, (_, reason) in broken.items() if reason is not None}

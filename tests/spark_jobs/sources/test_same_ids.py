"""Ids that users give need not be unique: records of one id are documents at several paths, versions, or refusals."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace_features.apis.api_config import ApiSource
from spark_jobs.sources.config.source_config import FilesSource
from spark_jobs.sources.listed_file import ListedFile
from spark_jobs.sources.reading.rows import ReadingRules
from tests.spark_jobs.sources.conftest import read_file

Texts = list[str]


def of_jsonl(texts: Texts) -> bytes:
    """Lines of JSON; the id is a number and a text by turns."""
    return "".join(
        json.dumps({"id": 1 if at % 2 else "1", "body": text}) + "\n" for at, text in enumerate(texts)
    ).encode()


def of_csv(texts: Texts) -> bytes:
    """Rows of CSV."""
    written = io.StringIO()
    csv.writer(written).writerows([["id", "body"], *(["1", text] for text in texts)])
    return written.getvalue().encode()


def of_parquet(texts: Texts) -> bytes:
    """Rows of Parquet."""
    written = io.BytesIO()
    pq.write_table(pa.table({"id": [1] * len(texts), "body": texts}), written)
    return written.getvalue()


def of_xml(texts: Texts) -> bytes:
    """Elements of XML."""
    return f"<all>{''.join(f'<one><id>1</id><body>{text}</body></one>' for text in texts)}</all>".encode()


def of_mbox(texts: Texts) -> bytes:
    """Mails of a mailbox."""
    head = "From a@x.org Thu Nov 12 09:00:00 2026\nMessage-ID: <1>\nContent-Type: text/plain\n\n"
    return "".join(f"{head}{text}\n\n" for text in texts).encode()


def of_warc(texts: Texts) -> bytes:
    """Records of a web archive."""
    head = "WARC/1.0\r\nWARC-Type: conversion\r\nWARC-Record-ID: <urn:uuid:1>\r\nContent-Type: text/plain\r\n"
    return b"".join(f"{head}Content-Length: {len(text.encode())}\r\n\r\n{text}\r\n\r\n".encode() for text in texts)


def of_page(texts: Texts) -> bytes:
    """A page of an API."""
    return json.dumps([{"id": 1 if at % 2 else "1", "body": text} for at, text in enumerate(texts)]).encode()


WRITERS: dict[str, Callable[[Texts], bytes]] = {
    "jsonl": of_jsonl,
    "csv": of_csv,
    "parquet": of_parquet,
    "xml": of_xml,
    "mbox": of_mbox,
    "warc": of_warc,
    "page": of_page,
}


def rows_of(path: Path, reader: str) -> list[dict[str, Any]]:
    """What is read of a file, less its own arrival."""
    source: Any = FilesSource(path="x", text_column="body", id_column="id", xml_element="one")
    if reader == "page":
        source = ApiSource(url="https://x.example/list", text_column="body", id_column="id")
    file = ListedFile(str(path), path.name, reader, kind="prose")
    *rows, arrival = read_file(file, ReadingRules("d", 1, 100_000, source))
    assert arrival["status"] == "landed"
    return rows


@pytest.mark.parametrize("reader", sorted(WRITERS.keys() - {"page"}))
def test_members_and_refusals_are_as_many_as_the_records(tmp_path: Path, reader: str) -> None:
    """The first text of an id is its document; another one is `listed_twice`, the same again `repeated_record`."""
    if reader in ("mbox", "warc"):
        pytest.importorskip("resiliparse")
    texts = ["The first text.", "Another text.", "The first text.", "A third text."]
    path = tmp_path / f"records.{reader}"
    path.write_bytes(WRITERS[reader](texts))
    rows = rows_of(path, reader)
    assert [row["reason"] if row["doc_id"] is None else row["content"].strip() for row in rows] == [
        "The first text.",
        "listed_twice",
        "repeated_record",
        "listed_twice",
    ]
    assert "which has another text" in rows[1]["detail"]


def test_texts_of_one_id_on_a_page_are_its_versions(tmp_path: Path) -> None:
    """Rows with their places, as if each had come on a page of its own; one that says the same again is none."""
    texts = ["The first text.", "Another text.", "The first text.", "The first text.", "A third text."]
    path = tmp_path / "records.page"
    path.write_bytes(of_page(texts))
    rows = rows_of(path, "page")
    assert [(row["number"], row["content"]) for row in rows] == [(at, texts[at - 1]) for at in (1, 2, 3, 5)]
    assert len({row["doc_id"] for row in rows}) == 3 and len({row["path"] for row in rows}) == 1


def test_small_inputs_of_others_are_told(real_data: Path) -> None:
    """Two texts under one id: one document and one refusal."""
    path = real_data / "bugs" / "R7-same-id.jsonl"
    mapping = FilesSource(path="x", text_column="text", id_column="id")
    file = ListedFile(str(path), path.name, "jsonl", kind="prose")
    rows = list(read_file(file, ReadingRules("d", 1, 100_000, mapping)))
    assert [row["reason"] for row in rows if row["doc_id"] is None] == ["listed_twice", None]

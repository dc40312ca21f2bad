"""Rows that come out of files: documents, facts about repositories and arrivals; and the bytes they are made of.

A row of READ_ROWS is a document (`doc_id` is set, `location` is its file's), what is known about a repository (`facts`
is set, as JSON), or an arrival (neither is): one for each file, and one for each record or member refused, located at
`file#line:17`, `file#row:17` or `file#member/path`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import pyarrow as pa

from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.sources.config.file_reading import FileReading
from spark_jobs.sources.identity import document_id, sha256_hex, shard_of
from spark_jobs.sources.kinds import Opens, kind_of
from spark_jobs.sources.languages import DETECTED, EVIDENCE, PAST
from spark_jobs.sources.listing_rows import why
from spark_jobs.sources.opening.table_folders import partitions
from spark_jobs.sources.records.extracted import Extracted
from spark_jobs.sources.refusals import Reason, Refusal

Row = dict[str, Any]

_ABOUT = ("doc_id", "repository", "path", "revision", "kind", "language", "media_type", "licence")
READ_ROWS = pa.schema(
    {
        "shard": pa.int32(),
        **dict.fromkeys((*_ABOUT, "content", "encoding", "content_sha256", "object"), pa.string()),
        "byte_count": pa.int64(),
        "metadata": pa.map_(pa.string(), pa.string()),
        "location": pa.string(),
        "modified": pa.timestamp("us", "UTC"),
        **dict.fromkeys(("status", "reason", "detail", "facts"), pa.string()),
        "number": pa.int64(),  # of a record in its file
    }
)


class ReadingRules(NamedTuple):
    """What executors need of a dataset's config, and where its bytes are kept (none where that is not known)."""

    dataset: str
    shards: int
    max_document_bytes: int
    source: Any  # as it is declared; a reader is given a source with the fields that it asks for
    objects: ObjectFolder | None = None
    copies: bool = False
    opens: Opens | None = None  # while files are read: what opens those of the source


def opened(file: Row, rules: ReadingRules) -> AbstractContextManager[Any]:
    """The bytes of a file: of a member of an archive its stream, else those that are kept, else those at its location.

    Raises:
        OSError: they cannot be read.
    """
    if (stream := file.get("stream")) is not None:
        return contextlib.nullcontext(stream)
    kept = file.get("object")
    if kept is None or rules.objects is None:
        assert rules.opens is not None
        return rules.opens(file, rules.max_document_bytes)
    return rules.objects.open(kept)  # type: ignore[no-any-return]


def extracted_document(file: Row, rules: ReadingRules, extracted: Extracted) -> Row | Refusal:
    """The document of an extracted text; its hash and size are those of the text in UTF-8, not of the file."""
    text, metadata, columns = extracted
    data = text.encode()
    if len(data) > rules.max_document_bytes:
        detail = f"{len(data)} bytes of text; max_document_bytes is {rules.max_document_bytes}"
        return Refusal(Reason.TOO_LARGE, detail)
    row = document_row({**file, **(columns or {})}, rules, text, "utf-8", sha256_hex(data), len(data))
    row["metadata"] = {**row["metadata"], **metadata}
    return row


def document_row(
    file: Row, rules: ReadingRules, content: str, encoding: str, content_sha256: str, byte_count: int
) -> Row:
    """The row of a document, from the listing of its file and from what was read."""
    doc_id = document_id(rules.dataset, file["repository"], file["path"], content_sha256)
    return {name: file[name] for name in (*_ABOUT[1:], "location")} | {
        "shard": shard_of(file["repository"], doc_id, rules.shards),
        "doc_id": doc_id,
        "content": content,
        "encoding": encoding,
        "content_sha256": content_sha256,
        "byte_count": byte_count,
        "metadata": document_metadata(file, rules.source),
        "status": "landed",
    }


def document_metadata(file: Row, source: Any) -> dict[str, str]:
    """What the listing of a file says about its documents for their metadata."""
    metadata = {EVIDENCE: "manifest"} if _is_only_evidence(file["kind"], source) else {}
    metadata |= {PAST: "true"} if file.get("past") else {}
    return metadata | ({DETECTED: file["detected"]} if file.get("detected") else {})


def _is_only_evidence(kind: str, source: Any) -> bool:
    """Whether a file is a manifest of a kind that its source does not take, so that it serves `dependencies` alone."""
    return kind_of(source).takes_manifests and kind not in source.kinds


def with_folders(row: Row, file: Row, source: Any) -> Row:
    """A document with the columns that the names of its folders give (`lang=de/`), where columns of it are mapped.

    Args:
        row: the document.
        file: the row of its listing.
        source: as it is declared.
    """
    if not isinstance(source, FileReading) or not (source.metadata_columns or source.language_column):
        return row
    folder_values = partitions(file["location"])
    named = {name: value for name in source.metadata_columns if (value := folder_values.get(name)) is not None}
    row["metadata"] = {**named, **row["metadata"]}
    if source.language_column in folder_values:
        row["language"] = folder_values[source.language_column]
    return row


def arrival(file: Row, refusal: Refusal | None, content_sha256: str | None = None) -> Row:
    """The row of an arrival: landed, or rejected with the reason."""
    file_facts = {name: file.get(name) for name in ("repository", "path", "object", "byte_count", "modified")}
    status = {"status": "landed" if refusal is None else "rejected", **why(refusal)}
    return {"doc_id": None, "location": file["location"], "content_sha256": content_sha256, **file_facts, **status}


def facts_row(facts: str, location: str | None = None) -> Row:
    """A row with facts about a repository."""
    return {"doc_id": None, "location": location, "byte_count": None, "facts": facts}


def closing_arrivals(
    file: Row,
    is_usable: bool,
    fault: Refusal | None,
    nothing: Refusal,
    content_sha256: str | None,
    detail: str | None = None,
) -> Iterator[Row]:
    """The arrival of a file whose parts were read; a fault behind usable parts has a row of its own, `file#rest`.

    Args:
        file: the row of its listing.
        is_usable: whether any of its parts landed.
        fault: what ended its reading, if something did.
        nothing: why it is refused if none of its parts landed, and nothing ended its reading.
        content_sha256: of the file, where it was read to its end.
        detail: what is told of a file that landed.
    """
    if is_usable and fault is not None:
        yield arrival({"location": f"{file['location']}#rest"}, fault)
    closing = arrival(file, None if is_usable else fault or nothing, content_sha256)
    yield {**closing, "detail": detail} if is_usable else closing

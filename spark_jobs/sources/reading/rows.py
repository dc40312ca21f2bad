"""Rows from files: documents, facts about repositories and arrivals; and the bytes they are made of.

A row of READ_ROWS is a document (`doc_id` is set, `location` is its file's), what is known about a repository (`facts`
is set, as JSON), or an arrival (neither is): one for each file, and one for each record or member refused, located at
`file#line:17`, `file#row:17` or `file#member/path`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa

from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.sources.config.file_reading import FileReading
from spark_jobs.sources.config.permissions import OptOuts
from spark_jobs.sources.identity import identified, sha256_hex
from spark_jobs.sources.kinds import OpensListed, kind_of
from spark_jobs.sources.languages import DETECTED, EVIDENCE, PAST
from spark_jobs.sources.listed_file import ListedFile
from spark_jobs.sources.listing_rows import why
from spark_jobs.sources.opening.table_folders import partitions
from spark_jobs.sources.records.extracted import Extracted
from spark_jobs.sources.refusals import Reason, Refusal

Row = dict[str, Any]

_ABOUT = ("repository", "path", "revision", "kind", "language", "media_type", "licence")
_ABOUT_FILE = (*_ABOUT, "location")
_about_file = attrgetter(*_ABOUT_FILE)
_ARRIVED = ("location", "repository", "path", "object", "byte_count", "modified")
_arrived = attrgetter(*_ARRIVED)
READ_ROWS = pa.schema(
    {
        "shard": pa.int32(),
        **dict.fromkeys(("doc_id", *_ABOUT, "content", "encoding", "content_sha256", "object"), pa.string()),
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
    opt_outs: OptOuts | None = None
    opens: OpensListed = None  # type: ignore[assignment] # set while files are read


def extracted_document(file: ListedFile, rules: ReadingRules, extracted: Extracted) -> Row | Refusal:
    """The document of an extracted text; its hash and size are those of the text in UTF-8, not of the file."""
    text, metadata, columns = extracted
    data = text.encode()
    if len(data) > rules.max_document_bytes:
        detail = f"{len(data)} bytes of text; max_document_bytes is {rules.max_document_bytes}"
        return Refusal(Reason.TOO_LARGE, detail)
    file = replace(file, **columns) if columns else file  # type: ignore[arg-type]
    row = document_row(file, rules, text, "utf-8", sha256_hex(data), len(data))
    row["metadata"] |= metadata
    return row


def document_row(
    file: ListedFile, rules: ReadingRules, content: str, encoding: str, content_sha256: str, byte_count: int
) -> Row:
    """The row of a document, from the listing of its file, the names of its folders, and what was read."""
    source = rules.source
    doc_id, shard = identified(rules.dataset, rules.shards, file.repository, file.path, content_sha256)
    metadata, columns = dict[str, str](), Row()
    if isinstance(source, FileReading):
        if source.metadata_columns or source.language_column:
            metadata, columns = of_folders(file, source)
    elif kind_of(source).takes_manifests and file.kind not in source.kinds:
        metadata[EVIDENCE] = "manifest"  # it serves `dependencies` alone
    if file.past:
        metadata[PAST] = "true"
    if file.detected:
        metadata[DETECTED] = file.detected
    return {
        "shard": shard,
        "doc_id": doc_id,
        **dict(zip(_ABOUT_FILE, _about_file(file), strict=True)),
        "content": content,
        "encoding": encoding,
        "content_sha256": content_sha256,
        "byte_count": byte_count,
        "metadata": metadata,
        "status": "landed",
        **columns,
    }


def of_folders(file: ListedFile, source: FileReading) -> tuple[dict[str, str], Row]:
    """Mapped columns from the names of a file's folders (`lang=de/`): for `metadata`, and the language."""
    values = partitions(file.location)
    metadata = {name: value for name in source.metadata_columns if (value := values.get(name)) is not None}
    return metadata, {"language": values[source.language_column]} if source.language_column in values else {}


def arrival(file: ListedFile, refusal: Refusal | None, content_sha256: str | None = None) -> Row:
    """The row of an arrival: landed, or rejected with the reason."""
    return {
        "doc_id": None,
        **dict(zip(_ARRIVED, _arrived(file), strict=True)),
        "content_sha256": content_sha256,
        "status": "landed" if refusal is None else "rejected",
        "reason": refusal and str(refusal.reason),
        "detail": refusal and refusal.detail,
    }


def refused_part(location: str | None, refusal: Refusal, content_sha256: str | None = None) -> Row:
    """The row of a refused record or member; what is refused of a file is no file, and has no path."""
    row = {"doc_id": None, "location": location, "content_sha256": content_sha256, "path": None, "status": "rejected"}
    return row | why(refusal)


def facts_row(facts: str, location: str | None = None) -> Row:
    """A row with facts about a repository."""
    return {"doc_id": None, "location": location, "byte_count": None, "facts": facts}


def closing_arrivals(
    file: ListedFile,
    is_usable: bool,
    fault: Refusal | None,
    nothing: Refusal,
    content_sha256: str | None,
    detail: str | None = None,
) -> Iterator[Row]:
    """The arrival of a file after its parts were read; a fault behind usable parts has a row of its own, `file#rest`.

    Args:
        file: the row of its listing.
        is_usable: whether any of its parts landed.
        fault: what ended its reading, if something did.
        nothing: why it is refused if none of its parts landed, and nothing ended its reading.
        content_sha256: of the file, where it was read to its end.
        detail: what is told of a landed file.
    """
    if is_usable and fault is not None:
        yield refused_part(f"{file.location}#rest", fault)
    closing = arrival(file, None if is_usable else fault or nothing, content_sha256)
    yield {**closing, "detail": detail} if is_usable else closing

"""Rows that come out of files: documents, facts about repositories and arrivals; and the bytes they are made of.

A row of READ_ROWS is a document (`doc_id` is set, `location` is its file's), what is known about a repository (`facts`
is set, as JSON), or an arrival (neither is): one for each file, and one for each record or member refused, located at
`file#line:17`, `file#row:17` or `file#member/path`.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import tempfile
from contextlib import AbstractContextManager
from typing import IO, Any, NamedTuple, cast

import pyarrow as pa

from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.sources.file_source import FileSource
from spark_jobs.sources.file_trees import open_file
from spark_jobs.sources.formats.extraction import Extracted
from spark_jobs.sources.reading.identity import document_id, sha256_hex, shard_of
from spark_jobs.sources.reading.languages import DETECTED, EVIDENCE, PAST
from spark_jobs.sources.reading.records import Stream
from spark_jobs.sources.refusals import Reason, Refusal, RefusedError, first_line
from spark_jobs.sources.source_config import GitSource, PackagesSource, PythonCodeSource, Source

Row = dict[str, Any]

BATCH_BYTES = 16 << 20

READ_ROWS = pa.schema(
    [
        ("shard", pa.int32()),
        ("doc_id", pa.string()),
        ("repository", pa.string()),
        ("path", pa.string()),
        ("revision", pa.string()),
        ("kind", pa.string()),
        ("language", pa.string()),
        ("media_type", pa.string()),
        ("licence", pa.string()),
        ("content", pa.string()),
        ("encoding", pa.string()),
        ("content_sha256", pa.string()),
        ("object", pa.string()),
        ("byte_count", pa.int64()),
        ("metadata", pa.map_(pa.string(), pa.string())),
        ("location", pa.string()),
        ("modified", pa.timestamp("us", "UTC")),
        ("status", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("facts", pa.string()),
    ]
)


class ReadingRules(NamedTuple):
    """What executors need of a dataset's config, and where its bytes are kept (none where that is not known)."""

    dataset: str
    shards: int
    max_document_bytes: int
    source: Source
    objects: ObjectFolder | None = None
    copies: bool = False


def opened(file: Row, rules: ReadingRules) -> AbstractContextManager[Any]:
    """The bytes of a file: of a member of an archive its stream, else those that are kept, else those at its location.

    Raises:
        OSError: they cannot be read.
    """
    if (stream := file.get("stream")) is not None:
        return contextlib.nullcontext(stream)
    kept = file.get("object")
    if kept is None or rules.objects is None:
        return open_at(file["location"], rules.source)  # type: ignore[no-any-return]
    return rules.objects.open(kept)  # type: ignore[no-any-return]


def open_at(location: str, source: Source) -> Any:
    """The bytes at a location of a source.

    Raises:
        OSError: they cannot be read.
    """
    if not isinstance(source, FileSource):
        return open_file(location)
    try:
        return source.open(location)
    except OSError:
        raise
    except Exception as error:  # a class of somebody else's may fail in any way, for this file alone
        raise OSError(f"its source failed: {type(error).__name__}: {first_line(error)}") from error


def extracted_document(file: Row, rules: ReadingRules, extracted: Extracted) -> Row | Refusal:
    """The document of a text that is a part of its file, or was made from it: hashed as UTF-8 by itself."""
    text, metadata, told = extracted
    data = text.encode()
    if len(data) > rules.max_document_bytes:
        detail = f"{len(data)} bytes of text; max_document_bytes is {rules.max_document_bytes}"
        return Refusal(Reason.TOO_LARGE, detail)
    row = document_row({**file, **(told or {})}, rules, text, "utf-8", sha256_hex(data), len(data))
    row["metadata"] = {**row["metadata"], **metadata}
    return row


def document_row(
    file: Row, rules: ReadingRules, content: str, encoding: str, content_sha256: str, byte_count: int
) -> Row:
    """The row of a document, from the listing of its file and from what was read."""
    doc_id = document_id(rules.dataset, file["repository"], file["path"], content_sha256)
    return {
        "shard": shard_of(file["repository"], doc_id, rules.shards),
        "doc_id": doc_id,
        "repository": file["repository"],
        "path": file["path"],
        "revision": file["revision"],
        "kind": file["kind"],
        "language": file["language"],
        "media_type": file["media_type"],
        "licence": file["licence"],
        "content": content,
        "encoding": encoding,
        "content_sha256": content_sha256,
        "byte_count": byte_count,
        "metadata": ({EVIDENCE: "manifest"} if _is_only_evidence(file["kind"], rules.source) else {})
        | ({PAST: "true"} if file.get("past") else {})
        | ({DETECTED: file["detected"]} if file.get("detected") else {}),
        "location": file["location"],
        "status": "landed",
    }


def _is_only_evidence(kind: str, source: Source) -> bool:
    """Whether a file is a manifest of a kind that its source does not take, so that it serves `dependencies` alone."""
    return isinstance(source, PythonCodeSource | PackagesSource | GitSource) and kind not in source.kinds


def arrival(file: Row, refusal: Refusal | None, content_sha256: str | None = None) -> Row:
    """The row of an arrival: landed, or rejected with the reason."""
    return {
        "doc_id": None,
        "location": file["location"],
        "repository": file.get("repository"),
        "path": file.get("path"),
        "content_sha256": content_sha256,
        "object": file.get("object"),
        "byte_count": file.get("byte_count"),
        "modified": file.get("modified"),
        "status": "landed" if refusal is None else "rejected",
        "reason": refusal and str(refusal.reason),
        "detail": refusal and refusal.detail,
    }


def facts_row(facts: str, location: str | None = None) -> Row:
    """A row with facts about a repository."""
    return {"doc_id": None, "location": location, "byte_count": None, "facts": facts}


class HashedFile(io.RawIOBase):
    """A file, or a member of an archive, that is hashed while it is read from start to end."""

    def __init__(self, file: Stream) -> None:
        super().__init__()
        self.file = file
        self._hash = hashlib.sha256()
        self._given = 0
        self._head = b""
        self._copy: IO[bytes] | None = None

    def close(self) -> None:
        """Remove the temporary file, where there is one; the file itself stays open."""
        if self._copy is not None:
            self._copy.close()
        super().close()

    def readable(self) -> bool:
        """Always true; the base class requires it."""
        return True

    def head(self, size: int) -> bytes:
        """The first bytes, which stay to be read."""
        self._head += read_up_to(self.file, size - len(self._head))
        return self._head[:size]

    def read(self, size: int = -1) -> bytes:
        """The next bytes, fewer than asked for only where they come in pieces or at the end; without a size all."""
        if size < 0:
            return b"".join(iter(lambda: self.read(BATCH_BYTES), b""))
        data, self._head = self._head[:size], self._head[size:]
        data = data or bytes(self.file.read(size))
        self._hash.update(data)
        self._given += len(data)
        return data

    def tell(self) -> int:
        """How many bytes were read."""
        return self._given

    def random_access(self, most_bytes: int) -> IO[bytes]:
        """The same bytes, to be read at any offset: of a file itself, of a member in a temporary file.

        Raises:
            OSError: the member is damaged, or larger than such a file may be.
        """
        if (file := _seekable(self.file)) is not None:
            file.seek(0)
            self._head = b""
            return file
        self._copy = tempfile.TemporaryFile()  # noqa: SIM115 - `close` ends it
        while data := self.read(BATCH_BYTES):
            if self._given > most_bytes:
                raise RefusedError(Reason.TOO_LARGE, f"more than {most_bytes} bytes, the max_temporary_bytes")
            self._copy.write(data)
        self._copy.seek(0)
        return self._copy

    def sha256_to_end(self) -> str:
        """SHA-256 of the whole file, reading what is left; what was read at random offsets is read once more."""
        if not self._given and (file := _seekable(self.file)) is not None:
            file.seek(0)
        while self.read(BATCH_BYTES):
            pass
        return self._hash.hexdigest()


def _seekable(file: Stream) -> IO[bytes] | None:
    """The same file where any place of it can be gone to."""
    return cast("IO[bytes]", file) if getattr(file, "seekable", bool)() else None


def read_up_to(stream: Stream, size: int) -> bytes:
    """The next bytes of a stream that may give them in pieces; fewer only at its end."""
    pieces, left = list[bytes](), size
    while left > 0 and (piece := stream.read(min(left, BATCH_BYTES))):
        pieces.append(bytes(piece))
        left -= len(piece)
    return b"".join(pieces)

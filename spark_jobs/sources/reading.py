"""Read listed files once, in bounded memory: from rows of the listing to rows of documents and arrivals.

    batches of the listing -> read_files -> batches of READ_ROWS

A row of READ_ROWS is a document (`doc_id` is set, `location` is its file's), what is known about a repository (`facts`
is set, as JSON), or an arrival (neither is): one for each file, and one for each record refused, located at
`file#line:17` or `file#row:17`. Which documents are new is decided by the step, not here: the rows of a file depend on
that file alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.sources.decoding import TOLD_BYTES, Decoded, Recoded, decode, decode_as
from spark_jobs.sources.file_trees import absolute, open_file, unreadable
from spark_jobs.sources.formats.extraction import Extracted, extract
from spark_jobs.sources.formats.gzip_members import GzipMembers
from spark_jobs.sources.formats.log_lines import log_records
from spark_jobs.sources.formats.mailboxes import mail_records
from spark_jobs.sources.formats.notebooks import has_front_matter
from spark_jobs.sources.formats.web_archives import CountedStream, archive_records
from spark_jobs.sources.formats.xml_elements import xml_records
from spark_jobs.sources.git.store import BlobReaders
from spark_jobs.sources.identity import document_id, sha256_hex, shard_of
from spark_jobs.sources.languages import DECLARES_ENCODING, EVIDENCE, EXTRACTED_BY, PAST, language_of
from spark_jobs.sources.licences import spdx_expression
from spark_jobs.sources.modules import long_description, module_docstring
from spark_jobs.sources.records import (
    Record,
    Refused,
    Stream,
    csv_columns,
    csv_records,
    jsonl_columns,
    jsonl_records,
    parquet_columns,
    parquet_records,
)
from spark_jobs.sources.refusals import Reason, Refusal
from spark_jobs.sources.repositories import Facts
from spark_jobs.sources.source_config import (
    EXTRACTING_READERS,
    RECORD_READERS,
    FilesSource,
    GitSource,
    PythonCodeSource,
    Source,
)
from spark_jobs.sources.stated_facts import facts_json, stated_facts, stated_lines

Row = dict[str, Any]

BATCH_BYTES = 16 << 20
_BATCH_ROWS = 10_000
_SHOWN_BYTES = 16 << 20  # longer lines are skipped when only their columns are asked for
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_LFS_POINTER_BYTES = 1024
_DELIMITERS = {"csv": ",", "tsv": "\t"}
_NOTHING = {
    "warc": "no record of the archive is a response, a conversion, or a resource of the web",
    "xml": "no element of the file has the name that xml_element gives",
}
_UNITS = {"parquet": "row", "warc": "offset", "xml": "element"}  # what a record's number counts, where not lines

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


def read_files(batches: Iterator[pa.RecordBatch], rules: ReadingRules) -> Iterator[pa.RecordBatch]:
    """Read every file of the listing; a batch goes out as soon as it holds about 16 MB of text."""
    rows, held = list[Row](), 0
    with contextlib.closing(open_blobs(rules.source)) as blobs:
        for batch in batches:
            for file in batch.to_pylist():
                for row in read_file(file, rules, blobs):
                    rows.append(row)
                    held += row["byte_count"] or 0 if row["doc_id"] else 0
                    if held >= BATCH_BYTES or len(rows) >= _BATCH_ROWS:
                        yield pa.RecordBatch.from_pylist(rows, READ_ROWS)
                        rows, held = [], 0
        if rows:
            yield pa.RecordBatch.from_pylist(rows, READ_ROWS)


def open_blobs(source: Source) -> BlobReaders:
    """What reads the files of git repositories; for other sources it stays unused, and costs nothing."""
    return BlobReaders(absolute(source.cache) if isinstance(source, GitSource) else "")


def read_file(file: Row, rules: ReadingRules, blobs: BlobReaders | None = None) -> Iterator[Row]:
    """Documents, facts and refused records of one listed file, then the arrival of the file itself.

    Args:
        file: a row of the listing.
        rules: of the dataset.
        blobs: the task's readers of git repositories; without them, readers for this file alone.
    """
    if file["reader"] == "git":
        yield from _read_repository(file)
    elif file["reader"] == "repositories" and file["reason"] is None:
        yield from _read_facts(file)
    elif file["reason"] is not None:
        yield _arrival(file, Refusal(Reason(file["reason"]), file["detail"]))
    elif refusal := _size_refusal(file, rules):
        yield _arrival(file, refusal)
    elif rules.copies and rules.objects is not None and not file.get("object"):
        yield from _keep_and_read(file, rules, rules.objects)
    elif file["reader"] in RECORD_READERS:
        yield from _read_records(file, rules)
    elif blobs is None:
        with contextlib.closing(open_blobs(rules.source)) as own:
            yield from _read_text(file, rules, own)
    else:
        yield from _read_text(file, rules, blobs)


def _keep_and_read(file: Row, rules: ReadingRules, objects: ObjectFolder) -> Iterator[Row]:
    """Keep a copy of a file's bytes, and read the copy: what lands is what is kept, whatever the file becomes."""
    try:
        with open_file(file["location"]) as stream:
            kept = objects.keep(stream)
    except OSError as error:
        yield _arrival(file, unreadable(error))
        return
    yield from read_file({**file, "object": kept.location, "byte_count": kept.byte_count}, rules)


def _opened(file: Row, rules: ReadingRules) -> pa.NativeFile:
    """The bytes of a listed file: those that are kept, else those at its location.

    Raises:
        OSError: they cannot be read.
    """
    kept = file.get("object")
    return open_file(file["location"]) if kept is None or rules.objects is None else rules.objects.open(kept)


def _read_repository(file: Row) -> Iterator[Row]:
    """The arrival of a git repository, with the digest of its selected revisions; a fact makes it count as landed."""
    if file["reason"] is None:
        yield _facts_row(facts_json(Facts(file["repository"]), touches=False), file["location"])
        yield _arrival(file, None, file["content_sha256"])
    else:
        yield _arrival(file, Refusal(Reason(file["reason"]), file["detail"]), file["content_sha256"])


def _size_refusal(file: Row, rules: ReadingRules) -> Refusal | None:
    """The refusal of a file that is one document and larger than a document may be."""
    size, limit = file["byte_count"], rules.max_document_bytes
    if file["reader"] in RECORD_READERS or size is None or size <= limit:
        return None
    return Refusal(Reason.TOO_LARGE, f"{size} bytes; max_document_bytes is {limit}")


def _bytes(file: Row, rules: ReadingRules, blobs: BlobReaders) -> bytes:
    """The bytes of a file, or of a blob of a git repository; at most one more than a document may have.

    Raises:
        OSError: it cannot be read.
    """
    blob = file.get("blob")
    if blob is not None:
        root = file["location"].removesuffix(f"@{blob}:{file['path']}")
        return blobs.read(root, blob, rules.max_document_bytes)
    with _opened(file, rules) as stream:
        return bytes(stream.read(rules.max_document_bytes + 1))  # it may have grown since it was listed


def _read_text(file: Row, rules: ReadingRules, blobs: BlobReaders) -> Iterator[Row]:
    """The document of a text file, and the file's arrival."""
    limit = rules.max_document_bytes
    try:
        data = _bytes(file, rules, blobs)
    except OSError as error:
        yield _arrival(file, unreadable(error))
        return
    if len(data) > limit:
        yield _arrival(file, Refusal(Reason.TOO_LARGE, f"more than {limit} bytes, the max_document_bytes"))
        return
    content_sha256 = sha256_hex(data)
    if file.get("blob") and data.startswith(_LFS_POINTER) and len(data) < _LFS_POINTER_BYTES:
        yield _arrival(
            file, Refusal(Reason.LFS_POINTER, "a pointer of git LFS; its content is elsewhere"), content_sha256
        )
        return
    document = _text_document(file, data, content_sha256, rules)
    if isinstance(document, Refusal):
        yield _arrival(file, document, content_sha256)
        return
    yield document
    yield _arrival(file, None, content_sha256)


def _text_document(file: Row, data: bytes, content_sha256: str, rules: ReadingRules) -> Row | Refusal:
    """The document in a file: the whole text, or what is extracted from it, hashed as UTF-8 by itself."""
    reader, source = file["reader"], rules.source
    if reader in EXTRACTING_READERS:
        assert isinstance(source, FilesSource)  # no other source lists such files
        extracted = extract(reader, data, source)
        return extracted if isinstance(extracted, Refusal) else _extracted_document(file, rules, extracted)
    decoded = decode(data, declares_encoding=file["language"] in DECLARES_ENCODING or reader == "docstring")
    if isinstance(source, FilesSource):
        return _whole_text(file, data, decoded, content_sha256, rules, source)
    if isinstance(decoded, Refusal):
        return decoded
    if reader == "text":
        return _document(file, rules, decoded.text, decoded.encoding, content_sha256, len(data))
    if reader == "docstring":
        prose = module_docstring(decoded.text)
        return prose if isinstance(prose, Refusal) else _extracted_document(file, rules, Extracted(prose, {}))
    described = long_description(decoded.text)
    if isinstance(described, Refusal):
        return described
    prose, media_type = described
    return _extracted_document(file, rules, Extracted(prose, {}, {"media_type": media_type}))


def _whole_text(
    file: Row, data: bytes, decoded: Decoded | Refusal, content_sha256: str, rules: ReadingRules, source: FilesSource
) -> Row | Refusal:
    """The document of a text file: all of it, in the encoding that is found, or what stands below its front matter."""
    metadata: Mapping[str, str] = {}
    if isinstance(decoded, Refusal):
        sample = data[:TOLD_BYTES]
        told = extract("legacy", sample, source, sample == data) if source.encoding != "strict" else decoded
        found = decoded if isinstance(told, Refusal) else decode_as(data, told.metadata["source_encoding"])
        if isinstance(found, Refusal) or isinstance(told, Refusal):
            return decoded
        decoded, metadata = found, told.metadata
    text, encoding = decoded
    if source.front_matter == "metadata" and file["media_type"] == "text/markdown" and has_front_matter(text):
        below = extract("front_matter", text.encode(), source)
        if isinstance(below, Refusal):
            return below
        if EXTRACTED_BY in below.metadata:
            return _extracted_document(file, rules, below._replace(metadata={**below.metadata, **metadata}))
        metadata = {**below.metadata, **metadata}
    row = _document(file, rules, text, encoding, content_sha256, len(data))
    row["metadata"] = {**row["metadata"], **metadata}
    return row


def _extracted_document(file: Row, rules: ReadingRules, extracted: Extracted) -> Row | Refusal:
    """The document of a text that is a part of its file, or was made from it: hashed as UTF-8 by itself."""
    text, metadata, told = extracted
    data = text.encode()
    if len(data) > rules.max_document_bytes:
        detail = f"{len(data)} bytes of text; max_document_bytes is {rules.max_document_bytes}"
        return Refusal(Reason.TOO_LARGE, detail)
    row = _document({**file, **(told or {})}, rules, text, "utf-8", sha256_hex(data), len(data))
    row["metadata"] = {**row["metadata"], **metadata}
    return row


def _read_records(file: Row, rules: ReadingRules) -> Iterator[Row]:
    """Documents, facts and refusals of one file of records, then its arrival: landed where any record is usable.

    The ids of all records are held to find repeated ones: about 100 bytes for each record of the file.
    """
    seen, stated, fault, refused_count = set[str](), set[str](), None, 0
    try:
        with _opened(file, rules) as stream:
            source = _HashedFile(stream)
            for record in _records(file, source, rules):
                if isinstance(record, Refused) and record.number is None:
                    fault = record.refusal if fault is None else fault.and_also(record.refusal)
                    continue
                row = _record_row(file, record, seen, rules)
                refused_count += row["doc_id"] is None
                yield row
                if isinstance(record, Record) and record.repository is not None and row["doc_id"]:
                    facts = facts_json(stated_facts(record.repository, record.facts)[0], stated=True)
                    if facts not in stated:
                        stated.add(facts)
                        yield _facts_row(facts)
            content_sha256 = source.sha256_to_end()
    except OSError as error:
        fault, content_sha256 = unreadable(error), None
    if seen and fault is not None:
        yield _arrival({"location": f"{file['location']}#rest"}, fault)
    elif not seen and fault is None:
        every = Refusal(Reason.NO_USABLE_RECORD, f"all {refused_count} records were refused")
        fault = (
            every if refused_count else Refusal(Reason.EMPTY, _NOTHING.get(file["reader"], "the file holds no record"))
        )
    yield _arrival(file, None if seen else fault, content_sha256)


def _read_facts(file: Row) -> Iterator[Row]:
    """Facts and refused lines of a file about repositories, then its arrival.

    An unchanged file is read too, because files of its repositories may have changed: it gives facts alone, which make
    no row of `repositories` by themselves (`touches` is false).
    """
    touches, said, fault = not file["unchanged"], False, None
    location = file["location"] if touches else None
    try:
        with open_file(file["location"]) as stream:
            source = _HashedFile(stream)
            for found in stated_lines(_decompressed(source, file["location"])):
                if isinstance(found, Facts):
                    said = True
                    yield _facts_row(facts_json(found, stated=True, touches=touches), location)
                elif found.number is None:
                    fault = found.refusal
                elif touches:
                    yield _arrival({"location": f"{file['location']}#line:{found.number}"}, found.refusal)
            content_sha256 = source.sha256_to_end()
    except OSError as error:
        fault, content_sha256 = unreadable(error), None
    if not touches:
        if fault is not None:  # becomes no row of a table; `documents` checks by it what executors can read
            yield _arrival({"location": None, "path": file["location"]}, fault)
        return
    if said and fault is not None:
        yield _arrival({"location": f"{file['location']}#rest"}, fault)
    elif not said and fault is None:
        fault = Refusal(Reason.NO_USABLE_RECORD, "no line of it tells of a repository")
    yield _arrival(file, None if said else fault, content_sha256)


def _facts_row(facts: str, location: str | None = None) -> Row:
    """A row with facts about a repository."""
    return {"doc_id": None, "location": location, "byte_count": None, "facts": facts}


def _records(file: Row, source: _HashedFile, rules: ReadingRules) -> Iterator[Record | Refused]:
    """The records of an open file."""
    mapping, limit = rules.source, rules.max_document_bytes
    assert isinstance(mapping, FilesSource)  # no other source lists files of records
    if file["reader"] == "parquet":
        yield from parquet_records(source.file, mapping, limit)
        return
    if file["reader"] == "warc":
        yield from _archive_records(source, mapping, limit)
        return
    stream, reader = _decompressed(source, file["location"]), file["reader"]
    if reader == "mbox":
        mail = partial(extract, "mail", source=mapping)
        yield from mail_records(stream, mail, limit, is_compressed=stream is not source)
    elif reader == "xml":
        yield from xml_records(stream, mapping, limit)
    elif mapping.encoding != "strict":
        recoded = Recoded(stream, lambda data: extract("legacy", data, mapping, False))
        for record in _text_records(reader, recoded, mapping, limit):
            if isinstance(record, Record):
                yield record._replace(metadata={**recoded.facts, **record.metadata})
            else:
                yield record
    else:
        yield from _text_records(reader, stream, mapping, limit)


def _text_records(reader: str, stream: Stream, mapping: FilesSource, limit: int) -> Iterator[Record | Refused]:
    """The records of a file of text, decompressed."""
    if reader == "log":
        yield from log_records(stream, mapping, limit)
    elif reader == "jsonl":
        yield from jsonl_records(stream, mapping, limit)
    else:
        yield from csv_records(stream, _DELIMITERS[reader], mapping, limit)


def _archive_records(source: _HashedFile, mapping: FilesSource, limit: int) -> Iterator[Record | Refused]:
    """The records of a web archive, which is decompressed by its first bytes: names of archives are often wrong."""
    magic = bytes(source.file.read(4))
    source.file.seek(0)

    def extracted(reader: str, data: bytes, *options: object) -> Extracted | Refusal:
        return extract(reader, data, mapping, *options)

    if magic.startswith(b"\x1f\x8b"):
        members = GzipMembers(source)
        yield from archive_records(members, extracted, limit, members.member_start)
        return
    codec = {b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"}.get(magic)
    if codec is None:
        yield from archive_records(source, extracted, limit, lambda position: position)
    else:
        stream = pa.CompressedInputStream(pa.PythonFile(source, mode="r"), codec)
        yield from archive_records(CountedStream(stream), extracted, limit, lambda _: None)


def _decompressed(file: _HashedFile | pa.NativeFile, location: str) -> Stream:
    """The stream of an open file, decompressed by its extension."""
    stream: Stream = file
    extension = location.rpartition(".")[2].lower()
    if extension == "gz":
        stream = GzipMembers(file)
    elif codec := {"zst": "zstd", "zstd": "zstd", "bz2": "bz2"}.get(extension):
        native = file if isinstance(file, pa.NativeFile) else pa.PythonFile(file, mode="r")
        stream = pa.CompressedInputStream(native, codec)
    return stream


def record_columns(location: str, reader: str) -> list[str]:
    """Names of the columns of a file of records: all of Parquet and CSV, those of the first 1,000 records of JSONL.

    Raises:
        OSError: it cannot be read.
    """
    with open_file(location) as file:
        if reader == "parquet":
            return parquet_columns(file)
        stream = _decompressed(file, location)
        if reader == "jsonl":
            return jsonl_columns(stream, 1000, _SHOWN_BYTES)
        return csv_columns(stream, _DELIMITERS[reader], _SHOWN_BYTES)


def _record_row(file: Row, record: Record | Refused, seen: set[str], rules: ReadingRules) -> Row:
    """The document of a record, or the arrival with the reason why there is none."""
    unit = _UNITS.get(file["reader"], "line")
    where = {"location": f"{file['location']}#{unit}:{record.number}"}
    if isinstance(record, Refused):
        return _arrival(where, record.refusal)
    data = record.text.encode()
    content_sha256 = sha256_hex(data)
    licence = spdx_expression(record.licence)
    unrecognised = {} if licence or not record.licence else {"licence": record.licence}
    facts = {
        **file,
        "repository": record.repository,
        "path": f"{file['path']}#{record.record_id or content_sha256[:16]}",
        "kind": record.kind,
        "language": _record_language(record, rules.source),
        "licence": licence,
    }
    row = _document(facts, rules, record.text, "utf-8", content_sha256, len(data))
    row["metadata"] = {**unrecognised, **record.metadata}
    if row["doc_id"] in seen:
        return _arrival(
            where, Refusal(Reason.REPEATED_RECORD, f"same path and text as an earlier {unit}"), content_sha256
        )
    seen.add(row["doc_id"])
    return row


def _record_language(record: Record, source: Source) -> str | None:
    """The language by the column that names it; without one, for code, markup and data, by the id as a path."""
    if record.kind == "prose" or (isinstance(source, FilesSource) and source.language_column is not None):
        return record.language
    told = language_of(record.record_id or "")
    return told and told.name


def _document(file: Row, rules: ReadingRules, content: str, encoding: str, content_sha256: str, byte_count: int) -> Row:
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
        | ({PAST: "true"} if file.get("past") else {}),
        "location": file["location"],
        "status": "landed",
    }


def _is_only_evidence(kind: str, source: Source) -> bool:
    """Whether a file is a manifest of a kind that its source does not take, so that it serves `dependencies` alone."""
    return isinstance(source, PythonCodeSource | GitSource) and kind not in source.kinds


def _arrival(file: Row, refusal: Refusal | None, content_sha256: str | None = None) -> Row:
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


class _HashedFile(io.RawIOBase):
    """A file that is hashed while it is read from start to end."""

    def __init__(self, file: pa.NativeFile) -> None:
        super().__init__()
        self.file = file
        self._hash = hashlib.sha256()
        self._given = 0

    def readable(self) -> bool:
        """Always true; the base class requires it."""
        return True

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        data = bytes(self.file.read(None if size < 0 else size))
        self._hash.update(data)
        self._given += len(data)
        return data

    def tell(self) -> int:
        """How many bytes were read."""
        return self._given

    def sha256_to_end(self) -> str:
        """SHA-256 of the whole file, reading what is left; Parquet, which is read by column, is read once more."""
        if not self._given:
            self.file.seek(0)
        while self.read(BATCH_BYTES):
            pass
        return self._hash.hexdigest()

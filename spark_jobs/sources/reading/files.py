"""Read listed files once, in bounded memory: from rows of the listing to rows of documents and arrivals.

    batches of the listing -> read_files -> batches of READ_ROWS

rows.py says what the rows are. This module reads files that are one document; record_reading.py those of records, and
archive_reading.py those of files. Which documents are new is decided by the step, not here: the rows of a file depend
on that file alone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from functools import cache, partial

import pyarrow as pa

from spark_jobs.lake.files.objects import ObjectFolder, sha256_of
from spark_jobs.sources.config.file_reading import (
    ARCHIVE_READERS,
    EXTRACTING_READERS,
    ONE_DOCUMENT_READERS,
    RECORD_READERS,
    FileReading,
)
from spark_jobs.sources.config.source_config import GitSource, Source
from spark_jobs.sources.encodings.decoding import TOLD_BYTES, Decoded, decode, decode_as
from spark_jobs.sources.formats.extracted import Extracted
from spark_jobs.sources.formats.extraction import extract
from spark_jobs.sources.formats.notebooks import has_front_matter
from spark_jobs.sources.git.listing import allowed_folders, find_repositories
from spark_jobs.sources.git.store import BlobReaders
from spark_jobs.sources.identity import sha256_hex
from spark_jobs.sources.languages import DECLARES_ENCODING, EXTRACTED_BY
from spark_jobs.sources.licences import header_licence
from spark_jobs.sources.opening.compression import CODECS, decompressed
from spark_jobs.sources.opening.file_trees import absolute, unreadable
from spark_jobs.sources.opening.streams import BATCH_BYTES, HashedFile, read_up_to
from spark_jobs.sources.reading.archive_files import read_archive
from spark_jobs.sources.reading.foreign import read_foreign
from spark_jobs.sources.reading.readers import told_by_content
from spark_jobs.sources.reading.record_files import read_facts, read_records
from spark_jobs.sources.reading.rows import (
    READ_ROWS,
    ReadingRules,
    Row,
    arrival,
    document_row,
    extracted_document,
    facts_row,
    opened,
)
from spark_jobs.sources.refusals import DELETED, Reason, Refusal, RefusedError, first_line, reason_of
from spark_jobs.sources.repositories.modules import long_description, module_docstring
from spark_jobs.sources.repositories.repositories import Facts
from spark_jobs.sources.repositories.stated_facts import facts_json

_BATCH_ROWS = 10_000
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_LFS_POINTER_BYTES = 1024
_DETECTED_BYTES = 1 << 16  # of the beginning of a file whose name says nothing


def read_files(batches: Iterator[pa.RecordBatch], rules: ReadingRules) -> Iterator[pa.RecordBatch]:
    """Read every file of the listing; a batch goes out as soon as it holds about 16 MB of text."""
    rows, held = list[Row](), 0
    with contextlib.closing(open_blobs(rules.source)) as blobs:
        for batch in batches:
            for file in batch.to_pylist():
                for row in read_file(file, rules, blobs):
                    rows.append(row)
                    if row["doc_id"]:
                        held += row["byte_count"] + sum(map(len, row["metadata"].values()))
                    if held >= BATCH_BYTES or len(rows) >= _BATCH_ROWS:
                        yield pa.RecordBatch.from_pylist(rows, READ_ROWS)
                        rows, held = [], 0
        if rows:
            yield pa.RecordBatch.from_pylist(rows, READ_ROWS)


def open_blobs(source: Source) -> BlobReaders:
    """What reads the files of git repositories; for other sources it stays unused, and costs nothing."""
    if not isinstance(source, GitSource):
        return BlobReaders("")
    return BlobReaders(absolute(source.cache), cache(lambda: allowed_folders(find_repositories(source))))


def read_file(file: Row, rules: ReadingRules, blobs: BlobReaders | None = None) -> Iterator[Row]:
    """Documents, facts and refused records of one listed file, then the arrival of the file itself.

    Args:
        file: a row of the listing.
        rules: of the dataset.
        blobs: the task's readers of git repositories; without them, readers for this file alone.
    """
    if file["reader"] == "git":
        yield from _read_repository(file)
    elif file["reader"] == "repositories" and file["reason"] in (None, Reason.DELETED):
        yield from read_facts(file)
    elif file["reason"] is not None:
        row = arrival(file, Refusal(Reason(file["reason"]), file["detail"]))
        yield {**row, "status": "unchanged"} if file["reason"] == Reason.DELETED else row
    elif file.get("content_sha256") and (found := _deleted_hash(file, rules)):
        yield {**arrival(file, DELETED, found), "status": "unchanged"}
    elif file["reader"] != "detect" and (refusal := _size_refusal(file, rules)):
        yield arrival(file, refusal)
    elif rules.copies and rules.objects is not None and not file.get("object"):
        yield from _keep_and_read(file, rules, rules.objects)
    elif blobs is None:
        with contextlib.closing(open_blobs(rules.source)) as own:
            yield from _read_bytes(file, rules, own)
    else:
        yield from _read_bytes(file, rules, blobs)


def _deleted_hash(file: Row, rules: ReadingRules) -> str | None:
    """The SHA-256 of a file that was deleted for good, where it has the bytes again that it had then."""
    try:
        with opened(file, rules) as stream:
            found = sha256_of(stream)
    except OSError:
        return None  # its reader says why
    return found if found in file["content_sha256"].split() else None


def _read_bytes(file: Row, rules: ReadingRules, blobs: BlobReaders) -> Iterator[Row]:
    """Documents and refusals of a file, or of a member of an archive, then its arrival."""
    if file["reader"] == "detect":
        try:
            found = _detected(file, rules)
        except OSError as error:
            found = unreadable(error)
        if isinstance(found, Refusal):
            yield arrival(file, found)
            return
        file = found
    if refusal := _size_refusal(file, rules):
        yield arrival(file, refusal)
    elif file["reader"] in ARCHIVE_READERS:
        yield from read_archive(file, rules, partial(_read_bytes, rules=rules, blobs=blobs))
    elif file["reader"] in RECORD_READERS:
        yield from read_records(file, rules)
    else:
        yield from _read_text(file, rules, blobs)


def _detected(file: Row, rules: ReadingRules) -> Row | Refusal:
    """The file with the reader, kind and language that its first bytes tell, or why there is none.

    Raises:
        OSError: it cannot be read.
    """
    with opened(file, rules) as stream:
        source = HashedFile(stream)
        head = source.head(_DETECTED_BYTES)
        if "stream" in file:
            file = {**file, "stream": source}
    assert isinstance(rules.source, FileReading)  # no other source lists such files
    told = told_by_content(head, rules.source)
    return told if isinstance(told, Refusal) else {**file, **told}


def _keep_and_read(file: Row, rules: ReadingRules, objects: ObjectFolder) -> Iterator[Row]:
    """Keep a copy of a file's bytes, and read the copy: what lands is what is kept, whatever the file becomes."""
    try:
        with opened(file, rules) as stream:
            kept = objects.keep(stream)
    except OSError as error:
        yield arrival(file, unreadable(error))
        return
    yield from read_file({**file, "object": kept.location, "byte_count": kept.byte_count}, rules)


def _read_repository(file: Row) -> Iterator[Row]:
    """The arrival of a git repository, with the digest of its selected revisions; a fact makes it count as landed."""
    if file["reason"] is None:
        yield facts_row(facts_json(Facts(file["repository"]), touches=False), file["location"])
        yield arrival(file, None, file["content_sha256"])
    else:
        yield arrival(file, Refusal(Reason(file["reason"]), file["detail"]), file["content_sha256"])


def _size_refusal(file: Row, rules: ReadingRules) -> Refusal | None:
    """The refusal of a file that is one document and larger than a document may be."""
    size, limit = file["byte_count"], rules.max_document_bytes
    if file["reader"] in RECORD_READERS or size is None or size <= limit:
        return None
    return Refusal(Reason.TOO_LARGE, f"{size} bytes; max_document_bytes is {limit}")


def _bytes(file: Row, rules: ReadingRules, blobs: BlobReaders) -> tuple[bytes, str]:
    """The bytes of a file, decompressed, or of a blob of a git repository; at most one more than a document may have.

    Returns:
        The bytes, and the SHA-256 of the file in lower-case hex.

    Raises:
        OSError: it cannot be read.
    """
    most = rules.max_document_bytes + 1  # a file may have grown since it was listed
    blob = file.get("blob")
    if blob is not None:
        root = file["location"].removesuffix(f"@{blob}:{file['path']}")
        data = blobs.read(root, blob, rules.max_document_bytes)
        return data, sha256_hex(data)
    codec = CODECS.get(os.path.splitext(file["path"].lower())[1])
    with opened(file, rules) as stream, HashedFile(stream) as source:
        if codec is None:
            data = read_up_to(stream, most)
            return data, sha256_hex(data)
        try:
            data = read_up_to(decompressed(source, codec), most)
        except (OSError, pa.ArrowException) as error:
            detail = f"damaged: {first_line(error)}"
            raise RefusedError(reason_of(error, Reason.CORRUPT_ARCHIVE), detail) from error
        return data, source.sha256_to_end()


def _read_text(file: Row, rules: ReadingRules, blobs: BlobReaders) -> Iterator[Row]:
    """The document of a text file, and the file's arrival."""
    limit = rules.max_document_bytes
    try:
        data, file_sha256 = _bytes(file, rules, blobs)
    except OSError as error:
        yield arrival(file, unreadable(error))
        return
    if len(data) > limit:
        yield arrival(file, Refusal(Reason.TOO_LARGE, f"more than {limit} bytes, the max_document_bytes"))
        return
    if file.get("blob") and data.startswith(_LFS_POINTER) and len(data) < _LFS_POINTER_BYTES:
        yield arrival(file, Refusal(Reason.LFS_POINTER, "a pointer of git LFS; its content is elsewhere"), file_sha256)
        return
    if file["reader"] not in ONE_DOCUMENT_READERS:
        yield from _foreign(file, data, file_sha256, rules)
        return
    document = _text_document(file, data, rules)
    if isinstance(document, Refusal):
        yield arrival(file, document, file_sha256)
        return
    yield document
    yield arrival(file, None, file_sha256)


def _foreign(file: Row, data: bytes, file_sha256: str, rules: ReadingRules) -> Iterator[Row]:
    """The documents that a reader of a package finds in a file, what it refuses, and the file's arrival."""
    assert isinstance(rules.source, FileReading)  # no other source lists such files
    found = read_foreign(file["reader"], data, rules.source.extract_seconds)
    seen, document_count = set[str](), 0
    for part, one in () if isinstance(found, Refusal) else found:
        path = f"{file['path']}#{part}" if part else file["path"]
        made = one if isinstance(one, Refusal) else extracted_document({**file, "path": path}, rules, one)
        if not isinstance(made, Refusal) and path in seen:
            made = Refusal(Reason.LISTED_TWICE, f"the reader {file['reader']} gave two documents the name {part!r}")
        if isinstance(made, Refusal):
            yield arrival({"location": f"{file['location']}#{part or 'text'}"}, made)
            continue
        seen.add(path)
        document_count += 1
        yield made
    if isinstance(found, Refusal):
        yield arrival(file, found, file_sha256)
    else:
        every = Refusal(Reason.NO_USABLE_RECORD, f"all {len(found)} of its documents were refused")
        yield arrival(file, None if document_count else every, file_sha256)


def _text_document(file: Row, data: bytes, rules: ReadingRules) -> Row | Refusal:
    """The document in a file: the whole text, or what is extracted from it, hashed as UTF-8 by itself."""
    reader, source = file["reader"], rules.source
    if reader in EXTRACTING_READERS:
        assert isinstance(source, FileReading)  # no other source lists such files
        extracted = extract(reader, data, source)
        return extracted if isinstance(extracted, Refusal) else extracted_document(file, rules, extracted)
    decoded = decode(data, declares_encoding=file["language"] in DECLARES_ENCODING or reader == "docstring")
    if isinstance(source, FileReading):
        return _whole_text(file, data, decoded, rules, source)
    if isinstance(decoded, Refusal):
        return decoded
    if reader == "text":
        return document_row(
            _with_own_licence(file, decoded.text), rules, decoded.text, decoded.encoding, sha256_hex(data), len(data)
        )
    if reader == "docstring":
        prose = module_docstring(decoded.text)
        return prose if isinstance(prose, Refusal) else extracted_document(file, rules, Extracted(prose, {}))
    described = long_description(decoded.text)
    if isinstance(described, Refusal):
        return described
    prose, media_type = described
    return extracted_document(file, rules, Extracted(prose, {}, {"media_type": media_type}))


def _whole_text(
    file: Row, data: bytes, decoded: Decoded | Refusal, rules: ReadingRules, source: FileReading
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
            return extracted_document(file, rules, below._replace(metadata={**below.metadata, **metadata}))
        metadata = {**below.metadata, **metadata}
    row = document_row(_with_own_licence(file, text), rules, text, encoding, sha256_hex(data), len(data))
    row["metadata"] = {**row["metadata"], **metadata}
    return row


def _with_own_licence(file: Row, text: str) -> Row:
    """The file with the licence that its text states, where it is code."""
    stated = header_licence(text) if file["kind"] in ("code", "markup") else None
    return {**file, "licence": stated} if stated else file

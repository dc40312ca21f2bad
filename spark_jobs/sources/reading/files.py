"""Read listed files once, in bounded memory: from rows of the listing to rows of documents and arrivals.

    batches of the listing -> read_files -> batches of READ_ROWS

rows.py says what the rows are. This module reads files that are one document; record_files.py those of records, and
archive_files.py those of files. Which documents are new is decided by the step, not here: the rows of a file depend
on that file alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from spark_jobs.lake.files.objects import ObjectFolder, sha256_of
from spark_jobs.sources.config.file_reading import FileReading
from spark_jobs.sources.encodings.decoding import DETECTION_BYTES, Decoded, decode, decode_as
from spark_jobs.sources.identity import sha256_hex
from spark_jobs.sources.kinds import kind_of
from spark_jobs.sources.languages import (
    DECLARES_ENCODING,
    EXTRACTED_BY,
    Language,
    kinds_of,
    language_columns,
    language_of_text,
)
from spark_jobs.sources.licences.headers import header_licence
from spark_jobs.sources.opening.compression import decompressed_by_name
from spark_jobs.sources.opening.file_trees import unreadable
from spark_jobs.sources.opening.streams import BATCH_BYTES, HashedFile, read_up_to
from spark_jobs.sources.reading.archive_files import read_archive
from spark_jobs.sources.reading.built_in import READERS, extract, not_there
from spark_jobs.sources.reading.content_types import text_language
from spark_jobs.sources.reading.foreign import read_foreign
from spark_jobs.sources.reading.readers import columns_by_content, unpacked
from spark_jobs.sources.reading.record_files import read_facts, read_records
from spark_jobs.sources.reading.record_rows import DocumentRows, each_row
from spark_jobs.sources.reading.rows import (
    READ_ROWS,
    ReadingRules,
    Row,
    arrival,
    document_row,
    extracted_document,
    facts_row,
    opened,
    with_folders,
)
from spark_jobs.sources.records.facts import Facts, facts_json
from spark_jobs.sources.refusals import DELETED, Reason, Refusal, RefusedError, first_line, reason_of
from spark_jobs.sources.taken import Model, kind_by_content, language_taken

_BATCH_ROWS = 10_000
_LARGE_BYTES = 1 << 20
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_LFS_POINTER_BYTES = 1024
_FENCES = ("---\n", "---\r\n", "--- ", "+++")  # of front matter; a rule across the page begins so too
_DETECTED_BYTES = 1 << 16  # of the beginning of a file whose name says nothing


def read_files(batches: Iterator[pa.RecordBatch], rules: ReadingRules) -> Iterator[pa.RecordBatch]:
    """Read every file of the listing; a batch goes out as soon as it holds about 16 MB of text."""
    rows, parts, byte_count, count = list[Row](), list[pa.RecordBatch](), 0, 0
    with kind_of(rules.source).opening() as opens:
        for batch in batches:
            for file in batch.to_pylist():
                for part in read_parts(file, rules._replace(opens=opens)):
                    if isinstance(part, DocumentRows):
                        parts.append(part.rows)
                        byte_count += part.rows.nbytes
                        count += part.rows.num_rows
                    else:
                        rows.append(part)
                        count += 1
                        if part["doc_id"]:
                            byte_count += part["byte_count"] + sum(map(len, part["metadata"].values()))
                    if byte_count >= BATCH_BYTES or count >= _BATCH_ROWS:
                        yield from _together(parts, rows)
                        rows, parts, byte_count, count = [], [], 0, 0
        yield from _together(parts, rows)


def _together(parts: list[pa.RecordBatch], rows: list[Row]) -> Iterator[pa.RecordBatch]:
    """Batches and rows as one batch, but for batches that are large."""
    small = list[pa.RecordBatch]()
    for part in parts:
        if part.nbytes >= _LARGE_BYTES:
            yield part
        else:
            small.append(part)
    if rows:
        small.append(pa.RecordBatch.from_pylist(rows, READ_ROWS))
    if small:
        yield pa.concat_batches(small)


def read_file(file: Row, rules: ReadingRules) -> Iterator[Row]:
    """The rows of `read_parts` one by one; those of records with `unit`."""
    for part in read_parts(file, rules):
        yield from each_row(part)


def read_parts(file: Row, rules: ReadingRules) -> Iterator[Row | DocumentRows]:
    """Documents, facts and refused records of one listed file, then the arrival of the file itself.

    Args:
        file: a row of the listing.
        rules: of the dataset; without `opens` the source is opened for this file alone.
    """
    if rules.opens is None:
        with kind_of(rules.source).opening() as opens:
            yield from read_parts(file, rules._replace(opens=opens))
    elif file["reader"] == "git":
        yield from _read_repository(file)
    elif file["reader"] == "repositories" and file["reason"] in (None, Reason.DELETED):
        yield from read_facts(file)
    elif file["reason"] is not None:
        row = arrival(file, Refusal(Reason(file["reason"]), file["detail"]))
        yield {**row, "status": "unchanged"} if file["reason"] == Reason.DELETED else row
    elif file.get("content_sha256") and (sha256 := _deleted_hash(file, rules)):
        yield {**arrival(file, DELETED, sha256), "status": "unchanged"}
    elif _is_unnamed(file):
        yield from _told_by_content(file, rules, read_parts)
    elif file["reader"] != "detect" and (refusal := _size_refusal(file, rules)):
        yield arrival(file, refusal)
    elif rules.copies and rules.objects is not None and not file.get("object"):
        yield from _keep_and_read(file, rules, rules.objects)
    else:
        yield from _read_bytes(file, rules)


def _deleted_hash(file: Row, rules: ReadingRules) -> str | None:
    """The SHA-256 of a file with the bytes with which it was deleted for good; None for other files."""
    try:
        with opened(file, rules) as stream:
            sha256 = sha256_of(stream)
    except OSError:
        return None  # its reader says why
    return sha256 if sha256 in file["content_sha256"].split() else None


def _is_unnamed(file: Row) -> bool:
    """Whether the content of a file of a repository has to say its language, as its name does not."""
    return file["reader"] == "text" and file["kind"] is None


def _told_by_content(
    file: Row, rules: ReadingRules, read: Callable[[Row, ReadingRules], Iterator[Row | DocumentRows]]
) -> Iterator[Row | DocumentRows]:
    """The rows of a file whose name does not say what it is, read as what its first bytes say."""
    try:
        detected = _detected(file, rules)
    except OSError as error:
        detected = unreadable(error)
    if isinstance(detected, Refusal):
        yield arrival(file, detected)
    else:
        yield from read(detected, rules)


def _read_bytes(file: Row, rules: ReadingRules) -> Iterator[Row | DocumentRows]:
    """Documents and refusals of a file, or of a member of an archive, then its arrival."""
    if file["reader"] == "detect" or _is_unnamed(file):
        yield from _told_by_content(file, rules, _read_bytes)
        return
    gives = _gives(file)
    if refusal := _size_refusal(file, rules):
        yield arrival(file, refusal)
    elif gives == "files":
        yield from read_archive(file, rules, partial(_read_bytes, rules=rules))
    elif gives == "records":
        yield from read_records(file, rules)
    else:
        yield from _read_whole(file, rules)


def _gives(file: Row) -> str:
    """What the reader of a file gives, see `BuiltIn.gives`; readers of packages give `documents`."""
    return READERS[file["reader"]].gives if file["reader"] in READERS else "documents"


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
    if isinstance(rules.source, FileReading):
        columns = columns_by_content(head, rules.source)
    else:
        language = language_taken(file["path"], head, rules.source.kinds, _model(rules.source))
        columns = language if isinstance(language, Refusal) else language_columns("text", language)
    if isinstance(columns, Refusal):
        return columns
    return not_there(columns["reader"]) or {**file, **columns}


def _keep_and_read(file: Row, rules: ReadingRules, objects: ObjectFolder) -> Iterator[Row | DocumentRows]:
    """Keep a copy of a file's bytes, and read the copy: what lands is what is kept, whatever the file becomes."""
    try:
        with opened(file, rules) as stream:
            kept = objects.keep(stream)
    except OSError as error:
        yield arrival(file, unreadable(error))
        return
    yield from read_parts({**file, "object": kept.location, "byte_count": kept.byte_count}, rules)


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
    if _gives(file) in ("records", "files", "content") or size is None or size <= limit:
        return None
    return Refusal(Reason.TOO_LARGE, f"{size} bytes; max_document_bytes is {limit}")


def _bytes(file: Row, rules: ReadingRules) -> tuple[bytes, str]:
    """The bytes of a file, decompressed; at most one more than a document may have.

    Returns:
        The bytes, and the SHA-256 of the file in lower-case hex.

    Raises:
        OSError: it cannot be read.
    """
    most = rules.max_document_bytes + 1  # a file may have grown since it was listed
    with opened(file, rules) as stream, HashedFile(stream) as source:
        plain = decompressed_by_name(source, file["path"], getattr(rules.source, "archives", None))
        try:
            data = read_up_to(plain, most)
        except (OSError, pa.ArrowException) as error:
            if plain is source:
                raise
            detail = f"damaged: {first_line(error)}"
            raise RefusedError(reason_of(error, Reason.CORRUPT_ARCHIVE), detail) from error
        return data, source.sha256_to_end()


def _read_whole(file: Row, rules: ReadingRules) -> Iterator[Row]:
    """The document of a file that is held in memory, or those that the reader of a package finds, and its arrival."""
    limit = rules.max_document_bytes
    try:
        data, file_sha256 = _bytes(file, rules)
    except OSError as error:
        yield arrival(file, unreadable(error))
        return
    if len(data) > limit:
        yield arrival(file, Refusal(Reason.TOO_LARGE, f"more than {limit} bytes, the max_document_bytes"))
        return
    if file.get("blob") and data.startswith(_LFS_POINTER) and len(data) < _LFS_POINTER_BYTES:
        yield arrival(file, Refusal(Reason.LFS_POINTER, "a pointer of git LFS; its content is elsewhere"), file_sha256)
        return
    if _gives(file) == "documents":
        yield from _foreign(file, data, file_sha256, rules)
        return
    taken = _with_language(file, data, rules.source)
    document = taken if isinstance(taken, Refusal) else _text_document(taken, data, rules)
    if isinstance(document, Refusal):
        yield arrival(file, document, file_sha256)
        return
    yield with_folders(document, file, rules.source)
    yield {**arrival(file, None, file_sha256), "detail": _told(file, document["kind"], rules.source)}


def _told(file: Row, kind: str, source: object) -> str | None:
    """What is told of a file that landed: its kind where its name leaves that open, or that it has no columns."""
    if hasattr(source, "kinds"):
        return kind_by_content(file["path"], kind)
    if not isinstance(source, FileReading) or source.text_column is None:
        return None
    return f"it has no columns: the whole of it landed, read by {file['reader']}; text_column is not asked of it"


def _foreign(file: Row, data: bytes, file_sha256: str, rules: ReadingRules) -> Iterator[Row]:
    """The documents that a reader of a package finds in a file, what it refuses, and the file's arrival."""
    assert isinstance(rules.source, FileReading)  # no other source lists such files
    answers = read_foreign(file["reader"], data, rules.source.extract_seconds)
    paths, document_count = set[str](), 0
    for part, answer in () if isinstance(answers, Refusal) else answers:
        path = f"{file['path']}#{part}" if part else file["path"]
        document = answer if isinstance(answer, Refusal) else extracted_document({**file, "path": path}, rules, answer)
        if not isinstance(document, Refusal) and path in paths:
            document = Refusal(Reason.LISTED_TWICE, f"the reader {file['reader']} gave two documents the name {part!r}")
        if isinstance(document, Refusal):
            yield arrival({"location": f"{file['location']}#{part or 'text'}"}, document)
            continue
        paths.add(path)
        document_count += 1
        yield with_folders(document, file, rules.source)
    if isinstance(answers, Refusal):
        yield arrival(file, answers, file_sha256)
    else:
        every = Refusal(Reason.NO_USABLE_RECORD, f"all {len(answers)} of its documents were refused")
        yield arrival(file, None if document_count else every, file_sha256)


def _with_language(file: Row, data: bytes, source: object) -> Row | Refusal:
    """A text file with the kind and language that its name and its bytes tell, or why it is left out for them."""
    if file["reader"] != "text":
        return file
    kinds = getattr(source, "kinds", None)
    language: Language | Refusal | None
    if kinds is not None:
        language = language_taken(file["path"], data, kinds, _model(source))
    else:
        path = unpacked(file["path"])
        if not isinstance(source, FileReading) or source.format != "auto" or not kinds_of(path):
            return file
        language = language_of_text(path, data, _model(source))
    if language is None or isinstance(language, Refusal):
        return language or file
    return {**file, **language_columns("text", language)}


def _model(source: Any) -> Model | None:
    """What tells the language of a text where Linguist does not decide; None where the source asks no model."""
    return text_language if source.unknown == "detect" else None


def _text_document(file: Row, data: bytes, rules: ReadingRules) -> Row | Refusal:
    """The document in a file: the whole text, or what is extracted from it, hashed as UTF-8 by itself."""
    if _gives(file) == "document":
        options = (rules.max_document_bytes,) if file["reader"] == "epub" else ()
        extracted = extract(file["reader"], data, *options, source=rules.source)
        return extracted if isinstance(extracted, Refusal) else extracted_document(file, rules, extracted)
    decoded = decode(data, declares_encoding=file["language"] in DECLARES_ENCODING)
    if isinstance(rules.source, FileReading):
        return _whole_text(file, data, decoded, rules, rules.source)
    if isinstance(decoded, Refusal):
        return decoded
    return document_row(
        _with_own_licence(file, decoded.text), rules, decoded.text, decoded.encoding, sha256_hex(data), len(data)
    )


def _whole_text(
    file: Row, data: bytes, decoded: Decoded | Refusal, rules: ReadingRules, source: FileReading
) -> Row | Refusal:
    """The document of a text file: all of it, in the encoding that is found, or what is below its front matter."""
    metadata: Mapping[str, str] = {}
    if isinstance(decoded, Refusal):
        sample = data[:DETECTION_BYTES]
        detected = extract("legacy", sample, sample == data, source=source) if source.encoding != "strict" else decoded
        whole = decoded if isinstance(detected, Refusal) else decode_as(data, detected.metadata["source_encoding"])
        if isinstance(whole, Refusal) or isinstance(detected, Refusal):
            return decoded
        decoded, metadata = whole, detected.metadata
    text, encoding = decoded
    if source.front_matter == "metadata" and file["media_type"] == "text/markdown" and text.startswith(_FENCES):
        below = extract("front_matter", text.encode(), source=source)
        if isinstance(below, Refusal):
            return below
        if EXTRACTED_BY in below.metadata:
            return extracted_document(file, rules, below._replace(metadata={**below.metadata, **metadata}))
        metadata = {**below.metadata, **metadata}
    row = document_row(_with_own_licence(file, text), rules, text, encoding, sha256_hex(data), len(data))
    row["metadata"] = {**row["metadata"], **metadata}
    return row


def _with_own_licence(file: Row, text: str) -> Row:
    """The row of a file, with the licence that its text states where it is no prose."""
    stated = header_licence(text, file["licence"]) if file["kind"] != "prose" else None
    return {**file, "licence": stated} if stated else file

"""Read listed files once, in bounded memory: from rows of the listing to rows of documents and arrivals.

    batches of the listing -> read_files -> batches of READ_ROWS

rows.py says what the rows are. `read_parts` sends a file on by its reader: this module reads files of one document,
record_files.py those of records, and archive_files.py those of files. Which documents are new is decided by the step,
not here: the rows of a file depend on that file alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain

import pyarrow as pa

from spark_jobs.lake.files.objects import ObjectFolder, sha256_of
from spark_jobs.sources.config.file_reading import FileReading
from spark_jobs.sources.config.permissions import OptOuts
from spark_jobs.sources.encodings.decoding import DETECTION_BYTES, decode, decode_as
from spark_jobs.sources.kinds import opening
from spark_jobs.sources.languages import DECLARES_ENCODING, EXTRACTED_BY, Language, language_columns, language_named_by
from spark_jobs.sources.licences.headers import header_licence
from spark_jobs.sources.listed_file import ListedFile
from spark_jobs.sources.opening.compression import WholeFile, whole_file
from spark_jobs.sources.opening.file_trees import unreadable
from spark_jobs.sources.opening.streams import BATCH_BYTES, HashedFile
from spark_jobs.sources.reading.archive_files import read_archive
from spark_jobs.sources.reading.built_in import READERS, extract, missing_package, not_installed, not_there
from spark_jobs.sources.reading.content_types import text_language
from spark_jobs.sources.reading.foreign import read_foreign
from spark_jobs.sources.reading.opted_out import without_opted_out
from spark_jobs.sources.reading.readers import columns_by_content
from spark_jobs.sources.reading.record_files import read_facts, read_records
from spark_jobs.sources.reading.record_rows import DocumentRows
from spark_jobs.sources.reading.rows import (
    READ_ROWS,
    ReadingRules,
    Row,
    arrival,
    document_row,
    extracted_document,
    facts_row,
    refused_part,
)
from spark_jobs.sources.records.facts import Facts, facts_json
from spark_jobs.sources.refusals import DELETED, Reason, Refusal
from spark_jobs.sources.taken import kind_by_content, language_taken

_BATCH_ROWS = 10_000
_LARGE_BYTES = 1 << 20
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_LFS_POINTER_BYTES = 1024  # a pointer has fewer (the specification of git-lfs)
_FENCES = ("---\n", "---\r\n", "--- ", "+++")  # of front matter; a rule across the page begins so too
_DETECTED_BYTES = 1 << 16  # of the beginning of a file whose name says nothing


def read_files(batches: Iterator[pa.RecordBatch], rules: ReadingRules) -> Iterator[pa.RecordBatch]:
    """Read every file of the listing; a batch goes out as soon as it holds about 16 MB of text.

    Rows of files and batches of records go out together, but for large batches.
    """
    rows, large, small = list[Row](), list[pa.RecordBatch](), list[pa.RecordBatch]()
    byte_count = count = 0
    with opening(rules.source, rules.objects) as opens:
        listed = map(ListedFile.of, chain.from_iterable(map(pa.RecordBatch.to_pylist, batches)))
        of_file = read_parts if rules.opt_outs is None else partial(read_permitted, opt_outs=rules.opt_outs)
        read = chain.from_iterable(map(partial(of_file, rules=rules._replace(opens=opens)), listed))
        for part in chain(read, [None]):
            if isinstance(part, DocumentRows):
                (large if part.rows.nbytes >= _LARGE_BYTES else small).append(part.rows)
                byte_count += part.rows.nbytes
                count += part.rows.num_rows
            elif part is not None:
                rows.append(part)
                count += 1
                if part["doc_id"]:
                    byte_count += part["byte_count"] + sum(map(len, part["metadata"].values()))
            if part is None or byte_count >= BATCH_BYTES or count >= _BATCH_ROWS:
                yield from large
                if rows:
                    small.append(pa.RecordBatch.from_pylist(rows, READ_ROWS))
                if small:
                    yield pa.concat_batches(small)
                rows, large, small, byte_count, count = [], [], [], 0, 0


def read_permitted(file: ListedFile, rules: ReadingRules, opt_outs: OptOuts) -> Iterable[Row | DocumentRows]:
    """As `read_parts`, without what people opted out of: of files such ones are not read, of documents refused."""
    if file.reason is not None or file.reader in ("git", "repositories"):
        return read_parts(file, rules)
    sha256 = _file_hash(file, rules) if opt_outs.has_hashes else None
    facts = {"location": file.location, "repository": file.repository, "path": file.path, "content_sha256": sha256}
    refusal = opt_outs.refusal(facts)
    return [arrival(file, refusal, sha256)] if refusal else without_opted_out(read_parts(file, rules), file, opt_outs)


def read_parts(file: ListedFile, rules: ReadingRules) -> Iterable[Row | DocumentRows]:
    """Documents, facts and refused records of one file or member, then the arrival of the file itself.

    Args:
        file: as it is listed.
        rules: of the dataset, with `opens`.
    """
    refusal = None if file.reason is None else Refusal(Reason(file.reason), file.detail or "")
    if file.reader == "git":  # with the digest of its selected revisions; a fact makes it count as landed
        facts = [] if refusal else [facts_row(facts_json(Facts(file.repository or ""), touches=False), file.location)]
        return [*facts, arrival(file, refusal, file.content_sha256)]
    if file.reader == "repositories" and file.reason in (None, Reason.DELETED):
        return read_facts(file)
    gives = READERS[file.reader].gives if file.reader in READERS else "documents"
    is_unnamed = gives == "text" and file.kind is None  # in a repository; its name does not say its language
    sha256 = None
    if not refusal and file.content_sha256 and (sha256 := _deleted_hash(file, rules)):
        refusal = DELETED
    elif not refusal and not is_unnamed and gives not in ("records", "files", "content"):
        size, limit = file.byte_count or 0, rules.max_document_bytes
        if size > limit:
            refusal = Refusal(Reason.TOO_LARGE, f"{size} bytes; max_document_bytes is {limit}")
    if refusal is not None:
        row = arrival(file, refusal, sha256)
        return [row | {"status": "unchanged"} if refusal.reason == Reason.DELETED else row]
    if is_unnamed:
        return _read_detected(file, rules)
    if rules.copies and rules.objects is not None and not file.object and file.stream is None:
        return _keep_and_read(file, rules, rules.objects)
    if gives == "content":
        return _read_detected(file, rules)
    if gives == "files":
        return read_archive(file, rules, partial(read_parts, rules=rules))
    return read_records(file, rules) if gives == "records" else _read_whole(file, rules, gives)


def _deleted_hash(file: ListedFile, rules: ReadingRules) -> str | None:
    """The SHA-256 of a file still with the bytes of its deletion for good; None for other files."""
    sha256 = _file_hash(file, rules)
    return sha256 if sha256 in (file.content_sha256 or "").split() else None


def _file_hash(file: ListedFile, rules: ReadingRules) -> str | None:
    """The SHA-256 of a file; None where it cannot be read."""
    try:
        with rules.opens(file, rules.max_document_bytes) as stream:
            return sha256_of(stream)
    except OSError:
        return None  # its reader says why


def _read_detected(file: ListedFile, rules: ReadingRules) -> Iterable[Row | DocumentRows]:
    """The rows of a file not identified by its name, read as what its first bytes say."""
    try:
        with rules.opens(file, rules.max_document_bytes) as stream:
            source = HashedFile(stream)
            head = source.head(_DETECTED_BYTES)
    except OSError as error:
        return [arrival(file, unreadable(error))]
    if isinstance(rules.source, FileReading):
        columns = columns_by_content(head, rules.source)
    else:
        model = text_language if rules.source.unknown == "detect" else None
        language = language_taken(file.path, head, rules.source.kinds, model)
        columns = language if isinstance(language, Refusal) else language_columns("text", language)
    if isinstance(columns, Refusal):
        return [arrival(file, columns)]
    reader = columns["reader"] or ""
    refusal = not_there(reader)
    if refusal is None and isinstance(rules.source, FileReading):
        package = missing_package(reader, rules.source)
        refusal = not_installed(reader, package) if package else None
    if refusal is not None:
        return [arrival(file, refusal)]
    stream = None if file.stream is None else source  # of a member, what was read comes again
    return read_parts(replace(file, **columns, stream=stream), rules)  # type: ignore[arg-type]


def _keep_and_read(file: ListedFile, rules: ReadingRules, objects: ObjectFolder) -> Iterable[Row | DocumentRows]:
    """Keep a copy of a file's bytes, and read the copy: what lands is what is kept, whatever the file becomes."""
    try:
        with rules.opens(file, rules.max_document_bytes) as stream:
            kept = objects.keep(stream)
    except OSError as error:
        return [arrival(file, unreadable(error))]
    return read_parts(replace(file, object=kept.location, byte_count=kept.byte_count), rules)


def _read_whole(file: ListedFile, rules: ReadingRules, gives: str) -> Iterator[Row]:
    """The document of a file held in memory, or those from the reader of a package, and its arrival."""
    source, limit = rules.source, rules.max_document_bytes
    try:
        with rules.opens(file, limit) as stream:  # a file may have grown since it was listed
            whole = whole_file(stream, file.path, limit + 1, getattr(source, "archives", None))
    except OSError as error:
        yield arrival(file, unreadable(error))
        return
    document: Row | Refusal
    if len(whole.data) > limit:
        yield arrival(file, Refusal(Reason.TOO_LARGE, f"more than {limit} bytes, the max_document_bytes"))
        return
    if file.blob and whole.data.startswith(_LFS_POINTER) and len(whole.data) < _LFS_POINTER_BYTES:
        document = Refusal(Reason.LFS_POINTER, "a pointer of git LFS; its content is elsewhere")
    elif gives == "documents":
        yield from _foreign(file, whole, rules)
        return
    elif gives == "document":
        extracted = extract(file.reader, whole.data, *((limit,) if file.reader == "epub" else ()), source=source)
        document = extracted if isinstance(extracted, Refusal) else extracted_document(file, rules, extracted)
    else:
        document = _text_document(file, whole, rules)
    if isinstance(document, Refusal):
        yield arrival(file, document, whole.sha256)
        return
    yield document
    detail = None
    if hasattr(source, "kinds"):
        detail = kind_by_content(file.path, document["kind"])
    elif isinstance(source, FileReading) and (source.text_column is not None or source.messages_column is not None):
        column = "text_column" if source.messages_column is None else "messages_column"
        detail = f"it has no columns: the whole of it landed, read by {file.reader}; {column} is not asked of it"
    yield arrival(file, None, whole.sha256) | {"detail": detail}


def _foreign(file: ListedFile, whole: WholeFile, rules: ReadingRules) -> Iterator[Row]:
    """The documents found in a file by a reader of a package, what it refuses, and the file's arrival."""
    assert isinstance(rules.source, FileReading)  # no other source lists such files
    answers = read_foreign(file.reader, whole.data, rules.source.extract_seconds)
    paths = set[str]()
    for part, answer in () if isinstance(answers, Refusal) else answers:
        of_part = replace(file, path=f"{file.path}#{part}") if part else file
        document = answer if isinstance(answer, Refusal) else extracted_document(of_part, rules, answer)
        if not isinstance(document, Refusal) and of_part.path in paths:
            document = Refusal(Reason.LISTED_TWICE, f"the reader {file.reader} gave two documents the name {part!r}")
        if isinstance(document, Refusal):
            yield refused_part(f"{file.location}#{part or 'text'}", document)
        else:
            paths.add(of_part.path)
            yield document
    if isinstance(answers, Refusal):
        yield arrival(file, answers, whole.sha256)
    else:
        every = Refusal(Reason.NO_USABLE_RECORD, f"all {len(answers)} of its documents were refused")
        yield arrival(file, None if paths else every, whole.sha256)


def _text_document(file: ListedFile, whole: WholeFile, rules: ReadingRules) -> Row | Refusal:
    """The document of a text file: all of it, in the detected encoding, or what is below its front matter."""
    source, data = rules.source, whole.data
    model = text_language if getattr(source, "unknown", "") == "detect" else None
    language: Language | Refusal | None = None
    if (kinds := getattr(source, "kinds", None)) is not None:
        language = language_taken(file.path, data, kinds, model)
    elif isinstance(source, FileReading) and source.format == "auto":
        language = language_named_by(whole.name, data, model)
    if isinstance(language, Refusal):
        return language
    if language is not None and language != (file.kind, file.language, file.media_type):
        file = replace(file, kind=language.kind, language=language.name, media_type=language.media_type or None)
    decoded, metadata = decode(data, declares_encoding=file.language in DECLARES_ENCODING), dict[str, str]()
    if isinstance(source, FileReading) and isinstance(decoded, Refusal) and source.encoding != "strict":
        detected = extract("legacy", data[:DETECTION_BYTES], len(data) <= DETECTION_BYTES, source=source)
        if isinstance(detected, Refusal) and detected.reason == Reason.NOT_INSTALLED:
            return detected
        if not isinstance(detected, Refusal):
            whole_text = decode_as(data, detected.metadata["source_encoding"])
            decoded, metadata = (decoded, {}) if isinstance(whole_text, Refusal) else (whole_text, detected.metadata)
    if isinstance(decoded, Refusal):
        return decoded
    text, encoding = decoded
    fenced = file.media_type == "text/markdown" and text.startswith(_FENCES)
    if fenced and isinstance(source, FileReading) and source.front_matter == "metadata":
        below = extract("front_matter", text.encode(), source=source)
        if isinstance(below, Refusal):
            return below
        metadata = {**below.metadata, **metadata}
        if EXTRACTED_BY in below.metadata:
            return extracted_document(file, rules, below._replace(metadata=metadata))
    if file.kind != "prose" and (stated := header_licence(text, file.licence)):
        file = replace(file, licence=stated)
    row = document_row(file, rules, text, encoding, whole.content_sha256, len(data))
    row["metadata"] |= metadata
    return row

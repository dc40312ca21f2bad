"""Read files of records: from the listing of a file to the rows of its documents, of facts and of refused records."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from typing import Any

from spark_jobs.plugins import attribute
from spark_jobs.sources.config.file_reading import FileReading
from spark_jobs.sources.config.file_source import FileSource
from spark_jobs.sources.config.source_config import Source
from spark_jobs.sources.encodings.decoding import Recoded
from spark_jobs.sources.identity import json_array, sha256_hex
from spark_jobs.sources.kinds import kind_of
from spark_jobs.sources.languages import kinds_of, language_of_text
from spark_jobs.sources.licences.expressions import is_recognised
from spark_jobs.sources.licences.names import stated
from spark_jobs.sources.opening.compression import decompressed_by_name
from spark_jobs.sources.opening.file_trees import open_file, unreadable
from spark_jobs.sources.opening.streams import HashedFile
from spark_jobs.sources.opening.table_folders import partitions
from spark_jobs.sources.reading.built_in import COLUMN_READERS, READERS, extract
from spark_jobs.sources.reading.rows import (
    ReadingRules,
    Row,
    arrival,
    closing_arrivals,
    document_row,
    facts_row,
    opened,
    with_folders,
)
from spark_jobs.sources.records.facts import Facts, facts_json, stated_facts, stated_lines
from spark_jobs.sources.records.records import Record, RecordFile, Refused
from spark_jobs.sources.refusals import Reason, Refusal, RefusedError

_SHOWN_BYTES = 16 << 20  # longer lines are skipped when only their columns are asked for


def read_records(file: Row, rules: ReadingRules) -> Iterator[Row]:
    """Documents, facts and refusals of one file of records, then its arrival: landed where any record is usable.

    Hashes of all records are held to find repeated ones: about 200 bytes for each record of the file. On pages, which
    are a part of a history wherever they end, all texts of a path are its versions by `number`, and one that says the
    same as the record before it says nothing.
    """
    seen, stated, fault, refused_count, is_usable = dict[bytes, bytes](), set[str](), None, 0, False
    has_versions = kind_of(rules.source).on_pages
    try:
        with opened(file, rules) as stream, HashedFile(stream) as source:
            for record in _records(file, source, rules):
                if isinstance(record, Refused) and record.number is None:
                    fault = record.refusal if fault is None else fault.and_also(record.refusal)
                    continue
                row = _record_row(file, record, {} if has_versions else seen, rules)
                if has_versions and row["doc_id"]:
                    path, doc_id = _path_hash(row["repository"], row["path"]), bytes.fromhex(row["doc_id"])
                    if seen.get(path) == doc_id:
                        continue
                    seen[path] = doc_id
                refused_count += row["doc_id"] is None
                is_usable = is_usable or row["doc_id"] is not None
                yield row
                if isinstance(record, Record) and record.repository is not None and row["doc_id"]:
                    facts = facts_json(stated_facts(record.repository, record.facts)[0], stated=True)
                    if facts not in stated:
                        stated.add(facts)
                        yield facts_row(facts)
            content_sha256 = source.sha256_to_end()
    except OSError as error:
        fault, content_sha256 = unreadable(error), None
    is_usable = is_usable or (has_versions and refused_count > 0)  # where a page ends is no fault of its records
    every = Refusal(Reason.NO_USABLE_RECORD, f"all {refused_count} records were refused")
    nothing = every if refused_count else Refusal(Reason.EMPTY, READERS[file["reader"]].nothing)
    yield from closing_arrivals(file, is_usable, fault, nothing, content_sha256)


def read_facts(file: Row) -> Iterator[Row]:
    """Facts and refused lines of a file about repositories, then its arrival.

    An unchanged file is read too, because files of its repositories may have changed: it gives facts alone, which make
    no row of `repositories` by themselves (`touches` is false).
    """
    touches, said, fault = not file["unchanged"], False, None
    location = file["location"] if touches else None
    try:
        with open_file(file["location"]) as stream, HashedFile(stream) as source:
            if source.head(1 << 12).lstrip()[:1] == b"<":  # servers that answer 200 to every address
                raise RefusedError(Reason.BAD_RECORD, "a page of HTML, no facts about repositories: nothing is taken")
            for found in stated_lines(decompressed_by_name(source, file["location"])):
                if isinstance(found, Facts):
                    said = True
                    yield facts_row(facts_json(found, stated=True, touches=touches), location)
                elif found.number is None:
                    fault = found.refusal
                elif touches:
                    yield arrival({"location": f"{file['location']}#line:{found.number}"}, found.refusal)
            content_sha256 = source.sha256_to_end()
    except OSError as error:
        fault, content_sha256 = unreadable(error), None
    if not touches:
        if fault is not None:  # no row of a table: by it `documents` checks what executors can read
            yield arrival({"location": None, "path": file["location"]}, fault)
        return
    nothing = Refusal(Reason.NO_USABLE_RECORD, "no line of it tells of a repository")
    yield from closing_arrivals(file, said, fault, nothing, content_sha256)


def _records(file: Row, source: HashedFile, rules: ReadingRules) -> Iterator[Record | Refused]:
    """The records of an open file."""
    reader = READERS[file["reader"]]
    given = _given(file, source, rules.source, rules.max_document_bytes)
    if not reader.recoded or rules.source.encoding == "strict":
        yield from attribute(reader.function)(given)
        return
    recoded = Recoded(given.plain(), lambda data: given.extract("legacy", data, False))
    for record in attribute(reader.function)(given._replace(plain=lambda: recoded)):
        is_refused = isinstance(record, Refused)
        yield record if is_refused else record._replace(metadata={**recoded.facts, **record.metadata})


def _given(row: Row, file: HashedFile, source: Any, max_bytes: int) -> RecordFile:
    """An open file in the form that its reader takes."""
    plain = partial(decompressed_by_name, file, row["location"], getattr(source, "archives", None))
    return RecordFile(row, file, plain, source, max_bytes, partial(extract, source=source), partitions(row["location"]))


def record_columns(file: Row, source: FileSource) -> list[str]:
    """Names of the columns of a listed file: all of Parquet and CSV, those of the first 1,000 records of JSONL.

    Raises:
        OSError: it cannot be read.
    """
    with kind_of(source).opening() as opens, opens(file, _SHOWN_BYTES) as stream, HashedFile(stream) as held:
        module, _, _ = READERS[file["reader"]].function.partition(":")
        return list(attribute(f"{module}:names_in")(_given(file, held, source, _SHOWN_BYTES)))


def _record_row(file: Row, record: Record | Refused, seen: dict[bytes, bytes], rules: ReadingRules) -> Row:
    """The document of a record, or the arrival with the reason why there is none.

    Of records of a file with one path the first is the document: a file is one state of its records, and which of two
    texts of one state is the newer is not known.

    Args:
        file: the row of the listing.
        record: the record.
        seen: the doc_id at each path so far, both as bytes, the path hashed; the record's is added.
        rules: of the dataset.
    """
    unit = READERS[file["reader"]].unit
    where = {"location": f"{file['location']}#{unit}:{record.number}"}
    if isinstance(record, Refused):
        return arrival(where, record.refusal)
    data = record.text.encode()
    content_sha256 = sha256_hex(data)
    licence = stated(record.licence)
    unrecognised = {"licence": str(record.licence)} if licence and not is_recognised(licence) else {}
    facts = {
        **file,
        "repository": record.repository,
        "path": f"{file['path']}#{record.record_id or content_sha256[:16]}",
        "kind": record.kind,
        "language": _record_language(record, rules.source),
        "licence": licence,
    }
    row = document_row(facts, rules, record.text, "utf-8", content_sha256, len(data))
    row["metadata"] = {**row["metadata"], **unrecognised, **record.metadata}
    if file["reader"] not in COLUMN_READERS:
        row = with_folders(row, file, rules.source)
    row |= {"unit": unit, "number": record.number}  # the unit is for those who ask where it stands
    earlier = seen.setdefault(_path_hash(record.repository, facts["path"]), doc_id := bytes.fromhex(row["doc_id"]))
    if earlier is doc_id:
        return row
    if earlier == doc_id:
        refusal = Refusal(Reason.REPEATED_RECORD, f"same path and text as an earlier {unit}")
    else:
        said = f"id {record.record_id!r:.100}" if record.record_id else "hash of the text"
        refusal = Refusal(Reason.LISTED_TWICE, f"the {said} is that of an earlier {unit}, which has another text")
    return arrival(where, refusal, content_sha256)


def _path_hash(repository: str | None, path: str) -> bytes:
    """A hash of repository and path, which all revisions of a document share."""
    return hashlib.sha256(json_array(repository, path)).digest()[:16]


def _record_language(record: Record, source: Source) -> str | None:
    """The language by the column that names it; without one, for code, markup and data, by the id as a path."""
    if record.kind == "prose" or (isinstance(source, FileReading) and source.language_column is not None):
        return record.language
    path = record.record_id or ""
    language = language_of_text(path, record.text.encode()) if kinds_of(path) else None
    return language and language.name

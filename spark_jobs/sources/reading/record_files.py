"""Read files of records: from the listing of a file to the rows of its documents, of facts and of refused records."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from functools import partial

from spark_jobs.sources.api.page_records import page_records
from spark_jobs.sources.config.api_config import PAGE_MARK, PagedSource
from spark_jobs.sources.config.file_reading import FileReading
from spark_jobs.sources.config.source_config import Source
from spark_jobs.sources.encodings.decoding import Recoded
from spark_jobs.sources.formats.csv_records import csv_columns, csv_records
from spark_jobs.sources.formats.extracted import Extracted
from spark_jobs.sources.formats.extraction import extract
from spark_jobs.sources.formats.log_lines import log_records
from spark_jobs.sources.formats.mailboxes import mail_records
from spark_jobs.sources.formats.parquet_records import parquet_columns, parquet_records
from spark_jobs.sources.formats.records import Record, Refused, jsonl_columns, jsonl_records
from spark_jobs.sources.formats.web_archives import archive_records
from spark_jobs.sources.formats.xml_elements import xml_records
from spark_jobs.sources.identity import sha256_hex
from spark_jobs.sources.languages import PAGE, language_of
from spark_jobs.sources.licences import spdx_expression
from spark_jobs.sources.opening.compression import CODECS, codec_of, decompressed
from spark_jobs.sources.opening.file_trees import open_file, unreadable
from spark_jobs.sources.opening.gzip_members import GzipMembers
from spark_jobs.sources.opening.streams import HashedFile, Stream
from spark_jobs.sources.reading.rows import ReadingRules, Row, arrival, document_row, facts_row, open_at, opened
from spark_jobs.sources.refusals import Reason, Refusal, RefusedError
from spark_jobs.sources.repositories.repositories import Facts
from spark_jobs.sources.repositories.stated_facts import facts_json, stated_facts, stated_lines

_SHOWN_BYTES = 16 << 20  # longer lines are skipped when only their columns are asked for
_DELIMITERS = {"csv": ",", "tsv": "\t"}
_NOTHING = {
    "warc": "no record of the archive is a response, a conversion, or a resource of the web",
    "xml": "no element of the file has the name that xml_element gives",
}
_UNITS = {"parquet": "row", "warc": "offset", "page": "item", "xml": "element"}
"""What a record's number counts, where not lines."""


def read_records(file: Row, rules: ReadingRules) -> Iterator[Row]:
    """Documents, facts and refusals of one file of records, then its arrival: landed where any record is usable.

    Hashes of all records are held to find repeated ones: about 200 bytes for each record of the file.
    """
    seen, stated, fault, refused_count = dict[bytes, bytes](), set[str](), None, 0
    try:
        with opened(file, rules) as stream, HashedFile(stream) as source:
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
                        yield facts_row(facts)
            content_sha256 = source.sha256_to_end()
    except OSError as error:
        fault, content_sha256 = unreadable(error), None
    if seen and fault is not None:
        yield arrival({"location": f"{file['location']}#rest"}, fault)
    elif not seen and fault is None:
        every = Refusal(Reason.NO_USABLE_RECORD, f"all {refused_count} records were refused")
        fault = (
            every if refused_count else Refusal(Reason.EMPTY, _NOTHING.get(file["reader"], "the file holds no record"))
        )
    yield arrival(file, None if seen else fault, content_sha256)


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
        if fault is not None:  # becomes no row of a table; `documents` checks by it what executors can read
            yield arrival({"location": None, "path": file["location"]}, fault)
        return
    if said and fault is not None:
        yield arrival({"location": f"{file['location']}#rest"}, fault)
    elif not said and fault is None:
        fault = Refusal(Reason.NO_USABLE_RECORD, "no line of it tells of a repository")
    yield arrival(file, None if said else fault, content_sha256)


def _records(file: Row, source: HashedFile, rules: ReadingRules) -> Iterator[Record | Refused]:
    """The records of an open file."""
    mapping, limit = rules.source, rules.max_document_bytes
    if isinstance(mapping, PagedSource):
        path = mapping.records_path(file["path"])
        yield from page_records(source.read(), path, mapping, file["path"], limit)
        return
    assert isinstance(mapping, FileReading)  # no other source lists files of records
    if file["reader"] == "parquet":
        yield from parquet_records(source.random_access(mapping.archives.max_temporary_bytes), mapping, limit)
        return
    if file["reader"] == "warc":
        yield from _archive_records(source, mapping, limit)
        return
    stream, reader = decompressed_by_name(source, file["location"]), file["reader"]
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


def _text_records(reader: str, stream: Stream, mapping: FileReading, limit: int) -> Iterator[Record | Refused]:
    """The records of a file of text, decompressed."""
    if reader == "log":
        yield from log_records(stream, mapping, limit)
    elif reader == "jsonl":
        yield from jsonl_records(stream, mapping, limit)
    else:
        yield from csv_records(stream, _DELIMITERS[reader], mapping, limit)


def _archive_records(source: HashedFile, mapping: FileReading, limit: int) -> Iterator[Record | Refused]:
    """The records of a web archive, which is decompressed by its first bytes: names of archives are often wrong."""
    codec = codec_of(source)

    def extracted(reader: str, data: bytes, *options: object) -> Extracted | Refusal:
        return extract(reader, data, mapping, *options)

    if codec == "gzip":
        members = GzipMembers(source)
        yield from archive_records(members, extracted, limit, members.member_start)
    elif codec is None:
        yield from archive_records(source, extracted, limit, lambda position: position)
    else:
        yield from archive_records(decompressed(source, codec), extracted, limit, lambda _: None)


def decompressed_by_name(file: Stream, location: str) -> Stream:
    """The stream of an open file, decompressed by its extension."""
    codec = CODECS.get(os.path.splitext(location.lower())[1])
    return file if codec is None else decompressed(file, codec)


def record_columns(location: str, reader: str, source: Source) -> list[str]:
    """Names of the columns of a file of records: all of Parquet and CSV, those of the first 1,000 records of JSONL.

    Raises:
        OSError: it cannot be read.
    """
    with open_at(location, source) as file:
        if reader == "parquet":
            return parquet_columns(file)
        stream = decompressed_by_name(file, location)
        if reader == "jsonl":
            return jsonl_columns(stream, 1000, _SHOWN_BYTES)
        return csv_columns(stream, _DELIMITERS[reader], _SHOWN_BYTES)


def _record_row(file: Row, record: Record | Refused, seen: dict[bytes, bytes], rules: ReadingRules) -> Row:
    """The document of a record, or the arrival with the reason why there is none.

    Of records with one path the first is the document: another text there would be taken for an older revision of it.

    Args:
        file: the row of the listing.
        record: the record.
        seen: the doc_id at each path so far, both as bytes, the path hashed; the record's is added.
        rules: of the dataset.
    """
    unit = _UNITS.get(file["reader"], "line")
    where = {"location": f"{file['location']}#{unit}:{record.number}"}
    if isinstance(record, Refused):
        return arrival(where, record.refusal)
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
    row = document_row(facts, rules, record.text, "utf-8", content_sha256, len(data))
    place = {PAGE: where["location"].rpartition(PAGE_MARK)[2]} if file["reader"] == "page" else {}
    row["metadata"] = {**row["metadata"], **unrecognised, **record.metadata, **place}
    row |= {"unit": unit, "number": record.number}  # no columns of READ_ROWS; for those who ask where it stands
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
    """A hash of the path of a document, by which its revisions are known."""
    return hashlib.sha256(json.dumps([repository, path]).encode()).digest()[:16]


def _record_language(record: Record, source: Source) -> str | None:
    """The language by the column that names it; without one, for code, markup and data, by the id as a path."""
    if record.kind == "prose" or (isinstance(source, FileReading) and source.language_column is not None):
        return record.language
    told = language_of(record.record_id or "")
    return told and told.name

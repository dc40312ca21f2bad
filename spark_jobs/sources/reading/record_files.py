"""Read files of records: from the listing of a file to the rows of its documents, of facts and of refused records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from spark_jobs.plugins import attribute
from spark_jobs.sources.config.file_source import FileSource
from spark_jobs.sources.encodings.decoding import Recoded
from spark_jobs.sources.kinds import kind_of, opening
from spark_jobs.sources.listed_file import ListedFile
from spark_jobs.sources.opening.compression import decompressed_by_name
from spark_jobs.sources.opening.file_trees import open_file, unreadable
from spark_jobs.sources.opening.parser_process import lacking
from spark_jobs.sources.opening.streams import HashedFile
from spark_jobs.sources.opening.table_folders import partitions
from spark_jobs.sources.reading.built_in import READERS, extract
from spark_jobs.sources.reading.record_rows import DocumentRows, Seen, document_rows
from spark_jobs.sources.reading.rows import ReadingRules, Row, closing_arrivals, facts_row, refused_part
from spark_jobs.sources.records.columns import Records, in_columns
from spark_jobs.sources.records.facts import Facts, facts_json, stated_facts, stated_lines
from spark_jobs.sources.records.records import Record, RecordFile, Refused
from spark_jobs.sources.refusals import Reason, Refusal, RefusedError

_SHOWN_BYTES = 16 << 20  # longer lines are skipped when only their columns are asked for


def read_records(file: ListedFile, rules: ReadingRules) -> Iterator[Row | DocumentRows]:
    """Documents, facts and refusals of one file of records, then its arrival: landed where any record is usable.

    Hashes of all records are held to find repeated ones: about 200 bytes for each record of the file. On pages (a part
    of a history wherever they end) all texts of a path are its versions by `number`, and one equal to the record before
    it says nothing.
    """
    keys, facts_written = Seen(kind_of(rules.source).on_pages), set[str]()
    fault, refused_count, is_usable = None, 0, False
    unit = READERS[file.reader].unit
    try:
        with rules.opens(file, rules.max_document_bytes) as stream, HashedFile(stream) as source:
            for part in in_columns(_records(file, source, rules)):
                if not isinstance(part, Refused):
                    documents, records, refused = document_rows(file, part, keys, rules)
                    refused_count += len(refused)
                    if documents.rows.num_rows:
                        is_usable = True
                        yield documents
                    yield from refused
                    yield from map(facts_row, _facts(records, facts_written))
                elif part.number is None:
                    fault = part.refusal if fault is None else fault.and_also(part.refusal)
                else:
                    refused_count += 1
                    if part.refusal.reason == Reason.NOT_INSTALLED:  # not read to its end: what it held is not gone
                        fault = fault or part.refusal
                    yield refused_part(f"{file.location}#{unit}:{part.number}", part.refusal)
            content_sha256 = source.sha256_to_end()
    except OSError as error:
        fault, content_sha256 = unreadable(error), None
    is_usable = is_usable or (keys.has_versions and refused_count > 0)  # where a page ends is no fault of its records
    every = Refusal(Reason.NO_USABLE_RECORD, f"all {refused_count} records were refused")
    nothing = every if refused_count else Refusal(Reason.EMPTY, READERS[file.reader].nothing)
    yield from closing_arrivals(file, is_usable, fault, nothing, content_sha256)


def _facts(records: Records, facts_written: set[str]) -> Iterator[str]:
    """What records state about their repositories and was not told before, as JSON."""
    if records.facts is None:
        pairs: Iterable[tuple[str | None, Mapping[str, Any]]] = (
            (name, {}) for name in records.repository.unique().to_pylist()
        )
    else:
        pairs = zip(records.repository.to_pylist(), records.facts, strict=True)
    for repository, values in pairs:
        if repository is not None:
            facts = facts_json(stated_facts(repository, values)[0], stated=True)
            if facts not in facts_written:
                facts_written.add(facts)
                yield facts


def read_facts(file: ListedFile) -> Iterator[Row]:
    """Facts and refused lines of a file about repositories, then its arrival.

    An unchanged file is read too, because files of its repositories may have changed: it gives facts alone, without a
    row of `repositories` by themselves (`touches` is false).
    """
    touches, has_facts, fault = not file.unchanged, False, None
    location = file.location if touches else None
    try:
        with open_file(file.location) as stream, HashedFile(stream) as source:
            if source.head(1 << 12).lstrip()[:1] == b"<":  # servers that answer 200 to every address
                raise RefusedError(Reason.BAD_RECORD, "a page of HTML, no facts about repositories: nothing is taken")
            for facts in stated_lines(decompressed_by_name(source, file.location)):
                if isinstance(facts, Facts):
                    has_facts = True
                    yield facts_row(facts_json(facts, stated=True, touches=touches), location)
                elif facts.number is None:
                    fault = facts.refusal
                elif touches:
                    yield refused_part(f"{file.location}#line:{facts.number}", facts.refusal)
            content_sha256 = source.sha256_to_end()
    except OSError as error:
        fault, content_sha256 = unreadable(error), None
    if not touches:
        if fault is not None:  # no row of a table: by it `documents` checks what executors can read
            yield refused_part(None, fault) | {"path": file.location}
        return
    nothing = Refusal(Reason.NO_USABLE_RECORD, "no line of it tells of a repository")
    yield from closing_arrivals(file, has_facts, fault, nothing, content_sha256)


def _records(file: ListedFile, source: HashedFile, rules: ReadingRules) -> Iterator[Record | Records | Refused]:
    """The records of an open file."""
    reader = READERS[file.reader]
    parsed = _given(file, source, rules.source, rules.max_document_bytes)
    try:
        read = attribute(reader.function)
    except ImportError as error:
        yield Refused(None, Refusal(Reason.NOT_INSTALLED, lacking(error)))
        return
    if not reader.recoded or rules.source.encoding == "strict":
        yield from read(parsed)
        return
    recoded = Recoded(parsed.plain(), lambda data: parsed.extract("legacy", data, False))
    for record in read(parsed._replace(plain=lambda: recoded)):
        is_refused = isinstance(record, Refused)
        yield record if is_refused else record._replace(metadata={**recoded.facts, **record.metadata})


def _given(listed: ListedFile, file: HashedFile, source: Any, max_bytes: int) -> RecordFile:
    """An open file in the form for its reader."""
    plain = partial(decompressed_by_name, file, listed.location, getattr(source, "archives", None))
    return RecordFile(
        listed, file, plain, source, max_bytes, partial(extract, source=source), partitions(listed.location)
    )


def record_columns(file: ListedFile, source: FileSource) -> list[str]:
    """Names of the columns of a listed file: all of Parquet and CSV, those of the first 1,000 records of JSONL.

    Raises:
        OSError: it cannot be read.
    """
    with opening(source) as opens, opens(file, _SHOWN_BYTES) as stream, HashedFile(stream) as hashed:
        module, _, _ = READERS[file.reader].function.partition(":")
        return list(attribute(f"{module}:names_in")(_given(file, hashed, source, _SHOWN_BYTES)))

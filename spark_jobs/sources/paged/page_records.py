"""The records of a page: of an answer as it came, and of a page as it was kept."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from spark_jobs.sources.config.paged_source import PAGE_MARK, PagedSource
from spark_jobs.sources.languages import PAGE
from spark_jobs.sources.records.paths import value_at
from spark_jobs.sources.records.plain_values import exact_number, value_text
from spark_jobs.sources.records.records import JsonFields, Record, RecordFile, Refused, usable_record
from spark_jobs.sources.refusals import Reason, Refusal

_SHOWN_FIELDS = 12
_NO_ERROR: tuple[Any, ...] = (None, False, 0, "", [], {})


def records_in(data: bytes, path: str, error_path: str | None = None) -> list[Any] | Refusal:
    """The records of an answer, or what is wrong with it.

    Args:
        data: the answer.
        path: keys on the way to the list of records; empty where the answer itself is that list.
        error_path: keys on the way to an error, if the answer has one.
    """
    try:
        answer = json.loads(data, object_pairs_hook=JsonFields, parse_float=exact_number)
    except (ValueError, RecursionError) as error:
        what = "HTML, not JSON" if data.lstrip()[:1] == b"<" else f"not JSON: {str(error)[:200]}"
        return Refusal(Reason.BAD_ANSWER, what)
    if error_path and (stated_error := value_at(answer, error_path)) not in _NO_ERROR:
        return Refusal(Reason.BAD_ANSWER, f"status 200 with an error inside: {value_text(stated_error) or '':.200}")
    records = value_at(answer, path)
    if isinstance(records, list):
        return records
    if records is None and path and _has(answer, path):
        return []
    fields = ", ".join(list(answer)[:_SHOWN_FIELDS]) if isinstance(answer, dict) else f"a {type(answer).__name__}"
    where = f"no list at {path!r}, the source.records" if path else "the answer is no list, and source.records is empty"
    return Refusal(Reason.BAD_ANSWER, f"{where}; it has: {fields}")


def _has(answer: Any, path: str) -> bool:
    """Whether the answer has a value at a path, be it null."""
    above, _, last = path.rpartition(".")
    holder = value_at(answer, above)
    return isinstance(holder, dict) and last in holder


def read_page(file: RecordFile) -> Iterator[Record | Refused]:
    """Records of a kept page; their metadata has the number of the page and their place there. See `page_records`."""
    page, endpoint = file.listed.location.rpartition(PAGE_MARK)[2], file.listed.path
    path = file.source.records_path(endpoint)
    for record in page_records(file.raw.read(), path, file.source, endpoint, file.max_bytes):
        place = {PAGE: f"{page}#item:{record.number}"}
        yield record._replace(metadata=record.metadata | place) if isinstance(record, Record) else record


def page_records(
    data: bytes, path: str, source: PagedSource, endpoint: str, max_bytes: int
) -> Iterator[Record | Refused]:
    """Records of a page, each with its place from 1.

    Args:
        data: the page as it was kept.
        path: keys on the way to its list of records.
        source: with the mapping of columns.
        endpoint: for messages.
        max_bytes: longest text in UTF-8.
    """
    mapping = source.mapping
    columns = mapping.mapped_columns
    columns_mapped = {column.partition(".")[0] for column in columns} | set(columns)
    records = records_in(data, path)
    if isinstance(records, Refusal):
        yield Refused(None, records)
        return
    for number, fields in enumerate(records, start=1):
        if not isinstance(fields, dict):
            refusal = Refusal(Reason.BAD_RECORD, f"a JSON {type(fields).__name__}, not an object")
            yield Refused(number, refusal)
            continue
        if twice := columns_mapped.intersection(getattr(fields, "repeated", ())):
            yield Refused(number, Refusal(Reason.BAD_RECORD, f"{min(twice)!r} is there twice, with different values"))
            continue
        values = {column: value_at(fields, column) for column in columns}
        lacking = [source.id_column] if values[source.id_column] in (None, "") else []
        lacking += [source.text_column] if values[source.text_column] is None else []
        if lacking:
            detail = f"no {lacking[0]!r} in this record of {endpoint}; it has {', '.join(map(repr, fields))[:300]}"
            yield Refused(number, Refusal(Reason.MISSING_COLUMN, detail))
            continue
        record = usable_record(number, values[source.text_column], values, mapping, max_bytes)
        if isinstance(record, Record) and source.unknown_fields == "metadata":
            record = _with_unknown(
                record, {name: value for name, value in fields.items() if name not in columns_mapped}
            )
        yield record


def _with_unknown(record: Record, unknown: Mapping[str, Any]) -> Record | Refused:
    """The record with all fields in its metadata but those named by columns of the source."""
    try:
        metadata = {name: text for name, value in unknown.items() if (text := value_text(value)) is not None}
        "".join([*metadata, *metadata.values()]).encode()
    except (UnicodeEncodeError, RecursionError):
        return Refused(
            record.number, Refusal(Reason.UNDECODABLE, "an unknown field is no Unicode, or nested too deeply")
        )
    return record._replace(metadata={**metadata, **record.metadata})

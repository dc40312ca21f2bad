"""Read records from JSONL files one by one, in bounded memory, each with its number in the file."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import islice

from spark_jobs.sources.config.file_reading import FileReading
from spark_jobs.sources.opening.streams import Stream
from spark_jobs.sources.records.records import (
    LINE_SLACK_BYTES,
    Line,
    Record,
    RecordFile,
    Refused,
    json_fields,
    json_object,
    json_text,
    numbered_lines,
    shown,
    usable_record,
)
from spark_jobs.sources.refusals import Reason, Refusal


def read_jsonl(file: RecordFile) -> Iterator[Record | Refused]:
    """Records of a file; see `jsonl_records`."""
    return jsonl_records(file.plain(), file.source, file.max_bytes)


def jsonl_records(stream: Stream, source: FileReading, max_bytes: int) -> Iterator[Record | Refused]:
    """Records of a file with one JSON object on each line; blank lines are no records.

    Lines without the text column are held back until one has it: where none has, that is one fault of the file.

    Args:
        stream: the file, decompressed.
        source: the column mapping.
        max_bytes: longest text in UTF-8; lines of a megabyte more are skipped without being held.
    """
    lacking, columns, complete = array("q"), "", False
    for line in numbered_lines(stream, max_bytes + LINE_SLACK_BYTES):
        if isinstance(line, Refused):
            yield line
            continue
        number, text = line.number, json_text(line.data)
        del line  # a hundred megabytes, which nothing else holds
        fields = text if isinstance(text, Refusal) else json_fields(text, source.mapped_columns)
        del text
        if isinstance(fields, Refusal):
            yield Refused(number, fields)
        elif source.text_column not in fields:
            columns = columns or shown(fields)
            lacking.append(number)
        else:
            complete = True
            yield usable_record(number, fields[source.text_column], fields, source, max_bytes)
        if complete and lacking:
            none = Refusal(Reason.MISSING_COLUMN, f"no column {source.text_column!r} in this record")
            yield from (Refused(number, none) for number in lacking)
            del lacking[:]
    if lacking:
        detail = f"no column {source.text_column!r} in any of {len(lacking)} records; the first has {columns}"
        yield Refused(None, Refusal(Reason.MISSING_COLUMN, detail))


def names_in(file: RecordFile) -> list[str]:
    """Names of the fields in the first 1,000 records of a file, in the order in which they first occur."""
    lines = (line for line in numbered_lines(file.plain(), file.max_bytes) if isinstance(line, Line))
    objects = (json_object(line.data) for line in islice(lines, 1000))
    return list(dict.fromkeys(name for fields in objects if isinstance(fields, dict) for name in fields))

"""Read records from JSONL files one by one, in bounded memory, each with its number in the file."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from spark_jobs.sources.config.file_reading import FileReading
from spark_jobs.sources.opening.streams import Stream
from spark_jobs.sources.records.paths import nested_names, values_at
from spark_jobs.sources.records.records import (
    LINE_SLACK_BYTES,
    NO_PARTITIONS,
    FileLine,
    Record,
    RecordFile,
    Refused,
    json_fields,
    json_object,
    json_text,
    lacks_mend,
    numbered_lines,
    shown,
    usable_record,
)
from spark_jobs.sources.refusals import Reason, Refusal


def read_jsonl(file: RecordFile) -> Iterator[Record | Refused]:
    """Records of a file; see `jsonl_records`."""
    return jsonl_records(file.plain(), file.source, file.max_bytes, file.partitions)


def jsonl_records(
    stream: Stream, source: FileReading, max_bytes: int, partitions: Mapping[str, str | None] = NO_PARTITIONS
) -> Iterator[Record | Refused]:
    """Records of a file with one JSON object on each line; blank lines are no records.

    Args:
        stream: the file, decompressed.
        source: the column mapping.
        max_bytes: longest text in UTF-8; lines of a megabyte more are skipped without being held.
        partitions: columns from folders, where a record does not have them.
    """
    lines = numbered_lines(stream, max_bytes + LINE_SLACK_BYTES)
    return object_records(lines, source, max_bytes, partitions)


def object_records(
    lines: Iterable[FileLine | Refused], source: FileReading, max_bytes: int, partitions: Mapping[str, str | None]
) -> Iterator[Record | Refused]:
    """Records of texts of one JSON object each.

    Texts without the text column are held back until one has it: where none has, that is one fault of the file.
    """
    column = source.body_column or ""
    lacking, names, complete = array("q"), list[str](), False
    for line in lines:
        if isinstance(line, Refused):
            yield line
            continue
        number, text = line.number, json_text(line.data)
        del line  # a hundred megabytes, which nothing else holds
        fields = text if isinstance(text, Refusal) else json_fields(text, source.mapped_columns)
        del text
        if isinstance(fields, Refusal):
            yield Refused(number, fields)
            continue
        values = values_at({**partitions, **fields} if partitions else fields, source.mapped_columns)
        if column not in values:
            names = names or list(nested_names(fields))
            lacking.append(number)
        else:
            complete = True
            yield usable_record(number, values[column], values, source, max_bytes)
        if complete and lacking:
            none = Refusal(Reason.MISSING_COLUMN, f"no column {column!r} in this record")
            yield from (Refused(number, none) for number in lacking)
            del lacking[:]
    if lacking:
        mend = lacks_mend(column, names, source) or "; name the column of the text, or state another `format`"
        detail = f"no column {column!r} in any of {len(lacking)} records; the first has {shown(names)}{mend}"
        yield Refused(None, Refusal(Reason.MISSING_COLUMN, detail))


def names_in(file: RecordFile) -> list[str]:
    """Names of the fields in the first 1,000 records of a file, in the order of their first occurrence."""
    return names_of(numbered_lines(file.plain(), file.max_bytes), file.partitions)


def names_of(lines: Iterable[FileLine | Refused], partitions: Mapping[str, str | None]) -> list[str]:
    """Names of the fields in the first 1,000 objects, of objects inside of them as paths, and those of folders."""
    objects = (json_object(line.data) for line in islice((line for line in lines if isinstance(line, FileLine)), 1000))
    names = (name for fields in objects if isinstance(fields, dict) for name in nested_names(fields))
    return list(dict.fromkeys((*names, *partitions)))

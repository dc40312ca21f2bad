"""Read records from Parquet, JSONL and CSV files one by one, in bounded memory, each with its number in the file.

A record that cannot be used is refused with its number, and the others are read. A fault of the file itself (damage, a
missing column) ends the reading and is a refusal with number None; the records before it are used.
"""

from __future__ import annotations

import csv
import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.exceptions import did_you_mean
from spark_jobs.sources.reading.decoding import binary_refusal
from spark_jobs.sources.refusals import Reason, Refusal, reason_of
from spark_jobs.sources.source_config import KINDS, FilesSource

_CHUNK_BYTES = 1 << 16
_BATCH_BYTES = 8 << 20
LINE_SLACK_BYTES = 1 << 20  # for the other fields of a line beside its text
_SHOWN_COLUMNS = 20


class Record(NamedTuple):
    """One usable record: its number from 1 (line or row), its text, and the values of the mapped columns."""

    number: int
    text: str
    record_id: str | None
    repository: str | None
    language: str | None
    licence: str | None
    kind: str
    metadata: dict[str, str]
    facts: Mapping[str, Any]


class Refused(NamedTuple):
    """A record that cannot be used, or (number None) a fault of the file that ended its reading."""

    number: int | None
    refusal: Refusal


class Stream(Protocol):
    """Bytes of a file, decompressed."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none at the end."""


class Line(NamedTuple):
    """A line of a file: its number from 1, and its bytes."""

    number: int
    data: bytes


def jsonl_records(stream: Stream, source: FilesSource, max_bytes: int) -> Iterator[Record | Refused]:
    """Records of a file with one JSON object on each line; blank lines are no records.

    Lines without the text column are held back until one has it: where none has, that is one fault of the file.

    Args:
        stream: the file, decompressed.
        source: the column mapping.
        max_bytes: longest text in UTF-8; a line may take twice that, longer ones are skipped without being held.
    """
    lacking, columns, complete = array("q"), "", False
    for line in numbered_lines(stream, 2 * max_bytes + LINE_SLACK_BYTES):
        if isinstance(line, Refused):
            yield line
            continue
        number, fields = line.number, json_object(line.data)
        if isinstance(fields, Refusal):
            yield Refused(number, fields)
        elif source.text_column not in fields:
            columns = columns or _shown(fields)
            lacking.append(number)
        else:
            complete = True
            yield usable_record(number, fields[source.text_column], fields, source, max_bytes)
        if complete and lacking:
            yield from _lacking(lacking, source)
            del lacking[:]
    if lacking:
        detail = f"no column {source.text_column!r} in any of {len(lacking)} records; the first has {columns}"
        yield Refused(None, Refusal(Reason.MISSING_COLUMN, detail))


def numbered_lines(stream: Stream, max_bytes: int) -> Iterator[Line | Refused]:
    """Lines that are not blank, without white space around them; see `all_lines`."""
    for line in all_lines(stream, max_bytes):
        if isinstance(line, Refused):
            yield line
        elif data := line.data.strip():
            yield Line(line.number, data)


def all_lines(stream: Stream, max_bytes: int) -> Iterator[Line | Refused]:
    """Lines without their LF; one of more than `max_bytes` is refused, and so is the rest of a damaged stream."""
    number, pieces, held, skipped = 1, list[bytes](), 0, False
    try:
        while chunk := stream.read(_CHUNK_BYTES):
            *whole, rest = chunk.split(b"\n")
            for piece in whole:
                if skipped or held + len(piece) > max_bytes:
                    yield Refused(number, Refusal(Reason.TOO_LARGE, f"the line is longer than {max_bytes} bytes"))
                else:
                    yield Line(number, b"".join([*pieces, piece]))
                number, pieces, held, skipped = number + 1, [], 0, False
            held += len(rest)
            skipped = skipped or held > max_bytes
            pieces = [] if skipped else [*pieces, rest]
    except (OSError, pa.ArrowException) as error:
        detail = f"breaks off in line {number}: {_first_line(error)}; the lines before it are read"
        yield Refused(None, Refusal(reason_of(error, Reason.CORRUPT_ARCHIVE), detail))
        return
    if skipped:
        yield Refused(number, Refusal(Reason.TOO_LARGE, f"the line is longer than {max_bytes} bytes"))
    elif pieces:
        yield Line(number, b"".join(pieces))


def json_object(line: bytes) -> dict[str, Any] | Refusal:
    """The JSON object on a line, or why there is none."""
    try:
        fields = json.loads(line.removeprefix(b"\xef\xbb\xbf").decode())
    except UnicodeDecodeError as error:
        return Refusal(Reason.UNDECODABLE, f"byte 0x{line[error.start]:02x} at {error.start} of the line is not UTF-8")
    except (ValueError, RecursionError) as error:
        return Refusal(Reason.BAD_RECORD, f"not JSON: {_first_line(error)}")
    if not isinstance(fields, dict):
        return Refusal(Reason.BAD_RECORD, f"a JSON {type(fields).__name__}, not an object")
    return fields


def csv_records(stream: Stream, delimiter: str, source: FilesSource, max_bytes: int) -> Iterator[Record | Refused]:
    """Records of a file with a header and one record in each row, whose number is that of its first line.

    Fields may stand in double quotes, and then hold delimiters, line ends and quotes that are written twice (RFC 4180).
    An empty field says nothing, but for the text, which is empty then. Blank lines are no records.

    Args:
        stream: the file, decompressed.
        delimiter: what stands between fields.
        source: the column mapping; every column it names must be in the header.
        max_bytes: as for `jsonl_records`.
    """
    names: list[str] = []
    for row in _csv_rows(stream, delimiter, 2 * max_bytes + LINE_SLACK_BYTES):
        if isinstance(row, Refused):
            yield row
        elif not names:
            names = row[1]
            if refusal := _header_refusal(names, source):
                yield Refused(None, refusal)
                return
        elif len(row[1]) != len(names):
            yield Refused(row[0], Refusal(Reason.BAD_RECORD, f"{len(row[1])} fields, the header has {len(names)}"))
        else:
            fields = dict(zip(names, row[1], strict=True))
            said = {name: value or None for name, value in fields.items()}
            yield usable_record(row[0], fields[source.text_column or ""], said, source, max_bytes)


def _csv_rows(stream: Stream, delimiter: str, max_bytes: int) -> Iterator[tuple[int, list[str]] | Refused]:
    """Rows that are not blank, each with the number of its first line; bytes that are not UTF-8 are lone surrogates."""
    refused, numbers = list[Refused](), list[int]()

    def lines() -> Iterator[str]:
        for line in all_lines(stream, max_bytes):
            if isinstance(line, Refused):
                refused.append(line)
            else:
                numbers.append(line.number)
                data = line.data.removeprefix(b"\xef\xbb\xbf") if line.number == 1 else line.data
                yield data.decode(errors="surrogateescape") + "\n"

    csv.field_size_limit(max_bytes)
    rows = csv.reader(lines(), delimiter=delimiter, strict=True)
    row: list[str] | None = []
    while row is not None:
        try:
            row = next(rows, None)
        except csv.Error as error:
            row = []
            fault = "a quote is not closed" if str(error) == "unexpected end of data" else error
            detail = f"not CSV in lines {numbers[0]} to {numbers[-1]}: {fault}"
            refused.append(Refused(numbers[0], Refusal(Reason.BAD_RECORD, detail)))
        if row and any(line.number is not None and line.number > numbers[0] for line in refused):
            row = []  # a line inside of a quoted field was refused, and the row with it
        yield from refused
        if row and (len(row) > 1 or row[0].strip()):
            yield numbers[0], row
        refused.clear()
        numbers.clear()


def _header_refusal(names: list[str], source: FilesSource) -> Refusal | None:
    """The refusal of a CSV file whose header does not fit the mapping."""
    if any("\0" in name for name in names):
        return Refusal(Reason.BINARY, "null byte in the header; save the file as UTF-8")
    return _names_refusal(names, source, "header")


def parquet_records(file: pa.NativeFile, source: FilesSource, max_bytes: int) -> Iterator[Record | Refused]:
    """Records of a Parquet file; only the mapped columns are read.

    Args:
        file: the file.
        source: the column mapping; every column it names must be in the file.
        max_bytes: longest text in UTF-8.
    """
    number = 0
    try:
        parquet = pq.ParquetFile(file, pre_buffer=False, buffer_size=_CHUNK_BYTES, page_checksum_verification=True)
        refusal = _schema_refusal(parquet.schema_arrow, source)
        if refusal is not None:
            yield Refused(None, refusal)
            return
        rows = _batch_rows(parquet.metadata)
        for batch in parquet.iter_batches(rows, columns=list(source.mapped_columns), use_threads=False):
            values = {name: column_values(batch.column(name)) for name in source.mapped_columns}
            texts = values[source.text_column or ""]
            for row, text in enumerate(texts):
                number += 1
                yield usable_record(
                    number, text, {name: column[row] for name, column in values.items()}, source, max_bytes
                )
    except (OSError, pa.ArrowException) as error:
        where = "no Parquet file" if number == 0 else f"damaged after row {number}"
        yield Refused(None, Refusal(Reason.CORRUPT_FILE, f"{where}: {_first_line(error)}"))


def parquet_columns(file: pa.NativeFile) -> list[str]:
    """Names of the columns of a Parquet file, of which only the footer is read; none where it is damaged."""
    try:
        names: list[str] = pq.ParquetFile(file).schema_arrow.names
    except (OSError, pa.ArrowException):
        return []
    return names


def jsonl_columns(stream: Stream, record_count: int, max_bytes: int) -> list[str]:
    """Names of the fields of the first records of a file, in the order in which they first occur."""
    lines = (line for line in numbered_lines(stream, max_bytes) if isinstance(line, Line))
    objects = (json_object(line.data) for line in islice(lines, record_count))
    return list(dict.fromkeys(name for fields in objects if isinstance(fields, dict) for name in fields))


def csv_columns(stream: Stream, delimiter: str, max_bytes: int) -> list[str]:
    """Names in the header of a file; none where it has none."""
    return next((row[1] for row in _csv_rows(stream, delimiter, max_bytes) if not isinstance(row, Refused)), [])


def column_values(column: pa.Array) -> list[Any]:
    """Python values of a column; a string that is not UTF-8 (Parquet does not check) stays bytes."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return [_text_or_bytes(value) for value in column.cast(pa.large_binary()).to_pylist()]
    except (ValueError, OverflowError):  # a moment that Python's datetime cannot hold
        return list(column.cast(pa.string()).to_pylist())


def _text_or_bytes(value: bytes | None) -> str | bytes | None:
    """The text in UTF-8 bytes; other bytes as they are."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value


def usable_record(
    number: int, text: object, fields: dict[str, Any], source: FilesSource, max_bytes: int
) -> Record | Refused:
    """The record, or what is wrong with its text."""
    text = _text_or_refusal(text, source.text_column)
    if isinstance(text, Refusal):
        return Refused(number, text)
    identity = (source.id_column, source.repository_column, source.language_column, source.licence_column)
    try:
        record_id, repository, language, licence = (value_text(fields.get(name)) if name else None for name in identity)
        metadata = {
            name: value for name in source.metadata_columns if (value := value_text(fields.get(name))) is not None
        }
        facts = {str(fact): fields[name] for fact, name in source.fact_columns.items() if name in fields}
        size = len(text.encode())
        stated = map(value_text, facts.values())
        "".join(filter(None, (record_id, repository, language, licence, *metadata.values(), *stated))).encode()
    except UnicodeEncodeError as error:
        return Refused(number, Refusal(Reason.UNDECODABLE, f"no Unicode (UTF-8) at character {error.start}"))
    except RecursionError:
        return Refused(number, Refusal(Reason.BAD_RECORD, "a mapped column is nested too deeply"))
    if size > max_bytes:
        return Refused(number, Refusal(Reason.TOO_LARGE, f"{size} bytes; max_document_bytes is {max_bytes}"))
    kind = fields.get(source.kind_column) if source.kind_column else None
    if kind is not None and kind not in KINDS:
        detail = f"column {source.kind_column!r} is {kind!r:.80}, no kind{did_you_mean(str(kind), KINDS)}"
        return Refused(number, Refusal(Reason.UNKNOWN_KIND, detail))
    kind = kind or source.record_kind
    return Record(number, text, record_id, repository, language, licence, kind, metadata, facts)


def _text_or_refusal(value: object, column: str | None) -> str | Refusal:
    """The text that a column holds, or why it is none."""
    text = _text_or_bytes(value) if isinstance(value, bytes) else value
    if text is None:
        return Refusal(Reason.NULL_TEXT, f"column {column!r} is null")
    if isinstance(text, bytes):
        return Refusal(Reason.UNDECODABLE, f"column {column!r} is not UTF-8")
    if not isinstance(text, str):
        return Refusal(Reason.WRONG_TYPE, f"column {column!r} holds {type(text).__name__}, not text")
    return binary_refusal(text) or text


def value_text(value: object) -> str | None:
    """A value as text: strings as they are, all else as JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return json.dumps(value, ensure_ascii=False, default=str)


def _lacking(numbers: Iterable[int], source: FilesSource) -> Iterator[Refused]:
    """Refusals of records without the text column, in a file that has it elsewhere."""
    for number in numbers:
        yield Refused(number, Refusal(Reason.MISSING_COLUMN, f"no column {source.text_column!r} in this record"))


def _schema_refusal(schema: pa.Schema, source: FilesSource) -> Refusal | None:
    """The refusal of a Parquet file whose schema does not fit the mapping."""
    if refusal := _names_refusal(schema.names, source, "file"):
        return refusal
    kind = schema.field(source.text_column).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    texts = (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view())
    if kind in texts or pa.types.is_null(kind):
        return None
    return Refusal(Reason.WRONG_TYPE, f"column {source.text_column!r} is {kind}, not text; name the column of the text")


def _names_refusal(names: list[str], source: FilesSource, where: str) -> Refusal | None:
    """The refusal of a file in which a mapped column is missing, or is there more than once."""
    for name in source.mapped_columns:
        count = names.count(name)
        if count != 1:
            what = "no column" if count == 0 else f"{count} columns are named"
            return Refusal(Reason.MISSING_COLUMN, f"{what} {name!r} in the {where}; it has {_shown(names)}")
    return None


def _batch_rows(metadata: pq.FileMetaData) -> int:
    """Rows that take about 8 MB when read, by the mean size of a row."""
    if metadata.num_rows == 0:
        return 1
    size = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
    return max(1, min(10_000, int(_BATCH_BYTES * metadata.num_rows // max(size, 1))))


def _shown(names: Iterable[str]) -> str:
    """Names of columns for a message, the first twenty."""
    listed = list(names)
    more = f" and {len(listed) - _SHOWN_COLUMNS} more" if len(listed) > _SHOWN_COLUMNS else ""
    return ", ".join(map(repr, listed[:_SHOWN_COLUMNS])) + more


def _first_line(error: Exception) -> str:
    """The first line of an error's message."""
    return (str(error) or type(error).__name__).splitlines()[0][:300]

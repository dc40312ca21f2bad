"""Read records from Parquet and JSONL files one by one, in bounded memory, each with its number in the file.

A record that cannot be used is refused with its number, and the others are read. A fault of the file itself (damage, a
missing column) ends the reading and is a refusal with number None; the records before it are used.
"""

from __future__ import annotations

import json
import re
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
LONG_BYTES = 16 << 20
_MOST_BYTES = 850 << 20
_VALUE_BYTES = {b"{": 120, b"[": 64, b",": 40, b":": 100}  # what Python needs for one more object, list, value or key
_WIDE = re.compile(rb"[\xf0-\xf4]")  # begins a character for which Python holds a text in four bytes a character
_PAGE_BYTES = 400 << 20


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
        max_bytes: longest text in UTF-8; lines of a megabyte more are skipped without being held.
    """
    lacking, columns, complete = array("q"), "", False
    for line in numbered_lines(stream, max_bytes + LINE_SLACK_BYTES):
        if isinstance(line, Refused):
            yield line
            continue
        number, text = line.number, _json_text(line.data)
        del line  # a hundred megabytes, which nothing else holds
        fields = text if isinstance(text, Refusal) else _json_fields(text)
        del text
        if isinstance(fields, Refusal):
            yield Refused(number, fields)
        elif source.text_column not in fields:
            columns = columns or _shown(fields)
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


def numbered_lines(stream: Stream, max_bytes: int) -> Iterator[Line | Refused]:
    """Lines that are not blank, without white space around them; see `all_lines`."""
    stripped = map(_stripped, all_lines(stream, max_bytes))  # unlike a loop, holds no line while it is used
    return filter(lambda line: isinstance(line, Refused) or line.data, stripped)


def _stripped(line: Line | Refused) -> Line | Refused:
    """A line without white space around it."""
    return line if isinstance(line, Refused) else Line(line.number, line.data.strip())


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
                    pieces = [b"".join([*pieces, piece])]
                    yield Line(number, pieces.pop())
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
        pieces = [b"".join(pieces)]
        yield Line(number, pieces.pop())


def json_object(line: bytes) -> dict[str, Any] | Refusal:
    """The JSON object on a line, or why there is none."""
    text = _json_text(line)
    return text if isinstance(text, Refusal) else _json_fields(text)


def _json_text(line: bytes) -> str | Refusal:
    """A line decoded, or why it is not read: it is not UTF-8, or what is on it would not fit into memory."""
    if len(line) > LONG_BYTES:
        values = sum(cost * line.count(mark) for mark, cost in _VALUE_BYTES.items())
        needed = values + len(line) * (8 if _WIDE.search(line) else 2)  # decoded, and once more as values
        if needed > _MOST_BYTES:
            detail = f"its values would take about {needed >> 20} MB of memory, of {_MOST_BYTES >> 20} MB for a line"
            return Refusal(Reason.TOO_COMPLEX, detail)
    try:
        return line.removeprefix(b"\xef\xbb\xbf").decode()
    except UnicodeDecodeError as error:
        return Refusal(Reason.UNDECODABLE, f"byte 0x{line[error.start]:02x} at {error.start} of the line is not UTF-8")


def _json_fields(text: str) -> dict[str, Any] | Refusal:
    """The JSON object in a text, or why there is none."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Refusal(Reason.BAD_RECORD, f"not JSON: {_first_line(error)}")
    if not isinstance(fields, dict):
        return Refusal(Reason.BAD_RECORD, f"a JSON {type(fields).__name__}, not an object")
    return fields


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
        for group in range(parquet.metadata.num_row_groups):
            if (size := _largest_page(file, parquet.metadata.row_group(group), source)) > _PAGE_BYTES:
                first, number = number + 1, number + parquet.metadata.row_group(group).num_rows
                detail = (
                    f"rows {first} to {number} stand in pages of {size >> 20} MB, which are not read; write smaller"
                )
                yield Refused(first, Refusal(Reason.TOO_LARGE, f"{detail} row groups (at most {_PAGE_BYTES >> 20} MB)"))
                continue
            columns = list(source.mapped_columns)
            for batch in parquet.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False):
                values = {name: column_values(batch.column(name)) for name in columns}
                for row, text in enumerate(values[source.text_column or ""]):
                    number += 1
                    fields = {name: column[row] for name, column in values.items()}
                    yield usable_record(number, text, fields, source, max_bytes)
    except (OSError, pa.ArrowException) as error:
        where = "no Parquet file" if number == 0 else f"damaged after row {number}"
        yield Refused(None, Refusal(Reason.CORRUPT_FILE, f"{where}: {_first_line(error)}"))


def _largest_page(file: pa.NativeFile, group: pq.RowGroupMetaData, source: FilesSource) -> int:
    """Decompressed bytes of the largest of the first pages of the mapped columns: a page is read as a whole.

    They are the second field of the page's header, a zigzag number of Thrift's compact protocol.
    """
    sizes = [0]
    for column in map(group.column, range(group.num_columns)):
        if column.path_in_schema in source.mapped_columns and column.total_uncompressed_size > _PAGE_BYTES:
            for start in filter(None, (column.dictionary_page_offset, column.data_page_offset)):
                file.seek(start)
                varint = file.read(8)[3:]
                end = next((at for at, byte in enumerate(varint) if byte < 0x80), 0)
                sizes.append(sum((byte & 0x7F) << 7 * place for place, byte in enumerate(varint[: end + 1])) >> 1)
    return max(sizes)


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


def _schema_refusal(schema: pa.Schema, source: FilesSource) -> Refusal | None:
    """The refusal of a Parquet file whose schema does not fit the mapping."""
    if refusal := names_refusal(schema.names, source, "file"):
        return refusal
    kind = schema.field(source.text_column).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    texts = (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view())
    if kind in texts or pa.types.is_null(kind):
        return None
    return Refusal(Reason.WRONG_TYPE, f"column {source.text_column!r} is {kind}, not text; name the column of the text")


def names_refusal(names: list[str], source: FilesSource, where: str) -> Refusal | None:
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

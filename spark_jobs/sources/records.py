"""Records out of Parquet and JSONL files: one after the other, in bounded memory, each with its number in the file.

A record that cannot be used is refused with its number, and the others go on. A fault of the file itself (damage, a
missing column) ends the reading and is told with number None; what came before it stands.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.exceptions import did_you_mean
from spark_jobs.sources.refusals import Reason, Refusal
from spark_jobs.sources.source_config import KINDS, FilesSource

_CHUNK_BYTES = 1 << 16
_BATCH_BYTES = 8 << 20
_LINE_SLACK_BYTES = 1 << 20
_SHOWN_COLUMNS = 20


class Record(NamedTuple):
    """One usable record: its number from 1 (line or row), its text, and what the mapped columns say."""

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


class Line(NamedTuple):
    """A line of a file: its number from 1, and its bytes without white space around them."""

    number: int
    data: bytes


def jsonl_records(stream: pa.NativeFile, source: FilesSource, max_bytes: int) -> Iterator[Record | Refused]:
    """Records of a file with one JSON object on each line; blank lines are no records.

    Lines without the text column are held back until one has it: where none has, that is one fault of the file.

    Args:
        stream: the file, decompressed.
        source: the column mapping.
        max_bytes: longest text in UTF-8; a line may take twice that, longer ones are skipped without being held.
    """
    lacking, columns, complete = array("q"), "", False
    for line in numbered_lines(stream, 2 * max_bytes + _LINE_SLACK_BYTES):
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
            yield _usable(number, fields[source.text_column], fields, source, max_bytes)
        if complete and lacking:
            yield from _lacking(lacking, source)
            del lacking[:]
    if lacking:
        detail = f"no column {source.text_column!r} in any of {len(lacking)} records; the first has {columns}"
        yield Refused(None, Refusal(Reason.MISSING_COLUMN, detail))


def numbered_lines(stream: pa.NativeFile, max_bytes: int) -> Iterator[Line | Refused]:
    """Lines that are not blank; one of more than `max_bytes` is refused, and so is the rest of a damaged stream."""
    number, pieces, held, skipped = 1, list[bytes](), 0, False
    try:
        while chunk := stream.read(_CHUNK_BYTES):
            *whole, rest = chunk.split(b"\n")
            for piece in whole:
                if skipped or held + len(piece) > max_bytes:
                    yield Refused(number, Refusal(Reason.TOO_LARGE, f"the line is longer than {max_bytes} bytes"))
                elif line := b"".join([*pieces, piece]).strip():
                    yield Line(number, line)
                number, pieces, held, skipped = number + 1, [], 0, False
            held += len(rest)
            skipped = skipped or held > max_bytes
            pieces = [] if skipped else [*pieces, rest]
    except (OSError, pa.ArrowException) as error:
        detail = f"damaged in or before line {number}: {_first_line(error)}"
        yield Refused(None, Refusal(Reason.CORRUPT_ARCHIVE, detail))
        return
    if skipped:
        yield Refused(number, Refusal(Reason.TOO_LARGE, f"the line is longer than {max_bytes} bytes"))
    elif line := b"".join(pieces).strip():
        yield Line(number, line)


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


def parquet_records(file: pa.NativeFile, source: FilesSource, max_bytes: int) -> Iterator[Record | Refused]:
    """Records of a Parquet file; only the mapped columns are read.

    Args:
        file: the file.
        source: the column mapping; every column it names must be in the file.
        max_bytes: longest text in UTF-8.
    """
    number = 0
    try:
        parquet = pq.ParquetFile(file, pre_buffer=False, buffer_size=_CHUNK_BYTES)
        refusal = _schema_refusal(parquet.schema_arrow, source)
        if refusal is not None:
            yield Refused(None, refusal)
            return
        rows = _batch_rows(parquet.metadata)
        for batch in parquet.iter_batches(rows, columns=list(source.mapped_columns), use_threads=False):
            values = {name: column_values(batch.column(name)) for name in source.mapped_columns}
            texts = values[source.text_column or ""]
            for place, text in enumerate(texts):
                number += 1
                yield _usable(number, text, {name: column[place] for name, column in values.items()}, source, max_bytes)
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


def jsonl_columns(stream: pa.NativeFile, record_count: int, max_bytes: int) -> list[str]:
    """Names that occur in the first records of a file, in the order in which they do."""
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
    """Text where the bytes are UTF-8."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value


def _usable(number: int, text: object, fields: dict[str, Any], source: FilesSource, max_bytes: int) -> Record | Refused:
    """The record, or what is wrong with its text."""
    if isinstance(text, bytes):
        text = _text_or_bytes(text)
    if text is None:
        return Refused(number, Refusal(Reason.NULL_TEXT, f"column {source.text_column!r} is null"))
    if isinstance(text, bytes):
        return Refused(number, Refusal(Reason.UNDECODABLE, f"column {source.text_column!r} is not UTF-8"))
    if not isinstance(text, str):
        detail = f"column {source.text_column!r} holds {type(text).__name__}, not text"
        return Refused(number, Refusal(Reason.WRONG_TYPE, detail))
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
        return Refused(number, Refusal(Reason.UNDECODABLE, f"lone surrogate at character {error.start}"))
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
    """What in a Parquet schema stands against the mapping."""
    for name in source.mapped_columns:
        count = schema.names.count(name)
        if count != 1:
            what = "no column" if count == 0 else f"{count} columns are named"
            return Refusal(Reason.MISSING_COLUMN, f"{what} {name!r} in the file; it has {_shown(schema.names)}")
    kind = schema.field(source.text_column).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    texts = (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view())
    if kind in texts or pa.types.is_null(kind):
        return None
    return Refusal(Reason.WRONG_TYPE, f"column {source.text_column!r} is {kind}, not text; name the column of the text")


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
    """What an error says, in one line."""
    return (str(error) or type(error).__name__).splitlines()[0][:300]

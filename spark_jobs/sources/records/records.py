"""Records of files, whatever the format: a record, why it is none, the lines and objects of several formats.

An unusable record is refused with its number, and the others are read. A fault of the file itself (damage, a missing
column) ends the reading and is a refusal with number None; the records before it are used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pyarrow as pa

from spark_jobs.exceptions import did_you_mean, nearest
from spark_jobs.features import brought
from spark_jobs.plugins import attribute
from spark_jobs.sources.config.file_reading import KINDS, FileReading
from spark_jobs.sources.config.reader import ColumnReading
from spark_jobs.sources.encodings.decoding import binary_refusal
from spark_jobs.sources.listed_file import ListedFile
from spark_jobs.sources.opening.streams import HashedFile, Stream
from spark_jobs.sources.records.extracted import Extracted
from spark_jobs.sources.records.paths import heads
from spark_jobs.sources.records.plain_values import WrittenNumber, exact_number, value_text
from spark_jobs.sources.refusals import Reason, Refusal, first_line, reason_of
from spark_jobs.threads import made_once

_CHUNK_BYTES = 1 << 16
LINE_SLACK_BYTES = 1 << 20  # for the other fields of a line beside its text
_SHOWN_COLUMNS = 20
LONG_BYTES = 16 << 20
_MOST_BYTES = 850 << 20
_VALUE_BYTES = {b"{": 120, b"[": 64, b",": 40, b":": 100}  # what Python needs for one more object, list, value or key
NO_PARTITIONS: Final[Mapping[str, str | None]] = MappingProxyType({})
"""The columns that folders give, where they give none."""
_WIDE = re.compile(rb"[\xf0-\xf4]")  # begins a character for which Python holds a text in four bytes a character


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
    """An unusable record, or (number None) a fault of the file ending its reading."""

    number: int | None
    refusal: Refusal


class RecordFile(NamedTuple):
    """An open file of records, as its reader is given it.

    Attributes:
        listed: the file.
        raw: its bytes as they are.
        plain: gives its bytes, decompressed by its name, and as UTF-8 where its lines may be in any encoding.
        source: with the mapping of columns.
        max_bytes: of a document.
        extract: the text of a page or a mail inside, by the name of its reader, its bytes and what else is known of it.
        partitions: columns from its folders, by name.
    """

    listed: ListedFile
    raw: HashedFile
    plain: Callable[[], Stream]
    source: Any
    max_bytes: int
    extract: Callable[..., Extracted | Refusal]
    partitions: Mapping[str, str | None] = NO_PARTITIONS


class FileLine(NamedTuple):
    """A line of a file: its number from 1, its bytes, and what ends it."""

    number: int
    data: bytes
    end: str = "\n"


def numbered_lines(stream: Stream, max_bytes: int) -> Iterator[FileLine | Refused]:
    """Nonblank lines, without white space around them; see `all_lines`."""
    stripped = map(_stripped, all_lines(stream, max_bytes))  # unlike a loop, holds no line while it is used
    return filter(lambda line: isinstance(line, Refused) or line.data, stripped)


def _stripped(line: FileLine | Refused) -> FileLine | Refused:
    """A line without white space around it."""
    return line if isinstance(line, Refused) else line._replace(data=line.data.strip())


def all_lines(stream: Stream, max_bytes: int) -> Iterator[FileLine | Refused]:
    """Lines without their end; one of more than `max_bytes` is refused, and so is the rest of a damaged stream.

    A line ends with LF (and keeps a CR before it), but in a file with CR and no LF in its first 64 kB with CR alone.
    """
    number, pieces, byte_count, skipped, end, ended = 1, list[bytes](), 0, False, b"\n", "\n"
    try:
        for chunk in _chunks(stream):
            if number == 1 and not pieces and not skipped and b"\r" in chunk and b"\n" not in chunk:
                end, ended = b"\r", "\r"
            *whole, rest = chunk.split(end)
            del chunk
            for piece in whole:
                if skipped or byte_count + len(piece) > max_bytes:
                    yield Refused(number, Refusal(Reason.TOO_LARGE, f"the line is longer than {max_bytes} bytes"))
                else:
                    pieces = [b"".join([*pieces, piece])]
                    yield FileLine(number, pieces.pop(), ended)
                number, pieces, byte_count, skipped = number + 1, [], 0, False
            byte_count += len(rest)
            skipped = skipped or byte_count > max_bytes
            pieces = [] if skipped else [*pieces, rest]
    except (OSError, pa.ArrowException) as error:
        yield broken_off(f"in line {number}", "the lines", error)
        return
    if skipped:
        yield Refused(number, Refusal(Reason.TOO_LARGE, f"the line is longer than {max_bytes} bytes"))
    elif pieces:
        pieces = [b"".join(pieces)]
        yield FileLine(number, pieces.pop(), ended)


def broken_off(where: str, what: str, error: Exception) -> Refused:
    """The refusal of the unreadable rest of a file."""
    detail = f"breaks off {where}: {first_line(error)}; {what} before it are read"
    return Refused(None, Refusal(reason_of(error, Reason.CORRUPT_ARCHIVE), detail))


def _chunks(stream: Stream) -> Iterator[bytes]:
    """The bytes of a stream, the first 64 kB together; a fault comes after what was read before it.

    Raises:
        OSError, ArrowException: of the stream.
    """
    head, fault = bytearray(), None
    try:
        while len(head) < _CHUNK_BYTES and (chunk := stream.read(_CHUNK_BYTES)):
            head += chunk
    except (OSError, pa.ArrowException) as error:
        fault = error
    yield bytes(head)
    if fault is not None:
        raise fault
    del head
    while chunk := stream.read(_CHUNK_BYTES):
        yield chunk


def json_object(line: bytes) -> dict[str, Any] | Refusal:
    """The JSON object on a line, or why there is none."""
    text = json_text(line)
    return text if isinstance(text, Refusal) else json_fields(text)


def json_text(line: bytes) -> str | Refusal:
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


def json_fields(text: str, columns: Iterable[str] = ()) -> dict[str, Any] | Refusal:
    """The JSON object in a text, or why there is none; a column with two values is a reason."""
    may_repeat = any(text.count(f'"{name}"') > 1 for column in columns for name in {column, *column.split(".")})
    try:
        fields = json.loads(text, object_pairs_hook=JsonFields if may_repeat else None, parse_float=exact_number)
    except (ValueError, RecursionError) as error:
        return Refusal(Reason.BAD_RECORD, f"not JSON: {first_line(error)}")
    if not isinstance(fields, dict):
        return Refusal(Reason.BAD_RECORD, f"a JSON {type(fields).__name__}, not an object")
    if may_repeat and (twice := [name for name in columns if _is_repeated(fields, name)]):
        return Refusal(Reason.BAD_RECORD, f"column {min(twice)!r} is there twice, with different values")
    return fields


class JsonFields(dict[str, Any]):
    """An object of JSON, and its names with several values (`json` keeps the last)."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        repeats = len(self) < len(pairs)
        self.repeated = {name for name, value in pairs if value != self[name]} if repeats else frozenset[str]()


def _is_repeated(fields: object, path: str) -> bool:
    """Whether an object has several values at a path, or at a name on the way to it."""
    if not isinstance(fields, JsonFields):
        return False
    if path in fields or path in fields.repeated:
        return path in fields.repeated
    return any(head in fields.repeated or _is_repeated(fields.get(head), rest) for head, rest in heads(path))


def _text_or_bytes(value: bytes | None) -> str | bytes | None:
    """The text in UTF-8 bytes; other bytes as they are."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value


def usable_record(
    number: int, text: object, fields: dict[str, Any], source: FileReading, max_bytes: int, typed: bool = False
) -> Record | Refused:
    """The record, or what is wrong with its text.

    Args:
        number: from 1.
        text: the value of the text column; where there are messages, their text is the record's.
        fields: values of the mapped columns.
        source: the column mapping.
        max_bytes: longest text in UTF-8.
        typed: whether null in a column with types for its keys may stand for a key that is not there.
    """
    more = dict[str, str]()
    if source.messages_column is not None:
        try:
            tools = fields.get(source.tools_column or "")
            text, more = _messages_reader()(fields.get(source.messages_column), tools, typed)
        except ValueError as error:
            detail = f"column {source.messages_column!r}: {first_line(error)}"
            return Refused(number, Refusal(Reason.BAD_MESSAGES, detail))
    text = _text_or_refusal(text, source.body_column)
    if isinstance(text, Refusal):
        return Refused(number, text)
    identity = (source.id_column, source.repository_column, source.language_column, source.licence_column)
    try:
        record_id, repository, language, licence = (
            (name and value_text(fields.get(name))) or None for name in identity
        )
        metadata = {
            name: value for name in source.metadata_columns if (value := value_text(fields.get(name))) is not None
        } | more
        facts = {str(fact): fields[name] for fact, name in source.fact_columns.items() if name in fields}
        size = len(text) if text.isascii() else len(text.encode())
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


@made_once
def _messages_reader() -> Callable[[Any, Any, bool], tuple[str, dict[str, str]]]:
    """The function of the feature that reads messages."""
    reading: ColumnReading = attribute(brought("columns")["messages"])
    return attribute(reading.function)  # type: ignore[no-any-return]


def _text_or_refusal(value: object, column: str | None) -> str | Refusal:
    """The text in a column, or why it is none."""
    text = _text_or_bytes(value) if isinstance(value, bytes) else value
    if text is None:
        return Refusal(Reason.NULL_TEXT, f"column {column!r} is null")
    if isinstance(text, bytes):
        return Refusal(Reason.UNDECODABLE, f"column {column!r} is not UTF-8")
    if not isinstance(text, str) or isinstance(text, WrittenNumber):
        return Refusal(Reason.WRONG_TYPE, f"column {column!r} holds {type(text).__name__}, not text")
    return binary_refusal(text) or text


def names_refusal(names: list[str], source: FileReading, where: str) -> Refusal | None:
    """The refusal of a file with a mapped column missing, or there more than once."""
    for name in source.mapped_columns:
        count = names.count(name)
        if count != 1:
            what = "no column" if count == 0 else f"{count} columns are named"
            more = lacks_mend(name, names, source) if count == 0 else ""
            return Refusal(Reason.MISSING_COLUMN, f"{what} {name!r} in the {where}; it has {shown(names)}{more}")
    return None


def lacks_mend(name: str, names: Iterable[str], source: FileReading) -> str:
    """The end of a message about a column that is not there: conversations where the text should be, or the nearest."""
    messages = messages_among(names) if name == source.text_column else None
    return nearest(name, names) if messages is None else f"; read conversations by messages_column: {messages}"


def messages_among(names: Iterable[str]) -> str | None:
    """A name that columns of conversations have, if there is one among names."""
    return next((name for name in ("messages", "conversations", "conversation") if name in names), None)


def shown(names: Iterable[str]) -> str:
    """Names of columns for a message, the first twenty."""
    listed = list(names)
    more = f" and {len(listed) - _SHOWN_COLUMNS} more" if len(listed) > _SHOWN_COLUMNS else ""
    return ", ".join(map(repr, listed[:_SHOWN_COLUMNS])) + more

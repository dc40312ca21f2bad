r"""Read records from CSV and TSV files one by one, in bounded memory; records.py says what records are.

    CSV   a field may stand in double quotes, and then holds delimiters, line ends and quotes written twice (RFC 4180)
          Spark, Hive and MySQL write a quote as \" and a backslash as \\ instead: what a file does is told by its
          rows, at the first with a backslash (`csv_escape: auto`), or declared
    TSV   a line is a row and a tab a delimiter, whatever stands between them; quotes are characters (IANA's
          text/tab-separated-values). But where all names in the header stand in quotes, a program wrote CSV with tabs.

A quote not closed, or closed in the midst of a field, costs the line in which its row begins and no other: the lines
after that one are read on their own.

A file is taken for one with backslashes only where that makes more of its rows whole: rows readable by RFC 4180 are
read by it. Rows without a backslash are the same in both.
"""

from __future__ import annotations

import csv
import re
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from spark_jobs.sources.config.file_reading import FileReading
from spark_jobs.sources.opening.streams import Stream
from spark_jobs.sources.records.records import (
    LINE_SLACK_BYTES,
    LONG_BYTES,
    NO_PARTITIONS,
    FileLine,
    Record,
    RecordFile,
    Refused,
    all_lines,
    names_refusal,
    usable_record,
)
from spark_jobs.sources.refusals import Reason, Refusal, RefusedError

_DELIMITERS = {"csv": ",", "tsv": "\t"}
_QUOTED_NAMES = re.compile(r'"[^"]*"(\t"[^"]*")*\r?')
_ESCAPE = "\udbff"  # is in no text: what stands behind it is part of its field
_NULL = "\\N"
_PAIR = re.compile(r"\\(.)", re.DOTALL)
_TSV_FIELD = re.compile(r"(?:^|(?<=\t))(?:[^\t\\]|\\.)*", re.DOTALL)
_LETTERS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0", "Z": "\x1a"}
_LOOKED_AT = 8 << 20  # bytes
_HELD_LINES = 100_000  # most lines of a row that are held to be read on their own, if it turns out to be none
_READ_AGAIN = 4  # times the bytes of the file; one that wants more is no CSV


class CsvRow(NamedTuple):
    """A row: the number of its first line, and its fields."""

    number: int
    fields: list[str]


def read_csv(file: RecordFile) -> Iterator[Record | Refused]:
    """Records of a file; see `csv_records`."""
    delimiter = _DELIMITERS[file.listed.reader]
    return csv_records(file.plain(), delimiter, file.source, file.max_bytes, file.partitions)


def names_in(file: RecordFile) -> list[str]:
    """Names in the header of a file."""
    names = csv_columns(file.plain(), _DELIMITERS[file.listed.reader], file.max_bytes)
    return list(dict.fromkeys((*names, *file.partitions)))


def csv_records(
    stream: Stream,
    delimiter: str,
    source: FileReading,
    max_bytes: int,
    partitions: Mapping[str, str | None] = NO_PARTITIONS,
) -> Iterator[Record | Refused]:
    """Records of a file with a header and one record in each row, numbered as its first line.

    An empty field is a missing value, except in the text column. Blank lines are no records.

    Args:
        stream: the file, decompressed.
        delimiter: the character between fields; a tab means TSV, any other CSV.
        source: the column mapping; every column it names must be in the header.
        max_bytes: as for `jsonl_records`.
        partitions: columns from folders, where the header does not have them.
    """
    names: list[str] = []
    for row in rows_of(stream, delimiter, max_bytes + LINE_SLACK_BYTES, source.csv_escape):
        if not names:
            if isinstance(row, Refused):
                yield Refused(None, Refusal(row.refusal.reason, f"the header: {row.refusal.detail}"))
                return
            names = row.fields
            null = Refusal(Reason.BINARY, "null byte in the header; save the file as UTF-8")
            column_names = [*names, *(name for name in partitions if name not in names)]
            if refusal := null if "\0" in "".join(names) else names_refusal(column_names, source, "header"):
                yield Refused(None, refusal)
                return
        elif isinstance(row, Refused):
            yield row
        elif len(row.fields) != len(names):
            detail = f"{len(row.fields)} fields, the header has {len(names)}"
            yield Refused(row.number, Refusal(Reason.BAD_RECORD, detail))
        else:
            fields = {**partitions, **dict(zip(names, row.fields, strict=True))}
            text = fields[source.body_column or ""]
            nulls = ("", _NULL) if source.csv_escape == "backslash" else ("",)
            values = {name: None if value in nulls else value for name, value in fields.items()}
            yield usable_record(row.number, None if text in nulls[1:] else text, values, source, max_bytes)


def rows_of(stream: Stream, delimiter: str, max_bytes: int, escape: str = "auto") -> Iterator[CsvRow | Refused]:
    """Nonblank rows, of CSV or TSV by the delimiter; bytes other than UTF-8 are lone surrogates.

    Args:
        stream: the file, decompressed.
        delimiter: as for `csv_records`.
        max_bytes: longest row.
        escape: as `FileReading.csv_escape`.
    """
    lines, is_tsv = all_lines(stream, max_bytes), delimiter == "\t"
    if is_tsv and (first := next(lines, None)) is not None:
        lines = chain([first], lines)
        is_tsv = isinstance(first, Refused) or not _QUOTED_NAMES.fullmatch(_text(first))
    if is_tsv and escape == "backslash":
        yield from _escaped_tsv_rows(lines)
    else:
        yield from _tsv_rows(lines) if is_tsv else _CsvRows(lines, delimiter, max_bytes, escape)


def csv_columns(stream: Stream, delimiter: str, max_bytes: int) -> list[str]:
    """Names in the header of a file; none where it has none."""
    first = next(rows_of(stream, delimiter, max_bytes), None)
    return first.fields if isinstance(first, CsvRow) else []


def _tsv_rows(lines: Iterator[FileLine | Refused]) -> Iterator[CsvRow | Refused]:
    """A row for each line."""
    for line in lines:
        if isinstance(line, Refused):
            yield line
        elif b"\t" in line.data or line.data.strip():
            yield CsvRow(line.number, _text(line).removesuffix("\r").split("\t"))


def _escaped_tsv_rows(lines: Iterator[FileLine | Refused]) -> Iterator[CsvRow | Refused]:
    """Rows as MySQL and PostgreSQL write them: a backslash before a tab or line end makes it part of a field."""
    number, pending = 0, ""
    for line in lines:
        if isinstance(line, Refused):
            yield line
            continue
        number, pending = number or line.number, pending + _text(line).removesuffix("\r")
        if (len(pending) - len(pending.rstrip("\\"))) % 2:
            pending += "\n"
        elif pending.strip():
            yield CsvRow(number, [_unescaped(field) for field in _TSV_FIELD.findall(pending)])
            number, pending = 0, ""
        else:
            number, pending = 0, ""
    if pending:
        yield Refused(number, Refusal(Reason.BAD_RECORD, "ends behind a backslash"))


def _unescaped(field: str) -> str:
    r"""A field without its backslashes; `\N`, for null, as it is."""
    return field if field == _NULL else _PAIR.sub(lambda pair: _LETTERS.get(pair[1], pair[1]), field)


def _text(line: FileLine) -> str:
    """A line as text, without a byte order mark."""
    data = line.data.removeprefix(b"\xef\xbb\xbf") if line.number == 1 else line.data
    return data.decode(errors="surrogateescape")


class _CsvRows:
    """Rows of CSV, one after the other, and refusals of lines outside of all rows."""

    def __init__(
        self, lines: Iterator[FileLine | Refused], delimiter: str, max_bytes: int, escape: str = "quote"
    ) -> None:
        self._lines, self._escape = lines, escape  # `quote` when it is told what a backslash means
        self._marks: _Marks | None = None
        self._names = 0  # fields of the first row
        self._delimiter, self._max_bytes = delimiter, max_bytes
        self._again = deque[FileLine]()  # of refused rows, the lines behind the first, to be read on their own
        self._fresh_bytes = self._again_bytes = 0
        self._begin_row()
        csv.field_size_limit(sys.maxsize)  # of the whole process; `max_bytes` bounds the rows of this file

    def _begin_row(self) -> None:
        self._first = self._last = self._bytes = 0
        self._is_blank, self._has_backslash = True, False
        if self._marks is not None:
            self._marks.begin_row()
        self._row = list[FileLine]()  # its lines so far, while it is to be told what a backslash means
        self._tail: list[FileLine] | None = []  # its lines after the first; none where they are too many
        self._refused = list[Refused]()

    def __iter__(self) -> Iterator[CsvRow | Refused]:
        """The rows in order."""
        rows = self._reader()
        while True:
            self._begin_row()
            try:
                fields = next(rows, None)
            except RefusedError as error:
                yield Refused(None, error.refusal)
                return
            except csv.Error as error:
                rows = self._reader()
                yield self._not_csv(error)
                yield from self._refused
                continue
            if self._bytes > LONG_BYTES:
                rows = self._reader()  # a reader keeps the memory of its largest field
            yield from self._refused
            if fields is None:
                return
            lacks_line = any((line.number or 0) > self._first for line in self._refused)
            if not lacks_line and not (self._is_blank and len(fields) < 2):
                self._names = self._names or len(fields)
                yield CsvRow(self._first, fields)

    def _reader(self) -> Iterator[list[str]]:
        return csv.reader(self._given(), delimiter=self._delimiter, escapechar=_ESCAPE, strict=True)

    def _given(self) -> Iterator[str]:
        """Lines as text, for the reader; what is refused is not given."""
        while line := self._again.popleft() if self._again else next(self._lines, None):
            if isinstance(line, Refused):
                self._refused.append(line)
                self._tail = None if self._first else self._tail
                continue
            size = len(line.data) + 1
            self._bytes += size
            self._last = line.number
            self._is_blank = self._is_blank and not line.data.strip()
            self._has_backslash = self._has_backslash or b"\\" in line.data
            if not self._first:
                self._first = line.number
            elif self._bytes > self._max_bytes:
                detail = f"the row that begins in line {self._first} is longer than {self._max_bytes} bytes"
                raise RefusedError(Reason.TOO_LARGE, f"{detail}; the rows before it are read")
            elif self._tail is not None:
                self._tail.append(line)
                if self._bytes > LONG_BYTES or len(self._tail) > _HELD_LINES:
                    self._tail = None
            self._fresh_bytes += size
            if self._escape != "quote":
                if self._bytes <= LONG_BYTES:
                    self._row.append(line)
                else:
                    self._row.clear()
                if b"\\" in line.data:
                    self._marks, self._escape = self._told(), "quote"
            text = _text(line) + line.end
            yield text if self._marks is None else self._marks.line(text)

    def _told(self) -> _Marks | None:
        """What a backslash means in this file, by the row with the first one and up to 8 MB of lines behind it."""
        ahead, byte_count = list[FileLine | Refused](), 0
        behind = [line for line in self._again if not isinstance(line, Refused)]
        while byte_count < _LOOKED_AT and (line := next(self._lines, None)):
            ahead.append(line)
            byte_count += 0 if isinstance(line, Refused) else len(line.data)
        is_end = byte_count < _LOOKED_AT
        self._lines = chain(ahead, self._lines)
        lines = [*self._row, *behind, *(line for line in ahead if isinstance(line, FileLine))]
        texts = [_text(line) + line.end for line in lines]
        ways = [_Marks(self._delimiter, everywhere) for everywhere in (False, True)]
        tried = [None, *ways] if self._escape == "auto" else list[_Marks | None](reversed(ways))
        counts = [_faults(texts, self._delimiter, self._names, is_end, marks) for marks in tried]
        marks = tried[counts.index(min(counts))]  # of several the first
        if marks is not None:
            marks.begin_row()
            for text in texts[: max(0, len(self._row) - 1)]:
                marks.line(text)
        return marks

    def _not_csv(self, error: csv.Error) -> Refused:
        """Refuse a row other than CSV: its first line alone, where the others are held to be read on their own."""
        fault = "a quote is not closed" if str(error) == "unexpected end of data" else error
        has_escapes = self._marks is None and self._has_backslash
        mend = "; where a quote is written behind a backslash, state `csv_escape: backslash`" if has_escapes else ""
        if self._tail is not None and self._again_bytes <= _READ_AGAIN * self._fresh_bytes + LONG_BYTES:
            self._again.extendleft(reversed(self._tail))
            self._again_bytes += self._bytes
            where = "; the lines after it are read on their own" if self._tail else ""
            return Refused(self._first, Refusal(Reason.BAD_RECORD, f"not CSV: {fault}{where}{mend}"))
        detail = f"not CSV in lines {self._first} to {self._last}: {fault}{mend}"
        return Refused(self._first, Refusal(Reason.BAD_RECORD, detail))


class _Marks:
    r"""Lines in which a backslash that is no letter is the mark of the reader.

    In a quoted field that is one before a quote or a backslash. Other fields have their backslashes as letters, as
    Spark writes `C:\nets`, or (`everywhere`) behind one a delimiter or line end too, as writers without quotes do.
    """

    def __init__(self, delimiter: str, everywhere: bool) -> None:
        self._everywhere = everywhere
        other = re.escape(delimiter)
        self._tokens = re.compile(rf'\\.|["{other}\r\n]|[^"{other}\\\r\n]+|\\', re.DOTALL)
        self._ends, self._marked = {delimiter, "\n", "\r"}, {'"', "\\"}
        self.begin_row()

    def begin_row(self) -> None:
        """A field begins with the next line."""
        self._is_quoted, self._is_start = False, True

    def line(self, text: str) -> str:
        """The next line."""
        pieces = list[str]()
        for token in self._tokens.findall(text):
            pair = token[0] == "\\" and len(token) == 2
            if pair and (self._is_quoted or self._everywhere):
                taken = token[1] in self._marked or (self._everywhere and token[1] in self._ends)
                pieces.append(_ESCAPE + token[1] if taken else token)
                self._is_start = False
            elif pair and (token[1] in self._ends or token[1] == '"'):
                pieces.append(token)  # the backslash is the last letter of its field
                self._is_start = token[1] != '"'
            else:
                pieces.append(token)
                if token == '"' and (self._is_quoted or self._is_start):
                    self._is_quoted = not self._is_quoted
                self._is_start = not self._is_quoted and token in self._ends
        return "".join(pieces)


def _faults(texts: list[str], delimiter: str, names: int, is_end: bool, marks: _Marks | None) -> int:
    """How many rows of some lines are no CSV, or have not as many fields as the first; behind a fault the next line."""
    count, at = 0, 0
    while at < len(texts):
        if marks is not None:
            marks.begin_row()
        lines = (texts[place] for place in range(at, len(texts)))  # a copy for each fault would take quadratic time
        rows = csv.reader(
            lines if marks is None else map(marks.line, lines), delimiter=delimiter, escapechar=_ESCAPE, strict=True
        )
        try:
            for fields in rows:
                names = names or len(fields)
                count += len(fields) not in (0, names)
            return count
        except csv.Error as error:
            if str(error) == "unexpected end of data" and not is_end:
                return count
            count += 1
            at += max(1, rows.line_num)
    return count

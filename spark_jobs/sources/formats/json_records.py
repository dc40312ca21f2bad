"""Read records from JSON files, whatever form they have: a line, an element of an array, or an object each.

    {"text": "a"}            [                     {
    {"text": "b"}              {"text": "a"},        "text": "a"
                               {"text": "b"}       }
                             ]                     {"text": "b"}

A file with an object in each of its first lines is one of lines, and a line without one costs that line alone. Every
other file is a sequence of values: the elements of its arrays and its objects are records, one held at a time, and what
is no JSON ends it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from spark_jobs.sources.formats.jsonl_records import names_of, object_records
from spark_jobs.sources.opening.streams import Stream, read_up_to
from spark_jobs.sources.records.records import (
    LINE_SLACK_BYTES,
    FileLine,
    Record,
    RecordFile,
    Refused,
    broken_off,
    numbered_lines,
)
from spark_jobs.sources.refusals import Reason, Refusal

_HEAD_BYTES = 1 << 16
_CHUNK_BYTES = 1 << 16
_BETWEEN = re.compile(rb"[\s,\x1e]*")
_IN_STRING = re.compile(rb'(?:[^"\\]+|\\.)*+', re.DOTALL)
_MARK = re.compile(rb'["{}\[\]]')
_PLAIN = re.compile(rb'[^\s,"{}\[\]]*')


def read_json(file: RecordFile) -> Iterator[Record | Refused]:
    """Records of a file; see the module."""
    values = json_values(file.plain(), file.max_bytes + LINE_SLACK_BYTES)
    yield from object_records(values, file.source, file.max_bytes, file.partitions)


def names_in(file: RecordFile) -> list[str]:
    """Names of the fields in the first 1,000 records of a file."""
    return names_of(json_values(file.plain(), file.max_bytes), file.partitions)


def json_values(stream: Stream, max_bytes: int) -> Iterator[FileLine | Refused]:
    """The texts of the records of a file; those of lines with the number of their line, others counted from 1.

    Args:
        stream: the file, decompressed.
        max_bytes: longest held text; longer ones are refused.
    """
    rejoined = _Rejoined(stream)
    return numbered_lines(rejoined, max_bytes) if _is_lines(rejoined.head) else _Values(rejoined, max_bytes).found()


class _Rejoined:
    """A stream after a look at its beginning; a fault of it comes after what is before the fault."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.head = b""
        while len(self.head) < _HEAD_BYTES:
            try:
                more = read_up_to(stream, 1) if not self.head else bytes(stream.read(_HEAD_BYTES))
            except Exception:  # noqa: BLE001 - damage of any kind, which the stream raises again where it is read on
                break
            if not more:
                break
            self.head += more
        self._left = self.head

    def read(self, size: int, /) -> bytes:
        """At most `size` of the next bytes; none at the end."""
        data, self._left = self._left[:size], self._left[size:]
        return data or bytes(self._stream.read(size))


def _is_lines(head: bytes) -> bool:
    """Whether a file with this beginning is one of lines: not an array, and no object over several lines."""
    begins = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if begins[:1] != b"{":
        return begins[:1] != b"["
    lines = [line.rstrip() for line in begins.splitlines() if line.strip()]
    return len(lines) == 1 or any(map(_is_object, lines[:-1]))


def _is_object(line: bytes) -> bool:
    """Whether a line is a whole object, from its first column on."""
    if not (line.startswith(b"{") and line.endswith(b"}")):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


class _Values:
    """The objects of a file, and the elements of its arrays, one after the other."""

    def __init__(self, stream: Stream, max_bytes: int) -> None:
        self._stream, self._max_bytes = stream, max_bytes
        self._held, self._at = b"", 0
        self._pieces, self._size, self._number = list[bytes](), 0, 1

    def found(self) -> Iterator[FileLine | Refused]:
        """Each value; where the file breaks off or holds no JSON, a refusal without a number ends it."""
        in_array = False
        try:
            self._fill()
            self._held = self._held.removeprefix(b"\xef\xbb\xbf")
            while True:
                self._past(_BETWEEN)
                if self._at == len(self._held):
                    break
                mark = self._held[self._at : self._at + 1]
                if (mark == b"[") != in_array and mark in b"[]":
                    in_array, self._at = not in_array, self._at + 1
                elif mark in b"]}":
                    yield self._fault(f"{mark.decode()!r} closes nothing")
                    return
                elif not self._value(mark):
                    break
                else:
                    yield self._taken()
        except OSError as error:
            yield broken_off(f"in value {self._number}", "the values", error)
            return
        if in_array or self._size:
            yield self._fault("the file ends inside of it")

    def _value(self, mark: bytes) -> bool:
        """Go past the value beginning here; false where the file ends inside of it."""
        if mark not in b'{["':
            self._past(_PLAIN)
            return True
        depth = 0
        while True:
            match = _MARK.search(self._held, self._at)
            if match is None:
                self._keep(len(self._held))
                if not self._fill():
                    return False
                continue
            self._keep(match.end())
            if match[0] == b'"':
                if not self._string():
                    return False
            else:
                depth += 1 if match[0] in b"{[" else -1
            if depth == 0:
                return True

    def _string(self) -> bool:
        """Go past the rest of a string and its quote; false where the file ends inside of it."""
        while True:
            self._past(_IN_STRING)
            if self._held[self._at : self._at + 1] == b'"':
                self._keep(self._at + 1)
                return True
            if not self._fill():  # behind a backslash
                return False

    def _past(self, pattern: re.Pattern[bytes]) -> None:
        """Go past what a pattern matches, over the ends of chunks."""
        while True:
            match = pattern.match(self._held, self._at)
            assert match is not None  # each of them matches nothing too
            if pattern is _BETWEEN:
                self._at = match.end()
            else:
                self._keep(match.end())
            if self._at < len(self._held) or not self._fill():
                return

    def _keep(self, end: int) -> None:
        """Add all up to an offset to the value, where it is not too long already."""
        self._size += end - self._at
        if self._size <= self._max_bytes:
            self._pieces.append(self._held[self._at : end])
        else:
            self._pieces = []
        self._at = end

    def _taken(self) -> FileLine | Refused:
        """The value gone past."""
        number, data = self._number, b"".join(self._pieces)
        is_long = self._size > self._max_bytes
        self._pieces, self._size, self._number = [], 0, number + 1
        if is_long:
            return Refused(number, Refusal(Reason.TOO_LARGE, f"the value is longer than {self._max_bytes} bytes"))
        return FileLine(number, data)

    def _fault(self, what: str) -> Refused:
        detail = f"no JSON in value {self._number}: {what}; the values before it are read"
        return Refused(None, Refusal(Reason.CORRUPT_FILE, detail))

    def _fill(self) -> bool:
        """Read more of the file; false at its end."""
        more = bytes(self._stream.read(_CHUNK_BYTES))
        self._held, self._at = self._held[self._at :] + more, 0
        return bool(more)

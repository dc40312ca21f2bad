"""Find the records of a WARC file (ISO 28500), and go on behind one with a wrong head or length of its own.

    WARC/1.0                                  lines end in CRLF, or in LF alone
    Content-Length: 343     <- may be false
    (empty line)
    343 bytes               <- the block
    (two line ends)         <- show whether the length is true

A length holds if two line ends, the next record or the end follow its block. Where it does not, the record is refused,
and the next one is searched for from the beginning of the block on: behind an empty line, by its first line. So an
archive inside of a record is no part of this one, unless that record's length is wrong or more than is held.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from spark_jobs.sources.opening.http_bodies import headers_of
from spark_jobs.sources.opening.streams import Stream
from spark_jobs.sources.records.records import Refused
from spark_jobs.sources.refusals import Reason, Refusal, reason_of

_VERSION = re.compile(rb"WARC/\d+\.\d+[ \t]*(\r?\n)")
_NEXT = re.compile(rb"\n\r?\n(?=WARC/\d+\.\d+[ \t]*\r?\n)")
_NEXT_BYTES = 64  # more than what `_NEXT` matches and looks at
_END_OF_HEAD = re.compile(rb"\n\r?\n")
_PADDING = b"\r\n\0"
_PADDING_BYTES = 4096
_LENGTH = re.compile(r"[0-9]{1,18}")
_HEAD_BYTES, _MOST_HEAD_BYTES = 1 << 13, 1 << 19  # looked through for a head's end; nearly always the first are enough
_READ_BYTES = 1 << 16


class WarcRecord(NamedTuple):
    """Where a record begins in the decompressed archive, its headers by lower-case name, and its block.

    The block is the one item of a list, so that its taker holds it alone; a too large one is not there.
    """

    start: int
    headers: dict[str, str]
    block: list[bytes]


def warc_records(archive: Stream, max_bytes: int) -> Iterator[WarcRecord | Refused]:
    """The records of an archive; a damaged one is refused at its start, and the next is found.

    A damage without a record behind it is a refusal with number None, and so is an archive unreadable from there on.

    Args:
        archive: the file, decompressed.
        max_bytes: largest block; larger ones are refused and not held.
    """
    unread = _Held(archive)
    while unread.skip_padding():
        start = unread.position
        parsed = _record(unread, max_bytes)
        if isinstance(parsed, WarcRecord):
            yield parsed
            continue
        if not unread.to_next_record():
            yield _broken_off(unread, f"in or after the record at {start}: {parsed.detail}")
            return
        yield Refused(start, parsed)
    if unread.fault is not None:
        yield _broken_off(unread, f"in or after byte {unread.position}: {unread.fault}")


def _broken_off(unread: _Held, where: str) -> Refused:
    """The refusal of the rest of an archive."""
    reason = reason_of(unread.fault, Reason.CORRUPT_ARCHIVE) if unread.fault else Reason.CORRUPT_ARCHIVE
    return Refused(None, Refusal(reason, f"breaks off {where.splitlines()[0][:300]}; what is before it is read"))


def _record(unread: _Held, max_bytes: int) -> WarcRecord | Refusal:
    """Read the record beginning here; where something is wrong with it, stop behind its head and say what."""
    start, head = unread.position, _head(unread)
    if isinstance(head, Refusal):
        return head
    headers, line_end = head
    length = int(headers["content-length"])
    if length > max_bytes:
        if _skip_block(unread, length):
            return WarcRecord(start, headers, [])
        return Refusal(Reason.BAD_RECORD, f"another record begins within its {length} bytes")
    record = WarcRecord(start, headers, [unread.take(length)])
    padding = unread.take_padding()
    fault = _fault_of_length(record.block[0], length, padding, line_end * 2, unread)
    if fault is None:
        return record
    unread.put_back(record.block.pop() + padding)
    return Refusal(Reason.BAD_RECORD, fault)


def _head(unread: _Held) -> tuple[dict[str, str], bytes] | Refusal:
    """Read the head of the record beginning here: its headers, with a valid length, and its line end."""
    head = unread.peek(_HEAD_BYTES)
    version, end = _VERSION.match(head), _END_OF_HEAD.search(head)
    if version is None:
        return Refusal(Reason.BAD_RECORD, "no record begins here")
    if end is None:
        head = unread.peek(_MOST_HEAD_BYTES)
        end = _END_OF_HEAD.search(head)
    if end is None:
        unread.take(version.end())
        return Refusal(Reason.BAD_RECORD, f"its head does not end within {len(head)} bytes")
    lines = re.split(rb"\r?\n", head[version.end() : end.start()])
    unread.take(end.end())
    headers = headers_of(lines, "utf-8")
    if not _LENGTH.fullmatch(headers.get("content-length", "")):
        return Refusal(Reason.BAD_RECORD, "it has no length")
    return headers, version[1]


def _skip_block(unread: _Held, length: int) -> bool:
    """Go past a block not held and what follows it, to the next record; false where one begins within it."""
    if unread.to_next_record(max(0, length - _NEXT_BYTES)):
        return False
    tail = unread.take(min(length, _NEXT_BYTES)) + unread.take_padding()
    if not unread.starts_record():
        unread.put_back(tail)
        unread.to_next_record()
    return True


def _fault_of_length(block: bytes, length: int, padding: bytes, separator: bytes, unread: _Held) -> str | None:
    """Why a length is false, by what follows the block; None where it may be true.

    Some writers put more or fewer line ends than two there, so others are enough where the next record follows.
    """
    if len(block) < length:
        return f"{len(block)} of its {length} bytes are there"
    if padding != separator and len(padding) < _PADDING_BYTES and not unread.starts_record():
        return f"no record begins behind its {length} bytes"
    if len(padding) < len(separator) and (block[-len(separator) :] + padding).endswith(separator):
        return f"its {length} bytes end within the lines between two records"
    return None


class _Held:
    """The bytes of an archive from a position on, to look at before they are taken, and to put back."""

    def __init__(self, archive: Stream) -> None:
        self._archive, self._bytes = archive, bytearray()
        self.position = 0
        self.fault: OSError | ValueError | None = None  # what ended the archive before its end

    def peek(self, size: int) -> bytes:
        """The next bytes, at most so many; fewer at the end."""
        while len(self._bytes) < size and self._fill():
            pass
        with memoryview(self._bytes) as every, every[:size] as next_ones:
            return bytes(next_ones)

    def take(self, size: int) -> bytes:
        """Take the next bytes, and go behind them."""
        data = self.peek(size)
        del self._bytes[: len(data)]
        self.position += len(data)
        return data

    def put_back(self, data: bytes) -> None:
        """Undo the taking of these bytes."""
        self._bytes[:0] = data
        self.position -= len(data)

    def starts_record(self) -> bool:
        """Whether a record begins here, or nothing is left of one."""
        return b"WARC/".startswith(self.peek(5))

    def take_padding(self) -> bytes:
        """The next line ends, at most 4,096 bytes."""
        ahead = self.peek(_PADDING_BYTES)
        return self.take(len(ahead) - len(ahead.lstrip(_PADDING)))

    def skip_padding(self) -> bool:
        """Go past line ends; false at the end of the archive."""
        while self.take_padding():
            pass
        return bool(self.peek(1))

    def to_next_record(self, within: int | None = None) -> bool:
        """Go to the empty line before the next record; where there is none, past so many bytes or to the end."""
        end = None if within is None else self.position + within
        while ahead := self.peek(_READ_BYTES if end is None else min(_READ_BYTES, end - self.position)):
            match = _NEXT.search(ahead)
            self.take(match.start() if match else max(1, len(ahead) - _NEXT_BYTES))
            if match:
                return True
        return False

    def _fill(self) -> bool:
        """Read more of the archive; false at its end."""
        if self.fault is not None:
            return False
        try:
            more = self._archive.read(_READ_BYTES)
        except (OSError, ValueError) as error:
            self.fault = error
            return False
        self._bytes += more
        return bool(more)

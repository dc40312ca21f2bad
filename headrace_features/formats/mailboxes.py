"""Read the mails of a mailbox one by one: mboxo, mboxrd, mboxcl, mboxcl2 (RFC 4155), Usenet's and bare archives.

    From ada@x.org Thu Nov 12 09:00:00 2026     opens a mail: a blank line or nothing stands before it, a header behind
    Subject: one
                                                mbox writers put a > before such a line of a text; one is taken off
    >From there on ..

Behind `From ` stand a sender and a date in any form, one word (Usenet's number, a name) or nothing; without a date the
header behind it is one of a mail. A Content-Length comes before all this where a mail or the end follows it.
A mail larger than a document may be is never held whole.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from spark_jobs.sources.opening.streams import Stream
from spark_jobs.sources.records.extracted import Extracted
from spark_jobs.sources.records.records import Record, RecordFile, Refused, all_lines
from spark_jobs.sources.refusals import Reason, Refusal

_BOM = b"\xef\xbb\xbf"
_MONTH = rb"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}"
_DAY = re.compile(rb"\b" + _MONTH + rb"\b|\d{4}[-/]\d\d?[-/]\d\d?|\d\d?[-/.]\d\d?[-/.]\d{2,4}", re.I)
_DATE_WORD = re.compile(
    rb"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6}\.?,?|"
    + _MONTH
    + rb"\.?,?|[-+]?\d[-\d:./+T]*Z?,?|\d\d?-"
    + _MONTH
    + rb"-\d{2,4}|\(?(?-i:[A-Z]{1,5})(?:[-+][\d:]+)?\)?|am|pm|DST)",
    re.I,
)
_REMOTE = re.compile(rb"\s+remote from .*", re.I)
_SENDER = re.compile(rb"\S*|\S+ (?:at|AT) \S+|[^@]*@\S+|.* <\S+>")
_OPENING_BYTES = 300  # of a line that are looked at
_QUOTED = re.compile(rb">+From ")
_HEADER = re.compile(rb"[!-9;-~]+[ \t]*:|>From \S+ ")
_MAIL_HEADER = re.compile(
    rb"(?:x-[!-9;-~]+|content-[a-z-]+|list-[a-z-]+|resent-[a-z-]+|nntp-[a-z-]+|from|to|cc|bcc|date|subject|sender|path|"
    rb"message-id|received|return-path|reply-to|newsgroups|mime-version|delivered-to|references|in-reply-to|status|"
    rb"organization|lines|xref|article|article-i\.d\.|approved|distribution|relay-version|posting-version|date-received|"
    rb"envelope-to|dkim-signature|authentication-results|arc-[a-z-]+|user-agent|keywords|followup-to|expires)[ \t]*:",
    re.I,
)
_LENGTH = re.compile(rb"content-length[ \t]*:[ \t]*(\d{1,12})\s*$", re.I)


class _Mail(NamedTuple):
    """A mail: the number of its first line, its first byte where known, and its bytes or why it is not used."""

    line: int
    offset: int | None
    data: bytes | Refusal


def read_mailbox(file: RecordFile) -> Iterator[Record | Refused]:
    """Mails of a file; see `mail_records`."""
    stream = file.plain()
    return mail_records(stream, partial(file.extract, "mail"), file.max_bytes, is_compressed=stream is not file.raw)


def mail_records(
    stream: Stream, extract: Callable[[bytes], Extracted | Refusal], max_bytes: int, is_compressed: bool
) -> Iterator[Record | Refused]:
    """The mails of a mailbox, each numbered by its first line and named by its Message-ID.

    Args:
        stream: the file, decompressed.
        extract: gives the text of a mail.
        max_bytes: largest mail.
        is_compressed: whether the stream was decompressed; its offsets are not those of the file then, and left out.
    """
    for mail in _mails(stream, max_bytes):
        extracted = extract(mail.data) if isinstance(mail, _Mail) and isinstance(mail.data, bytes) else None
        if isinstance(mail, Refused):
            yield mail
        elif isinstance(extracted, Extracted):
            place = {} if is_compressed or mail.offset is None else {"offset": str(mail.offset)}
            name = extracted.metadata.get("message_id", "").strip("<>") or None
            metadata = {**extracted.metadata, **place}
            yield Record(mail.line, extracted.text, name, None, None, None, "prose", metadata, {})
        elif (refusal := extracted or mail.data) and isinstance(refusal, Refusal):
            yield Refused(mail.line, refusal)


class _Line(NamedTuple):
    """A line of the file, its number and first byte; `data` is None where it is longer than a mail may be."""

    number: int
    begin: int | None
    data: bytes | None


class _Lines:
    """The lines of a file, some of which may be looked at before they are taken."""

    def __init__(self, stream: Stream, max_bytes: int) -> None:
        self._lines, self._ahead = all_lines(stream, max_bytes), deque[_Line]()
        self._begin: int | None = 0
        self.fault: Refused | None = None  # that ended the file

    def peek(self, distance: int = 0) -> _Line | None:
        """A line not taken yet, None behind the end."""
        while len(self._ahead) <= distance and self.fault is None and (line := next(self._lines, None)) is not None:
            if isinstance(line, Refused) and line.number is None:
                self.fault = line
            elif isinstance(line, Refused):
                self._begin = None
                self._ahead.append(_Line(line.number or 0, None, None))
            else:
                self._ahead.append(_Line(line.number, self._begin, line.data))
                self._begin = None if self._begin is None else self._begin + len(line.data) + 1
        return self._ahead[distance] if distance < len(self._ahead) else None

    def take(self) -> _Line | None:
        """The next line."""
        self.peek()
        return self._ahead.popleft() if self._ahead else None

    def give_back(self, lines: list[_Line]) -> None:
        """Put back taken lines."""
        self._ahead.extendleft(reversed(lines))

    def opens(self) -> bool:
        """Whether the next line opens a mail, by itself and the line behind it."""
        line, behind = self.peek(), None
        if line is None or line.data is None or not line.data.startswith(b"From"):
            return False
        behind = self.peek(1)
        return behind is not None and _opens(line.data[:_OPENING_BYTES], (behind.data or b"")[:_OPENING_BYTES])


def _opens(line: bytes, behind: bytes) -> bool:
    """Whether a line is a separator of mails by what stands in it and the line behind it."""
    if not line.startswith(b"From ") or not _HEADER.match(behind):
        return False
    words = _REMOTE.sub(b"", line[5:].strip()).split()
    date = len(words)
    while date and _DATE_WORD.fullmatch(words[date - 1]):
        date -= 1
    for sender in {date, max(date, 1)}:  # a sender may look like a word of a date
        dated = b" ".join(words[sender:])
        if _DAY.search(dated) and re.search(rb"\d", dated) and _SENDER.fullmatch(b" ".join(words[:sender])):
            return True
    return len(words) <= 1 and _MAIL_HEADER.match(behind) is not None


def _mails(stream: Stream, max_bytes: int) -> Iterator[_Mail | Refused]:
    """The mails in order; a file beginning otherwise is refused, and so is what damage hides."""
    lines = _Lines(stream, max_bytes)
    while (line := lines.peek()) is not None and line.data is not None and not line.data.strip():
        lines.take()
    if line is not None:
        if line.data is None or not line.data.removeprefix(_BOM).startswith(b"From "):
            detail = "no mailbox: its first line does not begin with `From `; a single mail is .eml"
            yield Refused(None, Refusal(Reason.CORRUPT_FILE, detail))
            return
        while (opening := lines.take()) is not None:
            mail = _Mail(opening.number, opening.begin, _next_mail(lines, max_bytes))
            if lines.fault is not None and lines.peek() is None:
                yield Refused(opening.number, Refusal(Reason.BAD_RECORD, "the file breaks off inside of this mail"))
            else:
                yield mail
            del mail
    if lines.fault is not None:
        yield lines.fault


def _next_mail(lines: _Lines, max_bytes: int) -> bytes | Refusal:
    """The mail behind a separator, without the `>` of its quoted lines."""
    mail, byte_count, length = list[bytes](), 0, None
    while (line := lines.take()) is not None:
        data = line.data
        byte_count += max_bytes + 1 if data is None else len(data) + 1
        if byte_count > max_bytes:
            mail = []
        elif data is not None:
            mail.append(_unquoted(data))
            if match := _LENGTH.match(data[:_OPENING_BYTES]):
                length = int(match[1])
        if data is not None and not data.strip():
            break
    if line is not None and byte_count <= max_bytes and length is not None and byte_count + length <= max_bytes:
        body = _body_of_length(lines, length)
        if body is not None:
            is_quoted = not any(text.startswith(b"From ") for text in body)
            mail += map(_unquoted, body) if is_quoted else body
            return _whole(mail, 0, max_bytes)
    is_blank = line is not None
    while (line := lines.peek()) is not None and not (is_blank and lines.opens()):
        lines.take()
        byte_count += max_bytes + 1 if line.data is None else len(line.data) + 1
        is_blank = line.data is not None and not line.data.strip()
        if byte_count > max_bytes:
            mail = []
        else:
            mail.append(_unquoted(line.data or b""))
    return _whole(mail, byte_count, max_bytes)


def _body_of_length(lines: _Lines, length: int) -> list[bytes] | None:
    """The lines of a body by its Content-Length; None, and nothing taken, where no mail and no end follows."""
    taken, byte_count = list[_Line](), 0
    while byte_count < length and (line := lines.take()) is not None:
        taken.append(line)
        byte_count += length + 2 if line.data is None else len(line.data) + 1
    is_end = byte_count in (length, length + 1)  # some count no line end behind the last line
    while is_end and (line := lines.peek()) is not None and line.data is not None and not line.data.strip():
        taken.append(line)
        lines.take()
    if is_end and (lines.opens() or (lines.peek() is None and lines.fault is None)):
        return [line.data or b"" for line in taken]
    lines.give_back(taken)
    return None


def _unquoted(line: bytes) -> bytes:
    """A line of a mail without the `>` that its writer put before `From `."""
    return line[1:] if line.startswith(b">") and _QUOTED.match(line) else line


def _whole(lines: list[bytes], byte_count: int, max_bytes: int) -> bytes | Refusal:
    """The bytes of a mail, or its refusal as too large."""
    if byte_count > max_bytes:
        return Refusal(Reason.TOO_LARGE, f"the mail has more than {max_bytes} bytes, the max_document_bytes")
    data = b"\n".join(lines)
    lines.clear()  # so that a large mail is not held twice
    return data.rstrip(b"\r\n") + b"\n"

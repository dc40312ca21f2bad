"""Read the mails of a mailbox one by one (mboxrd, and what is close to it: RFC 4155).

    From ada@x.org Thu Nov 12 09:00:00 2026     a line that begins so and holds a date with a time opens a mail
    Subject: one
                                                mbox writers put a > before such a line of a text; one is taken off
    >From there on ..

Lines such as `From here on` and `From 9:00 to 10:00 in 2026` hold no date and are text. A mail that is larger than a
document may be is never held whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from spark_jobs.sources.opening.streams import Stream
from spark_jobs.sources.records.extracted import Extracted
from spark_jobs.sources.records.records import Record, RecordFile, Refused, all_lines
from spark_jobs.sources.refusals import Reason, Refusal

_DATE = rb"\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b|\b\d{4}-\d\d-\d\d"
_OPENING = re.compile(rb"From (?=.*\d:\d\d)(?=.*\d{4})(?=.*(?:" + _DATE + rb")).*")
_OPENING_BYTES = 300  # of a line that are looked at
_QUOTED = re.compile(rb">+From ")


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
        found = extract(mail.data) if isinstance(mail, _Mail) and isinstance(mail.data, bytes) else None
        if isinstance(mail, Refused):
            yield mail
        elif isinstance(found, Extracted):
            place = {} if is_compressed or mail.offset is None else {"offset": str(mail.offset)}
            name = found.metadata.get("message_id", "").strip("<>") or None
            metadata = {**found.metadata, **place}
            yield Record(mail.line, found.text, name, None, None, None, "prose", metadata, {})
        elif (refusal := found or mail.data) and isinstance(refusal, Refusal):
            yield Refused(mail.line, refusal)


def _mails(stream: Stream, max_bytes: int) -> Iterator[_Mail | Refused]:
    """The mails in order; a file that does not begin with one is refused, and so is what damage hides."""
    lines, held, first, start, position = list[bytes](), 0, 0, None, 0
    knows_position = True
    for line in all_lines(stream, max_bytes):
        if isinstance(line, Refused):
            if line.number is None:
                if first:
                    yield Refused(first, Refusal(Reason.BAD_RECORD, "the file breaks off inside of this mail"))
                yield line
                return
            data, knows_position, held = b"", False, max_bytes + 1
        else:
            data = line.data
        begin, position = position, position + len(data) + 1
        opening = data.removeprefix(b"\xef\xbb\xbf") if not first else data
        if opening.startswith(b"From ") and (not first or _OPENING.match(opening[:_OPENING_BYTES])):
            if first:
                yield _Mail(first, start, _whole(lines, held, max_bytes))
            lines, held, first = [], 0, line.number or 0
            start = begin if knows_position else None
        elif not first:
            if not data.strip() and not held:
                continue
            detail = "no mailbox: its first line does not begin with `From `; a single mail is .eml"
            yield Refused(None, Refusal(Reason.CORRUPT_FILE, detail))
            return
        elif held <= max_bytes:
            lines.append(data[1:] if data.startswith(b">") and _QUOTED.match(data) else data)
            held += len(data) + 1
            if held > max_bytes:
                lines = []
    if first:
        yield _Mail(first, start, _whole(lines, held, max_bytes))


def _whole(lines: list[bytes], held: int, max_bytes: int) -> bytes | Refusal:
    """The bytes of a mail, or its refusal as too large."""
    if held > max_bytes:
        return Refusal(Reason.TOO_LARGE, f"the mail has more than {max_bytes} bytes, the max_document_bytes")
    data = b"\n".join(lines)
    lines.clear()  # so that a large mail is not held twice
    return data.rstrip(b"\r\n") + b"\n"

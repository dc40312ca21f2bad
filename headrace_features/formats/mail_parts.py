"""What a part of a mail holds: code with a plain footer behind it, flowed lines, files in a text, text/enriched."""

from __future__ import annotations

import base64
import quopri
import re
from collections.abc import Iterator
from email.message import EmailMessage

_BASE64 = re.compile(rb"[A-Za-z0-9+/]*={0,2}")
_LINE_LENGTH = 60  # no encoder of mails ends a line before, but the last
_CODE_LENGTH = 24  # of a line of base64 behind that; no word is so long
_WORD = re.compile(rb"(?=.{,23}$)[A-Za-z][a-z]{2,}(?:[A-Z][a-z]{2,})*")
_RULE = re.compile(rb"(?:_{5,}|-{5,}|\*{5,}|#{5,}|-- ?)\s*")
_NO_QUOTED = re.compile(rb"=(?![0-9A-F]{2}|[ \t]*$)|[\x80-\xff]|.{77}")
_FOOTER_LINES = 30
_COMMAND = re.compile(r"<<|<(/?)([A-Za-z0-9-]{1,60})>")
_UU_BEGIN = re.compile(rb"begin(?:-base64)? [0-7]{3,4} \S")
_UU_END = (b"end", b"====")
_UU_FULL = re.compile(rb"M[ -`]{60,61}")
_UU_RUN = 5  # full lines that are a piece of a file without `begin`; no text has them
_QUOTES = re.compile(r">*")


def part_bytes(part: EmailMessage) -> list[bytes]:
    """The bytes of a part, and those of the plain text put behind its code by a mailing list."""
    body = part.get_payload(decode=True)
    coding = str(part.get("Content-Transfer-Encoding", "")).strip().lower()
    if not isinstance(body, bytes) or coding not in ("base64", "quoted-printable"):
        return [body] if isinstance(body, bytes) else []
    del part["Content-Transfer-Encoding"]  # the payload is given as it stands then
    lines = bytes(part.get_payload(decode=True)).splitlines()
    if coding == "base64":
        end = _code_end([line.strip() for line in lines])
        body = _from_base64(lines[:end]) if any(line.strip() for line in lines[end:]) else body
    else:
        end = _quoted_end(lines)
        body = quopri.decodestring(b"\n".join(lines[:end])) if end < len(lines) else body
    footer = b"\n".join(lines[end:]).strip(b"\n")
    return [body, footer] if footer else [body]


def _code_end(lines: list[bytes]) -> int:
    """How many of the lines are base64: whole lines, a shorter one, and no word where a footer is sure to follow."""
    width = max(_LINE_LENGTH, next((len(line) for line in lines if line), 0))
    has_footer = not all(map(_BASE64.fullmatch, lines))
    end, is_over = 0, False
    for at, line in enumerate(lines):
        if not _BASE64.fullmatch(line) or (end and has_footer and _WORD.fullmatch(line)):
            break
        is_over = is_over or (end > 0 and not line)
        if line and is_over and (len(line) < _CODE_LENGTH or len(line) % 4):
            break
        end = at + 1 if line else end
        is_over = is_over or len(line) < width or line.endswith(b"=")
    return end


def _from_base64(lines: list[bytes]) -> bytes:
    """The bytes of lines of base64; padding ends a piece of code."""
    pieces = re.split(rb"=+", b"".join(b"".join(lines).split()))
    pieces = [piece[: len(piece) - (len(piece) % 4 == 1)] for piece in pieces]
    return b"".join(base64.b64decode(piece + b"=" * (-len(piece) % 4)) for piece in pieces)


def _quoted_end(lines: list[bytes]) -> int:
    """How many of the lines are quoted-printable: those before a rule with plain text behind it."""
    for at in range(max(0, len(lines) - _FOOTER_LINES), len(lines)):
        footer = lines[at:]
        if _RULE.fullmatch(lines[at]) and not any(line.rstrip().endswith(b"=") for line in footer):
            return at if any(map(_NO_QUOTED.search, footer)) else len(lines)
    return len(lines)


def without_files(data: bytes) -> tuple[bytes, int]:
    """A text without the files in it as uuencode or yEnc, and how many they are."""
    if not any(mark in data for mark in (b"begin", b"=ybegin ", b"\nM")):
        return data, 0
    lines = data.split(b"\n")
    kept, place, count = list[bytes](), 0, 0
    while place < len(lines):
        size = _file_size(lines, place)
        kept += [] if size else [lines[place]]
        count, place = count + bool(size), place + max(1, size)
    return b"\n".join(kept), count


def _file_size(lines: list[bytes], start: int) -> int:
    """How many lines a file has that begins here, 0 where none does."""
    first, end = lines[start].rstrip(b"\r"), start + 1
    if first.startswith(b"=ybegin "):
        end = next((at + 1 for at in range(end, len(lines)) if lines[at].startswith(b"=yend ")), len(lines))
        return end - start
    is_base64, is_begun = first.startswith(b"begin-base64"), _UU_BEGIN.match(first) is not None
    end = end if is_begun else start
    while end < len(lines) and _is_code(lines[end].rstrip(b"\r"), is_base64):
        end += 1
    is_ended = end < len(lines) and lines[end].strip() in _UU_END and is_begun
    if is_ended:
        return end + 1 - start
    full = sum(_UU_FULL.fullmatch(line.rstrip(b"\r")) is not None for line in lines[start:end])
    if full < _UU_RUN:
        return 0
    return end - start + (end < len(lines) and lines[end].strip() in _UU_END)


def _is_code(line: bytes, is_base64: bool) -> bool:
    """Whether a line is one of uuencode; blanks at its end may be lost."""
    if is_base64:
        return bool(line) and _BASE64.fullmatch(line) is not None
    if line in (b"", b"`", b" "):
        return line != b""
    size = ((line[0] - 32) & 63) * 4 // 3 if 32 <= line[0] <= 96 else -1
    return size > 0 and len(line) <= size + 6 and not line.strip().islower() and all(32 <= byte <= 96 for byte in line)


def flowed_text(text: str, deletes_spaces: bool) -> str:
    """The text of format=flowed (RFC 3676): a line ending with a blank goes on in the next one of its quote.

    Args:
        text: the lines as they were sent.
        deletes_spaces: whether that blank is none of the text (DelSp=yes).
    """
    parts, depth, is_open = list[str](), 0, False
    for line, quotes in _unstuffed(text):
        is_signature = line == "-- "
        if is_open and (quotes != depth or is_signature):
            parts[-1] = parts[-1].rstrip(" ")
            is_open = False
        if not is_open:
            parts.append(("\n" if parts else "") + ">" * quotes + " " * bool(quotes and line))
        is_open = line.endswith(" ") and not is_signature
        parts.append(line[:-1] if is_open and deletes_spaces else line)
        depth = quotes
    return "".join(parts)


def _unstuffed(text: str) -> Iterator[tuple[str, int]]:
    """The lines without their quote marks and the blank behind them, and how deep each is quoted."""
    for line in text.replace("\r\n", "\n").split("\n"):
        depth = len(_QUOTES.match(line)[0])  # type: ignore[index]
        yield line[depth:].removeprefix(" "), depth


def enriched_text(markup: str) -> str:
    """The text of text/enriched (RFC 1896): n line ends in a row are n - 1, commands and parameters are left out."""
    markup = re.sub(r"\n+", lambda run: "\n" * (len(run[0]) - 1) or " ", markup.replace("\r\n", "\n"))
    markup = re.sub(r"(?is)<param>.*?</param>", "", markup)
    return _COMMAND.sub(lambda command: "<" if command[0] == "<<" else "", markup)


def richtext_text(markup: str) -> str:
    """The text of text/richtext (RFC 1341): lines end at `<nl>`, `<lt>` is a `<`, comments are left out."""
    markup = re.sub(r"(?is)<comment>.*?</comment>", "", re.sub(r"\s*\n", " ", markup))
    names = {"lt": "<", "nl": "\n", "np": "\n", "paragraph": "\n"}
    return re.sub(r"<(/?)([A-Za-z0-9-]{1,60})>", lambda command: names.get(command[2].lower(), ""), markup)

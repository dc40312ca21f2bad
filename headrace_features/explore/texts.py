"""Show a text as what it is: never as HTML, its marks at the raw text's offsets, what is invisible made visible.

Marks are cut at the offsets of the raw text, each piece is escaped for itself, and the pieces are joined; so no text
can close a mark or open an element. Characters that reorder or hide others, and control characters, become marks of
their own; each line is isolated, so that right-to-left text reorders nothing beside it.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup, escape

WINDOW: Final = 1 << 16  # characters of a text on one page
_LONGEST_LINE: Final = 4000  # characters; a longer one is broken, for browsers lay a line of megabytes out for minutes
# Controls but tab and line feed, soft hyphen, zero width, bidi controls, line separators, tags, lone surrogates, BOM.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


@dataclass(frozen=True)
class Mark:
    """A span of a text.

    Attributes:
        start: first character, in the whole text.
        end: character after the last.
        kind: what it is, a class of the style sheet: hit, edit, personal, contaminated, passage, rule.
        note: shown beside it.
    """

    start: int
    end: int
    kind: str
    note: str = ""


@dataclass(frozen=True)
class TextLine:
    """A line of a text.

    Attributes:
        number: from 1; 0 for the rest of a line that was broken.
        start: its first character, in the whole text.
        content: escaped, with marks.
        marked: whether a mark begins in it.
    """

    number: int
    start: int
    content: Markup
    marked: bool


def lines(text: str, marks: Sequence[Mark] = (), start: int = 0, end: int | None = None) -> list[TextLine]:
    """The lines of a part of a text.

    Args:
        text: the whole text.
        marks: of the whole text, in any order; where some overlap, hits are whole, then what begins first.
        start: first character shown.
        end: character after the last; None for the end of the text.
    """
    end = len(text) if end is None else min(end, len(text))
    placed = flat(marks, start, end)
    starts, ends = [mark.start for mark in placed], [mark.end for mark in placed]
    number = text.count("\n", 0, start) + 1
    parts, at = [], start
    while at < end or at == start:
        newline = text.find("\n", at, end)
        stop = newline if newline >= 0 else end
        first = at
        while True:
            last = min(stop, first + _LONGEST_LINE)
            inside = placed[bisect.bisect_right(ends, first) : bisect.bisect_left(starts, last)]
            parts.append(
                TextLine(number if first == at else 0, first, _joined(text, inside, first, last), bool(inside))
            )
            first = last
            if first >= stop:
                break
        number, at = number + 1, stop + 1
        if newline < 0:
            break
    return parts


def flat(marks: Iterable[Mark], start: int, end: int) -> list[Mark]:
    """Marks that do not overlap, inside a part of the text, in order; hits before others, of which pieces are left."""
    hits: list[Mark] = []
    others: list[Mark] = []
    for mark in sorted(marks, key=lambda mark: (mark.start, -mark.end)):
        placed = hits if mark.kind == "hit" else others
        first = max(mark.start, start, placed[-1].end if placed else start)
        last = min(mark.end, end)
        if first < last:
            placed.append(Mark(first, last, mark.kind, mark.note))
    starts, ends = [hit.start for hit in hits], [hit.end for hit in hits]
    pieces: list[Mark] = []
    for mark in others:
        inside = slice(bisect.bisect_right(ends, mark.start), bisect.bisect_left(starts, mark.end))
        gaps = zip([mark.start, *ends[inside]], [*starts[inside], mark.end], strict=True)
        pieces += [Mark(first, last, mark.kind, mark.note) for first, last in gaps if first < last]
    return sorted([*hits, *pieces], key=lambda mark: mark.start)


def inline(text: str, marks: Sequence[Mark] = ()) -> Markup:
    """A short text in one line, such as an excerpt of a list."""
    return _joined(text, flat(marks, 0, len(text)), 0, len(text))


def _joined(text: str, marks: Sequence[Mark], start: int, end: int) -> Markup:
    """Escaped pieces of [start, end) with marks around those that have one."""
    out, at = [], start
    for mark in marks:
        first, last = max(mark.start, start), min(mark.end, end)
        out.append(visible(text[at:first]))
        note = Markup(' title="{}"').format(visible(mark.note).striptags()) if mark.note else ""
        out.append(Markup('<mark class="{}"{}>{}</mark>').format(mark.kind, note, visible(text[first:last])))
        at = last
    out.append(visible(text[at:end]))
    return Markup("").join(out)


def unseen_marked(text: str) -> str:
    """A text without markup in which characters that nobody would see are named, such as [U+200B]."""
    return _UNSEEN.sub(lambda hit: f"[U+{ord(hit[0]):04X}]", text)


def visible(piece: str) -> Markup:
    """A piece of text, escaped; characters that nobody would see are written as what they are."""
    if _UNSEEN.search(piece) is None:
        return escape(piece)
    out, at = [], 0
    for hit in _UNSEEN.finditer(piece):
        code = ord(hit[0])
        shown = chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else f"{code:04X}"
        if 0xDC80 <= code < 0xDD00:  # a byte of a character that a token cuts
            shown = f"{code - 0xDC00:02X}"
        out.append(escape(piece[at : hit.start()]))
        out.append(Markup('<i class="unseen" title="U+{}">{}</i>').format(f"{code:04X}", shown))
        at = hit.end()
    out.append(escape(piece[at:]))
    return Markup("").join(out)

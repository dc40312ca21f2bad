"""Read the text of a page of a PDF glyph by glyph: in PDFium's order, with raised pieces and without what is no text.

PDFium says of each glyph its character, whether the file maps it to one, where its origin is and how large it is. A
glyph is raised, or lowered, where it stands beside a larger one, or one of its size, and its origin is off that one's
line; PDFium's line end behind such a piece is none. Glyphs without a character are counted.
"""

from __future__ import annotations

import ctypes
import math
import re
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

import pypdfium2.raw as pdfium

from headrace_features.formats.pages.line_hyphens import MARK
from headrace_features.formats.raised import LEVEL, LOWERED, RAISED, with_scripts

_SOFT_HYPHEN = "\xad"
_HYPHENS = ("-", _SOFT_HYPHEN, "\x02", "\ufffe", "\u2010")
_SMALLER = 0.85  # of the base's size; what is as large is raised by more
_LEAST_RISE, _MOST_RISE = 0.12, 0.9  # of the base's size
_LEAST_RISE_OF_EQUALS = 0.25
_MOST_LEAD = 4  # of the size, from a line to the next one
_REACH = 1.2  # of the base's size, from its origin
_CANDIDATE = re.compile(
    r"(?<=\S)(?:[\d+\-−–*.,()]|(?<=\d)[^\W\d_]|(?<=[^\W\d_])(?<![^\W\d_]{2})[^\W\d_](?![^\W\d_]))"
)  # digits, signs, and one letter behind a number or another single letter


class Insert(NamedTuple):
    """A text on a page beside its glyphs, such as the value of a field, and its place."""

    text: str
    left: float
    bottom: float
    top: float


class GlyphText(NamedTuple):
    """The text of a page, how many of its glyphs are characters, and how many are unknown."""

    text: str
    glyph_count: int
    unmapped_count: int


class _Glyph(NamedTuple):
    """Where a glyph stands along and across its line, and how large it is."""

    along: float
    across: float
    size: float


def glyph_text(textpage: Any, turned: int, inserts: Iterable[Insert]) -> GlyphText:
    """The text of a page, hyphens at line ends marked.

    Args:
        textpage: PDFium's.
        turned: how many quarter turns bring its text upright.
        inserts: what else stands on the page.
    """
    raw, characters = textpage.raw, _characters(textpage)
    box = textpage.page.get_bbox()
    unmapped, is_outside, begins = 0, False, True
    for index, character in enumerate(characters):
        if character == "\0" or pdfium.FPDFText_HasUnicodeMapError(raw, index) == 1:
            unmapped += 1
            characters[index] = ""
            continue
        if begins or (is_outside and not character.isspace()):
            is_outside = _is_outside(raw, index, box)
        begins = character.isspace()
        if is_outside and not begins:
            characters[index] = ""
        elif character in _HYPHENS and (character == "\ufffe" or pdfium.FPDFText_IsHyphen(raw, index) == 1):
            characters[index] = MARK if _goes_on(raw, index, turned, characters) else "-\n"
        elif character == _SOFT_HYPHEN or (character < " " and character not in "\t\r\n"):
            characters[index] = ""
    count = sum(bool(character) and not character.isspace() for character in characters)
    _mark_scripts(raw, turned, characters)
    _insert(raw, characters, inserts)
    text = "".join(characters).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return GlyphText(with_scripts(text), count, unmapped)


def _goes_on(raw: Any, index: int, turned: int, characters: list[str]) -> bool:
    """Whether what follows a hyphen at the end of a line is the next line, or another column, and no foot of a page."""
    before, behind = _neighbour(characters, index, -1), _neighbour(characters, index, 1)
    if before < 0 or behind < 0:
        return True
    last, following = _glyph(raw, before, turned), _glyph(raw, behind, turned)
    return last.across - following.across < _MOST_LEAD * max(last.size, following.size)


def _characters(textpage: Any) -> list[str]:
    """The character of each glyph; at once where PDFium leaves none out of its text."""
    count = textpage.count_chars()
    text = textpage.get_text_range()
    if len(text) == count:
        return list(text)
    codes = (pdfium.FPDFText_GetUnicode(textpage.raw, index) for index in range(count))
    return [chr(code) if code <= sys.maxunicode else "\0" for code in codes]


def _is_outside(raw: Any, index: int, box: tuple[float, float, float, float]) -> bool:
    """Whether a glyph begins outside of the page, where nothing is seen."""
    x, y = ctypes.c_double(), ctypes.c_double()
    if not pdfium.FPDFText_GetCharOrigin(raw, index, x, y):
        return False
    left, bottom, right, top = box
    return not (left <= x.value <= right and bottom <= y.value <= top)


def _glyph(raw: Any, index: int, turned: int) -> _Glyph:
    """The place of a glyph on a page turned upright."""
    x, y, matrix = ctypes.c_double(), ctypes.c_double(), pdfium.FS_MATRIX()
    pdfium.FPDFText_GetCharOrigin(raw, index, x, y)
    size = pdfium.FPDFText_GetFontSize(raw, index)
    if pdfium.FPDFText_GetMatrix(raw, index, matrix):
        size *= math.sqrt(abs(matrix.a * matrix.d - matrix.b * matrix.c))
    along, across = ((x.value, y.value), (y.value, -x.value), (-x.value, -y.value), (-y.value, x.value))[turned]
    return _Glyph(along, across, size)


def _mark_scripts(raw: Any, turned: int, characters: list[str]) -> None:
    """Put marks around raised and lowered pieces, and take out line ends before and behind them."""
    places = [index for index, character in enumerate(characters) if character and character not in "\r\n"]
    text = "".join(characters[index][0] for index in places)
    end = -1
    for candidate in _CANDIDATE.finditer(text):
        index = places[candidate.start()]
        if index > end:
            end = max(end, _mark_piece(raw, turned, characters, index))


def _mark_piece(raw: Any, turned: int, characters: list[str], start: int) -> int:
    """Mark the piece beginning at a glyph, if it is raised or lowered; the index of its last glyph."""
    before = _neighbour(characters, start, -1)
    if before < 0 or characters[before].isspace() or characters[before] == MARK:
        return start
    base = _glyph(raw, before, turned)
    first = _glyph(raw, start, turned)
    height = _height(base, first)
    if height is None:
        return start
    end, last = start, first
    while (following := _neighbour(characters, end, 1)) >= 0 and not characters[following].isspace():
        glyph = _glyph(raw, following, turned)
        is_of_piece = abs(glyph.across - first.across) < base.size / 10 and glyph.size < first.size * 1.1
        if not (is_of_piece and 0 <= glyph.along - last.along < _REACH * base.size):
            break
        end, last = following, glyph
    _join(characters, before, start)
    behind = _neighbour(characters, end, 1)
    if behind >= 0:
        glyph = _glyph(raw, behind, turned)
        is_same_line = abs(glyph.across - base.across) < base.size / 10 and glyph.along > last.along
        if is_same_line and glyph.along - last.along < 2 * _REACH * base.size:
            _join(characters, end, behind)
    characters[start] = height + characters[start]
    characters[end] += LEVEL
    return end


def _height(base: _Glyph, glyph: _Glyph) -> str | None:
    """The mark of a glyph's height beside another; None where it is on its line or not beside it."""
    rise = (glyph.across - base.across) / base.size if base.size else 0.0
    least = _LEAST_RISE if glyph.size < _SMALLER * base.size else _LEAST_RISE_OF_EQUALS
    if glyph.size > base.size * 1.05 or not least <= abs(rise) <= _MOST_RISE:
        return None
    if not 0 < glyph.along - base.along <= _REACH * base.size:
        return None
    return RAISED if rise > 0 else LOWERED


def _neighbour(characters: list[str], index: int, step: int) -> int:
    """The next glyph in a direction, over line ends; -1 at the end."""
    index += step
    while 0 <= index < len(characters) and (not characters[index] or characters[index] in "\r\n"):
        index += step
    return index if 0 <= index < len(characters) else -1


def _join(characters: list[str], left: int, right: int) -> None:
    """Take out the line ends between two glyphs."""
    for index in range(left + 1, right):
        characters[index] = ""


def _insert(raw: Any, characters: list[str], inserts: Iterable[Insert]) -> None:
    """Put each further text behind the last glyph of its line to its left, else at the end of the page."""
    inserts = sorted(inserts, key=lambda insert: (-insert.bottom, insert.left))
    if not inserts:
        return
    places = [(index, _glyph(raw, index, 0)) for index, character in enumerate(characters) if character.strip()]
    for insert in inserts:
        beside = [
            (index, glyph.along)
            for index, glyph in places
            if insert.bottom <= glyph.across + glyph.size / 4 < insert.top
        ]
        left = [place for place in beside if place[1] < insert.left]
        if left:
            characters[max(left, key=lambda place: place[1])[0]] += f" {insert.text}"
        elif beside:
            index = min(beside, key=lambda place: place[1])[0]
            characters[index] = f"{insert.text} {characters[index]}"
        else:
            characters.append(f"\n{insert.text}")

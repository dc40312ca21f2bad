"""Normalize a text, and record the edits that lead from the source to it.

There are two rules, which never touch the same bytes:

    line_ends   CRLF and lone CR become LF
    nfc         Unicode Normalization Form C (UAX #15)

Other modules make edits of three more rules: `redacted` (of the feature privacy), `mojibake` (`mojibake.py`) and
`repeated_block` (`repeated_blocks.py`). `compose` merges the edits of two modules that ran one after the other.

An edit is a span of the source, in bytes of its UTF-8, and the byte length of its replacement. Source and text are
equal between edits, so a running sum maps any position of the text back to the source. One worked example:

    source   a  CR LF  b  e  U+0301  c        bytes 0:a 1:CR 2:LF 3:b 4:e 5-6:U+0301 7:c
    text     a  LF     b  é          c        bytes 0:a 1:LF 2:b 3-4:é 5:c
    edits    line_ends [1, 2) -> 0            the CR is gone
             nfc       [4, 7) -> 2            three bytes became two

NFC is computed span by span. A character whose decomposition begins with a starter that never composes with what
precedes it is a boundary: a text may be split before it and its parts be normalized alone (UAX #15, "Stable Code
Points"). All other characters join what precedes them. So only sequences of joining characters with the boundary before
them, and boundaries that are replaced themselves, can change.
"""

from __future__ import annotations

import itertools
import sys
import unicodedata
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from spark_jobs.arrays import Int64Array
from spark_jobs.text.characters import code_points
from spark_jobs.threads import made_once

RULES: Final = ("line_ends", "nfc", "redacted", "mojibake", "repeated_block")
_LINE_ENDS, _NFC, REDACTED, MOJIBAKE, REPEATED_BLOCK = range(len(RULES))
_LF: Final = ord("\n")
_JOINS: Final = 1
_REPLACED: Final = 2


@dataclass(frozen=True)
class Edits:
    """The edits of one text by ascending `start`; their spans do not overlap.

    Attributes:
        rule: (E,) int64 index into `RULES`.
        start: (E,) int64 first byte of the source that was replaced.
        end: (E,) int64 byte after the last one.
        replacement_length: (E,) int64 bytes of the replacement in the text.
    """

    rule: Int64Array
    start: Int64Array
    end: Int64Array
    replacement_length: Int64Array

    def __len__(self) -> int:
        """The number of edits."""
        return len(self.start)

    @property
    def text_start(self) -> Int64Array:
        """(E,) first byte of each replacement in the text."""
        growth = self.replacement_length - (self.end - self.start)
        grown_before: Int64Array = np.cumsum(growth) - growth
        return self.start + grown_before


NO_EDITS: Final = Edits(*(np.empty(0, dtype=np.int64) for _ in range(4)))


def normalize(source: str) -> tuple[str, Edits]:
    """Normalize one text.

    Args:
        source: any text without lone surrogates.

    Returns:
        The text in NFC with LF line ends, and the edits that made it; a text in normal form is returned unchanged.
    """
    composed, nfc = _compose(source)
    if "\r" not in source:
        return composed, nfc
    text = composed.replace("\r\n", "\n").replace("\r", "\n")
    return text, _merged(nfc, _line_end_edits(source.encode("utf-8")))


def source_positions(edits: Edits, positions: Int64Array) -> Int64Array:
    """Map byte positions of the text back to the source.

    A position inside a replacement maps to the first byte of what was replaced; any other to the same byte.

    Args:
        edits: the edits of the text.
        positions: (P,) byte positions of the text, its length included.

    Returns:
        (P,) byte positions of the source.
    """
    if not len(edits):
        return positions.astype(np.int64, copy=True)
    text_start = edits.text_start
    last = np.searchsorted(text_start, positions, side="right") - 1
    edit = np.maximum(last, 0)
    into = positions - text_start[edit]
    replaced = into < edits.replacement_length[edit]
    led = np.where(replaced, edits.start[edit], edits.end[edit] + into - edits.replacement_length[edit])
    return np.where(last < 0, positions, led).astype(np.int64)


def source_spans(edits: Edits, starts: Int64Array, ends: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Map byte spans of the text back to the smallest spans of the source that produced them.

    Args:
        edits: the edits of the text.
        starts: (S,) first bytes.
        ends: (S,) bytes after the last ones, each above its start.

    Returns:
        (S,) starts and (S,) ends in the source; a span that cuts a replacement includes all that was replaced.
    """
    last_bytes = source_positions(edits, ends - 1)
    if not len(edits):
        return source_positions(edits, starts), last_bytes + 1
    edit = np.maximum(np.searchsorted(edits.text_start, ends - 1, side="right") - 1, 0)
    into = ends - 1 - edits.text_start[edit]
    replaced = (into >= 0) & (into < edits.replacement_length[edit])
    return source_positions(edits, starts), np.where(replaced, edits.end[edit], last_bytes + 1).astype(np.int64)


def compose(first: Edits, second: Edits) -> Edits:
    """Combine two lists of edits, source -> middle text -> last text, into one list source -> last text.

    An edit of the second that overlaps replacements of the first is merged with them into one edit.

    Args:
        first: edits that made the middle text from the source.
        second: edits that made the last text from the middle one.

    Returns:
        Edits by start, not overlapping; a merged one has the rule of the second.
    """
    if not len(first) or not len(second):
        return first if len(first) else second
    text_start = first.text_start
    start = np.concatenate([text_start, second.start])
    end = np.concatenate([text_start + first.replacement_length, second.end])
    order = np.lexsort([end, start])
    start, end = start[order], end[order]
    is_second = order >= len(first)
    rule = np.concatenate([first.rule, second.rule])[order]
    growth = np.concatenate([np.zeros(len(first), np.int64), second.replacement_length - (second.end - second.start)])
    reach = np.maximum.accumulate(end)
    heads = np.flatnonzero(np.concatenate([[True], start[1:] >= reach[:-1]]))
    tails = np.append(heads[1:], len(order)) - 1
    low, high = start[heads], reach[tails]
    # A group of one deletion has no byte in the middle text; all others have a first and a last one.
    deleted = low == high
    source_start = np.where(is_second[heads], source_positions(first, low), _of_first(first.start, order, heads))
    last_end = source_spans(first, np.maximum(high - 1, 0), np.maximum(high, 1))[1]
    source_end = np.where(deleted, _of_first(first.end, order, heads), last_end)
    length = high - low + np.add.reduceat(growth[order], heads)
    seconds = np.maximum.reduceat(np.where(is_second, rule, -1), heads)
    return Edits(np.where(seconds >= 0, seconds, rule[heads]), source_start, source_end, length)


def _of_first(values: Int64Array, order: Int64Array, heads: Int64Array) -> Int64Array:
    """The value of `first` for the first edit of each group; arbitrary where that edit is of the second list."""
    first_values: Int64Array = values[np.minimum(order[heads], len(values) - 1)]
    return first_values


def _compose(source: str) -> tuple[str, Edits]:
    """NFC of a text, and the edits of the spans that changed."""
    if source.isascii() or unicodedata.is_normalized("NFC", source):
        return source, NO_EDITS
    utf8 = source.encode("utf-8")
    starts, ends = _unstable_spans(code_points(utf8))
    spans = [source[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    # Texts in decomposed form have a span every few characters, but few distinct ones.
    composed = {span: _nfc(span) for span in set(spans)}
    new_length = {span: -1 if form == span else len(form.encode("utf-8")) for span, form in composed.items()}
    lengths = np.fromiter(map(new_length.__getitem__, spans), dtype=np.int64, count=len(spans))
    changed = np.flatnonzero(lengths >= 0)
    starts, ends, lengths = starts[changed], ends[changed], lengths[changed]
    pieces = [""] * (2 * len(changed) + 1)
    around = zip([0, *ends.tolist()], [*starts.tolist(), len(source)], strict=True)
    pieces[::2] = [source[start:end] for start, end in around]
    pieces[1::2] = [composed[spans[row]] for row in changed.tolist()]
    first_bytes = np.flatnonzero((np.frombuffer(utf8, dtype=np.uint8) & 0xC0) != 0x80)
    byte_of = np.append(first_bytes, len(utf8)).astype(np.int64)
    edits = Edits(np.full(len(changed), _NFC, dtype=np.int64), byte_of[starts], byte_of[ends], lengths)
    return "".join(pieces), edits


def _nfc(span: str) -> str:
    """NFC of one span, in time that does not grow with the square of its marks.

    `unicodedata.normalize` sorts marks by insertion, so a few hundred kilobytes of marks in the wrong order hold it for
    minutes. Spans above the 30 marks of UAX #15's stream-safe format get theirs sorted first.
    """
    if len(span) > 32:
        decomposed = "".join(unicodedata.normalize("NFD", character) for character in span)
        runs = itertools.groupby(decomposed, key=lambda character: unicodedata.combining(character) > 0)
        span = "".join("".join(sorted(run, key=unicodedata.combining) if marks else run) for marks, run in runs)
    return unicodedata.normalize("NFC", span)


def _unstable_spans(points: npt.NDArray[np.uint32]) -> tuple[Int64Array, Int64Array]:
    """Spans that NFC may change, each to be normalized alone.

    Args:
        points: (C,) code points of a text.

    Returns:
        (S,) ascending first characters, and (S,) characters after the last ones: each run of joining characters with
        the boundary before it, and each replaced boundary that is in no run.
    """
    stability = _stability()[points]
    joins = np.concatenate([[False], stability == _JOINS, [False]])
    starts = np.flatnonzero(joins[1:] & ~joins[:-1])
    ends = np.flatnonzero(joins[:-1] & ~joins[1:])
    before = np.maximum(starts - 1, 0)
    # CR and LF never compose; kept out of the spans, they stay with the rule of line ends.
    is_break = (points[before] == ord("\r")) | (points[before] == _LF)
    starts = np.where(is_break, starts, before)
    alone = np.flatnonzero((stability == _REPLACED) & ~joins[2:])
    all_starts = np.concatenate([starts, alone])
    order = np.argsort(all_starts, kind="stable")
    return all_starts[order], np.concatenate([ends, alone + 1])[order]


def _line_end_edits(source: bytes) -> Edits:
    """The edits of every CR: removed before an LF, else replaced by one."""
    data = np.frombuffer(source, dtype=np.uint8)
    start = np.flatnonzero(data == ord("\r")).astype(np.int64)
    following = np.append(data, np.uint8(0))[start + 1]
    return Edits(np.full(len(start), _LINE_ENDS, dtype=np.int64), start, start + 1, (following != _LF).astype(np.int64))


def _merged(left: Edits, right: Edits) -> Edits:
    """The edits of both lists, sorted by start."""
    order = np.argsort(np.concatenate([left.start, right.start]), kind="stable")
    columns = ("rule", "start", "end", "replacement_length")
    return Edits(*(np.concatenate([getattr(left, name), getattr(right, name)])[order] for name in columns))


@made_once
def _stability() -> npt.NDArray[np.uint8]:
    """What NFC may do at each code point; about a quarter of a second once per process.

    Returns:
        (0x110000,) `_JOINS` where it may compose with, or move before, what precedes; `_REPLACED` where it is a
        boundary that NFC never leaves as it is; 0 for all other boundaries.
    """
    characters = [chr(point) for point in range(sys.maxunicode + 1) if not 0xD800 <= point < 0xE000]
    # Characters that can be the second part of a composition: those in a pair that NFC composes again, and the Hangul
    # vowels and final consonants, whose compositions are computed and in no table.
    seconds = {chr(point) for point in (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))}
    decomposing, replaced = [], set()
    for character in characters:
        decomposition = unicodedata.decomposition(character)
        if decomposition and decomposition[0] != "<":
            parts = decomposition.split()
            decomposing.append(character)
            if unicodedata.normalize("NFC", character) != character:
                replaced.add(character)
            elif len(parts) == 2:
                seconds.add(chr(int(parts[1], 16)))
    joining = {c for c in characters if unicodedata.combining(c) or c in seconds}
    joining |= {c for c in decomposing if unicodedata.normalize("NFD", c)[0] in joining}
    stability = np.zeros(sys.maxunicode + 1, dtype=np.uint8)
    stability[[ord(c) for c in replaced]] = _REPLACED
    stability[[ord(c) for c in joining]] = _JOINS
    stability.flags.writeable = False
    return stability

"""Compare two texts side by side: the differing regions, with a few equal pieces around them.

A text is cut into pieces: its lines, and a line wider than a column into its sentences, so that prose of one
line per paragraph is compared by sentences. Equal pieces at the beginning and end of both texts are set aside before
the comparison: for most near-duplicates, nearly all.

    left                 right
    the wheel            the wheel              equal: shown only beside a change
    turns slowly       | turns quickly          changed
    by day             <                        only left
                       > at night               only right
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

_SENTENCE_END = re.compile(r"(?<=[.!?;:])\s+")
_MOST_PIECES = 2000
_EXACT_PIECES = 5000  # beyond, difflib leaves out what comes often: its time grows with the square
_WORD = re.compile(r"\w+|\W")
_MOST_WORDS = 400
GAP = "~"


@dataclass(frozen=True)
class Row:
    """A pair of pieces beside each other.

    Attributes:
        mark: a blank, | (changed), < (only left), > (only right) or ~ (equal pieces left out here).
        left: piece of the left text; empty where it has none.
        right: piece of the right text; empty where it has none.
    """

    mark: str
    left: str
    right: str


@dataclass(frozen=True)
class TextComparison:
    """The differences of two texts, as rows.

    Attributes:
        rows: changed regions with context.
        changed_count: differing pieces among the compared ones.
        rows_left_out: rows beyond the limit.
        pieces_not_compared: pieces of the longer text beyond what was compared.
    """

    rows: tuple[Row, ...]
    changed_count: int
    rows_left_out: int
    pieces_not_compared: int


def compare(left: str, right: str, column_width: int, context: int = 2, most_rows: int | None = 40) -> TextComparison:
    """Compare two texts for showing them side by side.

    Args:
        left: one text.
        right: the other one.
        column_width: characters of a column; longer lines are cut into sentences.
        context: equal pieces shown around a change.
        most_rows: rows shown, and texts are compared up to 2,000 pieces beyond what both begin with; None for all.

    Returns:
        The rows; none where the texts are equal.
    """
    first, other = cut_pieces(left, column_width), cut_pieces(right, column_width)
    start = _common(first, other)
    tail = _common(first[start:][::-1], other[start:][::-1])
    end_one, end_other = len(first) - tail, len(other) - tail
    beyond = 0
    if most_rows is not None and max(end_one, end_other) - start > _MOST_PIECES:
        beyond = max(end_one, end_other) - start - _MOST_PIECES
        end_one, end_other = min(end_one, start + _MOST_PIECES), min(end_other, start + _MOST_PIECES)
    rows = [Row(" ", piece, piece) for piece in first[max(0, start - context) : start]]
    if start > context and (start < len(first) or start < len(other)):
        rows.insert(0, Row(GAP, f"{start - context:,} equal", f"{start - context:,} equal"))
    changed = _changed_rows(first[start:end_one], other[start:end_other], context)
    rows += changed
    if beyond == 0:
        rows += [Row(" ", piece, piece) for piece in first[end_one : end_one + context]]
        if tail > context:
            rows.append(Row(GAP, f"{tail - context:,} equal", f"{tail - context:,} equal"))
    count = sum(row.mark in "|<>" for row in changed)
    if count == 0:
        return TextComparison((), 0, 0, beyond)
    shown = rows if most_rows is None else rows[:most_rows]
    return TextComparison(tuple(shown), count, len(rows) - len(shown), beyond)


def cut_pieces(text: str, column_width: int) -> list[str]:
    """Lines of a text; those wider than a column in their sentences."""
    pieces: list[str] = []
    for line in text.split("\n"):
        pieces += [line] if len(line) <= column_width else _SENTENCE_END.split(line)
    return pieces


def changed_spans(left: str, right: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Where two pieces differ, as (start, end) of characters in each, by whole words; all of a long one."""
    words = [list(_WORD.finditer(piece)) for piece in (left, right)]
    if max(map(len, words)) > _MOST_WORDS:
        return [(0, len(left))], [(0, len(right))]
    differing: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    first_words, other = ([word[0] for word in some] for some in words)
    for tag, *edges in SequenceMatcher(None, first_words, other, autojunk=False).get_opcodes():
        for spans, side, (first, last) in zip(differing, words, (edges[:2], edges[2:]), strict=True):
            if tag != "equal" and first < last:
                spans.append((side[first].start(), side[last - 1].end()))
    return differing


def _common(first: Sequence[str], other: Sequence[str]) -> int:
    """How many pieces two sequences both begin with."""
    count = 0
    for left, right in zip(first, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def _changed_rows(first: list[str], other: list[str], context: int) -> list[Row]:
    """Rows of what lies between the common beginning and end; long equal runs become one row."""
    quick = max(len(first), len(other)) > _EXACT_PIECES
    rows: list[Row] = []
    for tag, i, j, k, m in SequenceMatcher(None, first, other, autojunk=quick).get_opcodes():
        if tag == "equal":
            equal = [Row(" ", piece, piece) for piece in first[i:j]]
            hidden = len(equal) - 2 * context
            if hidden > 1:
                gap = f"{hidden:,} equal"
                equal = [*equal[:context], Row(GAP, gap, gap), *equal[len(equal) - context :]]
            rows += equal
            continue
        lefts, rights = first[i:j], other[k:m]
        both = min(len(lefts), len(rights))
        rows += [Row("|", left, right) for left, right in zip(lefts[:both], rights[:both], strict=True)]
        rows += [Row("<", piece, "") for piece in lefts[both:]]
        rows += [Row(">", "", piece) for piece in rights[both:]]
    return rows

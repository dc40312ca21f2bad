"""Fold texts to letters in compiled code, and find the bytes behind a letter.

To store the offset of every letter would take eight times the memory of the text. Instead there is a mark for about
every `BLOCK` bytes, a pair (byte of the source, letter of the fold); the few letters with requested bytes are found by
folding their block once more (`_trace`).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from headrace.kernels.compiling import compiled, inner
from headrace.kernels.utf8 import code_point, width
from spark_jobs.arrays import Int64Array, UInt8Array
from spark_jobs.filters.contamination.folding import MOST_RAISED, MOST_TAG, FoldTables
from spark_jobs.filters.contamination.seeds import EvalTextIndex

BLOCK: Final = 1024
_MOST_LETTERS: Final = 12  # bytes of a fold for a byte of the source: U+FDFA, a phrase of eighteen letters
_SPACE: Final = 32
_BACKSLASH, _LESS, _GREATER, _AMPERSAND, _SLASH, _HASH, _SEMICOLON, _CLOSING, _LF = (ord(one) for one in "\\<>&/#;]\n")
_SUP, _SUP_END = (np.frombuffer(tag, np.uint8) for tag in (b"<sup>", b"</sup>"))


class Settings(NamedTuple):
    """What makes a finding of kind NEAR.

    Attributes:
        near_seeds: seeds of an item to make a candidate, each within the item's length of the last.
        min_near_words: fewest words of an item looked for.
        min_similarity: least weighted Jaccard similarity.
    """

    near_seeds: int
    min_near_words: int
    min_similarity: float


class FoldedDocument(NamedTuple):
    """A document while it is searched.

    Attributes:
        number: of the document.
        data: the bytes of all texts.
        end: the byte after the document's last.
        letters: the fold of the document, in an array reused for later documents.
        letter_count: how many letters are its own.
        marks: (M, 2) a byte of `data` and the letter beginning there or after it.
        tables: the folds of all code points.
        searched: the index searched for in it.
        settings: what makes a finding of kind NEAR.
    """

    number: int
    data: UInt8Array
    end: int
    letters: UInt8Array
    letter_count: int
    marks: Int64Array
    tables: FoldTables
    searched: EvalTextIndex
    settings: Settings


@inner
def fold(
    data: UInt8Array, begin: int, end: int, tables: FoldTables, letters: UInt8Array, marks: Int64Array, at_start: bool
) -> tuple[UInt8Array, int, int]:
    """Fold a text, or a part of it (then not `at_start`), to letters and write its marks.

    Returns:
        The letters, in a larger array if `letters` was too small, the number of letters, and that of marks.
    """
    i, count, blocks = begin, 0, 0
    while i < end:
        if count + _MOST_LETTERS * (BLOCK + 4) > letters.size:
            grown = np.empty(2 * letters.size + _MOST_LETTERS * (BLOCK + 4), dtype=np.uint8)
            grown[:count] = letters[:count]
            letters = grown
        marks[blocks, 0] = i
        marks[blocks, 1] = count
        blocks += 1
        stop = min(i + BLOCK, end)
        while i < stop:
            quick = tables.quick[data[i]]
            if quick > 1:
                letters[count] = quick
                count += quick != _SPACE
                i += 1
            elif quick == 1:
                i = _after_markup(data, i, end, at_start and i == begin)
            else:
                point = code_point(data, i)
                i += width(data[i])
                for k in range(tables.starts[point], tables.starts[point + 1]):
                    letters[count] = tables.pool[k]
                    count += tables.pool[k] != _SPACE
    return letters, count, blocks


@inner
def _after_markup(data: UInt8Array, i: int, end: int, first: bool) -> int:
    """The byte after an escape, a tag, an entity or a footnote's number (`folding`), else that after byte i.

    `first` says that nothing stands before i.
    """
    lead, after = data[i], i + 1
    if lead == _BACKSLASH:
        return after + 1 if after < end and (data[after] == 110 or data[after] == 114 or data[after] == 116) else after
    if lead == _LESS:
        if _stands(data, i, end, _SUP):
            close = _run_end(data, i + _SUP.size, end, MOST_RAISED)
            if _stands(data, close, end, _SUP_END):
                return close + _SUP_END.size
        name = after + 1 if after < end and data[after] == _SLASH else after
        if name < end and _is_letter(data[name]):
            close = _run_end(data, name + 1, end, MOST_TAG)
            if close < end and data[close] == _GREATER:
                return close + 1
    elif lead == _AMPERSAND:
        is_number = after < end and data[after] == _HASH
        at = begin = after + 1 if is_number else after
        while at < end and at - begin < 9 and (_is_hex(data[at]) if is_number else _is_letter(data[at])):
            at += 1
        if at < end and data[at] == _SEMICOLON and 2 <= at - begin <= (6 if is_number else 8):
            return at + 1
    elif not first and not _opens(data[i - 1]):
        at = after
        while at < end and at - after < 4 and 48 <= data[at] <= 57:
            at += 1
        if at < end and data[at] == _CLOSING and 1 <= at - after <= 3:
            return at + 1
    return after


@inner
def _run_end(data: UInt8Array, at: int, end: int, most: int) -> int:
    """The end of a run of at most so many characters without angles and line ends."""
    count = 0
    while at < end and data[at] != _LESS and data[at] != _GREATER and data[at] != _LF:
        count += data[at] & 0xC0 != 0x80
        if count > most:
            break
        at += 1
    return at


@inner
def _stands(data: UInt8Array, at: int, end: int, expected: UInt8Array) -> bool:
    """Whether these bytes stand at a place."""
    if at + expected.size > end:
        return False
    for k in range(expected.size):  # noqa: SIM110 - compiled
        if data[at + k] != expected[k]:
            return False
    return True


@inner
def _is_letter(byte: int) -> bool:
    return 97 <= byte | 0x20 <= 122


@inner
def _is_hex(byte: int) -> bool:
    return 48 <= byte <= 57 or 97 <= byte | 0x20 <= 102 or byte == 120


@inner
def _opens(byte: int) -> bool:
    """Whether a bracket behind this byte opens a list, not a footnote's mark."""
    return byte in (32, 9, 13, 10, 40, 91, 123, 61)


@inner
def _trace(data: UInt8Array, begin: int, end: int, tables: FoldTables, at_start: bool) -> Any:
    """Fold a part of a text, more slowly than `fold`, and give the origin of each letter.

    Returns:
        (L,) letters, (L,) the first byte and (L,) the byte after the character behind each, and (L,) whether a
        word begins with it; at the first letter this is `at_start`.
    """
    marks = np.empty(((end - begin) // BLOCK + 1, 2), dtype=np.int64)
    _, size, _ = fold(data, begin, end, tables, np.empty(0, dtype=np.uint8), marks, at_start)
    letters, fresh = np.empty(size, dtype=np.uint8), np.empty(size, dtype=np.bool_)
    firsts, lasts = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    i, count, separated = begin, 0, at_start
    while i < end:
        first, point = i, code_point(data, i)
        if point < 128 and tables.quick[point] == 1:
            i = _after_markup(data, i, end, at_start and i == begin)
        else:
            i += width(data[i])
        for k in range(tables.starts[point], tables.starts[point + 1]):
            if tables.pool[k] == _SPACE:
                separated = True
            else:
                letters[count], fresh[count], firsts[count], lasts[count] = tables.pool[k], separated, first, i
                count += 1
                separated = False
    return letters, firsts, lasts, fresh


@compiled
def fold_items(data: UInt8Array, offsets: Int64Array, tables: FoldTables) -> tuple[UInt8Array, Int64Array, Int64Array]:
    """Fold texts to letters and words.

    Returns:
        The letters of all texts, (W + 1,) where words begin in them, (T + 1,) the first word of each text.
    """
    letters = np.empty(1 << 16, dtype=np.uint8)
    starts = np.empty(1 << 16, dtype=np.int64)
    text_words = np.zeros(offsets.size, dtype=np.int64)
    count, words = 0, 0
    for text in range(offsets.size - 1):
        part, _, _, fresh = _trace(data, offsets[text], offsets[text + 1], tables, True)
        while count + part.size > letters.size:
            letters = np.concatenate((letters, np.empty_like(letters)))
        while words + part.size + 1 > starts.size:
            starts = np.concatenate((starts, np.empty_like(starts)))
        for k in range(part.size):
            if fresh[k]:
                starts[words] = count + k
                words += 1
        letters[count : count + part.size] = part
        count += part.size
        text_words[text + 1] = words
    starts[words] = count
    return letters[:count].copy(), starts[: words + 1].copy(), text_words


@inner
def locate(document: FoldedDocument, letter: int) -> tuple[int, int, bool]:
    """First byte and end of the character behind a letter, and whether the letter begins a word."""
    block = max(np.searchsorted(document.marks[:, 1], letter) - 1, 0)  # the last mark with a letter before this one
    _, firsts, lasts, fresh = traced(document, block, np.searchsorted(document.marks[:, 1], letter, side="right"))
    k = letter - document.marks[block, 1]
    return firsts[k], lasts[k], fresh[k]


@inner
def traced(document: FoldedDocument, block: int, stop_block: int) -> Any:
    """`_trace` of some blocks of a document."""
    marks = document.marks
    stop = marks[stop_block, 0] if stop_block < len(marks) else document.end
    return _trace(document.data, marks[block, 0], stop, document.tables, block == 0)

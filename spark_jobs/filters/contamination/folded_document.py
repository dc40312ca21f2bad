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
from spark_jobs.filters.contamination.folding import FoldTables
from spark_jobs.filters.contamination.seeds import EvalTextIndex

BLOCK: Final = 1024
_MOST_LETTERS: Final = 12  # bytes of a fold for a byte of the source: U+FDFA, a phrase of eighteen letters
_SPACE: Final = 32


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
    data: UInt8Array, begin: int, end: int, tables: FoldTables, letters: UInt8Array, marks: Int64Array
) -> tuple[UInt8Array, int, int]:
    """Fold a text to letters and write its marks.

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
                i = _after_escape(data, i, end)
            else:
                point = code_point(data, i)
                i += width(data[i])
                for k in range(tables.starts[point], tables.starts[point + 1]):
                    letters[count] = tables.pool[k]
                    count += tables.pool[k] != _SPACE
    return letters, count, blocks


@inner
def _after_escape(data: UInt8Array, i: int, end: int) -> int:
    """The byte after a backslash at i, or after the n, r or t that follows it."""
    i += 1
    return i + 1 if i < end and (data[i] == 110 or data[i] == 114 or data[i] == 116) else i


@inner
def _trace(data: UInt8Array, begin: int, end: int, tables: FoldTables, at_start: bool) -> Any:
    """Fold a part of a text, more slowly than `fold`, and give the origin of each letter.

    Returns:
        (L,) letters, (L,) the first byte and (L,) the byte after the character behind each, and (L,) whether a
        word begins with it; at the first letter this is `at_start`.
    """
    marks = np.empty(((end - begin) // BLOCK + 1, 2), dtype=np.int64)
    _, size, _ = fold(data, begin, end, tables, np.empty(0, dtype=np.uint8), marks)
    letters, fresh = np.empty(size, dtype=np.uint8), np.empty(size, dtype=np.bool_)
    firsts, lasts = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    i, count, separated = begin, 0, at_start
    while i < end:
        first, point = i, code_point(data, i)
        i = _after_escape(data, i, end) if point == 92 else i + width(data[i])
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

"""Find listed words and phrases in texts, whole word by whole word, in compiled code.

Texts and lists are split and folded alike (`ngram_kernel`, LETTERS), and a phrase is an n-gram of any length. The table
has every beginning of a phrase too, so nearly every word of a text costs one look-up:

    list   "nit", "nit wit", "big nit"      table   nit*, nit wit*, big, big nit*         (* is a whole phrase)
    text   a  Big  NIT-wit !                phrases       [big nit] [nit wit] [nit]       one run of three words
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.kernels.compiling import compiled
from headrace_features.models.ngram_kernel import (
    EMPTY,
    END,
    LETTERS,
    WORD,
    NgramTable,
    WordSplitting,
    find_ngram,
    joined,
    next_word,
    ngram_table,
)
from spark_jobs.arrays import Int64Array, UInt8Array, UInt32Array, UInt64Array
from spark_jobs.lexing.word_characters import LAST_CASED, SEPARATOR, word_tables
from spark_jobs.lexing.word_characters import WORD as LETTER
from spark_jobs.text.text_columns import utf8_arrays
from spark_jobs.threads import made_once

_BEGINS, _WHOLE = 1, 2
_BEGINS_BIT, _WHOLE_BIT = np.uint64(_BEGINS), np.uint64(_WHOLE)
_COVERED, _JOINED = np.uint8(1), np.uint8(2)


@made_once
def folding() -> WordSplitting:
    """How texts and lists are split and folded: NFKC and case, where a character becomes one; invisible ones go."""
    tables = word_tables()
    classes, lower = tables.classes.copy(), tables.lower.copy()
    for point in range(LAST_CASED + 1):
        character = chr(point)
        if unicodedata.category(character) == "Cf":
            classes[point], lower[point] = LETTER, 0
        elif classes[point] != SEPARATOR:
            folded = unicodedata.normalize("NFKC", character).casefold()
            if len(folded) == 1 and ord(folded) <= LAST_CASED:
                lower[point] = ord(folded)
    return WordSplitting(LETTERS, classes, lower)


class Phrases(NamedTuple):
    """The phrases to search for, as a hash table.

    Attributes:
        table: hashes of the phrases and of their beginnings, with _BEGINS, _WHOLE or both.
        longest: words of the longest phrase.
    """

    table: NgramTable
    longest: int


def phrases_of(written: Iterable[str]) -> Phrases:
    """The table of words and phrases as people write them; one without a word is left out."""
    flags: dict[int, int] = {}
    longest = 1
    for phrase in written:
        hashes = _beginnings(*folding(), *utf8_arrays(pa.array([phrase]))).tolist()
        for h, flag in zip(hashes, [_BEGINS] * (len(hashes) - 1) + [_WHOLE], strict=True) if hashes else ():
            flags[h] = flags.get(h, 0) | flag
        longest = max(longest, len(hashes))
    at = np.array(sorted(flags), np.uint64)
    return Phrases(ngram_table(at, np.array([flags[h] for h in at.tolist()], np.uint64)), longest)


def score(content: pa.Array, phrases: Phrases) -> dict[str, pa.Array]:
    """Count phrases in texts.

    Returns:
        profanity_count: (D,) runs of words in phrases; overlapping phrases are one. profanity_density: (D,) words in
        them, of all words; null without any.
    """
    runs, covered, words = _count_phrases(folding(), phrases, *utf8_arrays(content))
    with np.errstate(invalid="ignore"):
        densities = covered / words
    return {"profanity_count": pa.array(runs), "profanity_density": pa.array(densities, from_pandas=True)}


@compiled
def _beginnings(
    how: int, classes: UInt8Array, lower: UInt32Array, data: UInt8Array, offsets: Int64Array
) -> UInt64Array:
    """Hashes of the first word of a text, the first two, and so on."""
    hashes = np.empty(data.size, np.uint64)
    count, h, i, kind = 0, EMPTY, offsets[0], WORD
    while kind != END:
        kind, word, i = next_word(how, classes, lower, data, i, offsets[1])
        if kind == WORD:
            h = joined(h, word)
            hashes[count] = h
            count += 1
    return hashes[:count]


@compiled
def _count_phrases(
    folding: WordSplitting, phrases: Phrases, data: UInt8Array, offsets: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """(D,) each: runs of words in phrases, words in them, words."""
    how, classes, lower = folding
    rows, _, capacity = phrases.table
    count = offsets.size - 1
    phrase_counts, covered, words = np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.int64)
    open_hashes, open_starts = np.zeros(phrases.longest + 1, np.uint64), np.zeros(phrases.longest + 1, np.int64)
    longest = 0
    for text in range(count):
        longest = max(longest, offsets[text + 1] - offsets[text])
    marks = np.zeros(longest + 1, np.uint8)  # by word: whether it is in a phrase; whether it joins the word before
    for text in range(count):
        i, end, kind, index, opened = offsets[text], offsets[text + 1], WORD, 0, 0
        while kind != END:
            kind, word, i = next_word(how, classes, lower, data, i, end)
            if kind != WORD:
                continue
            kept = 0
            for k in range(opened + 1):
                start = open_starts[k] if k < opened else index
                h = joined(open_hashes[k] if k < opened else EMPTY, word)
                row = find_ngram(rows, capacity, h)
                if row < 0:
                    continue
                if rows[2 * row + 1] & _WHOLE_BIT:
                    marks[start] |= _COVERED
                    for j in range(start + 1, index + 1):
                        marks[j] |= _COVERED | _JOINED
                if rows[2 * row + 1] & _BEGINS_BIT:
                    open_hashes[kept], open_starts[kept] = h, start
                    kept += 1
            opened = kept
            index += 1
        words[text] = index
        for j in range(index):
            covered[text] += marks[j] & _COVERED
            phrase_counts[text] += marks[j] == _COVERED
            marks[j] = 0
    return phrase_counts, covered, words

"""Split texts into lines of words, hash their n-grams, and score lines by a table of n-grams, in compiled code.

A line is a sentence: it begins with `<s>`, which is never predicted, and ends with `</s>`, which is. Blank lines are
skipped. Words are split in one of three ways:

    FOLDED       runs of letters, marks and numbers in lower case, every ASCII digit as 0; any other visible character
                 is a word of its own, and so is every letter of a script without spaces (Han, kana, Thai, ..)
    WHITE_SPACE  runs without ASCII white space, unchanged: KenLM's words
    LETTERS      as FOLDED, but digits stay, punctuation separates, and characters that `lower` maps to 0 are dropped

    "Fox 12, 東京"    FOLDED: fox 00 , 東 京    WHITE_SPACE: Fox 12, 東京

An n-gram is represented by a hash of 64 bits, made word by word: H(w1..wn) mixes H(w1..wn-1) with the word wn, and H
of no word is EMPTY. So in one pass over a line the hashes of all n-grams ending at a word follow from those that
ended at the word before.

The table is open addressing in the order of hashes: n-gram h is at or after row (h / 2^64) * capacity, and before every
n-gram of a larger hash, so a search ends at the first larger hash. A row is 16 bytes, half a cache line at most:
the hash, log10 of the probability and log10 of the back-off weight as two float32.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from headrace.kernels.compiling import compiled, inner
from headrace.kernels.mixing import FIRST_MULTIPLIER, FNV_BASIS, FNV_PRIME, GOLDEN, SECOND_MULTIPLIER
from headrace.kernels.utf8 import code_point, width
from spark_jobs.arrays import Float32Array, Float64Array, Int8Array, Int64Array, UInt8Array, UInt32Array, UInt64Array
from spark_jobs.lexing.word_characters import FIRST_SCRIPT, LAST_CASED, SEPARATOR

FOLDED, WHITE_SPACE, LETTERS = 0, 1, 2
EMPTY: Final = np.uint64(0x9AE16A3B2F90404F)
_U64: Final = np.uint64
_S32: Final = _U64(32)
_S29: Final = _U64(29)
_ONE: Final = _U64(1)
_FREE: Final = _U64(0xFFFFFFFFFFFFFFFF)  # the hash of a row without an n-gram: larger than all others
END, WORD, LINE = 0, 1, 2  # what comes next in a text


class NgramTable(NamedTuple):
    """N-grams with their probabilities and back-off weights.

    Attributes:
        rows: (2 * capacity,) hash and values of each row.
        values: (4 * capacity,) the same memory; log10 of probability and back-off weight are at 4 * row + 2 and + 3.
        capacity: number of rows where a search may begin; there are a few more rows.
    """

    rows: UInt64Array
    values: Float32Array
    capacity: int


class WordSplitting(NamedTuple):
    """How texts are split into words.

    Attributes:
        how: FOLDED, WHITE_SPACE or LETTERS.
        classes, lower: of `word_tables`.
    """

    how: int
    classes: UInt8Array
    lower: UInt32Array


def ngram_table(hashes: UInt64Array, eight_bytes: UInt64Array) -> NgramTable:
    """Build the hash table of some n-grams.

    Args:
        hashes: (G,) in ascending order, each once.
        eight_bytes: (G,) value of each: two float32, or any number that the caller looks up.
    """
    count = len(hashes)
    capacity = 3 * count // 2 + 1
    index = np.arange(count, dtype=np.int64)
    first = (((hashes >> _S32) * _U64(capacity)) >> _S32).astype(np.int64)
    places = np.maximum.accumulate(first - index) + index if count else index
    room = max(capacity, int(places[-1]) + 1 if count else 0) + 1
    rows = np.full(2 * room, _FREE, np.uint64)
    rows[2 * places] = hashes
    rows[2 * places + 1] = eight_bytes
    return NgramTable(rows, rows.view(np.float32), capacity)


@inner(inline="always")
def _mix(h: Any) -> Any:
    h = (h ^ (h >> _S32)) * FIRST_MULTIPLIER
    h = (h ^ (h >> _S29)) * SECOND_MULTIPLIER
    return h ^ (h >> _S32)


@inner(inline="always")
def joined(prefix: Any, word: Any) -> Any:
    """The hash of an n-gram extended by one word."""
    return _mix(prefix * GOLDEN + word)


@inner(inline="always")
def find_ngram(rows: UInt64Array, capacity: int, h: Any) -> int:
    """Row of an n-gram by its hash; -1 if it is not in the table."""
    at = np.int64(((h >> _S32) * _U64(capacity)) >> _S32)
    while rows[2 * at] < h:
        at += 1
    return at if rows[2 * at] == h else -1


@inner(inline="always")
def _values_at(values: Float32Array, row: int) -> tuple[float, float]:
    """log10 of probability and back-off weight of a row; for row -1 KenLM's for <unk> in a model without it."""
    if row < 0:
        return -100.0, 0.0
    return np.float64(values[4 * row + 2]), np.float64(values[4 * row + 3])


@compiled
def _hash_of(points: UInt32Array) -> Any:
    h = FNV_BASIS
    for point in points:
        h = (h ^ _U64(point)) * FNV_PRIME
    return _mix(h)


_BEGIN_WORD, _END_WORD, _UNKNOWN_WORD = (
    _U64(_hash_of(np.frombuffer(word.encode("utf-32-le"), np.uint32))) for word in ("<s>", "</s>", "<unk>")
)


@inner(inline="always")
def _word_of_text(h: Any) -> Any:
    """The hash of a word of a text: one written as a special word is another word, unknown to all models."""
    return h ^ _ONE if h in (_BEGIN_WORD, _END_WORD, _UNKNOWN_WORD) else h


@inner(inline="always")
def next_word(
    how: int, classes: UInt8Array, lower: UInt32Array, data: UInt8Array, i: int, end: int
) -> tuple[int, Any, int]:
    """Next part of a text from i on: (WORD, LINE at the end of a line, or END; a word's hash; position after it)."""
    h = FNV_BASIS
    begun = False
    while i < end:
        point, size = code_point(data, i), width(data[i])
        if how == WHITE_SPACE:
            blank, alone, left_out = point == 32 or 9 <= point <= 13, False, False
        else:
            kind = classes[point]
            spaced = point <= 32 or point in (0x85, 0xA0, 0x2028, 0x2029, 0x3000)
            blank = kind == SEPARATOR and (spaced or how == LETTERS)
            alone = not blank and (kind == SEPARATOR or kind >= FIRST_SCRIPT)
            if point <= LAST_CASED:
                point = np.int64(lower[point])
            left_out = point == 0 and not blank
            if how == FOLDED and 48 <= point <= 57:
                point = np.int64(48)
        if begun and (blank or alone):
            return WORD, _word_of_text(_mix(h)), i
        i += size
        if blank:
            if point == 10:
                return LINE, h, i
            continue
        if left_out:
            continue
        h = (h ^ _U64(point)) * FNV_PRIME
        begun = True
        if alone:
            break
    return (WORD if begun else END), _word_of_text(_mix(h)), i


@compiled
def score_texts(
    words: WordSplitting, t: NgramTable, order: int, data: UInt8Array, offsets: Int64Array
) -> tuple[Float64Array, Int64Array, Int64Array]:
    """(D,) each: sum of log10 probabilities of words and line ends, number of words, number of lines not blank."""
    count = offsets.size - 1
    sums, word_counts, line_counts = np.zeros(count), np.zeros(count, np.int64), np.zeros(count, np.int64)
    hashes, backoffs = np.zeros(order + 1, np.uint64), np.zeros(order + 1)  # of n-grams that end at the last word
    newer, newer_backoffs = np.zeros(order + 1, np.uint64), np.zeros(order + 1)
    how, classes, lower = words
    rows, values, capacity = t
    begin, unknown = joined(EMPTY, _BEGIN_WORD), joined(EMPTY, _UNKNOWN_WORD)
    _, begin_backoff = _values_at(values, find_ngram(rows, capacity, begin))
    unknown_value, unknown_backoff = _values_at(values, find_ngram(rows, capacity, unknown))
    for text in range(count):
        i, end, total = offsets[text], offsets[text + 1], 0.0
        kind, in_line, context = WORD, 0, 0
        while kind != END:
            kind, word, i = next_word(how, classes, lower, data, i, end)
            if kind != WORD:
                if in_line == 0:
                    continue
                word = _END_WORD
            if in_line == 0:
                hashes[0], backoffs[0], context = begin, begin_backoff, min(1, order - 1)
                line_counts[text] += 1
            unigram = joined(EMPTY, word)
            row = find_ngram(rows, capacity, unigram)
            value, backoff = _values_at(values, row)
            if row < 0:
                unigram, word, value, backoff = unknown, _UNKNOWN_WORD, unknown_value, unknown_backoff
            newer[0], newer_backoffs[0] = unigram, backoff
            longest = 1
            for k in range(context):
                longer = joined(hashes[k], word)
                row = find_ngram(rows, capacity, longer)
                newer[k + 1], newer_backoffs[k + 1] = longer, 0.0
                if row >= 0:
                    value, newer_backoffs[k + 1] = _values_at(values, row)
                    longest = k + 2
            for k in range(longest - 1, context):
                value += backoffs[k]
            total += value
            context = min(longest, order - 1)
            hashes, newer = newer, hashes
            backoffs, newer_backoffs = newer_backoffs, backoffs
            if kind == WORD:
                in_line += 1
            else:
                word_counts[text] += in_line
                in_line = 0
        sums[text] = total
    return sums, word_counts, line_counts


@compiled
def list_ngrams(
    words: WordSplitting,
    order: int,
    max_text_bytes: int,
    data: UInt8Array,
    offsets: Int64Array,
    rows: UInt64Array,
    lengths: Int8Array,
) -> int:
    """Write the n-grams of texts to `rows` (hash, prefix, suffix) and `lengths` (words), as many as have room.

    The prefix is the hash of the n-gram without its last word, the suffix without its first. Returns the number of all.
    """
    count = 0
    how, classes, lower = words
    hashes, newer = np.zeros(order + 1, np.uint64), np.zeros(order + 1, np.uint64)
    for text in range(offsets.size - 1):
        i, end, kind, in_line, context = offsets[text], offsets[text + 1], WORD, 0, 0
        if end - i > max_text_bytes:
            end = i + max_text_bytes
            while data[end] & 0xC0 == 0x80:
                end -= 1
        while kind != END:
            kind, word, i = next_word(how, classes, lower, data, i, end)
            if kind != WORD:
                if in_line == 0:
                    continue
                word = _END_WORD
            if in_line == 0:
                hashes[0], context = joined(EMPTY, _BEGIN_WORD), min(1, order - 1)
            suffix = EMPTY
            for n in range(1, context + 2):
                prefix = EMPTY if n == 1 else hashes[n - 2]
                h = joined(prefix, word)
                if count < lengths.size:
                    rows[3 * count], rows[3 * count + 1], rows[3 * count + 2], lengths[count] = h, prefix, suffix, n
                count += 1
                newer[n - 1] = suffix = h
            context = min(context + 1, order - 1)
            hashes, newer = newer, hashes
            in_line = in_line + 1 if kind == WORD else 0
    return count


@compiled
def look_up(t: NgramTable, hashes: UInt64Array) -> Int64Array:
    """(H,) value of each n-gram as an int64; -1 if it is not in the table."""
    counts = np.empty(hashes.size, np.int64)
    for k in range(counts.size):
        row = find_ngram(t.rows, t.capacity, hashes[k])
        counts[k] = np.int64(t.rows[2 * row + 1]) if row >= 0 else -1
    return counts


def hash_ngram(words: list[str]) -> int:
    """The hash of an n-gram of words, folded already; `<s>`, `</s>` and `<unk>` are the special ones."""
    h = EMPTY
    for word in words:
        h = _U64(_joined_word(h, np.frombuffer(word.encode("utf-32-le"), np.uint32)))
    return int(h)


@compiled
def _joined_word(prefix: Any, points: UInt32Array) -> Any:
    return joined(prefix, _hash_of(points))

"""Turn texts into hashed counts of word and character n-grams, and score them by linear models, in compiled code.

A word is a run of letters, marks and numbers in lower case, every ASCII digit as 0; any other character that is no
white space is a word of its own, so that code and logs differ from prose. In scripts without spaces a whole run is
one word, but its character n-grams are features too. Features of "Fox, fox" with word n-grams up to 2 and characters
3 to 4:

    words       fox  ,  fox    "fox ,"  ", fox"
    characters  <fo fox ox> <fox fox>   twice; none of words of one character

Each is hashed into 2^bits buckets (Weinberger et al. 2009, "Feature Hashing for Large Scale Multitask Learning", here
without signs). A text is the vector of (1 + ln count) * idf, of length 1. The same kernel counts for training and for
scoring, so a model always sees the features of its training.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np

from headrace.kernels.compiling import compiled, inner
from headrace.kernels.mixing import FNV_BASIS, FNV_PRIME, GOLDEN
from headrace.kernels.utf8 import code_point, width
from spark_jobs.arrays import Float32Array, Float64Array, Int32Array, Int64Array, UInt8Array, UInt32Array, UInt64Array
from spark_jobs.lexing.word_characters import LAST_CASED, SEPARATOR

_U64: Final = np.uint64
_CHARACTER_BASIS: Final = _U64(0x84222325CBF29CE4)
_S32: Final = _U64(32)
_OPEN, _CLOSE = 0x110000, 0x110001  # stand for the beginning and end of a word; beyond all code points


class FeatureSettings(NamedTuple):
    """Settings of the features, as in `FeaturesConfig`.

    Attributes:
        bits: features are hashed into 2^bits buckets.
        word_ngrams: most words of a word n-gram.
        min_characters: fewest characters of a character n-gram, the ends of the word counted as one each.
        max_characters: most characters of it; 0 for no character n-grams.
        max_text_bytes: a longer text is cut there, at a character.
    """

    bits: int
    word_ngrams: int
    min_characters: int
    max_characters: int
    max_text_bytes: int


class Counter(NamedTuple):
    """Memory reused from text to text.

    Attributes:
        counts: (2^bits,) occurrences of each bucket in the text; 0 between texts.
        touched: distinct buckets of the text, by first occurrence.
        word: characters of the current word, with its ends.
        recent: hashes of the n-grams continued by the next word, the shortest first.
    """

    counts: Int32Array
    touched: Int32Array
    word: UInt32Array
    recent: UInt64Array


@inner(inline="always")
def _count(h: Any, shift: Any, counts: Int32Array, touched: Int32Array, used: int) -> int:
    bucket = np.int64(((h ^ (h >> _S32)) * GOLDEN) >> shift)
    count = counts[bucket]
    touched[used] = bucket
    counts[bucket] = count + 1
    return used + np.int64(count == 0)


@inner
def _count_characters(
    word: UInt32Array, length: int, low: int, high: int, shift: Any, counts: Int32Array, touched: Int32Array, used: int
) -> int:
    """Count the character n-grams of a word with its ends; the new number of distinct buckets."""
    for i in range(length):
        h = _CHARACTER_BASIS
        for j in range(i, min(i + high, length)):
            h = (h ^ _U64(word[j])) * FNV_PRIME
            if j - i + 1 >= low:
                used = _count(h, shift, counts, touched, used)
    return used


@inner
def _count_features(
    c: Counter, f: FeatureSettings, classes: UInt8Array, lower: UInt32Array, data: UInt8Array, start: int, end: int
) -> int:
    """Count the features of a text; the number of distinct buckets."""
    counts, touched, word, recent = c.counts, c.touched, c.word, c.recent
    shift, ngrams, low, high = _U64(64 - f.bits), f.word_ngrams, f.min_characters, f.max_characters
    if end - start > f.max_text_bytes:
        end = start + f.max_text_bytes
        while end > start and data[end] & 0xC0 == 0x80:
            end -= 1
    used = live = 0
    word[0] = _OPEN
    i = start
    while i < end:
        length = 1
        h = FNV_BASIS
        while True:
            point, size = code_point(data, i), width(data[i])
            is_separator = classes[point] == SEPARATOR
            if is_separator and length > 1:
                break
            i += size
            if is_separator and (point <= 32 or point in (0x85, 0xA0, 0x3000)):
                break
            if point <= LAST_CASED:
                point = np.int64(lower[point])
            if 48 <= point <= 57:
                point = np.int64(48)
            h = (h ^ _U64(point)) * FNV_PRIME
            word[length] = np.uint32(point)
            length += 1
            if is_separator or i >= end:
                break
        if length == 1:
            continue
        used = _count(h, shift, counts, touched, used)
        for k in range(live):
            recent[k] = (recent[k] * GOLDEN) ^ h
            used = _count(recent[k], shift, counts, touched, used)
        live = min(live + 1, ngrams - 1)
        for k in range(live - 1, 0, -1):
            recent[k] = recent[k - 1]
        recent[0] = h
        if high > 0 and length > 2:
            word[length] = _CLOSE
            used = _count_characters(word, length + 1, low, high, shift, counts, touched, used)
    return used


@inner
def _new_counter(f: FeatureSettings, longest: int) -> Counter:
    """Memory for texts of at most `longest` bytes."""
    return Counter(
        np.zeros(1 << f.bits, np.int32),
        np.empty((1 << f.bits) + 1, np.int32),
        np.empty(min(longest, f.max_text_bytes) + 2, np.uint32),
        np.empty(max(f.word_ngrams, 1), np.uint64),
    )


@inner
def _longest(offsets: Int64Array) -> int:
    longest = 0
    for text in range(offsets.size - 1):
        longest = max(longest, offsets[text + 1] - offsets[text])
    return longest


@compiled
def count_texts(
    f: FeatureSettings, classes: UInt8Array, lower: UInt32Array, data: UInt8Array, offsets: Int64Array
) -> tuple[Int64Array, Int32Array, Int32Array]:
    """(D + 1,) where each text begins in the next two; (T,) buckets of all texts, (T,) their counts."""
    c = _new_counter(f, _longest(offsets))
    starts = np.zeros(offsets.size, np.int64)
    buckets, counts = np.empty(1024, np.int32), np.empty(1024, np.int32)
    total = 0
    for text in range(offsets.size - 1):
        used = _count_features(c, f, classes, lower, data, offsets[text], offsets[text + 1])
        if total + used > buckets.size:
            room = max(2 * buckets.size, total + used)
            buckets = np.concatenate((buckets, np.empty(room - buckets.size, np.int32)))
            counts = np.concatenate((counts, np.empty(room - counts.size, np.int32)))
        for k in range(used):
            buckets[total + k] = c.touched[k]
            counts[total + k] = c.counts[c.touched[k]]
            c.counts[c.touched[k]] = 0
        total += used
        starts[text + 1] = total
    return starts, buckets[:total].copy(), counts[:total].copy()


@compiled
def score_texts(
    f: FeatureSettings,
    classes: UInt8Array,
    lower: UInt32Array,
    data: UInt8Array,
    offsets: Int64Array,
    table: Float32Array,
    bias: Float64Array,
    scores: Float64Array,
) -> None:
    """Fill (D, K) linear `scores`, NaN in a text without a feature of the model; `table` has rows (idf, K weights)."""
    c = _new_counter(f, _longest(offsets))
    counts, touched = c.counts, c.touched
    width = bias.size
    sums = np.zeros(width, np.float64)
    logs = 1.0 + np.log(np.arange(1, 257))
    for text in range(offsets.size - 1):
        used = _count_features(c, f, classes, lower, data, offsets[text], offsets[text + 1])
        sums[:] = 0
        squares = 0.0
        for k in range(used):
            bucket = touched[k]
            count = counts[bucket]
            counts[bucket] = 0
            value = (logs[count - 1] if count <= 256 else 1.0 + math.log(count)) * table[bucket, 0]
            squares += value * value
            for label in range(width):
                sums[label] += value * table[bucket, 1 + label]
        for label in range(width):
            scores[text, label] = sums[label] / math.sqrt(squares) + bias[label] if squares > 0 else np.nan

"""Blocks of words that a text has several times, in compiled code: spans of all but the first, and their share.

A **word** is a run of characters without white space; in scripts without spaces each letter is one, and as many of them
count as a word as words of the script have letters. A **window** begins with a word and has the fewest words that come
to `least_words`. A window that stands, word for word, at `keep` earlier places that do not overlap it or one another is
repeated, and so are its words::

    least_words 3, keep 1     a b c d x a b c d y b c d
                                        -------   -----      words in repeated windows

So whatever is repeated in `least_words` or more is found, wherever it moved and whatever it is nested in, and every
word of a repeated window stands earlier, in a window that is not, or in the first of such. White space is not compared.

A span of whole lines ends where a line begins; one that begins within a line leaves the white space before it, and one
that ends where a line does leaves the line's end; words on its two sides never become one. Of code whole lines go
alone, where a block has a line's end: the next line may begin as that of the first place does, by chance, and `return`
without its value is no code.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.kernels.compiling import compiled, inner
from headrace.kernels.hash_tables import slots_for
from headrace.kernels.mixing import mix64
from headrace.kernels.utf8 import code_point, width
from spark_jobs.arrays import BoolArray, Float64Array, Int64Array, UInt8Array, UInt64Array
from spark_jobs.text.characters import FIRST_SPACELESS, SPACE, SPACELESS_WORD_LENGTHS, character_classes
from spark_jobs.text.text_columns import utf8_arrays

LEAST_WORDS: Final = 30
"""Words of a block that counts by default: a paragraph; boilerplate of code (imports, a notice) is shorter."""
_WORD: Final = 60  # weights are sixtieths of a word, which are whole for every length in use
_WEIGHTS: Final = np.array(
    [_WORD] * FIRST_SPACELESS + [round(_WORD / length) for _, length in SPACELESS_WORD_LENGTHS], np.int64
)
_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)  # odd, and far from small powers: of Karp and Rabin's polynomial
_LF: Final = ord("\n")
_mixed = inner(mix64)


class RepeatedBlocks(NamedTuple):
    """What is repeated in D texts.

    Attributes:
        offsets: (D + 1,) int64; the spans of text d are offsets[d] to offsets[d + 1].
        starts: (S,) int64 first byte of each, counted from the beginning of its text, ascending.
        ends: (S,) int64 byte after the last.
        shares: (D,) float64 words in them, of all words of the text; NaN without a word.
    """

    offsets: Int64Array
    starts: Int64Array
    ends: Int64Array
    shares: Float64Array


def repeated_blocks(
    content: pa.Array, least_words: int = LEAST_WORDS, keep: int = 1, is_code: BoolArray | None = None
) -> RepeatedBlocks:
    """Find the repeated blocks of texts.

    Args:
        content: (D,) strings, none of them null.
        is_code: (D,) whose spans are whole lines; by default none's.
        least_words: fewest words of a block.
        keep: places of a block that stay.
    """
    data, offsets = utf8_arrays(content)
    is_code = np.zeros(len(content), np.bool_) if is_code is None else is_code
    bounds, spans, shares = _find(data, offsets, is_code, character_classes(), _WEIGHTS, least_words * _WORD, keep)
    return RepeatedBlocks(bounds, spans[0], spans[1], shares)


@compiled
def _find(
    data: UInt8Array, offsets: Int64Array, is_code: BoolArray, classes: UInt8Array, weights: Int64Array, least: int,
    keep: int,
) -> tuple[Int64Array, Int64Array, Float64Array]:  # fmt: skip
    """The fields of `RepeatedBlocks`; `least` in sixtieths of a word."""
    texts = offsets.size - 1
    longest = 0
    for text in range(texts):
        longest = max(longest, offsets[text + 1] - offsets[text])
    room = longest // 2 + 2  # two words need a blank between them, or three bytes of a script without
    words, hashes = np.empty((4, room), np.int64), np.empty((2, room + 1), np.uint64)
    hashes[1, 0] = 1
    for power in range(room):
        hashes[1, power + 1] = hashes[1, power] * _MULTIPLIER
    keys, places = np.empty(slots_for(room), np.uint64), np.empty((slots_for(room), 3), np.int64)
    bounds, spans, count = np.zeros(texts + 1, np.int64), np.empty((2, 64), np.int64), 0
    shares = np.full(texts, np.nan)
    for text in range(texts):
        found = _words(data, offsets[text], offsets[text + 1], classes, weights, words, hashes)
        if found:
            repeated = _repeats(data, found, least, keep, words, hashes, keys, places)
            shares[text] = repeated / found
            if repeated:
                if count + found > spans.shape[1]:
                    wider = np.empty((2, 2 * (count + found)), np.int64)
                    wider[:, :count] = spans[:, :count]
                    spans = wider
                count = _write_spans(data, offsets[text : text + 2], is_code[text], found, words, spans, count)
        bounds[text + 1] = count
    return bounds, spans[:, :count], shares


@inner
def _words(
    data: UInt8Array,
    at: int,
    stop: int,
    classes: UInt8Array,
    weights: Int64Array,
    words: Int64Array,
    hashes: UInt64Array,
) -> int:
    """Write first byte, byte after the last and weight of each word, and the hash of all words before it; how many."""
    count, state, previous = 0, np.uint64(0), np.uint8(SPACE)
    hashes[0, 0] = 0
    while at < stop:
        lead = data[at]
        point = np.int64(lead) if lead < 0x80 else np.int64(code_point(data, at))
        kind, size = classes[point], width(lead)
        if kind != SPACE:
            if previous == SPACE or kind >= FIRST_SPACELESS or previous >= FIRST_SPACELESS:
                if previous != SPACE:
                    count = _end_word(count, at, state, words, hashes)
                words[0, count], words[2, count], state = at, weights[kind], np.uint64(0)
            state = (state ^ np.uint64(point)) * _MULTIPLIER
        elif previous != SPACE:
            count = _end_word(count, at, state, words, hashes)
        previous = kind
        at += size
    return count if previous == SPACE else _end_word(count, stop, state, words, hashes)


@inner
def _end_word(count: int, end: int, state: np.uint64, words: Int64Array, hashes: UInt64Array) -> int:
    """End a word; the number of words with it."""
    words[1, count] = end
    hashes[0, count + 1] = hashes[0, count] * _MULTIPLIER + _mixed(state)
    return count + 1


@inner
def _repeats(
    data: UInt8Array, count: int, least: int, keep: int, words: Int64Array, hashes: UInt64Array, keys: UInt64Array,
    places: Int64Array,
) -> int:  # fmt: skip
    """Mark each word in a repeated window by 1 in its fourth row, others by 0; how many are marked.

    A table has for each window its first place, and the end of the last place that counted, and how many did.
    """
    slots = slots_for(count)
    keys[:slots] = 0
    mask, until, end, weight, marked, matched = np.uint64(slots - 1), 0, 0, 0, 0, np.int64(-1)
    for word in range(count):
        former_end = end
        while end < count and weight < least:
            weight += words[2, end]
            end += 1
        before, matched = matched, np.int64(-1)
        if weight >= least:
            rolled = hashes[0, end] - hashes[0, word] * hashes[1, end - word]
            key = _mixed(rolled + np.uint64(end - word)) | np.uint64(1)  # never 0, the mark of a free slot
            slot = key & mask
            while keys[slot] != key and keys[slot] != 0:
                slot = (slot + np.uint64(1)) & mask
            if keys[slot] == 0:
                keys[slot] = key
                places[slot, 0], places[slot, 1], places[slot, 2] = word, end, 1
            elif places[slot, 1] <= word:
                first = places[slot, 0]
                # Where the window before was equal too, only words after it are new.
                known = max(former_end, word) if before == first - 1 and before >= 0 else word
                if _equal(data, words, first + known - word, known, end):
                    if places[slot, 2] >= keep:
                        until, matched = end, first
                    else:
                        places[slot, 1], places[slot, 2] = end, places[slot, 2] + 1
        words[3, word] = word < until
        marked += word < until
        weight -= words[2, word]
    return marked


@inner
def _equal(data: UInt8Array, words: Int64Array, left: int, right: int, stop: int) -> bool:
    """Whether words from `left` on are those from `right` to `stop`, byte for byte."""
    while right < stop:
        size, one, other = words[1, right] - words[0, right], words[0, left], words[0, right]
        if words[1, left] - one != size:
            return False
        for at in range(size):
            if data[one + at] != data[other + at]:
                return False
        left, right = left + 1, right + 1
    return True


@inner
def _write_spans(
    data: UInt8Array, ends_of_text: Int64Array, whole: bool, count: int, words: Int64Array, spans: Int64Array,
    written: int,
) -> int:  # fmt: skip
    """Write the byte spans of runs of marked words, by the module's rule of lines; the number of spans with them."""
    begin, stop, word = ends_of_text[0], ends_of_text[1], 0
    while word < count:
        if not words[3, word]:
            word += 1
            continue
        first = word
        while word < count and words[3, word]:
            word += 1
        before = words[1, first - 1] if first else begin
        line = _after_line_end(data, before, words[0, first])
        following = words[0, word] if word < count else stop
        ending = _after_line_end(data, words[1, word - 1], following)
        begins, ends = line >= 0 or not first, ending >= 0 or word == count
        start, end = words[0, first], following
        if begins and ends:
            start, end = max(line, begin), ending if word < count else stop
        elif ends:
            start, end = before, words[1, word - 1]
        elif not begins and before == start:  # no white space before it, so what is behind it stays
            is_joint = following == words[1, word - 1] and _are_spaced(words, first - 1, word)
            end = words[0, word - 1] if is_joint else words[1, word - 1]  # else the words around it would be one
            if start >= end:
                continue
        last_line = _after_line_end(data, words[0, first], words[1, word - 1])
        if whole and last_line >= 0:
            start = max(line, begin) if begins else words[0, first]
            while not begins and data[start - 1] != _LF:
                start += 1
            end = last_line if not ends else ending if word < count else stop
            if start >= end:
                continue
        spans[0, written], spans[1, written] = start - begin, end - begin
        written += 1
    return written


@inner
def _are_spaced(words: Int64Array, left: int, right: int) -> bool:
    """Whether two words are of scripts with spaces between words."""
    return bool(words[2, left] == _WORD and words[2, right] == _WORD)


@inner
def _after_line_end(data: UInt8Array, start: int, stop: int) -> int:
    """The byte after the last LF of a span; -1 where it has none."""
    for at in range(stop - 1, start - 1, -1):
        if data[at] == _LF:
            return at + 1
    return -1

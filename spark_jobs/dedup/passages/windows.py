"""Words, windows and anchors of texts, in compiled code.

A **word** is one of the bags' lexer, whatever the document's kind; in scripts without spaces it is a character (of the
lexer's bigrams each is taken apart). A **window** is WORDS consecutive words. Its **anchor** is the least hash of the
runs of GRAM words in it (Schleimer et al. 2003, "Winnowing"), so equal windows have equal anchors, wherever they stand:

    words      a b c d e f g           GRAM 2, WORDS 4: a window has three runs
    hashes     7 3 9 4 8 5             of ab, bc, cd, de, ef, fg
    anchors    3 3 4 4                 of abcd, bcde, cdef, defg

An anchor is a value and no position. A run of one token has one, however long it is, so no cap is needed for it. About
one run in thirteen is the least one of a window.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.compiling import compiled, inner
from headrace.kernels.memory import byte_at
from headrace.kernels.mixing import FIRST_MULTIPLIER, SECOND_MULTIPLIER
from spark_jobs.arrays import BoolArray, Int32Array, Int64Array, UInt8Array, UInt64Array
from spark_jobs.lexing.language_syntax import SyntaxTables
from spark_jobs.lexing.lex import begin_text, lex, make_machine
from spark_jobs.lexing.lexers import lexer_of, syntax_tables
from spark_jobs.lexing.machine import STATE_WORDS, TEXT, U64, new_block
from spark_jobs.lexing.word_characters import WORD, WordTables, word_tables
from spark_jobs.lexing.words import ZERO, decode_at, finish, hash_bytes, hash_step
from spark_jobs.text.text_columns import utf8_arrays

WORDS: Final = 50
"""Words of the shortest passage."""
GRAM: Final = 25
"""Words of a run. Anchors are 7.6% of the runs of texts; of 20 words it were 6.5%, and more are shared by chance."""
_GRAMS: Final = WORDS - GRAM + 1
_BLOCK_TOKENS: Final = 1024
_SLICE_BYTES: Final = 1 << 23
_PAST_GRAM: Final = U64(pow(int(FIRST_MULTIPLIER), GRAM, 1 << 64))
_PAST_WINDOW: Final = U64(pow(int(SECOND_MULTIPLIER), WORDS, 1 << 64))
_WINDOW_SALT: Final = U64(0x50415353414745)


class DocumentWords(NamedTuple):
    """The words of D texts, in order.

    Attributes:
        offsets: (D + 1,) int64; the words of text d are offsets[d] to offsets[d + 1].
        hashes: (N,) uint64, mixed.
        starts: (N,) int32 first byte of each, counted from the first text.
        ends: (N,) int32 byte after it.
    """

    offsets: Int64Array
    hashes: UInt64Array
    starts: Int32Array
    ends: Int32Array


class Windows(NamedTuple):
    """All windows of D texts, one for each word that has WORDS - 1 more after it.

    Attributes:
        offsets: (D + 1,) int64; window i of text d, which begins with its word i, is offsets[d] + i.
        anchors: (W,) uint64.
        hashes: (W,) uint64 of all words of the window.
    """

    offsets: Int64Array
    anchors: UInt64Array
    hashes: UInt64Array


def slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Parts of a batch of texts (`content`) of some megabytes each; a longer text is one alone."""
    ends = np.cumsum(pc.binary_length(batch.column("content")).to_numpy().astype(np.int64))
    first = 0
    while first < len(ends):
        before = ends[first - 1] if first else 0
        following = max(first + 1, int(np.searchsorted(ends, before + _SLICE_BYTES, "right")))
        yield batch.slice(first, following - first)
        first = following


def words_in(batch: pa.RecordBatch) -> DocumentWords:
    """The words of texts: columns content, kind, language."""
    data, offsets = utf8_arrays(batch.column("content"))
    kinds = zip(batch.column("kind").to_pylist(), batch.column("language").to_pylist(), strict=True)
    lexers = np.array([lexer_of(*pair) for pair in kinds], np.uint8)
    return DocumentWords(*_words(data, offsets, lexers, syntax_tables(), word_tables()))


def windows_in(words: DocumentWords) -> Windows:
    """The windows of texts."""
    return Windows(*_windows(words.offsets, words.hashes))


def anchors_in(windows: Windows) -> tuple[Int64Array, UInt64Array]:
    """The different anchors of each text: (D + 1,) offsets into them, and them, ascending in each text."""
    offsets, anchors = _distinct(windows.offsets, windows.anchors)
    return offsets, anchors


@inner
def _grown(array: Int64Array, size: int) -> Int64Array:
    """The same numbers with room for at least so many."""
    wider = np.empty(max(size, 2 * array.size), array.dtype)
    wider[: array.size] = array
    return wider


@compiled
def _words(
    data: UInt8Array, offsets: Int64Array, lexers: UInt8Array, syntax: SyntaxTables, tables: WordTables
) -> tuple[Int64Array, UInt64Array, Int32Array, Int32Array]:
    """The fields of `DocumentWords`; D texts in a buffer, with their lexers."""
    texts = offsets.size - 1
    base = offsets[0]
    bounds = np.zeros(texts + 1, np.int64)
    block, state = new_block(_BLOCK_TOKENS), np.empty(STATE_WORDS, np.int64)
    room = max(4 * _BLOCK_TOKENS, (offsets[texts] - base) // 4)
    hashes, starts, ends = np.empty(room, np.uint64), np.empty(room, np.int32), np.empty(room, np.int32)
    total = 0
    for text in range(texts):
        i, end, lexer = offsets[text], offsets[text + 1], np.int64(lexers[text])
        begin_text(i, lexer, False, syntax, state)
        m = make_machine(data, end, lexer, syntax, tables, state, block)
        second, second_end = -1, -1  # the second character of the last bigram, until a token begins with it
        while i < end:
            i, n = lex(m, i, lexer)
            if total + 2 * n + 1 > hashes.size:
                hashes = _grown(hashes, total + 2 * n + 1)
                starts, ends = _grown(starts, hashes.size), _grown(ends, hashes.size)
            for k in range(n):
                h, start, stop = block.hashes[k], block.starts[k], block.ends[k]
                if second >= 0 and start != second:
                    hashes[total] = finish(hash_bytes(m.data, second, second_end), ZERO)
                    starts[total], ends[total] = second - base, second_end - base
                    total += 1
                second = -1
                if block.classes[k] == TEXT and byte_at(m.data + start) >= 128:
                    point, size = decode_at(m.data, start, end)
                    if tables.classes[point] > WORD:
                        if start + size < stop:
                            second, second_end = start + size, stop
                        stop = start + size
                        h = hash_bytes(m.data, start, stop)
                hashes[total] = finish(h, ZERO)
                starts[total], ends[total] = start - base, stop - base
                total += 1
        if second >= 0:
            hashes[total] = finish(hash_bytes(m.data, second, second_end), ZERO)
            starts[total], ends[total] = second - base, second_end - base
            total += 1
        bounds[text + 1] = total
    return bounds, hashes[:total], starts[:total], ends[:total]


@compiled
def _windows(bounds: Int64Array, hashes: UInt64Array) -> tuple[Int64Array, UInt64Array, UInt64Array]:
    """The fields of `Windows`. Both hashes are polynomials, that roll on (Karp and Rabin 1987)."""
    texts = bounds.size - 1
    offsets = np.zeros(texts + 1, np.int64)
    for text in range(texts):
        offsets[text + 1] = offsets[text] + max(bounds[text + 1] - bounds[text] - WORDS + 1, 0)
    anchors, windows = np.empty(offsets[texts], np.uint64), np.empty(offsets[texts], np.uint64)
    grams = np.empty(_GRAMS, np.uint64)  # the last ones, in a ring
    for text in range(texts):
        first, to = bounds[text], offsets[text]
        if offsets[text + 1] == to:
            continue
        gram, window, least, least_at = ZERO, ZERO, ZERO, -1
        for word in range(bounds[text + 1] - first):
            h = hashes[first + word]
            gram, window = gram * FIRST_MULTIPLIER + h, window * SECOND_MULTIPLIER + h
            if word >= GRAM:
                gram -= hashes[first + word - GRAM] * _PAST_GRAM
            at = word - GRAM + 1
            if at < 0:
                continue
            gram_hash = finish(gram, ZERO)
            grams[at % _GRAMS] = gram_hash
            # The later of equal ones: it stays inside the window for longer, so anchors change less often.
            if least_at < 0 or gram_hash <= least:
                least, least_at = gram_hash, at
            # The least has left the window; only then are all grams of the ring looked at.
            elif at - least_at >= _GRAMS:
                least, least_at = gram_hash, at
                for k in range(at - 1, at - _GRAMS, -1):
                    if grams[k % _GRAMS] < least:
                        least, least_at = grams[k % _GRAMS], k
            if word >= WORDS:
                window -= hashes[first + word - WORDS] * _PAST_WINDOW
            if word >= WORDS - 1:
                anchors[to], windows[to] = least, finish(window, _WINDOW_SALT)
                to += 1
    return offsets, anchors, windows


@compiled
def _distinct(offsets: Int64Array, anchors: UInt64Array) -> tuple[Int64Array, UInt64Array]:
    texts = offsets.size - 1
    bounds, distinct, total = np.zeros(texts + 1, np.int64), np.empty(max(16, anchors.size // 8), np.uint64), 0
    for text in range(texts):
        start = total
        for window in range(offsets[text], offsets[text + 1]):
            # Neighbouring windows mostly share their anchor, so this leaves little to sort.
            if window == offsets[text] or anchors[window] != anchors[window - 1]:
                if total == distinct.size:
                    distinct = _grown(distinct, total + 1)
                distinct[total] = anchors[window]
                total += 1
        distinct[start:total].sort()
        kept = start
        for k in range(start, total):
            if k == start or distinct[k] != distinct[k - 1]:
                distinct[kept] = distinct[k]
                kept += 1
        total = kept
        bounds[text + 1] = total
    return bounds, distinct[:total]


@compiled
def chosen_windows(
    offsets: Int64Array,
    anchors: UInt64Array,
    wanted_offsets: Int64Array,
    wanted: UInt64Array,
    left_out_offsets: Int64Array,
    left_out: Int64Array,
) -> BoolArray:
    """(W,) which windows have an anchor that is wanted of their text, and touch no span that is left out of it.

    Args:
        offsets: as in `Windows`.
        anchors: as in `Windows`.
        wanted_offsets: (D + 1,) where the wanted anchors of each text begin.
        wanted: them, ascending in each text.
        left_out_offsets: (D + 1,) where the spans of each text begin.
        left_out: (S, 2) first word and word after the last.
    """
    chosen = np.zeros(anchors.size, np.bool_)
    for text in range(offsets.size - 1):
        wanted_here = wanted[wanted_offsets[text] : wanted_offsets[text + 1]]
        first, last = offsets[text], offsets[text + 1]
        is_wanted = False
        for window in range(first, last):
            if window == first or anchors[window] != anchors[window - 1]:
                at = np.searchsorted(wanted_here, anchors[window])
                is_wanted = at < wanted_here.size and wanted_here[at] == anchors[window]
            chosen[window] = is_wanted
        # A window touches a span from WORDS - 1 words before it on.
        for span in range(left_out_offsets[text], left_out_offsets[text + 1]):
            start, end = left_out[span, 0], left_out[span, 1]
            chosen[min(first + max(start - WORDS + 1, 0), last) : min(first + end, last)] = False
    return chosen


@compiled
def span_hashes(hashes: UInt64Array, starts: Int64Array, ends: Int64Array) -> UInt64Array:
    """(S,) a hash of the words of each span, from its first word to that after its last."""
    span_values = np.empty(starts.size, np.uint64)
    for span in range(starts.size):
        h = ZERO
        for word in range(starts[span], ends[span]):
            h = hash_step(h, hashes[word])
        span_values[span] = finish(h, ZERO)
    return span_values

"""The fast encoder for scripts without spaces: cut words into independent pieces, and merge byte pairs in each.

Han characters follow one another without a space, so a word of the pre-tokenizer is a whole clause: rarely seen before,
slow to merge, not worth caching. But every merge makes a token, so no merge crosses a boundary that no token spans.
Words are cut at such boundaries:

    word     电影院在哪里      a token spans 电影, 影院, 哪里; none spans 院在 or 在哪
    pieces   电影院 | 在 | 哪里

    joined      pairs of characters that are not cut apart: some token of the vocabulary holds them side by side, or
                could, if it begins or ends inside a character. Kept as bits by a hash; a collision costs only time.
    exact       the pieces on both sides of a boundary that no token spans are merged independently of each other, so
                the ids are those of the whole word
    cached      ids of words and pieces of up to 31 bytes, in a table of a fixed size: the newest of a slot stays

A piece that is not cached is merged by the pair of least rank, the leftmost first, as the reference does, except that
it starts from whole characters instead of bytes. The result is the same if every pair ranks behind the merges that make
its parts (this is checked) and no token joins bytes of the character with bytes of a neighbour.

Nothing here counts references to arrays (`_nrt=False`): counting takes half the time. The GIL is kept, because threads
that share an encoder share its tables.
"""

from __future__ import annotations

import json
from typing import Final

import numpy as np
from numba import njit

from headrace.kernels.compiling import compiled
from headrace.kernels.utf8 import Integer, code_point, width
from spark_jobs.arrays import Int32Array, UInt8Array, UInt64Array
from spark_jobs.tokens.fast.id_cache import (
    KEPT_IDS,
    KEY_BYTES,
    ZERO,
    first_slot,
    is_at,
    keep,
    key_of,
    padded_copy,
    probed_slot,
    recall,
)
from spark_jobs.tokens.fast.piece_merging import (
    LONGEST_PIECE,
    Tables,
    merge,
    piece_end,
    starting_symbols,
)
from spark_jobs.tokens.fast.piece_tables import read_tables
from spark_jobs.tokens.fast.word_ends import word_end

_BLOCK: Final = 1 << 18  # ids written at once: a long document takes no array of its full length


class PieceEncoder:
    """Encode documents to the ids of the reference, as far as the certificate covers their characters.

    Its memory does not grow with the number of documents.
    """

    def __init__(self, file_text: str) -> None:
        """Read a tokenizer.

        Raises:
            ValueError: it has added tokens that are not special, or more ids than `MOST_IDS`.
        """
        self._tables = read_tables(json.loads(file_text))

    def encode(self, data: bytes) -> Int32Array | None:
        """Encode a document.

        Args:
            data: its text as valid UTF-8.

        Returns:
            (T,) ids; None if a piece has more than `LONGEST_PIECE` bytes.
        """
        text, padded = padded_copy(np.frombuffer(data, np.uint8))
        found = []
        at = end_of_word = 0
        while at < len(text):
            ids = np.empty(min(len(text) - at, _BLOCK) + LONGEST_PIECE, np.int32)
            at, end_of_word, count = _encode(text, padded, at, end_of_word, self._tables, ids)
            if at < 0:
                return None
            found.append(ids[:count].copy() if len(text) > _BLOCK else ids[:count])
        return found[0] if len(found) == 1 else np.concatenate(found) if found else np.empty(0, np.int32)


@njit(_nrt=False, inline="always")
def _remembered(
    data: UInt8Array, padded: UInt64Array, at: int, end: int, is_word: bool, tables: Tables, ids: Int32Array, count: int
) -> Integer:
    """Write the ids of a character that is one token, or of a cached word or piece; returns their number, or 0."""
    size = end - at
    if size == width(data[at]):
        number = tables.whole[code_point(data, at)]
        if number >= 0:
            ids[count] = number
            return 1
    if size > KEY_BYTES:
        return 0
    key = key_of(padded, at, size, is_word and tables.marks_words)
    slot = first_slot(tables.kept, key)
    return recall(tables.kept, slot, ids, count) if is_at(tables.kept, slot, key) else 0


@njit(_nrt=False, inline="always")
def _made(
    data: UInt8Array, padded: UInt64Array, at: int, end: int, is_word: bool, tables: Tables, ids: Int32Array, count: int
) -> Integer:
    """Merge a piece, write its ids and cache them; returns their number."""
    size = end - at
    key = key_of(padded, at, min(size, KEY_BYTES), is_word and tables.marks_words)
    if is_word and tables.marks_words and size <= KEY_BYTES:
        slot = probed_slot(tables.irregular, key)
        if tables.irregular[slot, 3] != ZERO:
            return recall(tables.irregular, slot, ids, count)
    found = merge(starting_symbols(data, at, end, tables), tables)
    for index in range(found):
        ids[count + index] = tables.symbols[index]
    if size <= KEY_BYTES and found <= KEPT_IDS:
        keep(tables.kept, first_slot(tables.kept, key), key, tables.symbols, found)
    return found


@compiled(nogil=False, _nrt=False)  # keeps the GIL: the tables are working memory, which tasks of Sail share as threads
def _encode(
    data: UInt8Array, padded: UInt64Array, at: int, end_of_word: int, tables: Tables, ids: Int32Array
) -> tuple[Integer, Integer, Integer]:
    """Encode until the text ends or `ids` is full.

    Args:
        data: (B,) a text as valid UTF-8.
        padded: the same bytes in words of 8.
        at: first byte that is not encoded.
        end_of_word: end of the word that it belongs to; not above `at` where it begins one.
        tables: see there.
        ids: where they are written.

    Returns:
        First byte that is not encoded, -1 for a piece that is too long; the end of its word; number of ids written.
    """
    count = 0
    start_of_word = -1
    while at < len(data) and count <= len(ids) - LONGEST_PIECE:
        found = 0
        end = at
        if at >= end_of_word:
            start_of_word = at
            end = end_of_word = word_end(data, at, tables.classes, tables.most_numbers)
            found = _remembered(data, padded, at, end, True, tables, ids, count)
        if found == 0:
            end = piece_end(data, at, end_of_word, tables)
            is_word = at == start_of_word and end == end_of_word
            if not is_word:
                found = _remembered(data, padded, at, end, False, tables, ids, count)
            if found == 0:
                if end - at > tables.longest:
                    return -1, end_of_word, count
                found = _made(data, padded, at, end, is_word, tables, ids, count)
        count += found
        at = end
    return at, end_of_word, count

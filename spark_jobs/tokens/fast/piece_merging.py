"""Cut words into pieces that are merged independently of each other, and merge the byte pairs of a piece.

`piece_encoder` says why this gives the ids of the whole word. All functions are inlined into the loop over a text.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numba import njit

from headrace.kernels.mixing import GOLDEN
from headrace.kernels.utf8 import Integer, code_point, width
from spark_jobs.arrays import Int32Array, UInt8Array, UInt64Array

LONGEST_PIECE: Final = 512  # bytes; merging takes time by the square of the length
PART: Final = 1 << 21  # added to the first or last byte of a cut character, so that it equals no code point
LEFT: Final = 1  # flags of `Tables.parts`
RIGHT: Final = 2
_NO_RANK: Final = 1 << 24  # above all ranks, which have 24 bits
EMPTY: Final = np.uint64(0xFFFFFFFFFFFFFFFF)


class Tables(NamedTuple):
    """A tokenizer (V ids, M merges) in the arrays that compiled code reads, and its working memory.

    Attributes:
        classes: (0x110000,) class of every code point.
        most_numbers: see `word_ends.MOST_NUMBERS`.
        joined: (B,) bits by a hash of two characters: set where a token may span the boundary between them.
        parts: (256,) whether a token may begin (1) behind a byte or end (2) with it, inside a character.
        whole: (0x110000,) id of a character that is one token; -1 if it is several, or if merging begins from bytes.
        byte_ids: (256,) id of each byte.
        pairs: (P,) left id, right id and rank of each merge, by a hash of the ids.
        merged: (M,) id that each rank makes.
        marks_words: whether a word that is a token gets its id without merges (`ignore_merges`).
        irregular: (N, 8) an `id_cache` table of the words for which merges would give other ids.
        longest: bytes of the longest piece that is encoded here.
        kept: (K, 8) an `id_cache` table of the words and pieces encoded last.
        symbols: (longest,) ids of the piece that is merged.
        ranks: (longest,) rank of each of them with the next one.
    """

    classes: UInt8Array
    most_numbers: int
    joined: UInt8Array
    parts: UInt8Array
    whole: Int32Array
    byte_ids: Int32Array
    pairs: UInt64Array
    merged: Int32Array
    marks_words: bool
    irregular: UInt64Array
    longest: int
    kept: UInt64Array
    symbols: Int32Array
    ranks: Int32Array


@njit(_nrt=False, inline="always")
def bit_of(before: int, after: int, joined: UInt8Array) -> Integer:
    """Index of the bit in `joined` of two characters, which have 21 bits each, or 22 with `PART`."""
    mixed = (np.uint64(before) << np.uint64(22) | np.uint64(after)) * GOLDEN
    return np.int64(mixed >> np.uint64(32)) & (len(joined) * 8 - 1)


@njit(_nrt=False, inline="always")
def _has_bit(before: int, after: int, joined: UInt8Array) -> bool:
    """Whether some token may hold two characters side by side."""
    bit = bit_of(before, after, joined)
    return bool((joined[bit >> 3] >> (bit & 7)) & 1)


@njit(_nrt=False, inline="always")
def _is_torn(data: UInt8Array, at: int, before: int, after: int, tables: Tables) -> bool:
    """Whether a token may span the boundary between two characters and begin or end inside one of them."""
    left = tables.parts[data[at - 1]] & LEFT != 0
    right = tables.parts[data[at]] & RIGHT != 0
    return bool(
        (left and _has_bit(PART | data[at - 1], after, tables.joined))
        or (right and _has_bit(before, PART | data[at], tables.joined))
        or (left and right and _has_bit(PART | data[at - 1], PART | data[at], tables.joined))
    )


@njit(_nrt=False, inline="always")
def piece_end(data: UInt8Array, at: int, end_of_word: int, tables: Tables) -> Integer:
    """End of the piece that begins at a byte; two ASCII characters are never cut apart."""
    end = at + width(data[at])
    before = code_point(data, at)
    while end < end_of_word:
        after = code_point(data, end)
        if (
            (before >= 0x80 or after >= 0x80)
            and not _has_bit(before, after, tables.joined)
            and not _is_torn(data, end, before, after, tables)
        ):
            break
        before = after
        end += width(data[end])
    return end


@njit(_nrt=False, inline="always")
def starting_symbols(data: UInt8Array, start: int, end: int, tables: Tables) -> Integer:
    """Write the ids that the merging of a piece starts from, of characters or bytes; returns their number."""
    count = 0
    at = start
    here = code_point(data, at)
    torn = False
    while at < end:
        following = at + width(data[at])
        after = np.int64(0)
        torn_after = False
        if following < end:
            after = code_point(data, following)
            torn_after = (here >= 0x80 or after >= 0x80) and _is_torn(data, following, here, after, tables)
        if torn or torn_after or tables.whole[here] < 0:
            for index in range(at, following):
                tables.symbols[count] = tables.byte_ids[data[index]]
                count += 1
        else:
            tables.symbols[count] = tables.whole[here]
            count += 1
        at, here, torn = following, after, torn_after
    return count


@njit(_nrt=False, inline="always")
def pair_slot(pair: np.uint64, pairs: UInt64Array) -> Integer:
    """Slot of a pair of ids, or the free slot where it would be; the low 24 bits of an entry hold the rank."""
    slot = np.int64((pair * GOLDEN) >> np.uint64(30)) & (len(pairs) - 1)
    while pairs[slot] != EMPTY and pairs[slot] >> np.uint64(24) != pair:
        slot = (slot + 1) & (len(pairs) - 1)
    return slot


@njit(_nrt=False, inline="always")
def _rank(left: int, right: int, pairs: UInt64Array) -> np.int32:
    """Rank of the merge of two ids; `_NO_RANK` if there is none."""
    found = pairs[pair_slot(np.uint64(left) << np.uint64(20) | np.uint64(right), pairs)]
    return np.int32(_NO_RANK) if found == EMPTY else np.int32(found & np.uint64(_NO_RANK - 1))


@njit(_nrt=False, inline="always")
def merge(count: int, tables: Tables) -> Integer:
    """Merge the first `count` symbols of the tables until no merge is left; returns how many symbols remain.

    Each merge scans all ranks for the least. This takes time by the square of the length, so `LONGEST_PIECE` bounds it.
    """
    symbols, ranks, pairs = tables.symbols, tables.ranks, tables.pairs
    for index in range(count - 1):
        ranks[index] = _rank(symbols[index], symbols[index + 1], pairs)
    while count > 1:
        least = ranks[0]
        at = 0
        for index in range(1, count - 1):
            if ranks[index] < least:
                least = ranks[index]
                at = index
        if least == _NO_RANK:
            break
        symbols[at] = tables.merged[least]
        count -= 1
        for index in range(at + 1, count):
            symbols[index] = symbols[index + 1]
            ranks[index] = ranks[index + 1]
        if at > 0:
            ranks[at - 1] = _rank(symbols[at - 1], symbols[at], pairs)
        if at < count - 1:
            ranks[at] = _rank(symbols[at], symbols[at + 1], pairs)
    return count

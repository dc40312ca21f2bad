"""Find the words of any script and hash them, in compiled code; prose is lexed into words alone.

A token's hash is over its bytes (lower-cased in prose), eight at a time as little-endian numbers, the last padded with
zeros: `h = (h ^ block) * G; h ^= h >> 32`. Words of up to eight bytes never collide. `finish` salts and mixes it.

Eight bytes of ASCII are classified at once, as in Hacker's Delight (Warren, chapter 6). A word with a character beyond
ASCII is read again, code point by code point; both ways give the same hash.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from headrace.kernels import mixing
from headrace.kernels.compiling import inner
from headrace.kernels.hash_tables import key_address
from headrace.kernels.memory import byte_at, eight_bytes_at, four_bytes_at, trailing_zeros
from headrace.kernels.mixing import GOLDEN
from spark_jobs.lexing.language_syntax import KEYWORD_SLOTS
from spark_jobs.lexing.machine import IN_SCRIPT, TEXT, U64, Machine, emit, get_state, put_state
from spark_jobs.lexing.word_characters import LAST_CASED, SEPARATOR, WORD

_HIGH: Final = U64(0x8080808080808080)
_LOW: Final = U64(0x7F7F7F7F7F7F7F7F)
CASE: Final = U64(0x2020202020202020)
_FROM_A: Final = U64((0x80 - ord("a")) * 0x0101010101010101)
_PAST_Z: Final = U64((0x7F - ord("z")) * 0x0101010101010101)
_FROM_0: Final = U64((0x80 - ord("0")) * 0x0101010101010101)
_PAST_9: Final = U64((0x7F - ord("9")) * 0x0101010101010101)
UNDERSCORES: Final = U64(ord("_") * 0x0101010101010101)
ZERO, ONE, _TWO, _SEVEN, EIGHT, _SIXTY_FOUR = (U64(number) for number in (0, 1, 2, 7, 8, 64))
_KEYWORD_SHIFT: Final = U64(64 - (KEYWORD_SLOTS - 1).bit_length())
LONGEST_KEYWORD: Final = 16
"""Longer words, in bytes, are not looked up among keywords: `reinterpret_cast` of C++ is the longest."""

_mix64 = inner(mixing.mix64)
hash_step = inner(mixing.hash_step)


@inner
def finish(token_hash: np.uint64, salt: np.uint64) -> np.uint64:
    """Salt a hash and mix it (splitmix64), so that its top bits can index a table; never 0."""
    z = _mix64((token_hash ^ salt) + GOLDEN)
    return z if z != ZERO else ONE


@inner
def load_eight(data: int, i: int, end: int) -> np.uint64:
    """Eight bytes from i on as a little-endian number, padded with zeros after the end of the text."""
    if i + 8 <= end:
        return eight_bytes_at(data + i)
    loaded = ZERO
    for k in range(end - 1, i - 1, -1):
        loaded = (loaded << EIGHT) | U64(byte_at(data + k))
    return loaded


@inner
def hash_bytes(data: int, start: int, stop: int) -> np.uint64:
    """Hash of the bytes from start to stop as they are."""
    h = ZERO
    for i in range(start, stop, 8):
        h = hash_step(h, load_eight(data, i, stop))
    return h


@inner
def has_digit(data: int, start: int, stop: int, end: int) -> bool:
    """Whether one of the bytes from start to stop is a digit of ASCII; `end` is the position after the text."""
    digits_met, i = ZERO, start
    while i < stop:
        x = load_eight(data, i, end)
        i += 8
        ascii_bits = x & _LOW
        digits = (ascii_bits + _FROM_0) & ~(ascii_bits + _PAST_9) & ~x & _HIGH
        digits_met |= digits << U64(8 * max(i - stop, 0))
    return digits_met != ZERO


@inner
def is_keyword(keywords: int, h: np.uint64) -> bool:
    """Whether a hash is in the table of KEYWORD_SLOTS hashes at an address (open addressing by the top bits)."""
    return eight_bytes_at(key_address(keywords, 8, U64(KEYWORD_SLOTS - 1), h >> _KEYWORD_SHIFT, h)) == h


@inner
def ascii_word(data: int, i: int, end: int, fold: np.uint64, extra: np.uint64) -> tuple[np.uint64, int]:
    """Hash of the ASCII bytes from i on that are letters, digits, `_` or `extra`, and the position after them.

    `fold` has 0x20 in every byte to lower-case letters, or 0.
    """
    h = ZERO
    while True:
        x = load_eight(data, i, end)
        ascii_bits = x & _LOW
        lower = ascii_bits | CASE
        letters = (lower + _FROM_A) & ~(lower + _PAST_Z)
        digits = (ascii_bits + _FROM_0) & ~(ascii_bits + _PAST_9)
        other = ~((ascii_bits ^ UNDERSCORES) + _LOW) | ~((ascii_bits ^ extra) + _LOW)
        letters &= ~x & _HIGH
        x |= (letters >> _TWO) & fold
        stop = ~(letters | digits | other) & _HIGH | (x & _HIGH)
        if stop != ZERO:
            bits = trailing_zeros(stop) - _SEVEN
            if bits != ZERO:
                h = hash_step(h, x & ((ONE << bits) - ONE))
            return h, i + np.int64(bits >> U64(3))
        h = hash_step(h, x)
        i += 8


@inner
def decode_at(data: int, i: int, end: int) -> tuple[int, int]:
    """Code point at i and its length in bytes; a byte that begins no UTF-8 sequence is U+FFFD, one byte long."""
    first = np.int64(byte_at(data + i))
    if first < 0x80:
        return first, 1
    if 0xC2 <= first < 0xE0 and i + 1 < end:
        return (first & 31) << 6 | np.int64(byte_at(data + i + 1)) & 63, 2
    if 0xE0 <= first < 0xF0 and i + 2 < end:
        return (first & 15) << 12 | (np.int64(byte_at(data + i + 1)) & 63) << 6 | np.int64(
            byte_at(data + i + 2)
        ) & 63, 3
    if 0xF0 <= first < 0xF4 and i + 3 < end:
        high = (first & 7) << 18 | (np.int64(byte_at(data + i + 1)) & 63) << 12
        return high | (np.int64(byte_at(data + i + 2)) & 63) << 6 | np.int64(byte_at(data + i + 3)) & 63, 4
    return 0xFFFD, 1


@inner
def encode_point(point: int) -> tuple[np.uint64, np.uint64]:
    """UTF-8 of a code point as a little-endian number, and its length in bits."""
    if point < 0x80:
        return U64(point), U64(8)
    if point < 0x800:
        return U64(0x80C0 | point >> 6 | (point & 63) << 8), U64(16)
    if point < 0x10000:
        return U64(0x8080E0 | point >> 12 | (point >> 6 & 63) << 8 | (point & 63) << 16), U64(24)
    return U64(0x808080F0 | point >> 18 | (point >> 12 & 63) << 8 | (point >> 6 & 63) << 16 | (point & 63) << 24), U64(
        32
    )


@inner
def wide_word(
    data: int, i: int, end: int, fold: np.uint64, extra: np.uint64, whole: bool, classes: int, lower: int
) -> tuple[np.uint64, int]:
    """Hash of the word that begins at i, and the position after it; with `whole` it includes scripts without spaces."""
    h, block, filled = ZERO, ZERO, ZERO
    while i < end:
        point, size = decode_at(data, i, end)
        kind = byte_at(classes + point)
        if kind != WORD and not (kind > WORD and whole) and U64(point) != (extra & U64(255)):
            break
        if fold != ZERO and point <= LAST_CASED:
            point = four_bytes_at(lower + 4 * point)
        piece, bits = encode_point(point)
        block |= piece << filled
        filled += bits
        if filled >= _SIXTY_FOUR:
            h = hash_step(h, block)
            filled -= _SIXTY_FOUR
            block = piece >> (bits - filled)  # at most 4 bytes are left, and none if it just fits
            if filled == ZERO:
                block = ZERO
        i += size
    if filled != ZERO:
        h = hash_step(h, block)
    return h, i


@inner
def any_word(
    data: int, i: int, end: int, fold: np.uint64, extra: np.uint64, whole: bool, classes: int, lower: int
) -> tuple[np.uint64, int]:
    """Hash of the word that begins at the ASCII byte i, and the position after it."""
    h, j = ascii_word(data, i, end, fold, extra)
    if j < end and byte_at(data + j) >= 128:
        return wide_word(data, i, end, fold, extra, whole, classes, lower)
    return h, j


@inner
def wide_text(
    data: int, i: int, end: int, fold: np.uint64, in_script: int, classes: int, lower: int
) -> tuple[np.uint64, int, int, int]:
    """The token of prose at i, where the character lies beyond ASCII: a word, or a bigram of a script without spaces.

    Args:
        data: address of the text.
        i: position of the character.
        end: position after the text.
        fold: as in `ascii_word`.
        in_script: 1 if the character before was the first of a bigram: then a single one left over is no token.
        classes: address of the classes of characters.
        lower: address of their lower case.

    Returns:
        Its hash; the position after it (i if there is no token); the position to go on from; the new `in_script`.
    """
    point, size = decode_at(data, i, end)
    kind = byte_at(classes + point)
    if kind == SEPARATOR:
        return ZERO, i, i + size, 0
    if kind == WORD:
        h, j = wide_word(data, i, end, fold, UNDERSCORES, False, classes, lower)
        return h, j, j, 0
    piece, bits = encode_point(point)
    if i + size < end:
        second, second_size = decode_at(data, i + size, end)
        if byte_at(classes + second) == kind:
            second_piece, _ = encode_point(second)
            # At most 4 + 4 bytes: a bigram is one block.
            return hash_step(ZERO, piece | second_piece << bits), i + size + second_size, i + size, 1
    if in_script == 1:
        return ZERO, i, i + size, 0
    return hash_step(ZERO, piece), i + size, i + size, 0


@inner
def lex_prose(m: Machine, i: int, fold: np.uint64) -> tuple[int, int]:
    """Fill the block with words; the position to go on from, and the token count."""
    data, end, state, classes, lower = m.data, m.end, m.state, m.classes, m.lower
    n = 0
    in_script = get_state(state, IN_SCRIPT)
    while i < end and n < m.room:
        byte = byte_at(data + i)
        if byte_at(classes + byte) == WORD and byte < 128:
            in_script = 0
            h, j = any_word(data, i, end, fold, UNDERSCORES, False, classes, lower)
            following = j
        elif byte >= 128:
            h, j, following, in_script = wide_text(data, i, end, fold, in_script, classes, lower)
            if j == i:
                i = following
                continue
        else:
            in_script = 0
            i += 1
            continue
        n = emit(m, n, h, i, j, TEXT)
        i = following
    put_state(state, IN_SCRIPT, in_script)
    return i, n

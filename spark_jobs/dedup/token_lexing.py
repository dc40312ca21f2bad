r"""From the bytes of a text to its tokens, at the speed of compiled code.

Two machines share the words. *Prose* is words and, in scripts without spaces, bigrams. *Code* goes to and fro between
code and the regions of its language (comments, strings), whose insides are prose; strings may hold code again (`${...}`),
kept on a short stack:

    x = f"Total {count:>8}"  # In EUR      code x | text total | code count | text 8 | text in eur

A machine stops when the block of tokens is full and goes on later from its state, so a text of any length needs one
block. Every step moves on by at least one byte, and nothing is read beyond the end of the text.

A token's hash is over its bytes (lower-cased in prose), eight at a time as little-endian numbers, the last padded with
zeros: `h = (h ^ block) * G; h ^= h >> 32`. Words of up to eight bytes never collide. `finish` salts and mixes it.

All compiled code of tokens is in this file: Numba notices that a cached function is stale by its own file alone.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from spark_jobs.dedup import language_syntax as syntax_names
from spark_jobs.dedup.language_syntax import REGION_WORDS, Flag, Prefix, SyntaxTables
from spark_jobs.dedup.lexers import FIRST_LANGUAGE, PROSE, syntax_tables
from spark_jobs.dedup.word_characters import LAST_CASED, SEPARATOR, WORD, WordTables, word_tables

IDENTIFIER: Final = 0
NUMBER: Final = 1
TEXT: Final = 2
"""Classes of tokens; TEXT is a word of prose, also of the prose in comments and strings."""

U64 = np.uint64
_G: Final = U64(0x9E3779B97F4A7C15)
_M1: Final = U64(0xBF58476D1CE4E5B9)
_M2: Final = U64(0x94D049BB133111EB)
_ONES: Final = U64(0x0101010101010101)
_HIGH: Final = U64(0x8080808080808080)
_LOW: Final = U64(0x7F7F7F7F7F7F7F7F)
_CASE: Final = U64(0x2020202020202020)
_FROM_A: Final = U64((0x80 - ord("a")) * 0x0101010101010101)
_PAST_Z: Final = U64((0x7F - ord("z")) * 0x0101010101010101)
_FROM_0: Final = U64((0x80 - ord("0")) * 0x0101010101010101)
_PAST_9: Final = U64((0x7F - ord("9")) * 0x0101010101010101)
UNDERSCORES: Final = U64(ord("_") * 0x0101010101010101)
_ZERO, _ONE, _TWO, _FIVE, _SEVEN, _EIGHT, _SIXTY_FOUR = (U64(number) for number in (0, 1, 2, 5, 7, 8, 64))
_S27, _S30, _S31, _S32 = (U64(number) for number in (27, 30, 31, 32))

# Flags and actions as plain numbers: Numba takes no enumerations of bits.
_REGION, _COMMENT, _ONE_LINE, _ESCAPES = (
    int(flag) for flag in (Flag.REGION, Flag.COMMENT, Flag.ONE_LINE, Flag.ESCAPES)
)
_CONTINUES, _DOUBLED, _NESTED, _CLASSES = (
    int(flag) for flag in (Flag.CONTINUES, Flag.DOUBLED, Flag.NESTED, Flag.CLASSES)
)
_DOLLAR_BRACE, _BRACE, _HASH_BRACE, _DOLLAR_NAME = (
    int(flag) for flag in (Flag.DOLLAR_BRACE, Flag.BRACE, Flag.HASH_BRACE, Flag.DOLLAR_NAME)
)
_AFTER_SPACE, _LINE_START = int(Flag.AFTER_SPACE), int(Flag.LINE_START)
_PYTHON, _C, _RUST, _REGEX, _C_NUMBERS = (
    int(prefix) for prefix in (Prefix.PYTHON, Prefix.C, Prefix.RUST, Prefix.REGEX, Prefix.C_NUMBERS)
)
_SPACE, _NAME, _DIGIT, _WIDE, _LEAD = (
    syntax_names.SPACE,
    syntax_names.NAME,
    syntax_names.DIGIT,
    syntax_names.WIDE,
    syntax_names.LEAD,
)
_OPEN, _CLOSE, _LINE_END, _TO_TEXT = (
    syntax_names.OPEN,
    syntax_names.CLOSE,
    syntax_names.LINE_END,
    syntax_names.TO_TEXT,
)
_KEYWORD_SHIFT: Final = U64(64 - (syntax_names.KEYWORD_SLOTS - 1).bit_length())
_LONGEST_KEYWORD: Final = 16
_NEWLINE, _QUOTE, _APOSTROPHE, _BACKSLASH, _SLASH = (ord(c) for c in "\n\"'\\/")
_BRACE_OPEN, _BRACE_CLOSE, _SQUARE_OPEN, _SQUARE_CLOSE, _DOLLAR, _HASH, _DOT = (ord(c) for c in "{}[]$#.")
_MOST_HELD: Final = 8
BLOCK_TOKENS: Final = 1024
_FEWEST_SLOT_BITS: Final = 6
_SLOT_BITS: Final = 12

# The state of a lexer between two blocks: words of an int64 array, then _MOST_HELD regions of 4 words each.
_FLAGS, _CLOSING, _CLOSING_MASK, _OPENING, _NESTING, _IN_CLASS, _RUN, _OPERAND, _HELD, _DEPTH, _EXTRA, _BEGIN = range(
    12
)
_STACK: Final = 16
STATE_WORDS: Final = _STACK + 4 * _MOST_HELD

Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]
Int32Array = npt.NDArray[np.int32]
UInt8Array = npt.NDArray[np.uint8]


class Machine(NamedTuple):
    """What a lexer reads and writes, as addresses and numbers.

    Attributes:
        data, end: address of the byte at position 0; position after the text's last byte.
        state: address of STATE_WORDS int64.
        classes, lower: addresses of the tables of characters.
        hashes, starts, ends, kinds, room: addresses of the block's arrays; tokens that fit.
        actions, keywords, first_region, regions: addresses of the language's tables.
        prefixes, word_byte: of the language.
    """

    data: int
    end: int
    state: int
    classes: int
    lower: int
    hashes: int
    starts: int
    ends: int
    kinds: int
    room: int
    actions: int
    keywords: int
    first_region: int
    regions: int
    prefixes: int
    word_byte: np.uint64


class Block(NamedTuple):
    """Tokens in text order, up to the length of the arrays.

    Attributes:
        hashes: (B,) uint64, before salt and mixing.
        starts: (B,) int64 byte position.
        ends: (B,) int64 byte position after the token.
        classes: (B,) uint8: IDENTIFIER, NUMBER, TEXT.
    """

    hashes: UInt64Array
    starts: Int64Array
    ends: Int64Array
    classes: UInt8Array


@njit(cache=True)
def _new_block(token_count: int) -> Block:
    return Block(
        np.empty(token_count, np.uint64),
        np.empty(token_count, np.int64),
        np.empty(token_count, np.int64),
        np.empty(token_count, np.uint8),
    )


def _loader(bits: int, result: Any) -> Any:
    """A function that reads a little-endian number of so many bits at an address, aligned or not.

    Addresses, not arrays, go down to the functions that run once per token: Numba counts references of every array that
    it passes on, which costs more than the word itself.
    """

    def typed(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            loaded = builder.load(builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer()))
            loaded.align = 1
            return loaded if bits == 64 else builder.zext(loaded, ir.IntType(64))

        return result(types.int64), generate

    return intrinsic(typed)


_byte = _loader(8, types.int64)
_four_bytes = _loader(32, types.int64)
_eight_bytes = _loader(64, types.uint64)


@intrinsic
def _store(typing_context: Any, address: Any, number: Any) -> Any:
    """Write an integer at an address, in as many bytes as its type has."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[1], builder.inttoptr(arguments[0], arguments[1].type.as_pointer())).align = 1
        return context.get_dummy_value()

    return types.void(types.int64, number), generate


@intrinsic
def _trailing_zeros(typing_context: Any, number: Any) -> Any:
    """Zero bits below the lowest one bit; the number is not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


@njit(cache=True)
def finish(token_hash: np.uint64, salt: np.uint64) -> np.uint64:
    """Salt a hash and mix it, so that its top bits are as good as any (splitmix64); never 0."""
    z = (token_hash ^ salt) + _G
    z = (z ^ (z >> _S30)) * _M1
    z = (z ^ (z >> _S27)) * _M2
    z ^= z >> _S31
    return z if z != _ZERO else _ONE


@njit(cache=True)
def _get(state: int, word: int) -> int:
    return np.int64(_eight_bytes(state + 8 * word))


@njit(cache=True)
def _put(state: int, word: int, number: int) -> None:
    _store(state + 8 * word, np.int64(number))


@njit(cache=True)
def _emit(m: Machine, n: int, h: np.uint64, start: int, stop: int, kind: int) -> int:
    """Make the n-th token of the block; how many it has then."""
    _store(m.hashes + 8 * n, h)
    _store(m.starts + 8 * n, np.int64(start))
    _store(m.ends + 8 * n, np.int64(stop))
    _store(m.kinds + n, np.uint8(kind))
    return n + 1


@njit(cache=True)
def _step(h: np.uint64, block: np.uint64) -> np.uint64:
    h = (h ^ block) * _G
    return h ^ (h >> _S32)


@njit(cache=True)
def _load(data: int, i: int, end: int) -> np.uint64:
    """Eight bytes from i on; zeros where the text has ended."""
    if i + 8 <= end:
        return _eight_bytes(data + i)
    loaded = _ZERO
    for k in range(end - 1, i - 1, -1):
        loaded = (loaded << _EIGHT) | U64(_byte(data + k))
    return loaded


@njit(cache=True)
def _ascii_word(data: int, i: int, end: int, fold: np.uint64, extra: np.uint64) -> tuple[np.uint64, int]:
    """Hash of the ASCII bytes from i on that are letters, digits, `_` or `extra`, and the position after them.

    `fold` has 0x20 in every byte to lower-case letters, or 0.
    """
    h = _ZERO
    while True:
        x = _load(data, i, end)
        ascii_bits = x & _LOW
        lower = ascii_bits | _CASE
        letters = (lower + _FROM_A) & ~(lower + _PAST_Z)
        digits = (ascii_bits + _FROM_0) & ~(ascii_bits + _PAST_9)
        other = ~((ascii_bits ^ UNDERSCORES) + _LOW) | ~((ascii_bits ^ extra) + _LOW)
        letters &= ~x & _HIGH
        x |= (letters >> _TWO) & fold
        stop = ~(letters | digits | other) & _HIGH | (x & _HIGH)
        if stop != _ZERO:
            bits = _trailing_zeros(stop) - _SEVEN
            if bits != _ZERO:
                h = _step(h, x & ((_ONE << bits) - _ONE))
            return h, i + np.int64(bits >> U64(3))
        h = _step(h, x)
        i += 8


@njit(cache=True)
def _decode(data: int, i: int, end: int) -> tuple[int, int]:
    """Code point at i and its length in bytes; what is no UTF-8 is U+FFFD, one byte long."""
    first = np.int64(_byte(data + i))
    if first < 0x80:
        return first, 1
    if 0xC2 <= first < 0xE0 and i + 1 < end:
        return (first & 31) << 6 | np.int64(_byte(data + i + 1)) & 63, 2
    if 0xE0 <= first < 0xF0 and i + 2 < end:
        return (first & 15) << 12 | (np.int64(_byte(data + i + 1)) & 63) << 6 | np.int64(_byte(data + i + 2)) & 63, 3
    if 0xF0 <= first < 0xF4 and i + 3 < end:
        high = (first & 7) << 18 | (np.int64(_byte(data + i + 1)) & 63) << 12
        return high | (np.int64(_byte(data + i + 2)) & 63) << 6 | np.int64(_byte(data + i + 3)) & 63, 4
    return 0xFFFD, 1


@njit(cache=True)
def _encode(point: int) -> tuple[np.uint64, np.uint64]:
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


@njit(cache=True)
def _wide_word(
    data: int, i: int, end: int, fold: np.uint64, extra: np.uint64, whole: bool, classes: int, lower: int
) -> tuple[np.uint64, int]:
    """Hash of the word of any characters that begins at i, and the position after it; `whole` takes scripts in too."""
    h, block, filled = _ZERO, _ZERO, _ZERO
    while i < end:
        point, size = _decode(data, i, end)
        kind = _byte(classes + point)
        if kind != WORD and not (kind > WORD and whole) and U64(point) != (extra & U64(255)):
            break
        if fold != _ZERO and point <= LAST_CASED:
            point = _four_bytes(lower + 4 * point)
        piece, bits = _encode(point)
        block |= piece << filled
        filled += bits
        if filled >= _SIXTY_FOUR:
            h = _step(h, block)
            filled -= _SIXTY_FOUR
            block = piece >> (bits - filled)  # at most 4 bytes are left, and none if it just fits
            if filled == _ZERO:
                block = _ZERO
        i += size
    if filled != _ZERO:
        h = _step(h, block)
    return h, i


@njit(cache=True)
def _word(
    data: int, i: int, end: int, fold: np.uint64, extra: np.uint64, whole: bool, classes: int, lower: int
) -> tuple[np.uint64, int]:
    """Hash of the word that begins at the ASCII byte i, and the position after it."""
    h, j = _ascii_word(data, i, end, fold, extra)
    if j < end and _byte(data + j) >= 128:
        return _wide_word(data, i, end, fold, extra, whole, classes, lower)
    return h, j


@njit(cache=True)
def _wide_text(
    data: int, i: int, end: int, fold: np.uint64, run: int, classes: int, lower: int
) -> tuple[np.uint64, int, int, int]:
    """The token of prose at i, where a character beyond ASCII stands.

    Returns:
        Its hash; where it ends (i if it is none); where the next begins; whether that goes on with a run of a script.
    """
    point, size = _decode(data, i, end)
    kind = _byte(classes + point)
    if kind == SEPARATOR:
        return _ZERO, i, i + size, 0
    if kind == WORD:
        h, j = _wide_word(data, i, end, fold, UNDERSCORES, False, classes, lower)
        return h, j, j, 0
    piece, bits = _encode(point)
    if i + size < end:
        second, second_size = _decode(data, i + size, end)
        if _byte(classes + second) == kind:
            second_piece, second_bits = _encode(second)
            # At most 4 + 4 bytes: a bigram is one block.
            return _step(_ZERO, piece | second_piece << bits), i + size + second_size, i + size, 1
    if run == 1:
        return _ZERO, i, i + size, 0
    return _step(_ZERO, piece), i + size, i + size, 0


@njit(cache=True)
def _prose(m: Machine, i: int, fold: np.uint64) -> tuple[int, int]:
    """Fill the block with words; where it stopped, and how many they are."""
    data, end, state, classes, lower = m.data, m.end, m.state, m.classes, m.lower
    n = 0
    run = _get(state, _RUN)
    while i < end and n < m.room:
        byte = _byte(data + i)
        if _byte(classes + byte) == WORD and byte < 128:
            run = 0
            h, j = _word(data, i, end, fold, UNDERSCORES, False, classes, lower)
            following = j
        elif byte >= 128:
            h, j, following, run = _wide_text(data, i, end, fold, run, classes, lower)
            if j == i:
                i = following
                continue
        else:
            run = 0
            i += 1
            continue
        n = _emit(m, n, h, i, j, TEXT)
        i = following
    _put(state, _RUN, run)
    return i, n


@njit(cache=True)
def _is_keyword(keywords: int, h: np.uint64) -> bool:
    slot = np.int64(h >> _KEYWORD_SHIFT)
    while True:
        found = _eight_bytes(keywords + 8 * slot)
        if found == h or found == _ZERO:
            return found == h
        slot = (slot + 1) & (syntax_names.KEYWORD_SLOTS - 1)


@njit(cache=True)
def _number_end(data: int, i: int, end: int, family_c: bool) -> int:
    """Where the number ends that begins at i: digits, letters, `_`, fractions, signed exponents.

    In the family of C a number may end in a point or go on with a suffix after it, and quotes group digits.
    """
    exponent = 101  # e
    if i + 1 < end and _byte(data + i) == 48 and _byte(data + i + 1) | 32 == 120:
        exponent = 112  # p, after 0x
    while True:
        _, i = _ascii_word(data, i, end, _ZERO, UNDERSCORES)
        if i + 1 >= end:
            return i
        byte, following = _byte(data + i), _byte(data + i + 1)
        if byte == _DOT:
            goes_on = 48 <= following <= 57 or (family_c and following != _DOT)
        elif byte == _APOSTROPHE:
            goes_on = family_c and (48 <= following <= 57 or 97 <= following | 32 <= 102)
        else:
            goes_on = (byte == 43 or byte == 45) and _byte(data + i - 1) | 32 == exponent and 48 <= following <= 57
        if not goes_on:
            return i
        i += 1


@njit(cache=True)
def _hash_bytes(data: int, start: int, stop: int) -> np.uint64:
    """Hash of the bytes from start to stop as they are."""
    h = _ZERO
    for i in range(start, stop, 8):
        h = _step(h, _load(data, i, stop))
    return h


@njit(cache=True)
def _enter(state: int, region: int, extra: int) -> None:
    """From code into the region that the five numbers at an address describe."""
    _enter_raw(state, _eight_bytes(region + 16), _eight_bytes(region + 24), np.int64(_eight_bytes(region + 32)) | extra)
    _put(state, _OPENING, np.int64(_eight_bytes(region)))


@njit(cache=True)
def _enter_raw(state: int, closing: np.uint64, mask: np.uint64, flags: int) -> None:
    """From code into a region that this very place defines."""
    _put(state, _FLAGS, _REGION | flags)
    _put(state, _CLOSING, np.int64(closing))
    _put(state, _CLOSING_MASK, np.int64(mask))
    _put(state, _NESTING, 1)
    _put(state, _IN_CLASS, 0)
    _put(state, _RUN, 0)


@njit(cache=True)
def _bytes_mask(byte_count: int) -> np.uint64:
    return ~_ZERO if byte_count >= 8 else (_ONE << U64(8 * byte_count)) - _ONE


@njit(cache=True)
def _hold(state: int) -> bool:
    """From a string into the code that it holds; false where too many are held already."""
    held = _get(state, _HELD)
    if held == _MOST_HELD:
        return False
    at = _STACK + 4 * held
    _put(state, at, _get(state, _FLAGS))
    _put(state, at + 1, _get(state, _CLOSING))
    _put(state, at + 2, _get(state, _CLOSING_MASK))
    _put(state, at + 3, _get(state, _DEPTH))
    _put(state, _HELD, held + 1)
    _put(state, _DEPTH, 0)
    _put(state, _FLAGS, 0)
    _put(state, _OPERAND, 0)
    return True


@njit(cache=True)
def _release(state: int) -> None:
    """Back into the string that holds this code."""
    _put(state, _HELD, _get(state, _HELD) - 1)
    at = _STACK + 4 * _get(state, _HELD)
    _put(state, _FLAGS, _get(state, at))
    _put(state, _CLOSING, _get(state, at + 1))
    _put(state, _CLOSING_MASK, _get(state, at + 2))
    _put(state, _DEPTH, _get(state, at + 3))
    _put(state, _RUN, 0)


@njit(cache=True)
def _regex_closes(data: int, i: int, end: int) -> bool:
    """Whether a regular expression that begins at the slash at i is closed on its line."""
    in_class = False
    k = i + 1
    while k < end and k - i < 4096 and _byte(data + k) != _NEWLINE:
        if _byte(data + k) == _BACKSLASH:
            k += 1
        elif _byte(data + k) == _SQUARE_OPEN:
            in_class = True
        elif _byte(data + k) == _SQUARE_CLOSE:
            in_class = False
        elif _byte(data + k) == _SLASH and not in_class:
            return k > i + 1
        k += 1
    return False


@njit(cache=True)
def _rust_quote(data: int, i: int, end: int, state: int) -> int:
    """Past an apostrophe of Rust: into a character literal, or to the name of a lifetime."""
    if i + 1 < end and _byte(data + i + 1) != _BACKSLASH:
        _, size = _decode(data, i + 1, end)
        if not (i + 1 + size < end and _byte(data + i + 1 + size) == _APOSTROPHE):
            return i + 1
    _enter_raw(state, U64(_APOSTROPHE), U64(255), _ONE_LINE | _ESCAPES)
    return i + 1


@njit(cache=True)
def _open_region(m: Machine, i: int) -> int:
    """Enter the region that opens at i, if one does; the position after what opens it, or i."""
    data, end, state = m.data, m.end, m.state
    byte, x = _byte(data + i), _load(data, i, end)
    first = np.int64(_eight_bytes(m.first_region + 8 * byte))
    last = np.int64(_eight_bytes(m.first_region + 8 * byte + 8))
    for number in range(first, last):
        region = m.regions + 8 * REGION_WORDS * number
        mask = _eight_bytes(region + 8)
        if (x & mask) != _eight_bytes(region):
            continue
        flags = np.int64(_eight_bytes(region + 32))
        if flags & (_AFTER_SPACE | _LINE_START) and not _may_open(data, i, flags, state):
            continue
        _enter(state, region, _get(state, _EXTRA))
        _put(state, _EXTRA, 0)
        return i + _mask_bytes(mask)
    if m.prefixes & _RUST and byte == _APOSTROPHE:
        return _rust_quote(data, i, end, state)
    regex = m.prefixes & _REGEX and byte == _SLASH and _get(state, _OPERAND) == 0
    if regex and _regex_closes(data, i, end):
        _enter_raw(state, U64(_SLASH), U64(255), _ONE_LINE | _ESCAPES | _CLASSES)
        return i + 1
    return i


@njit(cache=True)
def _may_open(data: int, i: int, flags: int, state: int) -> bool:
    """Whether what stands before i lets a region open that needs the begin of a word, or of a line."""
    if i == _get(state, _BEGIN):
        return True
    before = _byte(data + i - 1)
    if flags & _LINE_START:
        return before == _NEWLINE
    return before <= 32 or before == 40 or before == 59  # ( ;


@njit(cache=True)
def _mask_bytes(mask: np.uint64) -> int:
    size = 0
    while mask != _ZERO:
        mask >>= _EIGHT
        size += 1
    return size


@njit(cache=True)
def _raw_string(data: int, quote: int, end: int, prefixes: int, state: int) -> int:
    """Enter a raw string of C++ (at its quote) or Rust (at its quote or hashes); where it begins, or 0 if it is none."""
    closing, size = _ZERO, 0
    if prefixes & _RUST:
        closing, size, k = U64(_QUOTE), 1, quote
        while k < end and _byte(data + k) == _HASH:
            if size < 8:
                closing |= U64(_HASH) << U64(8 * size)
                size += 1
            k += 1
        if k == end or _byte(data + k) != _QUOTE:
            return 0
    else:
        closing, size, k = U64(41), 1, quote + 1
        while k < end and k - quote < 18 and _byte(data + k) != 40 and _byte(data + k) > 32:
            if size < 8:
                closing |= U64(_byte(data + k)) << U64(8 * size)
                size += 1
            k += 1
        if k == end or _byte(data + k) != 40:
            return 0
        if size < 8:
            closing |= U64(_QUOTE) << U64(8 * size)
            size += 1
    _enter_raw(state, closing, _bytes_mask(size), 0)
    return k + 1


@njit(cache=True)
def _prefix(data: int, i: int, j: int, end: int, prefixes: int, state: int) -> int:
    """Where to go on if the letters from i to j are the prefix of a string, else 0."""
    last = _byte(data + j - 1)
    quoted = _byte(data + j) == _QUOTE or _byte(data + j) == _APOSTROPHE
    if prefixes & _PYTHON and quoted:
        interpolated = False
        for k in range(i, j):
            letter = _byte(data + k) | 32
            if letter not in (98, 102, 114, 116, 117):
                return 0
            interpolated = interpolated or letter in (102, 116)
        _put(state, _EXTRA, _BRACE if interpolated else 0)
        return j
    if prefixes & _C and quoted:
        if last == 82 and _byte(data + j) == _QUOTE:  # R
            return _raw_string(data, j, end, prefixes, state)
        ends_as_prefix = last in (76, 85) or (last == 117 and j == i + 1)  # L U u
        utf8 = j == i + 2 and _byte(data + i) == 117 and last == 56  # u8
        return j if utf8 or (ends_as_prefix and j == i + 1) else 0
    if prefixes & _RUST:
        if last == 114 and (j == i + 1 or (j == i + 2 and _byte(data + i) in (98, 99))):  # r br cr
            following = _raw_string(data, j, end, prefixes, state)
            raw_name = following == 0 and j == i + 1 and _byte(data + j) == _HASH  # r#type
            return j + 1 if raw_name else following
        return j if quoted and j == i + 1 and (last == 98 or last == 99) else 0
    return 0


@njit(cache=True)
def _code(m: Machine, i: int, n: int) -> tuple[int, int]:
    """Add tokens of code to the block until a region opens; where it stopped, and how many tokens the block has."""
    extra, prefixes = m.word_byte, m.prefixes
    data, end, state, classes, lower = m.data, m.end, m.state, m.classes, m.lower
    while i < end and n < m.room:
        action = _byte(m.actions + _byte(data + i))
        if action == _SPACE:
            i += 1
        elif action == _NAME or action == _WIDE:
            if action == _NAME:
                h, j = _word(data, i, end, _ZERO, extra, True, classes, lower)
            else:
                h, j = _wide_word(data, i, end, _ZERO, extra, True, classes, lower)
                if j == i:
                    i += _decode(data, i, end)[1]
                    continue
            if (
                prefixes != 0
                and j - i <= 3
                and j < end
                and (_byte(data + j) == _QUOTE or _byte(data + j) == _APOSTROPHE or _byte(data + j) == _HASH)
            ):
                following = _prefix(data, i, j, end, prefixes, state)
                if following > 0:
                    i = following
                    if _get(state, _FLAGS) != 0:
                        return i, n
                    continue
            if j - i <= _LONGEST_KEYWORD and _is_keyword(m.keywords, h):
                _put(state, _OPERAND, 0)
            else:
                _put(state, _OPERAND, 1)
                n = _emit(m, n, h, i, j, IDENTIFIER)
            i = j
        elif action == _DIGIT:
            j = _number_end(data, i, end, prefixes & _C_NUMBERS != 0)
            n = _emit(m, n, _hash_bytes(data, i, j), i, j, NUMBER)
            _put(state, _OPERAND, 1)
            i = j
        elif action == _LEAD:
            j = _open_region(m, i)
            if _get(state, _FLAGS) != 0:
                return j, n
            _put(state, _EXTRA, 0)
            if j == i:
                if _byte(data + i) > 32:
                    _put(state, _OPERAND, 0)
                j += 1
            i = j
        else:
            i = _punctuation(data, i, end, action, state)
            if _get(state, _FLAGS) != 0:
                return i, n
    return i, n


@njit(cache=True)
def _punctuation(data: int, i: int, end: int, action: int, state: int) -> int:
    """Past one byte of punctuation, or back into the string that holds this code."""
    held, byte = _get(state, _HELD), _byte(data + i)
    if action == _CLOSE:
        _put(state, _OPERAND, 1)
        if held > 0:
            if _get(state, _DEPTH) == 0 and byte == _BRACE_CLOSE:
                _release(state)
            else:
                _put(state, _DEPTH, max(_get(state, _DEPTH) - 1, 0))
    elif action != _LINE_END:
        _put(state, _OPERAND, 0)
        if held > 0:
            if action == _OPEN:
                _put(state, _DEPTH, _get(state, _DEPTH) + 1)
            elif action == _TO_TEXT and _get(state, _DEPTH) == 0 and _get(state, _STACK + 4 * (held - 1)) & _BRACE:
                if not (i + 1 < end and _byte(data + i + 1) == 61 and byte == 33):  # !=
                    _release(state)
    elif held > 0 and _get(state, _STACK + 4 * (held - 1)) & _ONE_LINE:
        _put(state, _HELD, 0)  # a string of one line ended unclosed: whatever held it is over too
        _put(state, _DEPTH, 0)
    return i + 1


@njit(cache=True)
def _region_text(m: Machine, i: int, n: int) -> tuple[int, int]:
    """Add words of a region to the block until it closes; where it stopped, and how many tokens the block has."""
    data, end, state, classes, lower = m.data, m.end, m.state, m.classes, m.lower
    while i < end and n < m.room:
        byte = _byte(data + i)
        if byte >= 128:
            h, j, following, run = _wide_text(data, i, end, _CASE, _get(state, _RUN), classes, lower)
            _put(state, _RUN, run)
            if j > i:
                n = _emit(m, n, h, i, j, TEXT)
            i = following
        elif _byte(classes + byte) == WORD:
            # After `$` the name is an identifier, see below: as it is, with what identifiers may have.
            h, j = _word(data, i, end, _CASE, UNDERSCORES, False, classes, lower)
            n = _emit(m, n, h, i, j, TEXT)
            _put(state, _RUN, 0)
            i = j
        elif byte == 32:
            _put(state, _RUN, 0)
            i += 1
        else:
            _put(state, _RUN, 0)
            following = _special(data, i, end, state)
            if following < 0:
                i += 1
                h, j = _word(data, i, end, _ZERO, m.word_byte, True, classes, lower)
                n = _emit(m, n, h, i, j, IDENTIFIER)
                i = j
                continue
            i = following
            if _get(state, _FLAGS) == 0:
                return i, n
    return i, n


@njit(cache=True)
def _special(data: int, i: int, end: int, state: int) -> int:
    """Past a byte of a region that is no word, closing the region or holding it where that byte says so.

    Returns:
        The next position, or -1 if a `$` stands before a name that is an identifier.
    """
    byte, flags = _byte(data + i), _get(state, _FLAGS)
    following = _byte(data + i + 1) if i + 1 < end else 0
    if byte == _NEWLINE and flags & _ONE_LINE:
        return _leave(state, i + 1)
    if byte == _BACKSLASH and flags & _ESCAPES:
        return i + 2 if 0 < following < 128 else i + 1
    if byte == _BACKSLASH and flags & _CONTINUES and following == _NEWLINE:
        return i + 2
    mask = U64(_get(state, _CLOSING_MASK))
    x = _load(data, i, end)
    if mask != _ZERO and (x & mask) == U64(_get(state, _CLOSING)) and _get(state, _IN_CLASS) == 0:
        return _close(data, i, end, mask, state)
    if flags & _NESTED and (x & U64(0xFFFF)) == U64(_get(state, _OPENING)):
        _put(state, _NESTING, _get(state, _NESTING) + 1)
        return i + 2
    if flags & _CLASSES:
        _put(state, _IN_CLASS, 1 if byte == _SQUARE_OPEN else 0 if byte == _SQUARE_CLOSE else _get(state, _IN_CLASS))
    return _interpolation(i, byte, following, flags, state)


@njit(cache=True)
def _interpolation(i: int, byte: int, following: int, flags: int, state: int) -> int:
    """Into the code that a string holds, if it begins at i."""
    if byte == _BRACE_OPEN and flags & _BRACE:
        if following == _BRACE_OPEN:
            return i + 2
        _hold(state)
        return i + 1
    if following == _BRACE_OPEN:
        opens = (byte == _DOLLAR and flags & _DOLLAR_BRACE) or (byte == _HASH and flags & _HASH_BRACE)
        if opens and _hold(state):
            return i + 2
    if byte == _DOLLAR and flags & _DOLLAR_NAME and (97 <= (following | 32) <= 122 or following == 95):
        return -1
    return i + 1


@njit(cache=True)
def _close(data: int, i: int, end: int, mask: np.uint64, state: int) -> int:
    """Past the closing bytes of a region at i, out of it unless it goes on."""
    size = _mask_bytes(mask)
    if _get(state, _FLAGS) & _DOUBLED and i + size < end and _byte(data + i + size) == _byte(data + i):
        return i + size + 1
    if _get(state, _FLAGS) & _NESTED:
        _put(state, _NESTING, _get(state, _NESTING) - 1)
        if _get(state, _NESTING) > 0:
            return i + size
    if _get(state, _FLAGS) & _CLASSES:  # the letters after a regular expression
        while i + size < end and 97 <= _byte(data + i + size) <= 122:
            size += 1
    return _leave(state, i + size)


@njit(cache=True)
def _leave(state: int, i: int) -> int:
    """Back into code."""
    if not _get(state, _FLAGS) & _COMMENT:
        _put(state, _OPERAND, 1)
    _put(state, _FLAGS, 0)
    return i


@njit(cache=True)
def begin_text(begin: int, lexer: int, syntax: SyntaxTables, state: Int64Array) -> None:
    """Make the state that of a text's first byte, at `begin`."""
    state[:] = 0
    state[_BEGIN] = begin
    if lexer >= FIRST_LANGUAGE and syntax.begins_in[lexer - FIRST_LANGUAGE] >= 0:
        region = syntax.begins_in[lexer - FIRST_LANGUAGE]
        _enter(np.int64(state.ctypes.data), np.int64(syntax.regions.ctypes.data) + 8 * REGION_WORDS * region, 0)


@njit(cache=True)
def machine(
    data: UInt8Array, end: int, lexer: int, syntax: SyntaxTables, words: WordTables, state: Int64Array, block: Block
) -> Machine:
    """The lexer of a text. The arrays must outlive it: it has but their addresses.

    Args:
        data: (N,) bytes, contiguous.
        end: position after the text's last byte.
        lexer: PROSE, GENERIC, or FIRST_LANGUAGE and more for the languages.
        syntax: descriptions of the languages.
        words: tables of all characters.
        state: (STATE_WORDS,) as `begin_text` or the call before has left it.
        block: what the tokens are written to, from its start at each call of `lex`.
    """
    language = max(lexer - FIRST_LANGUAGE, 0)
    return Machine(
        np.int64(data.ctypes.data),
        np.int64(end),
        np.int64(state.ctypes.data),
        np.int64(words.classes.ctypes.data),
        np.int64(words.lower.ctypes.data),
        np.int64(block.hashes.ctypes.data),
        np.int64(block.starts.ctypes.data),
        np.int64(block.ends.ctypes.data),
        np.int64(block.classes.ctypes.data),
        np.int64(block.hashes.size),
        np.int64(syntax.actions.ctypes.data) + 256 * language,
        np.int64(syntax.keywords.ctypes.data) + 8 * syntax_names.KEYWORD_SLOTS * language,
        np.int64(syntax.first_region.ctypes.data) + 8 * 257 * language,
        np.int64(syntax.regions.ctypes.data),
        np.int64(syntax.prefixes[language]),
        syntax.word_bytes[language],
    )


@njit(cache=True)
def lex(m: Machine, i: int, lexer: int) -> tuple[int, int]:
    """Fill the block with the next tokens of a text, from position i on.

    Returns:
        The position to go on from (the end when done), and the number of tokens.
    """
    if lexer < FIRST_LANGUAGE:
        return _prose(m, i, _CASE if lexer == PROSE else _ZERO)
    n = 0
    while i < m.end and n < m.room:
        if _get(m.state, _FLAGS) == 0:
            i, n = _code(m, i, n)
        else:
            i, n = _region_text(m, i, n)
    return i, n


class Counts(NamedTuple):
    """Distinct tokens.

    Attributes:
        hashes: (T,) uint64 finished hashes.
        starts: (T,) int64 position of the first occurrence.
        lengths: (T,) int32 bytes of it.
        counts: (T,) int32 occurrences.
    """

    hashes: UInt64Array
    starts: Int64Array
    lengths: Int32Array
    counts: Int32Array


@njit(cache=True)
def _new_counts(size: int) -> Counts:
    return Counts(
        np.empty(size, np.uint64), np.empty(size, np.int64), np.empty(size, np.int32), np.empty(size, np.int32)
    )


@njit(cache=True)
def _with_room(counts: Counts, used: int, more: int) -> Counts:
    """The same counts in arrays that have room for more."""
    if used + more <= counts.hashes.size:
        return counts
    wider = _new_counts(max(2 * counts.hashes.size, used + more))
    wider.hashes[:used], wider.starts[:used] = counts.hashes[:used], counts.starts[:used]
    wider.lengths[:used], wider.counts[:used] = counts.lengths[:used], counts.counts[:used]
    return wider


@njit(cache=True)
def _add(slots: int, slot_bits: int, h: np.uint64, start: int, length_and_count: int) -> int:
    """Add occurrences of a token; 1 if it is new, else 0.

    A slot is three words: hash (0: free), start, length << 32 | count. The top bits of a hash are its slot, so the slots
    are nearly sorted. Whether a token is new cannot be foreseen, so nothing branches on it.
    """
    slot = h >> U64(64 - slot_bits)
    mask = (_ONE << U64(slot_bits)) - _ONE
    at = slots + 24 * np.int64(slot)
    found = _eight_bytes(at)
    while found != h and found != _ZERO:
        slot = (slot + _ONE) & mask
        at = slots + 24 * np.int64(slot)
        found = _eight_bytes(at)
    first, sum_before = np.int64(_eight_bytes(at + 8)), np.int64(_eight_bytes(at + 16))
    known = found == h
    _store(at, h)
    _store(at + 8, first if known else start)
    _store(at + 16, sum_before + (length_and_count & 0xFFFFFFFF) if known else length_and_count)
    return 0 if known else 1


@njit(cache=True)
def _add_block(m: Machine, n: int, slots: int, slot_bits: int) -> int:
    """Add the first n tokens of the block; how many of them are new."""
    new = 0
    for k in range(n):
        start = np.int64(_eight_bytes(m.starts + 8 * k))
        length = np.int64(_eight_bytes(m.ends + 8 * k)) - start
        new += _add(slots, slot_bits, _eight_bytes(m.hashes + 8 * k), start, length << 32 | 1)
    return new


@njit(cache=True)
def _drain(slots: UInt64Array, slot_bits: int, out: Counts, at: int) -> int:
    """Move what is in the slots to `out` from `at` on, and leave them free; the position after it."""
    hashes, starts, lengths, counts = out
    for word in range(0, 3 << slot_bits, 3):
        h = slots[word]
        if h != _ZERO:
            hashes[at], starts[at] = h, np.int64(slots[word + 1])
            lengths[at], counts[at] = slots[word + 2] >> _S32, slots[word + 2] & U64(0xFFFFFFFF)
            slots[word] = _ZERO
            at += 1
    return at


@njit(cache=True)
def _insertion_sort(out: Counts, first: int, last: int) -> None:
    """Sort by hash what is nearly sorted."""
    hashes, starts, lengths, counts = out
    for i in range(first + 1, last):
        h = hashes[i]
        if hashes[i - 1] <= h:
            continue
        start, length, count = starts[i], lengths[i], counts[i]
        k = i
        while k > first and hashes[k - 1] > h:
            hashes[k], starts[k], lengths[k], counts[k] = hashes[k - 1], starts[k - 1], lengths[k - 1], counts[k - 1]
            k -= 1
        hashes[k], starts[k], lengths[k], counts[k] = h, start, length, count


@njit(cache=True)
def _finish_block(block: Block, n: int, salt: np.uint64) -> None:
    hashes = block.hashes
    for k in range(n):
        hashes[k] = finish(hashes[k], salt)


@njit(cache=True)
def _shingles(block: Block, n: int, held: Block, held_count: int, ended: bool) -> tuple[int, int]:
    """Replace the tokens of a block by the shingles that end in them.

    Args:
        block: finished tokens; afterwards shingles.
        n: how many.
        held: the tokens before them, as many as a shingle has; afterwards those that the next block needs.
        held_count: how many tokens of the text have been held so far, the shingle's number at most.
        ended: whether the text ends here; if it has fewer tokens than a shingle, all of them are one.

    Returns:
        Number of shingles, and the new `held_count`.
    """
    size, made = held.hashes.size, 0
    for k in range(n):
        if held_count == size:
            for j in range(size - 1):
                held.hashes[j], held.starts[j] = held.hashes[j + 1], held.starts[j + 1]
            held_count -= 1
        held.hashes[held_count], held.starts[held_count] = block.hashes[k], block.starts[k]
        held.ends[0] = block.ends[k]
        held_count += 1
        if held_count == size:
            block.hashes[made], block.starts[made] = _shingle_hash(held, size), held.starts[0]
            block.ends[made] = block.ends[k]
            made += 1
    if ended and 0 < held_count < size:
        block.hashes[0], block.starts[0] = _shingle_hash(held, held_count), held.starts[0]
        block.ends[0] = held.ends[0]
        made = 1
    return made, held_count


@njit(cache=True)
def _shingle_hash(held: Block, count: int) -> np.uint64:
    h = _ZERO
    for k in range(count):
        h = _step(h, held.hashes[k])
    return finish(h, _ZERO)


@njit(cache=True)
def count_texts(
    data: UInt8Array,
    offsets: Int64Array,
    lexers: UInt8Array,
    salts: UInt64Array,
    shingle_tokens: int,
    syntax: SyntaxTables,
    words: WordTables,
) -> tuple[Int64Array, Counts, int]:
    """Count the tokens of D texts.

    Memory beyond the result: a block of tokens, and slots for the distinct tokens of the largest text, 24 bytes each.

    Returns:
        (D + 1,) offsets into the counts, ascending in each text; the counts; how many they are.
    """
    texts = offsets.size - 1
    bounds = np.zeros(texts + 1, np.int64)
    block, held = _new_block(BLOCK_TOKENS), _new_block(shingle_tokens)
    state = np.empty(STATE_WORDS, np.int64)
    slots = np.zeros(3 << _SLOT_BITS, np.uint64)
    out = _new_counts(max(1024, (offsets[texts] - offsets[0]) // 8))
    total = 0
    for text in range(texts):
        i, end, lexer = offsets[text], offsets[text + 1], np.int64(lexers[text])
        begin_text(i, lexer, syntax, state)
        m = machine(data, end, lexer, syntax, words, state, block)
        used, held_count, slot_bits = 0, 0, _FEWEST_SLOT_BITS
        while i < end:
            i, n = lex(m, i, lexer)
            _finish_block(block, n, salts[text])
            if shingle_tokens > 1:
                n, held_count = _shingles(block, n, held, held_count, i >= end)
            if 4 * (used + n) > 3 << slot_bits:
                out = _with_room(out, total, used)
                _drain(slots, slot_bits, out, total)
                while 4 * (used + n) > 3 << slot_bits:
                    slot_bits += 1
                if 3 << slot_bits > slots.size:
                    slots = np.zeros(3 << slot_bits, np.uint64)
                address = np.int64(slots.ctypes.data)
                for k in range(total, total + used):
                    counted = np.int64(out.lengths[k]) << 32 | np.int64(out.counts[k])
                    _add(address, slot_bits, out.hashes[k], out.starts[k], counted)
            used += _add_block(m, n, np.int64(slots.ctypes.data), slot_bits)
        out = _with_room(out, total, used)
        _drain(slots, slot_bits, out, total)
        _insertion_sort(out, total, total + used)
        total += used
        bounds[text + 1] = total
    return bounds, out, total


def tokens_of(text: bytes, lexer: int) -> Block:
    """Every token of one text in order, for people and tests; columns are counted by `count_texts`.

    Args:
        text: UTF-8.
        lexer: its code, see `lexers`.
    """
    syntax, words = syntax_tables(), word_tables()
    data, state, block = np.frombuffer(text, np.uint8), np.empty(STATE_WORDS, np.int64), _new_block(BLOCK_TOKENS)
    begin_text(0, lexer, syntax, state)
    reader = machine(data, len(text), lexer, syntax, words, state, block)
    position, parts = 0, [Block(*(array[:0] for array in block))]
    while position < len(text):
        position, count = lex(reader, position, lexer)
        parts.append(Block(*(array[:count].copy() for array in block)))
    return Block(*map(np.concatenate, zip(*parts, strict=True)))

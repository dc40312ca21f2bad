"""Recognise where comments and strings begin and end, and where code inside of a string does.

The state of a lexer says which region it is in: flags (0 is code), closing bytes, and a stack of the strings around the
present code. Functions that take a position return the one to go on from, never beyond the end of the text.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from headrace.kernels.compiling import inner
from headrace.kernels.memory import byte_at, eight_bytes_at
from spark_jobs.lexing.language_syntax import (
    CLOSE,
    FORMAT_START,
    LINE_END,
    OPEN,
    REGION_WORDS,
    Flag,
    QuoteRules,
)
from spark_jobs.lexing.machine import (
    BEGIN,
    BRACE_DEPTH,
    CLOSING,
    CLOSING_MASK,
    EXTRA,
    FLAGS,
    IN_CLASS,
    IN_SCRIPT,
    MAX_STRING_DEPTH,
    NESTING,
    OPENING,
    OPERAND,
    STACK,
    STRING_DEPTH,
    U64,
    Machine,
    get_state,
    put_state,
)
from spark_jobs.lexing.words import EIGHT, ONE, ZERO, decode_at, load_eight

# Flags as plain numbers, since Numba does not support IntFlag.
REGION, COMMENT, ONE_LINE, ESCAPES = map(int, (Flag.REGION, Flag.COMMENT, Flag.ONE_LINE, Flag.ESCAPES))
CONTINUES, DOUBLED, NESTED, CLASSES = map(int, (Flag.CONTINUES, Flag.DOUBLED, Flag.NESTED, Flag.CLASSES))
DOLLAR_BRACE, BRACE, HASH_BRACE = map(int, (Flag.DOLLAR_BRACE, Flag.BRACE, Flag.HASH_BRACE))
DOLLAR_NAME, AFTER_SPACE, LINE_START = map(int, (Flag.DOLLAR_NAME, Flag.AFTER_SPACE, Flag.LINE_START))
PYTHON, FAMILY_C, RUST, REGEX = map(int, (QuoteRules.PYTHON, QuoteRules.C, QuoteRules.RUST, QuoteRules.REGEX))

NEWLINE, QUOTE, APOSTROPHE, BACKSLASH, SLASH, HASH, DOLLAR = (ord(character) for character in "\n\"'\\/#$")
BRACE_OPEN, BRACE_CLOSE, SQUARE_OPEN, SQUARE_CLOSE = (ord(character) for character in "{}[]")
# Bytes that are searched for the end of a regular expression.
LONGEST_REGEX: Final = 4096


@inner
def enter_region(state: int, region: int, extra: int) -> None:
    """Go from code into a region of the language's table; `region` is the address of its five numbers."""
    enter_custom_region(
        state, eight_bytes_at(region + 16), eight_bytes_at(region + 24), np.int64(eight_bytes_at(region + 32)) | extra
    )
    put_state(state, OPENING, np.int64(eight_bytes_at(region)))


@inner
def enter_custom_region(state: int, closing: np.uint64, mask: np.uint64, flags: int) -> None:
    """Go from code into a region that no table describes: a raw string, a character literal, a regular expression."""
    put_state(state, FLAGS, REGION | flags)
    put_state(state, CLOSING, np.int64(closing))
    put_state(state, CLOSING_MASK, np.int64(mask))
    put_state(state, NESTING, 1)
    put_state(state, IN_CLASS, 0)
    put_state(state, IN_SCRIPT, 0)


@inner
def _bytes_mask(byte_count: int) -> np.uint64:
    return ~ZERO if byte_count >= 8 else (ONE << U64(8 * byte_count)) - ONE


@inner
def mask_bytes(mask: np.uint64) -> int:
    """The number of bytes that a mask selects."""
    size = 0
    while mask != ZERO:
        mask >>= EIGHT
        size += 1
    return size


@inner
def enter_code_in_string(state: int) -> bool:
    """Go from a string into the code inside of it; false where strings are nested too deeply already."""
    depth = get_state(state, STRING_DEPTH)
    if depth == MAX_STRING_DEPTH:
        return False
    at = STACK + 4 * depth
    put_state(state, at, get_state(state, FLAGS))
    put_state(state, at + 1, get_state(state, CLOSING))
    put_state(state, at + 2, get_state(state, CLOSING_MASK))
    put_state(state, at + 3, get_state(state, BRACE_DEPTH))
    put_state(state, STRING_DEPTH, depth + 1)
    put_state(state, BRACE_DEPTH, 0)
    put_state(state, FLAGS, 0)
    put_state(state, OPERAND, 0)
    return True


@inner
def return_to_string(state: int) -> None:
    """Go from code back into the string around it."""
    put_state(state, STRING_DEPTH, get_state(state, STRING_DEPTH) - 1)
    at = STACK + 4 * get_state(state, STRING_DEPTH)
    put_state(state, FLAGS, get_state(state, at))
    put_state(state, CLOSING, get_state(state, at + 1))
    put_state(state, CLOSING_MASK, get_state(state, at + 2))
    put_state(state, BRACE_DEPTH, get_state(state, at + 3))
    put_state(state, IN_SCRIPT, 0)


@inner
def punctuation(data: int, i: int, end: int, action: int, state: int) -> int:
    """Go past a byte of punctuation or a line end in code, or back into the string around the code that it ends."""
    depth, byte = get_state(state, STRING_DEPTH), byte_at(data + i)
    if action == CLOSE:
        put_state(state, OPERAND, 1)
        if depth > 0:
            if get_state(state, BRACE_DEPTH) == 0 and byte == BRACE_CLOSE:
                return_to_string(state)
            else:
                put_state(state, BRACE_DEPTH, max(get_state(state, BRACE_DEPTH) - 1, 0))
    elif action != LINE_END:
        put_state(state, OPERAND, 0)
        if depth > 0:
            string_flags = get_state(state, STACK + 4 * (depth - 1))
            if action == OPEN:
                put_state(state, BRACE_DEPTH, get_state(state, BRACE_DEPTH) + 1)
            elif action == FORMAT_START and get_state(state, BRACE_DEPTH) == 0 and string_flags & BRACE:
                differs = byte == 33 and i + 1 < end and byte_at(data + i + 1) == 61  # !=
                if not differs:
                    return_to_string(state)
    elif depth > 0 and get_state(state, STACK + 4 * (depth - 1)) & ONE_LINE:
        # The string around this code must end on its line and was not closed: it ends here, and all around it.
        put_state(state, STRING_DEPTH, 0)
        put_state(state, BRACE_DEPTH, 0)
    return i + 1


@inner
def open_region(m: Machine, i: int) -> int:
    """Enter the region that opens at i, if one does; the position after its opening bytes, or i."""
    data, end, state = m.data, m.end, m.state
    byte, x = byte_at(data + i), load_eight(data, i, end)
    first = np.int64(eight_bytes_at(m.first_region + 8 * byte))
    last = np.int64(eight_bytes_at(m.first_region + 8 * byte + 8))
    for number in range(first, last):
        region = m.regions + 8 * REGION_WORDS * number
        mask = eight_bytes_at(region + 8)
        if (x & mask) != eight_bytes_at(region):
            continue
        flags = np.int64(eight_bytes_at(region + 32))
        if flags & (AFTER_SPACE | LINE_START) and not _may_open(data, i, flags, state):
            continue
        enter_region(state, region, get_state(state, EXTRA))
        put_state(state, EXTRA, 0)
        return i + mask_bytes(mask)
    if m.prefixes & RUST and byte == APOSTROPHE:
        return _rust_quote(data, i, end, state)
    regex = m.prefixes & REGEX and byte == SLASH and get_state(state, OPERAND) == 0
    if regex and _regex_closes(data, i, end):
        enter_custom_region(state, U64(SLASH), U64(255), ONE_LINE | ESCAPES | CLASSES)
        return i + 1
    return i


@inner
def _may_open(data: int, i: int, flags: int, state: int) -> bool:
    """Whether a region that opens only at the begin of a word, or of a line, may open at i."""
    if i == get_state(state, BEGIN):
        return True
    before = byte_at(data + i - 1)
    if flags & LINE_START:
        return before == NEWLINE
    return before <= 32 or before in (40, 59)  # ( ;


@inner
def _rust_quote(data: int, i: int, end: int, state: int) -> int:
    """Go past an apostrophe of Rust: into a character literal, or to the name of a lifetime."""
    if i + 1 < end and byte_at(data + i + 1) != BACKSLASH:
        _, size = decode_at(data, i + 1, end)
        if not (i + 1 + size < end and byte_at(data + i + 1 + size) == APOSTROPHE):
            return i + 1
    enter_custom_region(state, U64(APOSTROPHE), U64(255), ONE_LINE | ESCAPES)
    return i + 1


@inner
def _regex_closes(data: int, i: int, end: int) -> bool:
    """Whether a regular expression that begins at the slash at i is closed on its line."""
    in_class = False
    k = i + 1
    while k < end and k - i < LONGEST_REGEX and byte_at(data + k) != NEWLINE:
        if byte_at(data + k) == BACKSLASH:
            k += 1
        elif byte_at(data + k) == SQUARE_OPEN:
            in_class = True
        elif byte_at(data + k) == SQUARE_CLOSE:
            in_class = False
        elif byte_at(data + k) == SLASH and not in_class:
            return k > i + 1
        k += 1
    return False


@inner
def string_prefix(data: int, i: int, j: int, end: int, prefixes: int, state: int) -> int:
    """The position to go on from if the letters from i to j are the prefix of a string literal, else 0."""
    quote = byte_at(data + j)
    if quote not in (QUOTE, APOSTROPHE, HASH):
        return 0
    quoted, last = quote != HASH, byte_at(data + j - 1)
    if prefixes & PYTHON and quoted:
        interpolated = False
        for k in range(i, j):
            letter = byte_at(data + k) | 32
            if letter not in (98, 102, 114, 116, 117):
                return 0
            interpolated = interpolated or letter in (102, 116)
        put_state(state, EXTRA, BRACE if interpolated else 0)
        return j
    if prefixes & FAMILY_C and quoted:
        if last == 82 and byte_at(data + j) == QUOTE:  # R
            return _raw_string(data, j, end, prefixes, state)
        ends_as_prefix = last in (76, 85) or (last == 117 and j == i + 1)  # L U u
        utf8 = j == i + 2 and byte_at(data + i) == 117 and last == 56  # u8
        return j if utf8 or (ends_as_prefix and j == i + 1) else 0
    if prefixes & RUST:
        if last == 114 and (j == i + 1 or (j == i + 2 and byte_at(data + i) in (98, 99))):  # r br cr
            following = _raw_string(data, j, end, prefixes, state)
            raw_name = following == 0 and j == i + 1 and byte_at(data + j) == HASH  # r#type
            return j + 1 if raw_name else following
        return j if quoted and j == i + 1 and last in (98, 99) else 0
    return 0


@inner
def _raw_string(data: int, quote: int, end: int, prefixes: int, state: int) -> int:
    """Enter a raw string of C++ (at its quote) or Rust (at quote or hashes); where its text begins, 0 if none does."""
    closing, size = ZERO, 0
    if prefixes & RUST:
        closing, size, k = U64(QUOTE), 1, quote
        while k < end and byte_at(data + k) == HASH:
            if size < 8:
                closing |= U64(HASH) << U64(8 * size)
                size += 1
            k += 1
        if k == end or byte_at(data + k) != QUOTE:
            return 0
    else:
        closing, size, k = U64(41), 1, quote + 1
        while k < end and k - quote < 18 and byte_at(data + k) != 40 and byte_at(data + k) > 32:
            if size < 8:
                closing |= U64(byte_at(data + k)) << U64(8 * size)
                size += 1
            k += 1
        if k == end or byte_at(data + k) != 40:
            return 0
        if size < 8:
            closing |= U64(QUOTE) << U64(8 * size)
            size += 1
    enter_custom_region(state, closing, _bytes_mask(size), 0)
    return k + 1


@inner
def step_in_region(data: int, i: int, end: int, state: int) -> int:
    """Go past a byte inside of a region that belongs to no word; it may close the region or begin code inside of it.

    Returns:
        The next position, or -1 if a `$` stands before a name that is an identifier.
    """
    byte, flags = byte_at(data + i), get_state(state, FLAGS)
    following = byte_at(data + i + 1) if i + 1 < end else 0
    if byte == NEWLINE and flags & ONE_LINE:
        return _leave(state, i + 1)
    if byte == BACKSLASH and flags & ESCAPES:
        return i + 2 if 0 < following < 128 else i + 1
    if byte == BACKSLASH and flags & CONTINUES and following == NEWLINE:
        return i + 2
    mask = U64(get_state(state, CLOSING_MASK))
    x = load_eight(data, i, end)
    if mask != ZERO and (x & mask) == U64(get_state(state, CLOSING)) and get_state(state, IN_CLASS) == 0:
        return _close(data, i, end, mask, state)
    if flags & NESTED and (x & U64(0xFFFF)) == U64(get_state(state, OPENING)):
        put_state(state, NESTING, get_state(state, NESTING) + 1)
        return i + 2
    if flags & CLASSES:
        put_state(
            state, IN_CLASS, 1 if byte == SQUARE_OPEN else 0 if byte == SQUARE_CLOSE else get_state(state, IN_CLASS)
        )
    return _interpolation(i, byte, following, flags, state)


@inner
def _interpolation(i: int, byte: int, following: int, flags: int, state: int) -> int:
    """Go into code inside of a string, if it begins at i."""
    if byte == BRACE_OPEN and flags & BRACE:
        if following == BRACE_OPEN:
            return i + 2
        enter_code_in_string(state)
        return i + 1
    if following == BRACE_OPEN:
        opens = (byte == DOLLAR and flags & DOLLAR_BRACE) or (byte == HASH and flags & HASH_BRACE)
        if opens and enter_code_in_string(state):
            return i + 2
    if byte == DOLLAR and flags & DOLLAR_NAME and (97 <= (following | 32) <= 122 or following == 95):
        return -1
    return i + 1


@inner
def _close(data: int, i: int, end: int, mask: np.uint64, state: int) -> int:
    """Go past the closing bytes at i, and leave the region unless they are doubled or close a nested one."""
    size = mask_bytes(mask)
    if get_state(state, FLAGS) & DOUBLED and i + size < end and byte_at(data + i + size) == byte_at(data + i):
        return i + size + 1
    if get_state(state, FLAGS) & NESTED:
        put_state(state, NESTING, get_state(state, NESTING) - 1)
        if get_state(state, NESTING) > 0:
            return i + size
    if get_state(state, FLAGS) & CLASSES:  # the letters after a regular expression
        while i + size < end and 97 <= byte_at(data + i + size) <= 122:
            size += 1
    return _leave(state, i + size)


@inner
def _leave(state: int, i: int) -> int:
    """Go from a region back into code."""
    if not get_state(state, FLAGS) & COMMENT:
        put_state(state, OPERAND, 1)
    put_state(state, FLAGS, 0)
    return i

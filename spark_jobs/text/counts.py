"""What compiled code counts in the texts of a column: characters by class, words, lines, marks of Markdown.

Every function takes (D,) strings, none of them null, and looks at each text alone.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.compiling import compiled, inner
from headrace.kernels.memory import byte_at, eight_bytes_at, four_bytes_at, trailing_zeros
from headrace.kernels.mixing import mix64
from headrace.kernels.utf8 import Integer, code_point, width
from spark_jobs.arrays import BoolArray, Int64Array, UInt8Array
from spark_jobs.text.characters import (
    ALPHABETIC,
    DECIMAL,
    FIRST_SPACELESS,
    NUMERIC,
    SPACE,
    SPACELESS_WORD_LENGTHS,
    SYLLABLE_END,
    character_classes,
)
from spark_jobs.text.text_columns import utf8_arrays

COUNTS: Final = np.dtype(
    [
        *((name, np.int64) for name in ("characters", "spaces", "letters", "decimals", "numerics", "words")),
        *((name, np.int64) for name in ("line_ends", "longest_line", "last_line", "two_bytes", "more_bytes")),
        ("spaceless", np.int64, len(SPACELESS_WORD_LENGTHS)),
    ]
)
"""Characters; those of them that are white space, letters and marks (of scripts with spaces between words), decimal
digits, other numbers; words between spaces; LFs; characters of the longest line with an LF and of the last one without;
characters of two bytes in UTF-8 and of more; letters of each group of scripts without spaces between words."""
_LF, _BLANK, _TAB, _NUMBER_SIGN, _BACKTICK, _TILDE = (ord(one) for one in "\n \t#`~")
_LFS, _ONES, _TOPS = (np.uint64(byte * 0x0101010101010101) for byte in (_LF, 1, 0x80))
_SMALL = 0x20202020  # makes four capital letters small ones
_mixed = inner(mix64)


def counts(content: pa.Array) -> Any:
    """(D,) `COUNTS` of each text."""
    data, offsets = utf8_arrays(content)
    is_ascii = pc.string_is_ascii(content).to_numpy(zero_copy_only=False)
    table = np.zeros((len(content), COUNTS.itemsize // np.dtype(np.int64).itemsize), np.int64)
    _count_ascii(data, offsets, is_ascii, table)
    if not is_ascii.all():
        _count(data, offsets, is_ascii, character_classes(), table)
    return table.view(COUNTS)[:, 0]


def repeated_lines(content: pa.Array) -> tuple[Int64Array, Int64Array]:
    """(D,) lines that repeat an earlier line of their text, and (D,) lines; empty ones are in neither."""
    data, offsets = utf8_arrays(content)
    repeated, filled = np.zeros(len(content), np.int64), np.zeros(len(content), np.int64)
    _count_repeated(data, offsets, repeated, filled)
    return repeated, filled


def may_be_generated(content: pa.Array, head_bytes: int) -> BoolArray:
    """(D,) whether "generated" or "do not" stands in the first bytes, in any case; true of a few others too."""
    data, offsets = utf8_arrays(content)
    words = [int.from_bytes(word[:4], "little") for word in (b"generated", b"do not")]
    is_generated = np.zeros(len(content), np.bool_)
    _find_words(data, offsets, head_bytes, *words, is_generated)
    return is_generated


def markdown_counts(content: pa.Array, is_marked: BoolArray) -> tuple[Int64Array, Int64Array]:
    """(D,) headings and (D,) blocks of code that Markdown marks in the texts of `is_marked`."""
    data, offsets = utf8_arrays(content)
    headings, blocks = np.zeros(len(content), np.int64), np.zeros(len(content), np.int64)
    _count_marks(data, offsets, is_marked, headings, blocks)
    return headings, blocks


@compiled
def _count_ascii(data: UInt8Array, offsets: Int64Array, is_ascii: BoolArray, table: Int64Array) -> None:
    """Of the texts that are ASCII: without a table, so that many bytes are looked at at once."""
    base = np.int64(data.ctypes.data)
    for row in range(len(is_ascii)):
        start, stop = offsets[row], offsets[row + 1]
        if not is_ascii[row] or start == stop:
            continue
        spaces: Integer = 0
        letters: Integer = 0
        decimals: Integer = 0
        words = np.int64(not _is_space(data[start]))
        for at in range(start, stop):
            spaces += _is_space(data[at])
            # in eight bits what is below wraps around: one compare
            letters += np.uint8((data[at] | 0x20) - ord("a")) < 26
            decimals += np.uint8(data[at] - ord("0")) < 10
        for at in range(start + 1, stop):
            words += _is_space(data[at - 1]) & (not _is_space(data[at]))
        line_ends, longest, line = 0, 0, base + start
        end = _line_end(line, base + stop)
        while end < base + stop:
            line_ends += 1
            longest = max(longest, end - line)
            line = end + 1
            end = _line_end(line, base + stop)
        table[row, 0], table[row, 1], table[row, 2], table[row, 3] = stop - start, spaces, letters, decimals
        table[row, 5], table[row, 6], table[row, 7], table[row, 8] = words, line_ends, longest, base + stop - line


@inner(inline="always")
def _is_space(byte: int) -> Any:
    """Whether an ASCII character is white space as `str.isspace` has it."""
    return (byte == _BLANK) | (np.uint8(byte - 9) < 5) | (np.uint8(byte - 28) < 4)


@inner
def _line_end(at: int, stop: int) -> Integer:
    """The address of the first LF from an address on; `stop` where there is none before it."""
    while at + 8 <= stop:
        word = eight_bytes_at(at) ^ _LFS
        ends = (word - _ONES) & ~word & _TOPS  # the lowest one bit is that of the first LF
        if ends:
            return at + np.int64(trailing_zeros(ends) >> np.uint64(3))
        at += 8
    while at < stop and byte_at(at) != _LF:
        at += 1
    return at


@compiled
def _count(data: UInt8Array, offsets: Int64Array, is_ascii: BoolArray, classes: UInt8Array, table: Int64Array) -> None:
    """Of the other texts."""
    for row in range(len(offsets) - 1):
        if is_ascii[row]:
            continue
        at, stop = offsets[row], offsets[row + 1]
        characters = spaces = letters = decimals = numerics = words = line_ends = longest = line_start = 0
        two: Integer = 0
        more: Integer = 0
        previous = np.uint8(SPACE)
        while at < stop:
            lead = data[at]
            point = np.int64(lead) if lead < 0x80 else code_point(data, at)
            kind = classes[point]
            at += width(lead)
            two += 0x80 <= point < 0x800
            more += point >= 0x800
            spaces += kind == SPACE
            letters += kind == ALPHABETIC
            decimals += kind == DECIMAL
            words += (kind != SPACE) & (previous == SPACE) & (kind < FIRST_SPACELESS)
            if kind >= NUMERIC and kind != SPACE:
                numerics += kind == NUMERIC
                if kind >= FIRST_SPACELESS:
                    table[row, 11 + kind - FIRST_SPACELESS] += 1
            if previous >= SYLLABLE_END:  # a letter or number begins a word after these
                words += ALPHABETIC <= kind <= NUMERIC
            if point == _LF:
                line_ends += 1
                longest = max(longest, characters - line_start)
                line_start = characters + 1
            characters += 1
            previous = kind
        table[row, 0], table[row, 1], table[row, 2], table[row, 3] = characters, spaces, letters, decimals
        table[row, 4], table[row, 5], table[row, 6], table[row, 7] = numerics, words, line_ends, longest
        table[row, 8], table[row, 9], table[row, 10] = characters - line_start, two, more


@compiled
def _count_repeated(data: UInt8Array, offsets: Int64Array, repeated: Int64Array, filled: Int64Array) -> None:
    """By a table of each text's lines, with their bytes compared where hashes are equal."""
    slots = np.zeros((64, 4), np.int64)  # of a text (from 1), hash, first byte and length of a line
    base = np.int64(data.ctypes.data)
    for row in range(len(repeated)):
        start, stop, used = offsets[row], offsets[row + 1], 0
        while start < stop:
            end = _line_end(base + start, base + stop) - base
            if end > start:
                filled[row] += 1
                if 2 * (used + 1) > len(slots):
                    slots = _grown(slots, row + 1)
                used += _is_new(slots, row + 1, base, start, end - start)
            start = end + 1
        repeated[row] = filled[row] - used


@inner
def _grown(slots: Int64Array, text: int) -> Int64Array:
    """A table twice as large, with the lines of a text."""
    grown = np.zeros((2 * len(slots), 4), np.int64)
    mask = len(grown) - 1
    for old in range(len(slots)):
        if slots[old, 0] == text:
            slot = slots[old, 1] & mask
            while grown[slot, 0] == text:
                slot = (slot + 1) & mask
            grown[slot] = slots[old]
    return grown


@inner
def _is_new(slots: Int64Array, text: int, base: int, start: int, length: int) -> Integer:
    """1 where a line is not in the table, which it is added to; else 0."""
    hashed = _hash(base + start, length)
    mask = len(slots) - 1
    slot = hashed & mask
    while slots[slot, 0] == text:
        same = slots[slot, 1] == hashed and slots[slot, 3] == length
        if same and _are_equal(base + slots[slot, 2], base + start, length):
            return 0
        slot = (slot + 1) & mask
    slots[slot, 0], slots[slot, 1], slots[slot, 2], slots[slot, 3] = text, hashed, start, length
    return 1


@inner
def _hash(at: int, length: int) -> Integer:
    state, end = np.uint64(length), at + length
    while at + 8 <= end:
        state = _mixed(state ^ eight_bytes_at(at))
        at += 8
    rest = np.uint64(0)
    while at < end:
        rest = (rest << np.uint64(8)) | np.uint64(byte_at(at))
        at += 1
    return np.int64(_mixed(state ^ rest) >> np.uint64(1))  # 63 bits: no sign


@inner
def _are_equal(left: int, right: int, length: int) -> bool:
    at = 0
    while at + 8 <= length:
        if eight_bytes_at(left + at) != eight_bytes_at(right + at):
            return False
        at += 8
    while at < length:
        if byte_at(left + at) != byte_at(right + at):
            return False
        at += 1
    return True


@compiled
def _find_words(
    data: UInt8Array, offsets: Int64Array, head_bytes: int, first: np.uint64, second: np.uint64, has_words: BoolArray
) -> None:
    """By the first four letters of two words."""
    base = np.int64(data.ctypes.data)
    for row in range(len(has_words)):
        is_there = False
        for at in range(base + offsets[row], base + min(offsets[row + 1], offsets[row] + head_bytes) - 3):
            four = four_bytes_at(at) | _SMALL
            is_there |= (four == first) | (four == second)
        has_words[row] = is_there


@compiled
def _count_marks(
    data: UInt8Array, offsets: Int64Array, is_marked: BoolArray, headings: Int64Array, blocks: Int64Array
) -> None:
    base = np.int64(data.ctypes.data)
    for row in range(len(is_marked)):
        if not is_marked[row]:
            continue
        at, stop, fence = offsets[row], offsets[row + 1], 0
        while at < stop:
            mark = _mark(data, at, stop)
            if fence:
                if (mark >= fence > 0) or (mark <= fence < 0):
                    fence = 0
            elif mark == 1:
                headings[row] += 1
            elif mark:
                blocks[row] += 1
                fence = mark
            at = _line_end(base + at, base + stop) - base + 1


@inner
def _mark(data: UInt8Array, at: int, stop: int) -> Integer:
    """What a line is to Markdown: 1 a heading, from 3 on a fence of so many backticks, below 0 of tildes, else 0."""
    first = at
    while at < stop and at - first < 3 and data[at] == _BLANK:
        at += 1
    if at == stop:
        return 0
    sign, begin = data[at], at
    if sign not in (_NUMBER_SIGN, _BACKTICK, _TILDE):
        return 0
    while at < stop and data[at] == sign:
        at += 1
    count = at - begin
    if sign != _NUMBER_SIGN:
        return 0 if count < 3 else count if sign == _BACKTICK else -count
    if count > 6 or at == stop or data[at] not in (_BLANK, _TAB):  # Markdown has six levels
        return 0
    while at < stop and data[at] in (_BLANK, _TAB):
        at += 1
    return 1 if at < stop and not (9 <= data[at] <= 13) else 0

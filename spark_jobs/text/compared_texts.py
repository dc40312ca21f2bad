r"""What texts are compared by: the letters of prose, the lines of other kinds; a whole column in compiled code.

Prose is compared by its letters alone, regardless of case, white space and punctuation:

1. Each character is lower-cased by Unicode's full mapping (`str.lower`); a final sigma counts as sigma.
2. White space, punctuation, control and format characters are left out (general categories Z*, P*, Cc, Cf). Symbols
   (S*: `+ < = > $ ^ | ~` and the backtick), numbers, `%` and everything else stay.
3. Characters that change a number stay too: a dash, `/` or `*` beside it, a point or comma before it, and all between
two numbers without a letter between them, white space there as one space. Signs of currencies, `%` and degrees
count as numbers.

    'Hello, World!\n'                 ->  'helloworld'  ->  SHA-256 of these ten bytes
    'From -1.25 to 3/4, at 12:30.'    ->  'from-1.25to3/4at12:30'

In code, markup and data every mark, case and indent may matter: only spaces at ends of lines and blank lines are left
out. Short texts such as `return 0;` are equal by chance, so there is no hash of fewer than `min_letters` characters.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.compiling import compiled, inner
from headrace.kernels.sha256 import sha256_digits
from headrace.kernels.utf8 import Integer, code_point, width
from spark_jobs.arrays import BoolArray, Int32Array, Int64Array, UInt8Array
from spark_jobs.sources.reading.record_rows import digit_strings
from spark_jobs.text.characters import COUNTED, GAP, INVISIBLE, NUMBER, POINT, SIGN, comparison_classes
from spark_jobs.text.text_columns import utf8_arrays
from spark_jobs.threads import made_once

_KIND_BITS: Final = 3
_KIND: Final = (1 << _KIND_BITS) - 1
_BLOCK: Final = 0x80  # characters that are lower-cased together
_SEVERAL: Final = 7  # in place of a class: the character is lower-cased to several
_SPACE, _LF = ord(" "), ord("\n")


def letters_column(content: pa.Array, kinds: pa.Array, min_letters: int) -> pa.Array:
    """(D,) SHA-256 of what each text is compared by; null where fewer than `min_letters` characters remain.

    Args:
        content: (D,) strings, none of them null.
        kinds: (D,) kinds: code, prose, markup or data.
        min_letters: fewest characters that a hash is given for.
    """
    data, starts, ends = compared_texts(content, kinds)
    lengths = ends - starts
    has_hash = lengths >= min_letters
    # A character has 1 to 4 bytes, so characters are counted only where the number of bytes does not decide.
    for row in np.flatnonzero(has_hash & (lengths < 4 * min_letters)).tolist():
        characters = np.count_nonzero((data[starts[row] : ends[row]] & 0xC0) != 0x80)
        has_hash[row] = characters >= min_letters
    digits = sha256_digits(data, np.where(has_hash, starts, -1), ends)
    hashes = digit_strings(digits)
    return hashes if has_hash.all() else hashes.take(pa.array(np.cumsum(has_hash) - 1, mask=~has_hash))


def compared_texts(content: pa.Array, kinds: pa.Array) -> tuple[UInt8Array, Int64Array, Int64Array]:
    """The part of each text that is compared, as the module defines it for its kind.

    Args:
        content: (D,) strings, none of them null.
        kinds: (D,) kinds: code, prose, markup or data.

    Returns:
        Bytes of UTF-8, and (D,) first ones and (D,) ones after the last of each text.
    """
    data, offsets = utf8_arrays(content)
    is_prose = pc.equal(kinds, "prose").to_numpy(zero_copy_only=False)
    is_ascii = pc.all(pc.string_is_ascii(content), min_count=0).as_py()
    letters, several = _letters(0x80 if is_ascii else 0x110000)
    # What a character of two bytes is lower-cased to has three at most; none of more bytes grows.
    compared = np.empty((offsets[-1] - offsets[0]) * 3 // 2 + len(offsets), np.uint8)
    bounds = np.zeros(len(offsets), np.int64)
    _compare(data, offsets, is_prose, _plain_letters(), letters, several, compared, bounds)
    return compared, bounds[:-1], bounds[1:]


@made_once
def _letters(count: int) -> tuple[Int32Array, Int32Array]:
    """What the characters of prose count as.

    Args:
        count: how many code points from 0 on.

    Returns:
        (count,) by code point: its lower case, and in the lowest bits the class of that; or a place in the second
        array, and `_SEVERAL`. The second array has such values too, and 0 after the last one of each character.
    """
    classes = comparison_classes(count)
    letters, several = np.empty(count, np.int32), [0]
    for first in range(0, count, _BLOCK):
        lower = _lower("".join(map(chr, range(first, first + _BLOCK))))
        if len(lower) == _BLOCK:  # else one of them has a lower case of several
            letters[first : first + _BLOCK] = lower << _KIND_BITS | classes[lower]
            continue
        for point in range(first, first + _BLOCK):
            lower = _lower(chr(point))
            values = lower << _KIND_BITS | classes[lower]
            letters[point] = values[0]
            if len(values) > 1:
                letters[point] = len(several) << _KIND_BITS | _SEVERAL
                several += [*values.tolist(), 0]
    columns = letters, np.array(several, np.int32)
    for array in columns:
        array.flags.writeable = False
    return columns


def _lower(text: str) -> Int32Array:
    """Code points of the lower case of a text, in which a final sigma counts as sigma."""
    lower = text.lower().replace("ς", "σ")
    return np.frombuffer(lower.encode("utf-32-le", "surrogatepass"), np.int32)


@made_once
def _plain_letters() -> UInt8Array:
    """(256,) the lower case of the bytes that are an ASCII character which always counts; 0 for all others."""
    letters, _ = _letters(0x80)
    plain = np.zeros(256, np.uint8)
    plain[:0x80] = np.where(letters & _KIND == COUNTED, letters >> _KIND_BITS, 0)
    plain.flags.writeable = False
    return plain


@compiled
def _compare(
    data: UInt8Array,
    offsets: Int64Array,
    is_prose: BoolArray,
    plain: UInt8Array,
    letters: Int32Array,
    several: Int32Array,
    compared: UInt8Array,
    bounds: Int64Array,
) -> None:
    """Write what texts are compared by one after another; `bounds` tells where each ends."""
    end = np.int64(0)
    for row in range(len(is_prose)):
        if is_prose[row]:
            end = _write_letters(data, offsets[row], offsets[row + 1], plain, letters, several, compared, end)
        else:
            end = _write_lines(data, offsets[row], offsets[row + 1], compared, end)
        bounds[row + 1] = end


@inner
def _write_lines(data: UInt8Array, at: int, stop: int, compared: UInt8Array, end: int) -> Integer:
    """Write the lines of a text without spaces at their ends, and none that is blank; gives where they end."""
    first, filled = end, end  # of what is written: the text, and of its line all but the spaces at its end
    while at < stop:
        value = data[at]
        at += 1
        if value == _LF:
            end = filled
            if end > first and compared[end - 1] != _LF:
                compared[end] = _LF
                end += 1
            filled = end
        else:
            compared[end] = value
            end += 1
            if value != _SPACE:
                filled = end
    return filled - 1 if filled > first and compared[filled - 1] == _LF else filled


@inner
def _write_letters(
    data: UInt8Array,
    at: int,
    stop: int,
    plain: UInt8Array,
    letters: Int32Array,
    several: Int32Array,
    compared: UInt8Array,
    end: int,
) -> Integer:
    """Write the letters of a text; gives where they end.

    After a number a gap is written as it is between two numbers, and taken back where no number follows.
    """
    after_number, gap = False, 0  # whether a number was the last that counts, and how many characters came since
    gap_start = end
    first = last = np.int32(0)  # of the gap
    part = 0
    while part or at < stop:
        if part:
            value = several[part]
            part = part + 1 if several[part + 1] else 0
        else:
            value = letters[code_point(data, at)]
            at += width(data[at])
            if value & _KIND == _SEVERAL:
                part = value >> _KIND_BITS
                continue
        kind = value & _KIND
        if kind == INVISIBLE:
            continue
        if kind in (COUNTED, NUMBER):
            is_number = kind == NUMBER
            if gap and not (after_number and is_number):
                end = _end_gap(compared, gap_start, first if after_number else 0)
                last_kind = last & _KIND
                if is_number and (last_kind in (SIGN, POINT)) and not (gap == 1 and end > gap_start):
                    end = _put(compared, end, last >> _KIND_BITS)
            gap = 0
            end = _put(compared, end, value >> _KIND_BITS)
            after_number = is_number
            if kind == COUNTED and not part:
                count = _copy_plain(data, at, stop, plain, compared, end)
                at, end = at + count, end + count
            continue
        if not gap:
            gap_start, first = end, value
        if after_number and kind != GAP:
            end = _put(compared, end, value >> _KIND_BITS)
        elif after_number and not (gap and last & _KIND == GAP):
            end = _put(compared, end, _SPACE)
        gap += 1
        last = value
    return _end_gap(compared, gap_start, first if after_number else 0) if gap else end


@inner
def _copy_plain(data: UInt8Array, at: int, stop: int, plain: UInt8Array, compared: UInt8Array, end: int) -> Integer:
    """Write plain letters, which are most of a text, up to the first other byte; gives how many."""
    count = 0
    while at + count < stop and plain[data[at + count]]:
        compared[end + count] = plain[data[at + count]]
        count += 1
    return count


@inner
def _end_gap(compared: UInt8Array, start: int, first: int) -> Integer:
    """Take back a gap after a number (or `first` is 0) but for a sign at its beginning."""
    return _put(compared, start, first >> _KIND_BITS) if first and first & _KIND == SIGN else start


@inner(inline="always")
def _put(compared: UInt8Array, end: int, point: int) -> Integer:
    """Write a character in UTF-8; gives the place after it."""
    if point < 0x80:
        compared[end] = point
        return end + 1
    if point < 0x800:
        compared[end] = 0xC0 | point >> 6
        compared[end + 1] = 0x80 | point & 0x3F
        return end + 2
    if point < 0x10000:
        compared[end] = 0xE0 | point >> 12
        compared[end + 1] = 0x80 | point >> 6 & 0x3F
        compared[end + 2] = 0x80 | point & 0x3F
        return end + 3
    compared[end] = 0xF0 | point >> 18
    compared[end + 1] = 0x80 | point >> 12 & 0x3F
    compared[end + 2] = 0x80 | point >> 6 & 0x3F
    compared[end + 3] = 0x80 | point & 0x3F
    return end + 4

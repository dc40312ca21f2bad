"""Find the `#include` lines of a C or C++ file in one compiled pass.

The pass recognizes comments, strings, character constants, digit separators (1'000), raw strings of C++ and joined
lines. It does not evaluate conditions, since a branch of `#if` that one machine skips is compiled on another. It never
fails.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from spark_jobs.arrays import Int64Array, UInt8Array

QUOTED, ANGLED = 0, 1
_SHORTEST_LINE = 11  # #include"a"; bounds how many a text can hold
_MAX_DELIMITER = 16

_INCLUDE = np.frombuffer(b"include", dtype=np.uint8).copy()
_NEXT = np.frombuffer(b"_next", dtype=np.uint8).copy()
_IMPORT = np.frombuffer(b"import", dtype=np.uint8).copy()
_WORD = np.zeros(256, dtype=np.bool_)
_WORD[np.frombuffer(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", dtype=np.uint8)] = True
_WORD[128:] = True

_NEWLINE, _SPACE, _DOUBLE, _HASH, _SINGLE, _STAR, _SLASH = 10, 32, 34, 35, 39, 42, 47
_OPEN, _CLOSE, _LESS, _GREATER, _BACKSLASH, _RAW = 40, 41, 60, 62, 92, 82


@njit(cache=True)
def _comment_end(text: UInt8Array, place: int) -> int:
    """First byte after the comment that opens here (the line end of a line comment is left); `place` for none."""
    if place + 1 >= text.size or text[place] != _SLASH:
        return place
    if text[place + 1] == _SLASH:
        while place < text.size and text[place] != _NEWLINE:
            place += 2 if text[place] == _BACKSLASH else 1
    elif text[place + 1] == _STAR:
        place += 2
        while place + 1 < text.size and not (text[place] == _STAR and text[place + 1] == _SLASH):
            place += 1
        place += 2
    return min(place, text.size)


@njit(cache=True)
def _skip_blank(text: UInt8Array, place: int) -> int:
    """First byte of this line that is neither white space nor comment."""
    while place < text.size and text[place] != _NEWLINE:
        if text[place] <= _SPACE:
            place += 1
        elif text[place] == _BACKSLASH and place + 1 < text.size and text[place + 1] == _NEWLINE:
            place += 2
        else:
            after = _comment_end(text, place)
            if after == place:
                break
            place = after
    return place


@njit(cache=True)
def _literal_end(text: UInt8Array, place: int) -> int:
    """First byte after the string or character constant that opens here, at the latest the end of its line."""
    quote = text[place]
    place += 1
    while place < text.size and text[place] != _NEWLINE:
        if text[place] == quote:
            return place + 1
        place += 2 if text[place] == _BACKSLASH else 1
    return min(place, text.size)


@njit(cache=True)
def _raw_string_end(text: UInt8Array, place: int) -> int:
    """First byte after the raw string whose quote stands here; -1 where it is none."""
    begin = place + 1
    bracket = begin
    while bracket < text.size and bracket - begin <= _MAX_DELIMITER and text[bracket] != _OPEN:
        if text[bracket] <= _SPACE or text[bracket] == _BACKSLASH or text[bracket] == _CLOSE:
            return -1
        bracket += 1
    if bracket >= text.size or text[bracket] != _OPEN:
        return -1
    length = bracket - begin
    place = bracket + 1
    while place + length + 1 < text.size:
        if text[place] == _CLOSE and text[place + length + 1] == _DOUBLE:
            same = True
            for letter in range(length):
                if text[place + 1 + letter] != text[begin + letter]:
                    same = False
                    break
            if same:
                return place + length + 2
        place += 1
    return text.size


@njit(cache=True)
def _after_word(text: UInt8Array, place: int, word: UInt8Array) -> int:
    """First byte after a word if it stands here; -1 if not."""
    if place + word.size > text.size:
        return -1
    for letter in range(word.size):
        if text[place + letter] != word[letter]:
            return -1
    return place + word.size


@njit(cache=True)
def _name(text: UInt8Array, place: int) -> tuple[int, int]:
    """Span of the name that the directive after a `#` includes; -1 where it includes none."""
    place = _skip_blank(text, place)
    after = _after_word(text, place, _INCLUDE)
    after = max(after, _after_word(text, after, _NEXT)) if after >= 0 else _after_word(text, place, _IMPORT)
    if after < 0:
        return -1, -1
    begin = _skip_blank(text, after)
    if begin >= text.size or not (text[begin] == _DOUBLE or text[begin] == _LESS):
        return -1, -1
    closing = _DOUBLE if text[begin] == _DOUBLE else _GREATER
    end = begin + 1
    while end < text.size and text[end] != closing and text[end] != _NEWLINE:
        end += 1
    if end >= text.size or text[end] != closing or end == begin + 1:
        return -1, -1
    return begin + 1, end


@njit(cache=True)
def include_lines(text: UInt8Array) -> Int64Array:
    """Find what a file includes.

    Args:
        text: (N,) its UTF-8 bytes, LF line ends.

    Returns:
        (S, 4): the byte of the hash, first byte of the name, byte after it, and `QUOTED` or `ANGLED`, in the order of
        the text.
    """
    found = np.empty((text.size // _SHORTEST_LINE + 1, 4), dtype=np.int64)
    count, place = 0, 0
    line_begins = True
    while place < text.size:
        byte = text[place]
        if byte == _NEWLINE:
            line_begins = True
            place += 1
        elif byte <= _SPACE:
            place += 1
        elif byte == _HASH and line_begins:
            begin, end = _name(text, place + 1)
            if begin >= 0:
                found[count, 0], found[count, 1], found[count, 2] = place, begin, end
                found[count, 3] = QUOTED if text[end] == _DOUBLE else ANGLED
                count += 1
                place = end
            line_begins = False
            place += 1
        elif byte == _SLASH:
            after = _comment_end(text, place)
            line_begins = line_begins and after > place  # a comment is white space
            place = max(after, place + 1)
        elif byte == _DOUBLE:
            line_begins = False
            after = _raw_string_end(text, place) if place > 0 and text[place - 1] == _RAW else -1
            place = _literal_end(text, place) if after < 0 else after
        elif byte == _SINGLE:
            line_begins = False
            is_separator = place > 0 and _WORD[text[place - 1]]
            place = place + 1 if is_separator else _literal_end(text, place)
        else:
            if byte == _BACKSLASH:
                place += 1
            line_begins = False
            place += 1
    return found[:count]

"""Find where a JavaScript or TypeScript file names other modules, in one compiled pass.

    import a from "x"     import "x"     export * from "x"     const a = require("x")      import
    import type A from "x"     export type { A } from "x"                                  import_type
    import("x")     function f() { require("x") }                                          import_inner

The pass recognizes comments (JSDoc is full of `import("x")`), strings, nested templates with `${}`, and regular
expressions (by what comes before the slash). A `require` outside of all braces counts as run when the file is loaded.
The pass never fails; a string or regular expression without an end is taken to end with its line.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from spark_jobs.arrays import Int64Array, UInt8Array

LOADED, INNER, TYPE_ONLY = 0, 1, 2
_MAX_TEMPLATES = 64
_MAX_CLAUSE = 32_768  # bytes
_MAX_REGEX = 4_096
_SHORTEST_STATEMENT = 8  # import"" is the shortest; bounds how many a text can hold

_WORDS = (
    *(b"import", b"export", b"require", b"from", b"type"),
    *(b"return", b"typeof", b"case", b"in", b"of", b"delete", b"void", b"throw", b"new", b"do", b"else", b"yield"),
    *(b"await", b"instanceof"),  # after these a slash opens a regular expression
)
_IMPORT, _EXPORT, _REQUIRE, _FROM, _TYPE, _FIRST_OPERATOR = 0, 1, 2, 3, 4, 5
_LETTERS = np.frombuffer(b"".join(word.ljust(10, b"\0") for word in _WORDS), dtype=np.uint8).reshape(-1, 10).copy()
_LENGTHS = np.array([len(word) for word in _WORDS])
_BEFORE_EXPRESSION = np.zeros(256, dtype=np.bool_)
_BEFORE_EXPRESSION[np.frombuffer(b"\0(,=:[!&|?;{+-*%~^>", dtype=np.uint8)] = True
_WORD = np.zeros(256, dtype=np.bool_)
_WORD[np.frombuffer(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$", dtype=np.uint8)] = True
_WORD[128:] = True

_NEWLINE, _SPACE, _DOUBLE, _DOLLAR, _SINGLE, _OPEN, _CLOSE, _STAR, _COMMA, _DOT = 10, 32, 34, 36, 39, 40, 41, 42, 44, 46
_SLASH, _BACKSLASH, _BACKTICK, _OPEN_BRACE, _CLOSE_BRACE, _LETTER = 47, 92, 96, 123, 125, 97


@njit(cache=True)
def _word_end(text: UInt8Array, place: int) -> int:
    """First byte after the word that begins here."""
    while place < text.size and _WORD[text[place]]:
        place += 1
    return place


@njit(cache=True)
def _which_word(text: UInt8Array, begin: int, end: int) -> int:
    """Which of `_WORDS` a span is; -1 for another one."""
    for word in range(_LENGTHS.size):
        if _LENGTHS[word] == end - begin:
            same = True
            for letter in range(end - begin):
                if _LETTERS[word, letter] != text[begin + letter]:
                    same = False
                    break
            if same:
                return word
    return -1


@njit(cache=True)
def _comment_end(text: UInt8Array, place: int) -> int:
    """First byte after the comment that opens here (the line end of a line comment is left); `place` for none."""
    if place + 1 >= text.size or text[place] != _SLASH:
        return place
    if text[place + 1] == _SLASH:
        while place < text.size and text[place] != _NEWLINE:
            place += 1
    elif text[place + 1] == _STAR:
        place += 2
        while place + 1 < text.size and not (text[place] == _STAR and text[place + 1] == _SLASH):
            place += 1
        place = min(place + 2, text.size)
    return place


@njit(cache=True)
def _skip_blank(text: UInt8Array, place: int) -> int:
    """First byte from here that is neither white space nor comment."""
    while place < text.size:
        after = place + 1 if text[place] <= _SPACE else _comment_end(text, place)
        if after == place:
            return place
        place = after
    return place


@njit(cache=True)
def _string_end(text: UInt8Array, place: int) -> int:
    """First byte after the string that opens here, at the latest the end of its line."""
    quote = text[place]
    place += 1
    while place < text.size and text[place] != _NEWLINE:
        if text[place] == quote:
            return place + 1
        place += 2 if text[place] == _BACKSLASH else 1
    return min(place, text.size)


@njit(cache=True)
def _regex_end(text: UInt8Array, place: int) -> tuple[int, int]:
    """First byte after the regular expression that opens here; after the slash alone if the line has no end of it.

    Returns:
        The place, and how far the line was read for it.
    """
    begin = place
    place += 1
    in_class = False
    while place < min(text.size, begin + _MAX_REGEX) and text[place] != _NEWLINE:
        byte = text[place]
        if byte == _SLASH and not in_class:
            return place + 1, place + 1
        if byte == 91:
            in_class = True
        elif byte == 93:
            in_class = False
        place += 2 if byte == _BACKSLASH else 1
    return begin + 1, place


@njit(cache=True)
def _template_end(text: UInt8Array, place: int) -> int:
    """From inside a template: first byte after its end or after the next `${`."""
    while place < text.size:
        if text[place] == _BACKTICK:
            return place + 1
        if text[place] == _DOLLAR and place + 1 < text.size and text[place + 1] == _OPEN_BRACE:
            return place + 2
        place += 2 if text[place] == _BACKSLASH else 1
    return text.size


@njit(cache=True)
def _argument(text: UInt8Array, place: int) -> tuple[int, int, int]:
    """The text that is the first argument of a call: its span, and the byte after the closing quote; -1 for none."""
    place = _skip_blank(text, place)
    if place >= text.size or text[place] != _OPEN:
        return -1, -1, -1
    begin = _skip_blank(text, place + 1)
    if begin >= text.size or not (text[begin] == _DOUBLE or text[begin] == _SINGLE or text[begin] == _BACKTICK):
        return -1, -1, -1
    end = _template_end(text, begin + 1) if text[begin] == _BACKTICK else _string_end(text, begin)
    after = _skip_blank(text, end)
    closed = end > begin + 1 and text[end - 1] == text[begin]
    if not closed or after >= text.size or not (text[after] == _CLOSE or text[after] == _COMMA):
        return -1, -1, -1
    return begin + 1, end - 1, end


@njit(cache=True)
def _source(text: UInt8Array, place: int) -> tuple[int, int, int]:
    """The text after `from` of an import or export clause that begins here: as of `_argument`."""
    in_braces = False
    limit = place + _MAX_CLAUSE
    while True:
        place = _skip_blank(text, place)
        if place >= text.size or place > limit:
            return -1, -1, -1
        byte = text[place]
        if byte in (_DOUBLE, _SINGLE):
            if not in_braces:
                return -1, -1, -1
            place = _string_end(text, place)
        elif _WORD[byte]:
            end = _word_end(text, place)
            word = -1 if in_braces else _which_word(text, place, end)
            if word in (_IMPORT, _EXPORT):  # the next statement: a file of nothing else is read once
                return -1, -1, -1
            is_from = word == _FROM
            place = _skip_blank(text, end)
            if is_from and place < text.size and (text[place] == _DOUBLE or text[place] == _SINGLE):
                end = _string_end(text, place)
                if end > place + 1 and text[end - 1] == text[place]:
                    return place + 1, end - 1, end
                return -1, -1, -1
        elif byte == _OPEN_BRACE and not in_braces:
            in_braces = True
            place += 1
        elif byte == _CLOSE_BRACE and in_braces:
            in_braces = False
            place += 1
        elif byte in (_COMMA, _STAR):
            place += 1
        else:
            return -1, -1, -1


@njit(cache=True)
def _is_type_only(text: UInt8Array, place: int) -> bool:
    """Whether the clause that begins here is `type` and then what is imported; `import type from "x"` is not."""
    end = _word_end(text, place)
    if _which_word(text, place, end) != _TYPE:
        return False
    place = _skip_blank(text, end)
    if place >= text.size or text[place] == _COMMA:
        return False
    end = _word_end(text, place)
    if _which_word(text, place, end) != _FROM:
        return True
    place = _skip_blank(text, end)
    return place < text.size and text[place] != _DOUBLE and text[place] != _SINGLE


@njit(cache=True)
def _reference(text: UInt8Array, word: int, place: int, depth: int) -> tuple[int, int, int, int]:
    """The module named by the statement after one of the three words: span, byte after it, and kind; -1 for none."""
    if word == _REQUIRE:
        begin, end, after = _argument(text, place)
        return begin, end, after, LOADED if depth == 0 else INNER
    place = _skip_blank(text, place)
    if place >= text.size:
        return -1, -1, -1, LOADED
    byte = text[place]
    if word == _IMPORT and byte == _OPEN:
        begin, end, after = _argument(text, place)
        return begin, end, after, INNER
    if word == _IMPORT and byte in (_DOUBLE, _SINGLE):
        end = _string_end(text, place)
        if end > place + 1 and text[end - 1] == byte:
            return place + 1, end - 1, end, LOADED
        return -1, -1, -1, LOADED
    kind = TYPE_ONLY if _is_type_only(text, place) else LOADED
    if word == _EXPORT and kind == LOADED and byte not in (_STAR, _OPEN_BRACE):
        return -1, -1, -1, LOADED
    begin, end, after = _source(text, place)
    return begin, end, after, kind


@njit(cache=True)
def _after_token(text: UInt8Array, place: int, last: int, barren: int) -> tuple[int, int, int]:
    """First byte after the comment, regular expression, string or single byte that stands here.

    Returns:
        The place; the last byte that was neither white space nor comment, where a letter stands for any value; and
        `barren`: before it no regular expression ends, or a line of slashes would be read once for each of them.
    """
    byte = text[place]
    if byte in (_DOUBLE, _SINGLE):
        return _string_end(text, place), _LETTER, barren
    if byte == _SLASH:
        end = _comment_end(text, place)
        if end > place:
            return end, last, barren
        if _BEFORE_EXPRESSION[last]:
            end, barren = _regex_end(text, place) if place >= barren else (place + 1, barren)
            return end, _LETTER, barren
    return place + 1, last if byte <= _SPACE else byte, barren


@njit(cache=True)
def module_references(text: UInt8Array) -> Int64Array:
    """Find where a file names other modules.

    Args:
        text: (N,) its UTF-8 bytes.

    Returns:
        (S, 4): first byte of the statement's keyword, first byte of the name, byte after it, and `LOADED`, `INNER` or
        `TYPE_ONLY`, in the order of the text.
    """
    found = np.empty((text.size // _SHORTEST_STATEMENT + 1, 4), dtype=np.int64)
    resume_depths = np.empty(_MAX_TEMPLATES, dtype=np.int64)
    count, templates, depth, place, last, barren = 0, 0, 0, 0, 0, 0
    while place < text.size:
        byte = text[place]
        closes_hole = byte == _CLOSE_BRACE and templates > 0 and resume_depths[templates - 1] == depth
        if byte == _BACKTICK or closes_hole:
            templates -= closes_hole
            place = _template_end(text, place + 1)
            last = _LETTER
            if text[place - 1] == _OPEN_BRACE and templates < _MAX_TEMPLATES:
                resume_depths[templates] = depth
                templates += 1
                last = _OPEN_BRACE
        elif _WORD[byte]:
            end = _word_end(text, place)
            word = _which_word(text, place, end) if end - place <= 10 else -1
            is_property = last == _DOT and not (place > 1 and text[place - 2] == _DOT)
            last = 0 if word >= _FIRST_OPERATOR and not is_property else _LETTER
            if 0 <= word <= _REQUIRE and not is_property:
                begin, stop, after, kind = _reference(text, word, end, depth + templates)
                if begin >= 0:
                    found[count, 0], found[count, 1], found[count, 2], found[count, 3] = place, begin, stop, kind
                    count += 1
                    end = after
            place = end
        else:
            depth = max(0, depth + (byte == _OPEN_BRACE) - (byte == _CLOSE_BRACE))
            place, last, barren = _after_token(text, place, last, barren)
    return found[:count]

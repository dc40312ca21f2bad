"""Where the import statements of a Python file are, and whether they run when it is loaded; one compiled pass.

The pass knows strings (doctests and templates hold imports too), comments, brackets, joined lines and blocks:

    import a                        import          runs when the file is loaded, as do those in if, try and class
    def f():
        import b                    import_inner    runs when f is called
    if TYPE_CHECKING:
        import c                    import_type     never runs
    try: import d; import e         two statements of one line

It never fails. Text that is no Python gives what looks like imports; an open bracket ends where an unindented line
begins with `import`, `from`, `def` or `class`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

Int64Array = npt.NDArray[np.int64]
UInt8Array = npt.NDArray[np.uint8]

LOADED, INNER, TYPE_ONLY = 0, 1, 2
_FUNCTION, _TYPE_CHECKING = 1, 2
_MAX_BLOCKS = 128
_SHORTEST_STATEMENT = 7  # bytes; bounds how many a text can hold

_TAB, _NEWLINE, _SPACE, _BACKSLASH, _HASH = 9, 10, 32, 92, 35
_WORDS = (
    *(b"import", b"from", b"def", b"async", b"class", b"if"),  # those with a name below; the others open blocks
    *(b"elif", b"else", b"try", b"except", b"finally", b"with", b"for", b"while", b"case"),
)
_IMPORT, _FROM, _DEF, _ASYNC, _CLASS, _IF = 0, 1, 2, 3, 4, 5
_LETTERS = np.frombuffer(b"".join(word.ljust(8, b"\0") for word in _WORDS), dtype=np.uint8).reshape(-1, 8).copy()
_LENGTHS = np.array([len(word) for word in _WORDS])
_GUARD = np.frombuffer(b"TYPE_CHECKING", dtype=np.uint8).copy()


@njit(cache=True)
def _is_word_byte(byte: int) -> bool:
    """Letters, digits, underscore and all of non-ASCII UTF-8."""
    return 97 <= byte <= 122 or 65 <= byte <= 90 or 48 <= byte <= 57 or byte == 95 or byte >= 128


@njit(cache=True)
def _word_at(text: UInt8Array, place: int) -> int:
    """Which of `_WORDS` stands at a place as a whole word; -1 for another one."""
    end = place
    while end < text.size and end - place <= 7 and _is_word_byte(text[end]):
        end += 1
    for word in range(_LENGTHS.size):
        if _LENGTHS[word] == end - place:
            same = True
            for letter in range(end - place):
                if _LETTERS[word, letter] != text[place + letter]:
                    same = False
                    break
            if same:
                return word
    return -1


@njit(cache=True)
def _guards_types(text: UInt8Array, place: int) -> bool:
    """Whether the condition that begins here is TYPE_CHECKING alone, perhaps of a module: `typing.TYPE_CHECKING:`."""
    while place < text.size and (text[place] == _SPACE or text[place] == _TAB or text[place] == 40):
        place += 1
    begin = place
    while place < text.size and (_is_word_byte(text[place]) or text[place] == 46):
        place += 1
    length = _GUARD.size
    if place - begin < length or (place - begin > length and text[place - length - 1] != 46):
        return False
    for letter in range(length):
        if text[place - length + letter] != _GUARD[letter]:
            return False
    while place < text.size and (text[place] == _SPACE or text[place] == _TAB or text[place] == 41):
        place += 1
    return place < text.size and text[place] == 58


@njit(cache=True)
def _string_end(text: UInt8Array, place: int) -> int:
    """First byte after the string that opens here; an unfinished one of a single line ends with the line."""
    quote = text[place]
    if place + 2 < text.size and text[place + 1] == quote and text[place + 2] == quote:
        place += 3
        while place < text.size:
            if text[place] == _BACKSLASH:
                place += 2
            elif (
                text[place] == quote and place + 2 < text.size and text[place + 1] == quote and text[place + 2] == quote
            ):
                return place + 3
            else:
                place += 1
        return text.size
    place += 1
    while place < text.size:
        if text[place] == _BACKSLASH:
            place += 2
        elif text[place] == quote:
            return place + 1
        elif text[place] == _NEWLINE:
            return place
        else:
            place += 1
    return text.size


@njit(cache=True)
def import_statements(text: UInt8Array) -> Int64Array:
    """Find the import statements of a file.

    Args:
        text: (N,) its UTF-8 bytes, LF line ends.

    Returns:
        (S, 3): first byte, byte after the last, and `LOADED`, `INNER` or `TYPE_ONLY`, in the order of the text. A
        statement over several lines may hold comments and backslashes.
    """
    found = np.empty((text.size // _SHORTEST_STATEMENT + 1, 3), dtype=np.int64)
    count = 0
    indents = np.empty(_MAX_BLOCKS, dtype=np.int64)
    blocks = np.empty(_MAX_BLOCKS, dtype=np.int64)
    open_blocks = 0
    place = 0
    while place < text.size:
        indent = 0
        while place < text.size and (text[place] == _SPACE or text[place] == _TAB or text[place] == 12):
            indent = indent + 1 if text[place] == _SPACE else (indent // 8 + 1) * 8
            place += 1
        if place >= text.size:
            break
        if text[place] == _NEWLINE:
            place += 1
            continue
        if text[place] != _HASH:
            while open_blocks > 0 and indents[open_blocks - 1] >= indent:
                open_blocks -= 1
        # One logical line: statements divided by semicolons, or after the colon of a compound one.
        begins, compound, statement, depth = True, False, -1, 0
        while place < text.size:
            byte = text[place]
            if begins and byte != _SPACE and byte != _TAB:
                begins = False
                word = _word_at(text, place)
                if word == _IMPORT or word == _FROM:
                    after = text[min(place + _LENGTHS[word], text.size - 1)]
                    if after == _SPACE or after == _TAB or after == _BACKSLASH or after == 46:
                        statement = place
                elif word >= 0:
                    compound = True
                    block = 0
                    if word == _DEF or word == _ASYNC:
                        block = _FUNCTION
                    elif word == _IF and _guards_types(text, place + 2):
                        block = _TYPE_CHECKING
                    if block > 0 and open_blocks < _MAX_BLOCKS:
                        indents[open_blocks] = indent
                        blocks[open_blocks] = block
                        open_blocks += 1
            ends = byte == _NEWLINE or byte == _HASH or byte == 59
            if statement >= 0 and depth == 0 and ends:
                kind = LOADED
                for number in range(open_blocks):
                    kind = max(kind, blocks[number])
                found[count, 0], found[count, 1], found[count, 2] = statement, place, kind
                count += 1
                statement = -1
            if byte == _NEWLINE:
                place += 1
                if depth == 0:
                    break
                if place < text.size and text[place] != _SPACE:
                    word = _word_at(text, place)
                    if word == _IMPORT or word == _FROM or word == _DEF or word == _CLASS:
                        break
            elif byte == _HASH:
                while place < text.size and text[place] != _NEWLINE:
                    place += 1
            elif byte == 34 or byte == 39:
                place = _string_end(text, place)
            elif byte == _BACKSLASH:
                place += 2
            else:
                if byte == 40 or byte == 91 or byte == 123:
                    depth += 1
                elif byte == 41 or byte == 93 or byte == 125:
                    depth = max(0, depth - 1)
                elif depth == 0 and (byte == 59 or (byte == 58 and compound)):
                    begins, compound = True, False
                place += 1
        if statement >= 0 and place >= text.size:
            kind = LOADED
            for number in range(open_blocks):
                kind = max(kind, blocks[number])
            found[count, 0], found[count, 1], found[count, 2] = statement, text.size, kind
            count += 1
    return found[:count]

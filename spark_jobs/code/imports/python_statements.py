"""Find the import statements of a Python file, and whether they run when it is loaded, in one compiled pass.

The pass recognizes strings (doctests and templates contain imports too), comments, brackets, joined lines and blocks:

    import a                        import          runs when the file is loaded, as do those in if, try and class
    def f():
        import b                    import_inner    runs when f is called
    if TYPE_CHECKING:
        import c                    import_type     never runs
    try: import d; import e         two statements of one line

It never fails. In text that is no Python it finds whatever looks like an import. A bracket that is never closed ends
where an unindented line begins with `import`, `from`, `def` or `class`.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.compiling import compiled
from spark_jobs.arrays import Int64Array, UInt8Array

LOADED, INNER, TYPE_ONLY = 0, 1, 2
_FUNCTION, _TYPE_CHECKING = 1, 2
_MAX_BLOCKS = 128
_SHORTEST_STATEMENT = 7  # bytes; bounds how many a text can hold

_TAB, _NEWLINE, _FORM_FEED, _SPACE, _HASH, _DOT, _BACKSLASH = 9, 10, 12, 32, 35, 46, 92
_BLANK, _LINE_END, _COMMENT, _SEMICOLON, _COLON, _QUOTE, _OPEN, _CLOSE, _ESCAPE = 1, 2, 3, 4, 5, 6, 7, 8, 9
_CLASS_OF = np.zeros(256, dtype=np.uint8)
for _number, _bytes in enumerate((b" \t", b"\n", b"#", b";", b":", b"\"'", b"([{", b")]}", b"\\"), start=_BLANK):
    _CLASS_OF[np.frombuffer(_bytes, dtype=np.uint8)] = _number
_WORDS = (
    *(b"import", b"from", b"def", b"async", b"class", b"if"),  # those with a name below; the others open blocks
    *(b"elif", b"else", b"try", b"except", b"finally", b"with", b"for", b"while", b"case"),
)
_IMPORT, _FROM, _DEF, _ASYNC, _CLASS, _IF = 0, 1, 2, 3, 4, 5
_LETTERS = np.frombuffer(b"".join(word.ljust(8, b"\0") for word in _WORDS), dtype=np.uint8).reshape(-1, 8).copy()
_LENGTHS = np.array([len(word) for word in _WORDS])
_GUARD = np.frombuffer(b"TYPE_CHECKING", dtype=np.uint8).copy()


@compiled
def _is_word_byte(byte: int) -> bool:
    """Letters, digits, underscore and all of non-ASCII UTF-8."""
    return 97 <= byte <= 122 or 65 <= byte <= 90 or 48 <= byte <= 57 or byte == 95 or byte >= 128


@compiled
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


@compiled
def _guards_types(text: UInt8Array, place: int) -> bool:
    """Whether the condition that begins here is TYPE_CHECKING alone, perhaps of a module: `typing.TYPE_CHECKING:`."""
    while place < text.size and text[place] in (_SPACE, _TAB, 40):
        place += 1
    begin = place
    while place < text.size and (_is_word_byte(text[place]) or text[place] == _DOT):
        place += 1
    length = _GUARD.size
    if place - begin < length or (place - begin > length and text[place - length - 1] != _DOT):
        return False
    for letter in range(length):
        if text[place - length + letter] != _GUARD[letter]:
            return False
    while place < text.size and text[place] in (_SPACE, _TAB, 41):
        place += 1
    return place < text.size and text[place] == 58


@compiled
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


@compiled
def _opens_import(text: UInt8Array, place: int, word: int) -> bool:
    """Whether a word at the beginning of a statement is that of an import."""
    if word not in (_IMPORT, _FROM):
        return False
    after = text[min(place + _LENGTHS[word], text.size - 1)]
    return after in (_SPACE, _TAB, _BACKSLASH) or (after == _DOT and word == _FROM)


@compiled
def _opened_block(text: UInt8Array, place: int, word: int) -> int:
    """What a word at the beginning of a statement opens: a function, a block for the type checker, or 0."""
    if word in (_DEF, _ASYNC):
        return _FUNCTION
    return _TYPE_CHECKING if word == _IF and _guards_types(text, place + 2) else 0


@compiled
def _note(found: Int64Array, count: int, begin: int, end: int, blocks: Int64Array, open_blocks: int) -> int:
    """Write a statement down with the kind that the blocks around it give; returns how many there are."""
    kind = LOADED
    for number in range(open_blocks):
        kind = max(kind, blocks[number])
    found[count, 0], found[count, 1], found[count, 2] = begin, end, kind
    return count + 1


@compiled
def _goes_on(text: UInt8Array, place: int, depth: int) -> bool:
    """Whether a logical line goes on in the line that begins here: inside of brackets, unless these were forgotten."""
    if depth == 0:
        return False
    return place >= text.size or _word_at(text, place) not in (_IMPORT, _FROM, _DEF, _CLASS)


@compiled
def _after_token(text: UInt8Array, place: int) -> int:
    """First byte after the comment, string, escaped line end or single byte that stands here."""
    byte = text[place]
    if byte == _HASH:
        while place < text.size and text[place] != _NEWLINE:
            place += 1
        return place
    if _CLASS_OF[byte] == _QUOTE:
        end: int = _string_end(text, place)
        return end
    return place + 2 if _CLASS_OF[byte] == _ESCAPE else place + 1


@compiled
def _first_token(text: UInt8Array, place: int) -> tuple[int, int]:
    """Indentation of the line that begins here, in columns, and the place of its first token."""
    indent = 0
    while place < text.size and text[place] in (_SPACE, _TAB, _FORM_FEED):
        indent = (indent // 8 + 1) * 8 if text[place] == _TAB else indent + 1
        place += 1
    return indent, place


@compiled
def _read_line(
    text: UInt8Array, place: int, indent: int, stack: tuple[Int64Array, Int64Array, int], found: Int64Array, count: int
) -> tuple[int, int, int]:
    """Read one logical line: statements divided by semicolons, or after the colon of a compound one.

    Returns:
        First byte of the next line, open blocks and statements so far.
    """
    indents, blocks, open_blocks = stack
    begins, compound, statement, depth = True, False, -1, 0
    while place < text.size:
        kind = _CLASS_OF[text[place]]
        if begins and kind != _BLANK:
            begins = False
            word = _word_at(text, place)
            if _opens_import(text, place, word):
                statement = place
            elif word >= 0:
                compound = True
                block = _opened_block(text, place, word)
                if block > 0 and open_blocks < _MAX_BLOCKS:
                    indents[open_blocks], blocks[open_blocks] = indent, block
                    open_blocks += 1
        if statement >= 0 and depth == 0 and _LINE_END <= kind <= _SEMICOLON:
            count = _note(found, count, statement, place, blocks, open_blocks)
            statement = -1
        if kind == _OPEN:
            depth += 1
        elif kind == _CLOSE:
            depth = max(0, depth - 1)
        elif depth == 0 and (kind == _SEMICOLON or (kind == _COLON and compound)):
            begins, compound = True, False
        place = _after_token(text, place)
        if kind == _LINE_END and not _goes_on(text, place, depth):
            return place, open_blocks, count
        while not begins and place < text.size and _CLASS_OF[text[place]] == 0:
            place += 1
    if statement >= 0:
        count = _note(found, count, statement, text.size, blocks, open_blocks)
    return place, open_blocks, count


@compiled
def import_statements(text: UInt8Array) -> Int64Array:
    """Find the import statements of a file.

    Args:
        text: (N,) its UTF-8 bytes, LF line ends.

    Returns:
        (S, 3): first byte, byte after the last, and `LOADED`, `INNER` or `TYPE_ONLY`, in the order of the text. A
        statement over several lines may hold comments and backslashes.
    """
    found = np.empty((text.size // _SHORTEST_STATEMENT + 1, 3), dtype=np.int64)
    indents = np.empty(_MAX_BLOCKS, dtype=np.int64)
    blocks = np.empty(_MAX_BLOCKS, dtype=np.int64)
    count, open_blocks, place = 0, 0, 0
    while place < text.size:
        indent, place = _first_token(text, place)
        if place < text.size and text[place] not in (_NEWLINE, _HASH):
            while open_blocks > 0 and indents[open_blocks - 1] >= indent:
                open_blocks -= 1
        place, open_blocks, count = _read_line(text, place, indent, (indents, blocks, open_blocks), found, count)
    return found[:count]

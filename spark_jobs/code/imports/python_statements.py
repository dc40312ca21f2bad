"""Find the import statements of a Python file, and whether they run when it is loaded, in one compiled pass.

The pass recognizes strings (doctests and templates contain imports too), comments, brackets, joined lines and blocks:

    import a                        import          runs when the file is loaded, as do those in if, try and class
    def f():
        import b                    import_inner    runs when f is called
    if TYPE_CHECKING:
        import c                    import_type     never runs
    try: import d; import e         two statements of one line
    lazy import f                   import_inner    runs when f is used (PEP 810)
    cimport g                       import          of Cython

It never fails. In text other than Python it finds whatever looks like an import. A bracket never closed ends where an
unindented line begins with `import`, `from`, `def` or `class`.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.compiling import compiled, inner
from spark_jobs.arrays import Int64Array, UInt8Array

LOADED, INNER, TYPE_ONLY = 0, 1, 2
_FUNCTION, _TYPE_CHECKING = 1, 2
_MAX_BLOCKS = 128
_SHORTEST_STATEMENT = 7  # bytes of the shortest import; bounds their number in a text

_TAB, _NEWLINE, _FORM_FEED, _SPACE, _HASH, _DOT, _BACKSLASH = 9, 10, 12, 32, 35, 46, 92
_BLANK, _LINE_END, _COMMENT, _SEMICOLON, _COLON, _QUOTE, _OPEN, _CLOSE, _ESCAPE = 1, 2, 3, 4, 5, 6, 7, 8, 9
_CLASS_OF = np.zeros(256, dtype=np.uint8)
for _number, _bytes in enumerate((b" \t", b"\n", b"#", b";", b":", b"\"'", b"([{", b")]}", b"\\"), start=_BLANK):
    _CLASS_OF[np.frombuffer(_bytes, dtype=np.uint8)] = _number
_WORDS = (
    # These have constants below; the others only open blocks.
    *(b"import", b"from", b"def", b"async", b"class", b"if", b"cimport", b"lazy"),
    *(b"elif", b"else", b"try", b"except", b"finally", b"with", b"for", b"while", b"case"),
)
_IMPORT, _FROM, _DEF, _ASYNC, _CLASS, _IF, _CIMPORT, _LAZY = 0, 1, 2, 3, 4, 5, 6, 7
_LETTERS = np.frombuffer(b"".join(word.ljust(8, b"\0") for word in _WORDS), dtype=np.uint8).reshape(-1, 8).copy()
_LENGTHS = np.array([len(word) for word in _WORDS])
_GUARD = np.frombuffer(b"TYPE_CHECKING", dtype=np.uint8).copy()


@inner
def _is_word_byte(byte: int) -> bool:
    """Whether a byte is a letter, digit, underscore or part of a non-ASCII character."""
    return 97 <= byte <= 122 or 65 <= byte <= 90 or 48 <= byte <= 57 or byte == 95 or byte >= 128


@inner
def _word_at(text: UInt8Array, position: int) -> int:
    """Index in `_WORDS` of the whole word at a position; -1 for any other word."""
    end = position
    while end < text.size and end - position <= 7 and _is_word_byte(text[end]):
        end += 1
    for word in range(_LENGTHS.size):
        if _LENGTHS[word] == end - position:
            same = True
            for letter in range(end - position):
                if _LETTERS[word, letter] != text[position + letter]:
                    same = False
                    break
            if same:
                return word
    return -1


@inner
def _guards_types(text: UInt8Array, position: int) -> bool:
    """Whether the condition at a position is TYPE_CHECKING alone, possibly qualified: `typing.TYPE_CHECKING:`."""
    while position < text.size and text[position] in (_SPACE, _TAB, 40):
        position += 1
    begin = position
    while position < text.size and (_is_word_byte(text[position]) or text[position] == _DOT):
        position += 1
    length = _GUARD.size
    if position - begin < length or (position - begin > length and text[position - length - 1] != _DOT):
        return False
    for letter in range(length):
        if text[position - length + letter] != _GUARD[letter]:
            return False
    while position < text.size and text[position] in (_SPACE, _TAB, 41):
        position += 1
    return position < text.size and text[position] == 58


@inner
def _string_end(text: UInt8Array, position: int) -> int:
    """First byte after the string opening at a position; an unclosed one-line string ends with its line."""
    quote = text[position]
    if position + 2 < text.size and text[position + 1] == quote and text[position + 2] == quote:
        position += 3
        while position < text.size:
            if text[position] == _BACKSLASH:
                position += 2
            elif (
                text[position] == quote
                and position + 2 < text.size
                and text[position + 1] == quote
                and text[position + 2] == quote
            ):
                return position + 3
            else:
                position += 1
        return text.size
    position += 1
    while position < text.size:
        if text[position] == _BACKSLASH:
            position += 2
        elif text[position] == quote:
            return position + 1
        elif text[position] == _NEWLINE:
            return position
        else:
            position += 1
    return text.size


@inner
def _opens_import(text: UInt8Array, position: int, word: int) -> bool:
    """Whether a word at the beginning of a statement begins an import."""
    if word not in (_IMPORT, _FROM, _CIMPORT):
        return False
    after = text[min(position + _LENGTHS[word], text.size - 1)]
    return after in (_SPACE, _TAB, _BACKSLASH) or (after == _DOT and word == _FROM)


@inner
def _lazy_import(text: UInt8Array, position: int) -> bool:
    """Whether `lazy` at the beginning of a statement begins an import, on the same line or a joined one."""
    position += _LENGTHS[_LAZY]
    while position < text.size and (
        text[position] in (_SPACE, _TAB, _BACKSLASH)
        or (text[position] == _NEWLINE and text[position - 1] == _BACKSLASH)
    ):
        position += 1
    return position < text.size and _opens_import(text, position, _word_at(text, position))


@inner
def _opened_block(text: UInt8Array, position: int, word: int) -> int:
    """The block opened by a word at the beginning of a statement: _FUNCTION, _TYPE_CHECKING, or 0 for others."""
    if word in (_DEF, _ASYNC):
        return _FUNCTION
    return _TYPE_CHECKING if word == _IF and _guards_types(text, position + 2) else 0


@compiled
def _append(
    statements: Int64Array, count: int, begin: int, end: int, least: int, blocks: Int64Array, open_blocks: int
) -> int:
    """Append (begin, end, kind) of a statement to `statements`, kind `least` or by open blocks; the new count."""
    kind = least
    for number in range(open_blocks):
        kind = max(kind, blocks[number])
    statements[count, 0], statements[count, 1], statements[count, 2] = begin, end, kind
    return count + 1


@inner
def _continues(text: UInt8Array, position: int, depth: int) -> bool:
    """Whether a logical line continues in the next line: inside brackets, unless an import or `def` begins there."""
    if depth == 0:
        return False
    return position >= text.size or _word_at(text, position) not in (_IMPORT, _FROM, _DEF, _CLASS)


@inner
def _after_token(text: UInt8Array, position: int) -> int:
    """First byte after the comment, string, escaped line end or single byte at a position."""
    byte = text[position]
    if byte == _HASH:
        while position < text.size and text[position] != _NEWLINE:
            position += 1
        return position
    if _CLASS_OF[byte] == _QUOTE:
        end: int = _string_end(text, position)
        return end
    return position + 2 if _CLASS_OF[byte] == _ESCAPE else position + 1


@inner
def _first_token(text: UInt8Array, position: int) -> tuple[int, int]:
    """Indentation in columns of the line beginning at a position, and the position of its first token."""
    indent = 0
    while position < text.size and text[position] in (_SPACE, _TAB, _FORM_FEED):
        indent = (indent // 8 + 1) * 8 if text[position] == _TAB else indent + 1
        position += 1
    return indent, position


@inner
def _read_line(
    text: UInt8Array,
    position: int,
    indent: int,
    stack: tuple[Int64Array, Int64Array, int],
    statements: Int64Array,
    count: int,
) -> tuple[int, int, int]:
    """Read one logical line: its statements are separated by semicolons, or follow the colon of a compound one.

    Returns:
        First byte of the next line, number of open blocks, and of statements so far.
    """
    indents, blocks, open_blocks = stack
    begins, compound, statement, depth, least = True, False, -1, 0, LOADED
    while position < text.size:
        kind = _CLASS_OF[text[position]]
        if begins and kind != _BLANK:
            begins = False
            word = _word_at(text, position)
            least = INNER if word == _LAZY else LOADED
            if word == _LAZY:
                if _lazy_import(text, position):
                    statement = position
            elif _opens_import(text, position, word):
                statement = position
            elif word >= 0 and word != _CIMPORT:
                compound = True
                block = _opened_block(text, position, word)
                if block > 0 and open_blocks < _MAX_BLOCKS:
                    indents[open_blocks], blocks[open_blocks] = indent, block
                    open_blocks += 1
        if statement >= 0 and depth == 0 and _LINE_END <= kind <= _SEMICOLON:
            count = _append(statements, count, statement, position, least, blocks, open_blocks)
            statement = -1
        if kind == _OPEN:
            depth += 1
        elif kind == _CLOSE:
            depth = max(0, depth - 1)
        elif depth == 0 and (kind == _SEMICOLON or (kind == _COLON and compound)):
            begins, compound = True, False
        position = _after_token(text, position)
        if kind == _LINE_END and not _continues(text, position, depth):
            return position, open_blocks, count
        while not begins and position < text.size and _CLASS_OF[text[position]] == 0:
            position += 1
    if statement >= 0:
        count = _append(statements, count, statement, text.size, least, blocks, open_blocks)
    return position, open_blocks, count


@compiled
def import_statements(text: UInt8Array) -> Int64Array:
    """Find the import statements of a file.

    Args:
        text: (N,) its UTF-8 bytes, LF line ends.

    Returns:
        (S, 3): first byte, byte after the last, and `LOADED`, `INNER` or `TYPE_ONLY`, in the order of the text. A
        statement over several lines may hold comments and backslashes.
    """
    statements = np.empty((text.size // _SHORTEST_STATEMENT + 1, 3), dtype=np.int64)
    indents = np.empty(_MAX_BLOCKS, dtype=np.int64)
    blocks = np.empty(_MAX_BLOCKS, dtype=np.int64)
    count, open_blocks, position = np.int64(0), 0, 0  # else all below is compiled for the count 0, and again for any
    while position < text.size:
        indent, position = _first_token(text, position)
        if position < text.size and text[position] not in (_NEWLINE, _HASH):
            while open_blocks > 0 and indents[open_blocks - 1] >= indent:
                open_blocks -= 1
        position, open_blocks, count = _read_line(
            text, position, indent, (indents, blocks, open_blocks), statements, count
        )
    return statements[:count]

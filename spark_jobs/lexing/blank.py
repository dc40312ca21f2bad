"""Blanking: a source without its comments and the insides of its strings, byte for byte where it was.

    x = f("a // b")  // why        x = f("      ")

Comments become spaces whole, strings between the bytes that open and close them; line ends stay, and so does code that
strings hold (`${...}`). So a regular expression over the result sees code alone, and finds places of the source itself.

What opens and closes a region is known from the lexers of deduplication (`language_syntax`, `regions`); languages that
they lack are added here. Numba's cache holds the entry alone, see `spark_jobs.dedup.bags.token_counting`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from spark_jobs.arrays import Int64Array, UInt8Array, UInt64Array
from spark_jobs.lexing.comments_and_strings import (
    APOSTROPHE,
    BRACE,
    COMMENT,
    DOLLAR,
    ONE_LINE,
    enter,
    open_region,
    release,
    special,
    string_prefix,
)
from spark_jobs.lexing.compiled_sources import sources_number
from spark_jobs.lexing.language_syntax import (
    CLOSE,
    KEYWORD_SLOTS,
    LEAD,
    LINE_END,
    NAME,
    OPEN,
    REGION_WORDS,
    SPACE,
    SYNTAXES,
    TO_TEXT,
    Flag,
    Prefix,
    Region,
    Syntax,
    byte_actions,
    packed,
)
from spark_jobs.lexing.lexers import word_hash
from spark_jobs.lexing.machine import (
    BEGIN,
    DEPTH,
    EXTRA,
    FLAGS,
    HELD,
    OPERAND,
    STACK,
    STATE_WORDS,
    Machine,
    byte_at,
    get_state,
    put_state,
    store,
)
from spark_jobs.lexing.words import hash_bytes

_NOTE: Final = Flag.REGION | Flag.COMMENT
_TEXT: Final = Flag.REGION | Flag.ESCAPES
_SLASHES: Final = Region(b"//", b"", _NOTE | Flag.ONE_LINE)
_NESTED: Final = Region(b"/*", b"*/", _NOTE | Flag.NESTED)
_DOUBLE: Final = Region(b'"', b'"', _TEXT | Flag.ONE_LINE)
_TRIPLE: Final = Region(b'"""', b'"""', Flag.REGION)

# Lua's apostrophes open strings; those of Scala and Swift are too often no strings to be worth a region.
_MORE: Final = (
    Syntax(("Scala",), (_SLASHES, _NESTED, _DOUBLE, _TRIPLE), ""),
    Syntax(("Swift",), (_SLASHES, _NESTED, _DOUBLE, _TRIPLE), ""),
    Syntax(
        ("Lua",),
        (
            Region(b"--", b"", _NOTE | Flag.ONE_LINE),
            Region(b"--[[", b"]]", _NOTE),
            Region(b"[[", b"]]", Flag.REGION),
            _DOUBLE,
            Region(b"'", b"'", _TEXT | Flag.ONE_LINE),
        ),
        "",
    ),
)
_LANGUAGES: Final = (*(syntax for syntax in SYNTAXES if syntax.languages), *_MORE)
_CODES: Final = {language: code for code, syntax in enumerate(_LANGUAGES) for language in syntax.languages}
BLANKED_LANGUAGES: Final = frozenset(_CODES)
"""Languages whose comments and strings are known."""

_SOURCES: Final = tuple(
    f"spark_jobs.lexing.{name}"
    for name in ("blank", "comments_and_strings", "language_syntax", "lexers", "machine", "words")
)
_KEYWORD_SHIFT: Final = np.uint64(64 - (KEYWORD_SLOTS - 1).bit_length())
_LONGEST_KEYWORD: Final = 16
_REGEX: Final = int(Prefix.REGEX)
_C_NUMBERS: Final = int(Prefix.C_NUMBERS)
_BRACE_CLOSE, _BLANK, _NEWLINE = ord("}"), np.uint8(ord(" ")), ord("\n")


class BlankingTables(NamedTuple):
    """What the compiled code knows of one language.

    Attributes:
        actions: (256,) uint8, what a byte of code may begin.
        word_bytes: (256,) uint8, 1 for bytes of a word; all bytes beyond ASCII are.
        keywords: (KEYWORD_SLOTS,) uint64, hashes of keywords, an open-addressing table by their top bits.
        first_region: (257,) int64; regions that byte b may open are first_region[b] to first_region[b + 1].
        regions: (R, 5) uint64, as in `language_syntax.SyntaxTables`.
        prefixes: `Prefix`.
        begins_in: region that a file begins in, or -1.
    """

    actions: UInt8Array
    word_bytes: UInt8Array
    keywords: UInt64Array
    first_region: Int64Array
    regions: UInt64Array
    prefixes: int
    begins_in: int


@cache
def blanking_tables(language: str) -> BlankingTables:
    """The tables of one of BLANKED_LANGUAGES."""
    syntax = _LANGUAGES[_CODES[language]]
    ordered = sorted(syntax.regions, key=lambda region: (region.opening[0], -len(region.opening)))
    keywords = np.zeros(KEYWORD_SLOTS, dtype=np.uint64)
    for keyword in dict.fromkeys(syntax.keywords.split()):
        h = word_hash(keyword.encode())
        slot = h >> int(_KEYWORD_SHIFT)
        while keywords[slot]:
            slot = (slot + 1) % KEYWORD_SLOTS
        keywords[slot] = h
    actions = byte_actions(syntax)
    word_bytes = np.array(
        [chr(byte).isalnum() or chr(byte) in ("_", syntax.word_byte) for byte in range(128)] + 128 * [1]
    )
    return BlankingTables(
        actions,
        word_bytes.astype(np.uint8),
        keywords,
        np.searchsorted([region.opening[0] for region in ordered], np.arange(257)).astype(np.int64),
        np.array(
            [(*packed(region.opening), *packed(region.closing), int(region.flags)) for region in ordered],
            dtype=np.uint64,
        ),
        int(syntax.prefixes),
        ordered.index(syntax.regions[syntax.begins_in]) if syntax.begins_in >= 0 else -1,
    )


def keywords_of(language: str) -> frozenset[str]:
    """Keywords of one of BLANKED_LANGUAGES, as far as its lexer knows them."""
    return frozenset(_LANGUAGES[_CODES[language]].keywords.split())


def blank(source: bytes, language: str) -> bytes:
    """A source without comments and the insides of strings.

    Args:
        source: UTF-8 text.
        language: one of BLANKED_LANGUAGES; other sources come back as they are.

    Returns:
        As many bytes as the source has; each is the source's byte or a space.
    """
    if language not in _CODES or not source:
        return source
    out = np.frombuffer(source, dtype=np.uint8).copy()
    _blank_into(np.frombuffer(source, dtype=np.uint8), out, blanking_tables(language))
    return out.tobytes()


@njit
def _erase(out: int, start: int, stop: int) -> None:
    """Make bytes spaces, but for line ends."""
    for i in range(start, stop):
        if byte_at(out + i) != _NEWLINE:
            store(out + i, _BLANK)


@njit
def _is_keyword(keywords: UInt64Array, h: np.uint64) -> bool:
    slot = np.int64(h >> _KEYWORD_SHIFT)
    while keywords[slot] != 0 and keywords[slot] != h:
        slot = (slot + 1) & (KEYWORD_SLOTS - 1)
    return keywords[slot] == h


@njit
def _word(m: Machine, i: int, tables: BlankingTables) -> int:
    """Past a word, or past the letters before a string and into it."""
    data, end, state, j = m.data, m.end, m.state, i + 1
    while j < end and tables.word_bytes[byte_at(data + j)] != 0:
        j += 1
    if m.prefixes & _C_NUMBERS and 48 <= byte_at(data + i) <= 57:
        while j + 1 < end and byte_at(data + j) == APOSTROPHE and tables.word_bytes[byte_at(data + j + 1)] != 0:
            j += 2
            while j < end and tables.word_bytes[byte_at(data + j)] != 0:
                j += 1
    if m.prefixes != 0 and j - i <= 3 and j < end:
        following = string_prefix(data, i, j, end, m.prefixes, state)
        if following > 0:
            return following
    operand = 1
    if m.prefixes & _REGEX and j - i <= _LONGEST_KEYWORD and _is_keyword(tables.keywords, hash_bytes(data, i, j)):
        operand = 0
    put_state(state, OPERAND, operand)
    return j


@njit
def _punctuation(data: int, i: int, end: int, action: int, state: int) -> int:
    """Past one byte of punctuation, or back into the string that holds this code."""
    held, byte = get_state(state, HELD), byte_at(data + i)
    put_state(state, OPERAND, 1 if action == CLOSE else 0)
    if held == 0:
        return i + 1
    if action == OPEN:
        put_state(state, DEPTH, get_state(state, DEPTH) + 1)
    elif action == CLOSE:
        if get_state(state, DEPTH) == 0 and byte == _BRACE_CLOSE:
            release(state)
        else:
            put_state(state, DEPTH, max(get_state(state, DEPTH) - 1, 0))
    elif action == TO_TEXT and get_state(state, DEPTH) == 0 and get_state(state, STACK + 4 * (held - 1)) & BRACE:
        differs = byte == 33 and i + 1 < end and byte_at(data + i + 1) == 61  # !=
        if not differs:
            release(state)
    return i + 1


@njit
def _line_end(state: int) -> None:
    """A string of one line that is not closed takes along what holds it."""
    held = get_state(state, HELD)
    if held > 0 and get_state(state, STACK + 4 * (held - 1)) & ONE_LINE:
        put_state(state, HELD, 0)
        put_state(state, DEPTH, 0)


@njit
def _code(m: Machine, i: int, out: int, tables: BlankingTables) -> int:
    """To the place after what opens the next region, or to the end."""
    data, end, state = m.data, m.end, m.state
    while i < end:
        action = tables.actions[byte_at(data + i)]
        if action == SPACE:
            i += 1
        elif action == LINE_END:
            _line_end(state)
            i += 1
        elif action == LEAD:
            j = open_region(m, i)
            put_state(state, EXTRA, 0)
            if get_state(state, FLAGS) != 0:
                if get_state(state, FLAGS) & COMMENT:
                    _erase(out, i, j)
                return j
            put_state(state, OPERAND, 0)
            i = max(j, i + 1)
        elif tables.word_bytes[byte_at(data + i)] != 0 or action == NAME:
            i = _word(m, i, tables)
        else:
            i = _punctuation(data, i, end, action, state)
        if get_state(state, FLAGS) != 0:
            return i
    return i


@njit
def _region(m: Machine, i: int, out: int, tables: BlankingTables) -> int:
    """To the place after what closes the region, or into code that it holds, or to the end."""
    data, end, state = m.data, m.end, m.state
    while i < end:
        flags = get_state(state, FLAGS)
        byte = byte_at(data + i)
        if tables.word_bytes[byte] != 0 and byte != DOLLAR:
            store(out + i, _BLANK)
            i += 1
            continue
        following = special(data, i, end, state)
        if following < 0:  # `$` and a name, which is code
            i += 1
            while i < end and tables.word_bytes[byte_at(data + i)] != 0:
                i += 1
            continue
        following = min(following, end)
        is_open = get_state(state, FLAGS) != 0
        if is_open or flags & COMMENT:
            _erase(out, i, following)
        i = following
        if not is_open:
            return i
    return i


def _entry(sources: int) -> Any:
    """The compiled entry. What a function encloses is part of the key that Numba caches it under."""

    @njit(cache=True)
    def blank_into(source: UInt8Array, out: UInt8Array, tables: BlankingTables) -> None:
        """Blank `out`, a copy of `source`."""
        state = np.zeros(STATE_WORDS if sources >= 0 else 0, np.int64)
        state[BEGIN] = np.int64(source.ctypes.data)
        address, none = np.int64(out.ctypes.data), np.int64(0)  # characters, tokens and their block: not needed
        m = Machine(
            np.int64(source.ctypes.data),
            np.int64(source.size),
            np.int64(state.ctypes.data),
            none,
            none,
            none,
            none,
            none,
            none,
            none,
            none,
            none,
            np.int64(tables.first_region.ctypes.data),
            np.int64(tables.regions.ctypes.data),
            np.int64(tables.prefixes),
            np.uint64(0),
        )
        if tables.begins_in >= 0:
            enter(m.state, m.regions + 8 * REGION_WORDS * tables.begins_in, 0)
        i = 0
        while i < m.end:
            i = _code(m, i, address, tables) if get_state(m.state, FLAGS) == 0 else _region(m, i, address, tables)

    return blank_into


_blank_into = _entry(sources_number(_SOURCES))

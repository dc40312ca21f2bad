"""Replace the comments of a source, and the insides of its strings, by spaces; all code stays at its byte position.

    x = f("a // b")  // why        x = f("      ")

Whole comments become spaces, and so does the inside of a string, between its opening and closing bytes. Line ends
stay, and so does code inside strings (`${...}`). So a regular expression over the result matches nothing but code,
at the byte positions of the source.

Comments and strings are found with the tables and functions of the lexers (`language_syntax`, `comments_and_strings`);
languages that those lack are described here. Numba caches the entry alone, see `spark_jobs.dedup.bags.token_counting`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from headrace.kernels.compiling import compiled, inner
from headrace.kernels.memory import byte_at, store
from spark_jobs.arrays import UInt8Array
from spark_jobs.lexing.comments_and_strings import (
    APOSTROPHE,
    COMMENT,
    DOLLAR,
    open_region,
    punctuation,
    step_in_region,
    string_prefix,
)
from spark_jobs.lexing.language_syntax import (
    REGION_START,
    SPACE,
    SYNTAXES,
    Flag,
    QuoteRules,
    Region,
    Syntax,
    SyntaxTables,
)
from spark_jobs.lexing.lex import begin_text, make_machine
from spark_jobs.lexing.lexers import FIRST_LANGUAGE, syntax_tables
from spark_jobs.lexing.machine import EXTRA, FLAGS, OPERAND, STATE_WORDS, Machine, get_state, new_block, put_state
from spark_jobs.lexing.word_characters import WordTables
from spark_jobs.lexing.words import LONGEST_KEYWORD, hash_bytes, is_keyword
from spark_jobs.threads import made_once

_NOTE: Final = Flag.REGION | Flag.COMMENT
_TEXT: Final = Flag.REGION | Flag.ESCAPES
_SLASHES: Final = Region(b"//", b"", _NOTE | Flag.ONE_LINE)
_NESTED: Final = Region(b"/*", b"*/", _NOTE | Flag.NESTED)
_DOUBLE: Final = Region(b'"', b'"', _TEXT | Flag.ONE_LINE)
_TRIPLE: Final = Region(b'"""', b'"""', Flag.REGION)

# Apostrophes open strings in Lua; in Scala and Swift most of them open none, so they are no region there.
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
_SYNTAX_OF: Final = {language: syntax for syntax in (*SYNTAXES, *_MORE) for language in syntax.languages}
BLANKED_LANGUAGES: Final = frozenset(_SYNTAX_OF)
"""Languages whose comments and strings `blank` recognises."""

_REGEX: Final = int(QuoteRules.REGEX)
_C_NUMBERS: Final = int(QuoteRules.C_NUMBERS)
_BLANK, _NEWLINE = np.uint8(ord(" ")), ord("\n")


@made_once
def blanking_tables(language: str) -> tuple[SyntaxTables, WordTables]:
    """Tables for one of BLANKED_LANGUAGES: its syntax, and the bytes that belong to words; all beyond ASCII do."""
    syntax = _SYNTAX_OF[language]
    of_word = [chr(byte).isalnum() or chr(byte) in ("_", syntax.word_byte) for byte in range(128)] + 128 * [True]
    return syntax_tables((syntax,)), WordTables(np.array(of_word, np.uint8), np.zeros(0, np.uint32))


def keywords_of(language: str) -> frozenset[str]:
    """Keywords of one of BLANKED_LANGUAGES; empty for Scala, Swift and Lua, which have no lexer of their own."""
    return frozenset(_SYNTAX_OF[language].keywords.split())


def blank(source: bytes, language: str) -> bytes:
    """Replace comments and the insides of strings by spaces.

    Args:
        source: UTF-8 text.
        language: name of its language; a source in none of BLANKED_LANGUAGES comes back as it is.

    Returns:
        As many bytes as the source has; each is the source's byte or a space.
    """
    if language not in BLANKED_LANGUAGES or not source:
        return source
    out = np.frombuffer(source, dtype=np.uint8).copy()
    _blank_into(np.frombuffer(source, dtype=np.uint8), out, *blanking_tables(language))
    return out.tobytes()


@inner
def _erase(out: int, start: int, stop: int) -> None:
    """Replace bytes by spaces, but keep line ends."""
    for i in range(start, stop):
        if byte_at(out + i) != _NEWLINE:
            store(out + i, _BLANK)


@inner
def _word_end(m: Machine, i: int) -> int:
    """The position of the first byte from i on that belongs to no word."""
    while i < m.end and byte_at(m.classes + byte_at(m.data + i)) != 0:
        i += 1
    return i


@inner
def _word(m: Machine, i: int) -> int:
    """The position after the word at i, or inside of the string whose prefix that word is."""
    data, state, j = m.data, m.state, _word_end(m, i + 1)
    if m.prefixes & _C_NUMBERS and 48 <= byte_at(data + i) <= 57:
        while j + 1 < m.end and byte_at(data + j) == APOSTROPHE and _word_end(m, j + 1) > j + 1:
            j = _word_end(m, j + 1)
    if m.prefixes != 0 and j - i <= 3 and j < m.end:
        following = string_prefix(data, i, j, m.end, m.prefixes, state)
        if following > 0:
            return following
    operand = 1
    if m.prefixes & _REGEX and j - i <= LONGEST_KEYWORD and is_keyword(m.keywords, hash_bytes(data, i, j)):
        operand = 0
    put_state(state, OPERAND, operand)
    return j


@inner
def _code(m: Machine, i: int, out: int) -> int:
    """Go past code up to the next region, or the end of the text; the position after the bytes that open it."""
    data, end, state = m.data, m.end, m.state
    while i < end:
        byte = byte_at(data + i)
        action = byte_at(m.actions + byte)
        if action == SPACE:
            i += 1
        elif action == REGION_START:
            j = open_region(m, i)
            put_state(state, EXTRA, 0)
            if get_state(state, FLAGS) != 0:
                if get_state(state, FLAGS) & COMMENT:
                    _erase(out, i, j)
                return j
            put_state(state, OPERAND, 0)
            i = max(j, i + 1)
        elif byte_at(m.classes + byte) != 0:
            i = _word(m, i)
        else:
            i = punctuation(data, i, end, action, state)
        if get_state(state, FLAGS) != 0:
            return i
    return i


@inner
def _region(m: Machine, i: int, out: int) -> int:
    """Blank up to the end of the region, to code inside it or to the text's end; the position to go on from."""
    data, end, state = m.data, m.end, m.state
    while i < end:
        flags = get_state(state, FLAGS)
        byte = byte_at(data + i)
        if byte_at(m.classes + byte) != 0 and byte != DOLLAR:
            store(out + i, _BLANK)
            i += 1
            continue
        following = step_in_region(data, i, end, state)
        if following < 0:  # `$` and a name, which is code
            i = _word_end(m, i + 1)
            continue
        following = min(following, end)
        is_open = get_state(state, FLAGS) != 0
        if is_open or flags & COMMENT:
            _erase(out, i, following)
        i = following
        if not is_open:
            return i
    return i


@compiled
def _blank_into(source: UInt8Array, out: UInt8Array, syntax: SyntaxTables, word_bytes: WordTables) -> None:
    """Blank `out`, a copy of `source`."""
    state = np.zeros(STATE_WORDS, np.int64)
    no_tokens = new_block(0)
    begin_text(np.int64(0), np.int64(FIRST_LANGUAGE), False, syntax, state)
    m = make_machine(source, source.size, FIRST_LANGUAGE, syntax, word_bytes, state, no_tokens)
    address = np.int64(out.ctypes.data)
    i = np.int64(0)  # else all below is compiled for the number 0, and again for any other
    while i < m.end:
        i = _code(m, i, address) if get_state(m.state, FLAGS) == 0 else _region(m, i, address)

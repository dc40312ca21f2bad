r"""Split the UTF-8 bytes of a text into tokens, in compiled code.

There are two lexers. That of *prose* gives words and, in scripts without spaces, bigrams of characters. That of *code*
switches between code and the regions of its language (comments, strings), whose insides are lexed as prose. A string
may contain code again (`${...}`); the strings around the present code are kept on a short stack:

    x = f"Total {count:>8}"  # In EUR      code x | text total | code count | text 8 | text in eur

A lexer stops when its block of tokens is full and goes on from its state at the next call, so a text of any length
needs one block. Every step moves on by at least one byte, and nothing is read beyond the end of the text.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from headrace.kernels.compiling import inner
from headrace.kernels.memory import byte_at
from spark_jobs.arrays import Int64Array, UInt8Array
from spark_jobs.lexing.comments_and_strings import (
    APOSTROPHE,
    COMMENT,
    enter_region,
    open_region,
    punctuation,
    step_in_region,
    string_prefix,
)
from spark_jobs.lexing.language_syntax import (
    DIGIT,
    KEYWORD_SLOTS,
    LINE_END,
    NAME,
    REGION_START,
    REGION_WORDS,
    SPACE,
    WIDE,
    QuoteRules,
    SyntaxTables,
)
from spark_jobs.lexing.lexers import FIRST_LANGUAGE, PROSE
from spark_jobs.lexing.machine import (
    BEGIN,
    EXTRA,
    FLAGS,
    IDENTIFIER,
    IN_SCRIPT,
    KEYWORD,
    MARK,
    NUMBER,
    OPERAND,
    QUOTED,
    STRUCTURE,
    TEXT,
    U64,
    Machine,
    TokenBlock,
    emit,
    get_state,
    put_state,
)
from spark_jobs.lexing.word_characters import WORD, WordTables
from spark_jobs.lexing.words import (
    CASE,
    LONGEST_KEYWORD,
    UNDERSCORES,
    ZERO,
    any_word,
    ascii_word,
    decode_at,
    hash_bytes,
    hash_step,
    is_keyword,
    lex_prose,
    wide_text,
    wide_word,
)

_C_NUMBERS: Final = int(QuoteRules.C_NUMBERS)
_STRING: Final = U64(0x22)
_DOT = ord(".")


@inner
def _number_end(data: int, i: int, end: int, family_c: bool) -> int:
    """The position after the number at i: digits, letters, `_`, fractions, signed exponents.

    In the family of C a number may end in a point or go on with a suffix after it, and quotes group digits.
    """
    exponent = 101  # e
    if i + 1 < end and byte_at(data + i) == 48 and byte_at(data + i + 1) | 32 == 120:
        exponent = 112  # p, after 0x
    while True:
        _, i = ascii_word(data, i, end, ZERO, UNDERSCORES)
        if i + 1 >= end:
            return i
        byte, following = byte_at(data + i), byte_at(data + i + 1)
        if byte == _DOT:
            goes_on = 48 <= following <= 57 or (family_c and following != _DOT)
        elif byte == APOSTROPHE:
            goes_on = family_c and (48 <= following <= 57 or 97 <= following | 32 <= 102)
        else:
            goes_on = byte in (43, 45) and byte_at(data + i - 1) | 32 == exponent and 48 <= following <= 57
        if not goes_on:
            return i
        i += 1


@inner
def _emit_structure(m: Machine, n: int, h: np.uint64, start: int, stop: int, kind: int) -> int:
    """Add a token of the classes KEYWORD, MARK or QUOTED if the caller asked for structure; the new token count."""
    if get_state(m.state, STRUCTURE) == 0:
        return n
    return emit(m, n, h, start, stop, kind)


@inner
def _name(m: Machine, i: int, n: int, action: int) -> tuple[int, int]:
    """Lex an identifier, a keyword, the prefix of a string, or a separator; the next position and the token count."""
    data, end, state = m.data, m.end, m.state
    if action == NAME:
        h, j = any_word(data, i, end, ZERO, m.word_byte, True, m.classes, m.lower)
    else:
        h, j = wide_word(data, i, end, ZERO, m.word_byte, True, m.classes, m.lower)
        if j == i:
            return i + decode_at(data, i, end)[1], n
    if m.prefixes != 0 and j - i <= 3 and j < end:
        following = string_prefix(data, i, j, end, m.prefixes, state)
        if following > 0:
            if get_state(state, FLAGS) != 0:
                n = _emit_structure(m, n, _STRING, i, following, QUOTED)
            return following, n
    if j - i <= LONGEST_KEYWORD and is_keyword(m.keywords, h):
        put_state(state, OPERAND, 0)
        n = _emit_structure(m, n, h, i, j, KEYWORD)
    else:
        put_state(state, OPERAND, 1)
        n = emit(m, n, h, i, j, IDENTIFIER)
    return j, n


@inner
def _code(m: Machine, i: int, n: int) -> tuple[int, int]:
    """Add tokens of code to the block until a region opens or the block is full; position and token count."""
    data, end, state = m.data, m.end, m.state
    while i < end and n < m.room:
        action = byte_at(m.actions + byte_at(data + i))
        if action == SPACE:
            i += 1
        elif action <= WIDE:
            i, n = _name(m, i, n, action)
            if get_state(state, FLAGS) != 0:
                return i, n
        elif action == DIGIT:
            j = _number_end(data, i, end, m.prefixes & _C_NUMBERS != 0)
            n = emit(m, n, hash_bytes(data, i, j), i, j, NUMBER)
            put_state(state, OPERAND, 1)
            i = j
        elif action == REGION_START:
            j = open_region(m, i)
            flags = get_state(state, FLAGS)
            if flags != 0:
                return j, n if flags & COMMENT else _emit_structure(m, n, _STRING, i, j, QUOTED)
            put_state(state, EXTRA, 0)
            if j == i:
                j += 1
                if byte_at(data + i) > 32:
                    put_state(state, OPERAND, 0)
                    n = _emit_structure(m, n, hash_step(ZERO, U64(byte_at(data + i))), i, j, MARK)
            i = j
        else:
            if action != LINE_END:
                n = _emit_structure(m, n, hash_step(ZERO, U64(byte_at(data + i))), i, i + 1, MARK)
            i = punctuation(data, i, end, action, state)
            if get_state(state, FLAGS) != 0:
                return i, n
    return i, n


@inner
def _region_text(m: Machine, i: int, n: int) -> tuple[int, int]:
    """Add words of a region to the block until it closes or the block is full; position and token count."""
    data, end, state, classes, lower = m.data, m.end, m.state, m.classes, m.lower
    while i < end and n < m.room:
        byte = byte_at(data + i)
        if byte >= 128:
            h, j, following, in_script = wide_text(data, i, end, CASE, get_state(state, IN_SCRIPT), classes, lower)
            put_state(state, IN_SCRIPT, in_script)
            if j > i:
                n = emit(m, n, h, i, j, TEXT)
            i = following
        elif byte_at(classes + byte) == WORD:
            h, j = any_word(data, i, end, CASE, UNDERSCORES, False, classes, lower)
            n = emit(m, n, h, i, j, TEXT)
            put_state(state, IN_SCRIPT, 0)
            i = j
        elif byte == 32:
            put_state(state, IN_SCRIPT, 0)
            i += 1
        else:
            put_state(state, IN_SCRIPT, 0)
            following = step_in_region(data, i, end, state)
            if following < 0:  # `$` and a name: an identifier of code, so its case is kept
                i += 1
                h, j = any_word(data, i, end, ZERO, m.word_byte, True, classes, lower)
                n = emit(m, n, h, i, j, IDENTIFIER)
                i = j
                continue
            i = following
            if get_state(state, FLAGS) == 0:
                return i, n
    return i, n


@inner
def begin_text(begin: int, lexer: int, structure: bool, syntax: SyntaxTables, state: Int64Array) -> None:
    """Set the state for the first byte of a text.

    Args:
        begin: position of that byte.
        lexer: code of the lexer.
        structure: whether tokens of the classes KEYWORD, MARK and QUOTED are made.
        syntax: descriptions of the languages.
        state: (STATE_WORDS,) int64, written over.
    """
    state[:] = 0
    state[BEGIN] = begin
    state[STRUCTURE] = structure
    if lexer >= FIRST_LANGUAGE and syntax.begins_in[lexer - FIRST_LANGUAGE] >= 0:
        region = syntax.begins_in[lexer - FIRST_LANGUAGE]
        enter_region(np.int64(state.ctypes.data), np.int64(syntax.regions.ctypes.data) + 8 * REGION_WORDS * region, 0)


@inner
def make_machine(
    data: UInt8Array,
    end: int,
    lexer: int,
    syntax: SyntaxTables,
    words: WordTables,
    state: Int64Array,
    block: TokenBlock,
) -> Machine:
    """Gather what the lexer of a text reads and writes. It holds addresses only, so the arrays must outlive it.

    Args:
        data: (N,) bytes, contiguous.
        end: position after the text's last byte.
        lexer: PROSE, GENERIC, or FIRST_LANGUAGE and more for the languages.
        syntax: descriptions of the languages.
        words: tables of all characters.
        state: (STATE_WORDS,) as `begin_text` or the call before has left it.
        block: receives the tokens; each call of `lex` fills it from its start.
    """
    language = max(lexer - FIRST_LANGUAGE, 0)
    return Machine(
        np.int64(data.ctypes.data),
        np.int64(end),
        np.int64(state.ctypes.data),
        np.int64(words.classes.ctypes.data),
        np.int64(words.lower.ctypes.data),
        np.int64(block.hashes.ctypes.data),
        np.int64(block.starts.ctypes.data),
        np.int64(block.ends.ctypes.data),
        np.int64(block.classes.ctypes.data),
        np.int64(block.hashes.size),
        np.int64(syntax.actions.ctypes.data) + 256 * language,
        np.int64(syntax.keywords.ctypes.data) + 8 * KEYWORD_SLOTS * language,
        np.int64(syntax.first_region.ctypes.data) + 8 * 257 * language,
        np.int64(syntax.regions.ctypes.data),
        np.int64(syntax.prefixes[language]),
        syntax.word_bytes[language],
    )


@inner
def lex(m: Machine, i: int, lexer: int) -> tuple[int, int]:
    """Fill the block with the next tokens of a text, from position i on.

    Returns:
        The position to go on from (the end when done), and the number of tokens.
    """
    if lexer < FIRST_LANGUAGE:
        return lex_prose(m, i, CASE if lexer == PROSE else ZERO)
    n = np.int64(0)  # else all below is compiled for the number 0, and again for any other
    while i < m.end and n < m.room:
        if get_state(m.state, FLAGS) == 0:
            i, n = _code(m, i, n)
        else:
            i, n = _region_text(m, i, n)
    return i, n

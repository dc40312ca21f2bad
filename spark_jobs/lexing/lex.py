r"""From the bytes of a text to its tokens, at the speed of compiled code.

Two machines share the words. *Prose* is words and, in scripts without spaces, bigrams. *Code* goes to and fro between
code and the regions of its language (comments, strings), whose insides are prose; strings may hold code again
(`${...}`), kept on a short stack:

    x = f"Total {count:>8}"  # In EUR      code x | text total | code count | text 8 | text in eur

A machine stops when the block of tokens is full and goes on later from its state, so a text of any length needs one
block. Every step moves on by at least one byte, and nothing is read beyond the end of the text.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from spark_jobs.arrays import Int64Array, UInt8Array
from spark_jobs.lexing.comments_and_strings import (
    APOSTROPHE,
    BRACE,
    COMMENT,
    ONE_LINE,
    enter,
    open_region,
    release,
    special,
    string_prefix,
)
from spark_jobs.lexing.language_syntax import (
    CLOSE,
    DIGIT,
    KEYWORD_SLOTS,
    LEAD,
    LINE_END,
    NAME,
    OPEN,
    REGION_WORDS,
    SPACE,
    TO_TEXT,
    WIDE,
    Prefix,
    SyntaxTables,
)
from spark_jobs.lexing.lexers import FIRST_LANGUAGE, PROSE
from spark_jobs.lexing.machine import (
    BEGIN,
    DEPTH,
    EXTRA,
    FLAGS,
    HELD,
    IDENTIFIER,
    KEYWORD,
    MARK,
    NUMBER,
    OPERAND,
    QUOTED,
    RUN,
    STACK,
    STRUCTURE,
    TEXT,
    U64,
    Block,
    Machine,
    byte_at,
    eight_bytes_at,
    emit,
    get_state,
    put_state,
)
from spark_jobs.lexing.word_characters import WORD, WordTables
from spark_jobs.lexing.words import (
    CASE,
    UNDERSCORES,
    ZERO,
    any_word,
    ascii_word,
    decode_at,
    hash_bytes,
    hash_step,
    lex_prose,
    wide_text,
    wide_word,
)

_C_NUMBERS: Final = int(Prefix.C_NUMBERS)
_KEYWORD_SHIFT: Final = U64(64 - (KEYWORD_SLOTS - 1).bit_length())
_LONGEST_KEYWORD: Final = 16
_STRING: Final = U64(0x22)
_BRACE_CLOSE, _DOT = ord("}"), ord(".")


@njit
def _is_keyword(keywords: int, h: np.uint64) -> bool:
    slot = np.int64(h >> _KEYWORD_SHIFT)
    while True:
        found = eight_bytes_at(keywords + 8 * slot)
        if found == ZERO or found == h:  # noqa: PLR1714, SIM109 - compiled to two compares
            return found == h
        slot = (slot + 1) & (KEYWORD_SLOTS - 1)


@njit
def _number_end(data: int, i: int, end: int, family_c: bool) -> int:
    """Where the number ends that begins at i: digits, letters, `_`, fractions, signed exponents.

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


@njit
def _part(m: Machine, n: int, h: np.uint64, start: int, stop: int, kind: int) -> int:
    """Make a token of what is no word of the code but a part of its structure, where that is asked for."""
    if get_state(m.state, STRUCTURE) == 0:
        return n
    return emit(m, n, h, start, stop, kind)


@njit
def _name(m: Machine, i: int, n: int, action: int) -> tuple[int, int]:
    """Past an identifier, a keyword, the letters before a string, or a character that separates."""
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
                n = _part(m, n, _STRING, i, following, QUOTED)
            return following, n
    if j - i <= _LONGEST_KEYWORD and _is_keyword(m.keywords, h):
        put_state(state, OPERAND, 0)
        n = _part(m, n, h, i, j, KEYWORD)
    else:
        put_state(state, OPERAND, 1)
        n = emit(m, n, h, i, j, IDENTIFIER)
    return j, n


@njit
def _code(m: Machine, i: int, n: int) -> tuple[int, int]:
    """Add tokens of code to the block until a region opens; where it stopped, and how many tokens the block has."""
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
        elif action == LEAD:
            j = open_region(m, i)
            flags = get_state(state, FLAGS)
            if flags != 0:
                return j, n if flags & COMMENT else _part(m, n, _STRING, i, j, QUOTED)
            put_state(state, EXTRA, 0)
            if j == i:
                j += 1
                if byte_at(data + i) > 32:
                    put_state(state, OPERAND, 0)
                    n = _part(m, n, hash_step(ZERO, U64(byte_at(data + i))), i, j, MARK)
            i = j
        else:
            if action != LINE_END:
                n = _part(m, n, hash_step(ZERO, U64(byte_at(data + i))), i, i + 1, MARK)
            i = _punctuation(data, i, end, action, state)
            if get_state(state, FLAGS) != 0:
                return i, n
    return i, n


@njit
def _punctuation(data: int, i: int, end: int, action: int, state: int) -> int:
    """Past one byte of punctuation, or back into the string that holds this code."""
    held, byte = get_state(state, HELD), byte_at(data + i)
    if action == CLOSE:
        put_state(state, OPERAND, 1)
        if held > 0:
            if get_state(state, DEPTH) == 0 and byte == _BRACE_CLOSE:
                release(state)
            else:
                put_state(state, DEPTH, max(get_state(state, DEPTH) - 1, 0))
    elif action != LINE_END:
        put_state(state, OPERAND, 0)
        if held > 0:
            if action == OPEN:
                put_state(state, DEPTH, get_state(state, DEPTH) + 1)
            elif (
                action == TO_TEXT and get_state(state, DEPTH) == 0 and get_state(state, STACK + 4 * (held - 1)) & BRACE
            ):
                differs = byte == 33 and i + 1 < end and byte_at(data + i + 1) == 61  # !=
                if not differs:
                    release(state)
    elif held > 0 and get_state(state, STACK + 4 * (held - 1)) & ONE_LINE:
        put_state(state, HELD, 0)  # a string of one line ended unclosed: whatever held it is over too
        put_state(state, DEPTH, 0)
    return i + 1


@njit
def _region_text(m: Machine, i: int, n: int) -> tuple[int, int]:
    """Add words of a region to the block until it closes; where it stopped, and how many tokens the block has."""
    data, end, state, classes, lower = m.data, m.end, m.state, m.classes, m.lower
    while i < end and n < m.room:
        byte = byte_at(data + i)
        if byte >= 128:
            h, j, following, run = wide_text(data, i, end, CASE, get_state(state, RUN), classes, lower)
            put_state(state, RUN, run)
            if j > i:
                n = emit(m, n, h, i, j, TEXT)
            i = following
        elif byte_at(classes + byte) == WORD:
            # After `$` the name is an identifier, see below: as it is, with what identifiers may have.
            h, j = any_word(data, i, end, CASE, UNDERSCORES, False, classes, lower)
            n = emit(m, n, h, i, j, TEXT)
            put_state(state, RUN, 0)
            i = j
        elif byte == 32:
            put_state(state, RUN, 0)
            i += 1
        else:
            put_state(state, RUN, 0)
            following = special(data, i, end, state)
            if following < 0:
                i += 1
                h, j = any_word(data, i, end, ZERO, m.word_byte, True, classes, lower)
                n = emit(m, n, h, i, j, IDENTIFIER)
                i = j
                continue
            i = following
            if get_state(state, FLAGS) == 0:
                return i, n
    return i, n


@njit
def begin_text(begin: int, lexer: int, structure: bool, syntax: SyntaxTables, state: Int64Array) -> None:
    """Make the state that of a text's first byte, at `begin`; `structure` asks for the tokens from KEYWORD on."""
    state[:] = 0
    state[BEGIN] = begin
    state[STRUCTURE] = structure
    if lexer >= FIRST_LANGUAGE and syntax.begins_in[lexer - FIRST_LANGUAGE] >= 0:
        region = syntax.begins_in[lexer - FIRST_LANGUAGE]
        enter(np.int64(state.ctypes.data), np.int64(syntax.regions.ctypes.data) + 8 * REGION_WORDS * region, 0)


@njit
def machine(
    data: UInt8Array, end: int, lexer: int, syntax: SyntaxTables, words: WordTables, state: Int64Array, block: Block
) -> Machine:
    """The lexer of a text. The arrays must outlive it: it has but their addresses.

    Args:
        data: (N,) bytes, contiguous.
        end: position after the text's last byte.
        lexer: PROSE, GENERIC, or FIRST_LANGUAGE and more for the languages.
        syntax: descriptions of the languages.
        words: tables of all characters.
        state: (STATE_WORDS,) as `begin_text` or the call before has left it.
        block: what the tokens are written to, from its start at each call of `lex`.
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


@njit
def lex(m: Machine, i: int, lexer: int) -> tuple[int, int]:
    """Fill the block with the next tokens of a text, from position i on.

    Returns:
        The position to go on from (the end when done), and the number of tokens.
    """
    if lexer < FIRST_LANGUAGE:
        return lex_prose(m, i, CASE if lexer == PROSE else ZERO)
    n = 0
    while i < m.end and n < m.room:
        if get_state(m.state, FLAGS) == 0:
            i, n = _code(m, i, n)
        else:
            i, n = _region_text(m, i, n)
    return i, n

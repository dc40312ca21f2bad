"""The memory of the compiled lexers, by address (`headrace.kernels.memory`): their state, and their tokens."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from headrace.kernels.compiling import inner
from headrace.kernels.memory import eight_bytes_at, store
from spark_jobs.arrays import Int64Array, UInt8Array, UInt64Array

U64 = np.uint64

IDENTIFIER: Final = 0
NUMBER: Final = 1
TEXT: Final = 2
KEYWORD: Final = 3
MARK: Final = 4
QUOTED: Final = 5
"""Classes of tokens; TEXT is a word of prose, also of the prose in comments and strings.

KEYWORD, MARK (a byte of punctuation) and QUOTED (the opening of a string, whatever the string contains) are made of
code alone, and only where the caller asks for its structure.
"""

MAX_STRING_DEPTH: Final = 8
"""Most levels of code inside strings inside code that a lexer follows."""

# The state of a lexer between two blocks: int64 words, then MAX_STRING_DEPTH strings of 4 words each.
FLAGS, CLOSING, CLOSING_MASK, OPENING, NESTING, IN_CLASS, IN_SCRIPT = range(7)
OPERAND, STRING_DEPTH, BRACE_DEPTH, EXTRA, BEGIN, STRUCTURE = range(7, 13)
STACK: Final = 16
STATE_WORDS: Final = STACK + 4 * MAX_STRING_DEPTH


class Machine(NamedTuple):
    """The inputs and outputs of a lexer, as addresses and numbers.

    Attributes:
        data, end: address of the byte at position 0; position after the text's last byte.
        state: address of STATE_WORDS int64.
        classes, lower: addresses of `WordTables`.
        hashes, starts, ends, kinds, room: addresses of the arrays of the `TokenBlock`; number of tokens that fit.
        actions, keywords, first_region, regions: addresses of the language's rows of `SyntaxTables`.
        prefixes, word_byte: the language's, as in `SyntaxTables`.
    """

    data: int
    end: int
    state: int
    classes: int
    lower: int
    hashes: int
    starts: int
    ends: int
    kinds: int
    room: int
    actions: int
    keywords: int
    first_region: int
    regions: int
    prefixes: int
    word_byte: np.uint64


class TokenBlock(NamedTuple):
    """Tokens in text order, up to the length of the arrays.

    Attributes:
        hashes: (B,) uint64, before salt and mixing.
        starts: (B,) int64 byte position.
        ends: (B,) int64 byte position after the token.
        classes: (B,) uint8: IDENTIFIER, NUMBER, TEXT; KEYWORD, MARK, QUOTED.
    """

    hashes: UInt64Array
    starts: Int64Array
    ends: Int64Array
    classes: UInt8Array


@inner
def new_block(token_count: int) -> TokenBlock:
    """A block with room for `token_count` tokens, uninitialised."""
    return TokenBlock(
        np.empty(token_count, np.uint64),
        np.empty(token_count, np.int64),
        np.empty(token_count, np.int64),
        np.empty(token_count, np.uint8),
    )


@inner
def get_state(state: int, word: int) -> int:
    """Read the number at index `word` of the state."""
    return np.int64(eight_bytes_at(state + 8 * word))


@inner
def put_state(state: int, word: int, number: int) -> None:
    """Set the number at index `word` of the state."""
    store(state + 8 * word, np.int64(number))


@inner
def emit(m: Machine, n: int, h: np.uint64, start: int, stop: int, kind: int) -> int:
    """Write a token to the block at index n; the new token count."""
    store(m.hashes + 8 * n, h)
    store(m.starts + 8 * n, np.int64(start))
    store(m.ends + 8 * n, np.int64(stop))
    store(m.kinds + n, np.uint8(kind))
    return n + 1

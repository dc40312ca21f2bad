"""The common memory of the compiled heuristics: the characters of texts, their words and counts, by address."""

from __future__ import annotations

from collections import namedtuple
from typing import Final, NamedTuple

import numpy as np

from headrace.kernels.compiling import inner
from headrace.kernels.memory import eight_bytes_at, four_bytes_at, store

RUN_POINTS: Final = 1024
"""Longer runs of characters without white space are cut into parts of this length, which bounds the working memory."""
ENDS_SENTENCE, IS_PUNCTUATION, AFTER_SPACES = 1, 2, 4
"""Flags of a word, in `KINDS`."""
_Counts = namedtuple(
    "_Counts",
    "words content_words content_characters spaceless_words alphabetic_words stop_words pieces bullet_pieces "
    "ellipsis_pieces filled_pieces list_pieces table_pieces log_pieces trace_pieces kept_pieces sentences "
    "javascript policy braces lorem lf lines filled_lines terminal_lines short_lines hashes ellipses letters "
    "capitals link_characters placeholders mojibake xml_head characters measured_characters line_elements "
    "duplicate_lines duplicate_line_characters filled_duplicate_characters paragraphs duplicate_paragraphs "
    "duplicate_paragraph_characters sample compressed",
)
AT: Final = _Counts(*range(len(_Counts._fields)))
"""The index of each count in the row of a text; the first `WORD_COUNTS` are those that `words.find_words` adds up."""
WORD_COUNTS: Final = 6


class KernelAddresses(NamedTuple):
    """The inputs and outputs of the kernels, as addresses (`headrace.kernels.memory` says why).

    There are five, few enough for compiled functions to pass them in registers; all others are looked up in `memory`.

    Attributes:
        points: uint32 code points of all texts of a chunk.
        flags: `character_flags`.
        rules: `rule_table`; shapes: `rule_shapes`.
        memory: int64 addresses, in the order of the constants below.
    """

    points: int
    flags: int
    rules: int
    shapes: int
    memory: int


HASHES, STARTS, LENGTHS, KINDS, ROOM, BOUNDS, TOTALS, FOLDS, MOVES, OUTPUTS, FIRST_OUTPUT = range(11)
"""Indices into `KernelAddresses.memory`.

HASHES, STARTS, LENGTHS, KINDS, ROOM: of the words of a text (uint64, int32, int32, uint8), and how many of them fit.
BOUNDS: (3 * RUN_POINTS,) int32, the starts and ends of the words of a run, then the ends of its suffixes.
TOTALS: int64, the counts of the text, by `AT`.
FOLDS, MOVES, OUTPUTS, FIRST_OUTPUT: the parts of `phrases.automaton`.
"""


@inner
def held(r: KernelAddresses, index: int) -> np.int64:
    """The address or number at an index of the memory, such as `HASHES`."""
    return np.int64(eight_bytes_at(r.memory + 8 * index))


@inner
def point_at(r: KernelAddresses, i: int) -> int:
    """Code point at i."""
    point: int = four_bytes_at(r.points + 4 * i)
    return point


@inner
def flags_at(r: KernelAddresses, i: int) -> int:
    """Flags of the code point at i."""
    flags: int = four_bytes_at(r.flags + 4 * four_bytes_at(r.points + 4 * i))
    return flags


@inner
def add(address: int, index: int, number: int) -> None:
    """Add a number to one of the int64s at an address."""
    store(address + 8 * index, np.int64(eight_bytes_at(address + 8 * index)) + np.int64(number))

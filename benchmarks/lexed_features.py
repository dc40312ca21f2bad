"""Features of any make, from the lexed tokens of texts with NumPy: what the compiled ones are compared with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from headrace.kernels.mixing import GOLDEN, mix64
from spark_jobs.dedup.bags.token_counting import lex_text
from spark_jobs.dedup.bags.token_counts import TokenCounts
from spark_jobs.lexing.lexers import syntax_tables
from spark_jobs.lexing.machine import KEYWORD, TEXT, TokenBlock
from spark_jobs.lexing.word_characters import word_tables

UInt64Array = npt.NDArray[np.uint64]


def lexed(text: str, lexer: int) -> TokenBlock:
    """The tokens of a text, the parts of its structure too."""
    data = np.frombuffer(text.encode("utf-8", "replace"), np.uint8)
    block: TokenBlock = lex_text(data, lexer, True, syntax_tables(), word_tables())
    return block


def words(block: TokenBlock) -> UInt64Array:
    """Hashes of the words in order."""
    return mixed(block.hashes[block.classes < KEYWORD])


def parts(block: TokenBlock, names: bool) -> UInt64Array:
    """Hashes of the parts of code in order; identifiers are all one part, or as they are named."""
    kept = block.classes != TEXT
    hashes, classes = block.hashes[kept], block.classes[kept]
    same = (classes < TEXT) if not names else (classes > 0) & (classes < TEXT)
    return mixed(np.where(same, classes.astype(np.uint64), hashes))


def runs_of(hashes: UInt64Array, size: int) -> UInt64Array:
    """Hashes of `size` in a row; fewer than that are one run."""
    size = min(size, len(hashes))
    found = hashes[: len(hashes) - size + 1].copy()
    for place in range(1, size):
        found = mixed(found * np.uint64(31) + hashes[place : len(hashes) - size + 1 + place])
    return found


def mixed(hashes: UInt64Array) -> UInt64Array:
    """What splitmix64 gives at each hash."""
    found: UInt64Array = mix64(hashes + GOLDEN)
    return found


def counted(features: Sequence[UInt64Array]) -> TokenCounts:
    """Features of D documents, counted; nobody asks where they stand."""
    found = [np.unique(own, return_counts=True) for own in features]
    hashes = np.concatenate([own for own, _ in found])
    counts = np.concatenate([number for _, number in found]).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum([len(own) for own, _ in found])]).astype(np.int64)
    return TokenCounts(offsets, hashes, counts, np.zeros(len(hashes), np.int64), np.zeros(len(hashes), np.int32))

"""Count the distinct tokens of texts, read from Arrow's buffers without a copy: the first half of making a bag.

    "The cat, the hat"  ->  cat 1, hat 1, the 2      as 64-bit hashes, ascending

What a token is depends on the document's lexer (`spark_jobs.lexing.lexers`). A hash is salted by the document's kind,
so that the word `data` of a prose page and the identifier `data` are different tokens. The features that the corpus has
chosen are counted (`features`): the words, pairs of words, or the words and the structure of code; from here on all of
them are called tokens.

Texts are lexed in blocks of 1,024 tokens, whatever their length. Memory beyond the result: up to 24 bytes per slot of
the table of the largest document's distinct tokens (less than three slots a token), and while the result grows its
double.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.arrays import Int32Array, Int64Array, UInt8Array, UInt64Array
from spark_jobs.dedup.bags.features import WORDS, Features
from spark_jobs.dedup.bags.token_counting import count_texts
from spark_jobs.exceptions import InputError
from spark_jobs.lexing.lexers import LEXERS, syntax_digest, syntax_tables
from spark_jobs.lexing.word_characters import tables_digest, word_tables
from spark_jobs.text.text_columns import utf8_buffer

TOKEN_RULES: Final = 5
"""Bump when a token of any text changes for another reason than the tables of characters and languages."""

_MOST_BYTES: Final = 2**31 - 1  # lengths have 32 bits

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True)
class TokenCounts:
    """Distinct tokens of D documents, T in all.

    Attributes:
        offsets: (D + 1,) int64; the tokens of document d are offsets[d] to offsets[d + 1].
        hashes: (T,) uint64, never 0, ascending inside a document.
        counts: (T,) int32 occurrences in the document.
        starts: (T,) int64 byte position of the first occurrence in the column's buffer (`text_columns.utf8_buffer`), of
            a pair or n-gram that of its last token.
        lengths: (T,) int32 bytes of the first occurrence; 0 of pairs and n-grams with their many spellings.
    """

    offsets: Int64Array
    hashes: UInt64Array
    counts: Int32Array
    starts: Int64Array
    lengths: Int32Array


def count_tokens(
    content: pa.Array, lexers: UInt8Array, salts: UInt64Array, features: UInt8Array | None = None
) -> TokenCounts:
    """Count the tokens of every document of a column.

    Args:
        content: (D,) strings, none of them null; string or large_string, slices too.
        lexers: (D,) uint8 codes, see `lexers.lexer_of`.
        salts: (D,) uint64, see `features.kind_salt`.
        features: (D,) uint8 codes, see `features`; without them the words are counted.

    Raises:
        InputError: a null, a document of more than 2^31 - 1 bytes, an unknown lexer, or columns of unlike length.
    """
    if features is None:
        features = np.full(len(content), WORDS, np.uint8)
    if content.null_count:
        raise InputError(f"tokens: {content.null_count} of {len(content)} texts are null; leave such documents out")
    if not len(content) == len(lexers) == len(salts) == len(features):
        raise InputError(
            f"tokens: {len(content)} texts with {len(lexers)} lexers, {len(salts)} salts and {len(features)} features; "
            "give one of each per text"
        )
    if len(lexers) and int(lexers.max()) >= len(LEXERS):
        raise InputError(f"tokens: lexer {int(lexers.max())} is unknown, the last is {len(LEXERS) - 1}; use lexer_of")
    offsets, buffer = utf8_buffer(content)
    if len(content) and int(np.diff(offsets).max()) > _MOST_BYTES:
        raise InputError(f"tokens: a text has {int(np.diff(offsets).max())} bytes, at most {_MOST_BYTES} fit; split it")
    bounds, out, total = count_texts(
        _read_only(np.frombuffer(buffer, dtype=np.uint8)),
        _read_only(offsets),
        _read_only(np.ascontiguousarray(lexers, dtype=np.uint8)),
        _read_only(np.ascontiguousarray(salts, dtype=np.uint64)),
        _read_only(np.ascontiguousarray(features, dtype=np.uint8)),
        syntax_tables(),
        word_tables(),
    )
    return TokenCounts(bounds, out.hashes[:total], out.counts[:total], out.starts[:total], out.lengths[:total])


def _read_only(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """A read-only view, so that Numba sees one type of array and compiles once, whoever owns the memory."""
    view = array.view()
    view.flags.writeable = False
    return view


@cache
def token_version(features: Features) -> str:
    """A short identifier of the rules from texts to tokens; under equal strings tokens are equal.

    It has the rules of this code, 16 hex digits over the tables of characters (they come from this Python) and of
    languages, and the features of each kind.
    """
    digest = hashlib.sha256(f"{tables_digest()} {syntax_digest()}".encode()).hexdigest()[:16]
    chosen = " ".join(f"{kind}={name}" for kind, name in features.model_dump().items())
    return f"tokens-{TOKEN_RULES}-{digest} {chosen}"

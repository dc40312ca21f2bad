"""Texts to their distinct tokens with counts, straight from Arrow's buffers: the first half of a bag.

    "The cat, the hat"  ->  cat 1, hat 1, the 2      as 64-bit hashes, ascending

What a token is depends on the document's lexer (`lexers`); `token_lexing` and `token_counting` have the compiled code.
A hash is salted by the document's kind, so that the word `data` of a prose page and the identifier `data` share
nothing. What is counted are the features that the corpus has chosen (`features`): the words, pairs of words, or the
words and the structure of code; all are called tokens from here on.

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

from spark_jobs.dedup.bags.features import WORDS, Features
from spark_jobs.dedup.bags.token_counting import count_texts
from spark_jobs.exceptions import InputError
from spark_jobs.lexing.lexers import LEXERS, syntax_digest, syntax_tables
from spark_jobs.lexing.word_characters import tables_digest, word_tables
from spark_jobs.text.text_columns import utf8_buffer

TOKEN_RULES: Final = 2
"""Bump when a token of any text changes for another reason than the tables of characters and languages."""

_MOST_BYTES: Final = 2**31 - 1

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True)
class TokenCounts:
    """Distinct tokens of D documents, T in all.

    Attributes:
        offsets: (D + 1,) int64; the tokens of document d are offsets[d] to offsets[d + 1].
        hashes: (T,) uint64, never 0, ascending inside a document.
        counts: (T,) int32 occurrences in the document.
        starts: (T,) int64 byte position of the first occurrence in the column's buffer (`text_columns.utf8_buffer`), of
            a pair or run that of its last token.
        lengths: (T,) int32 bytes of the first occurrence; 0 of pairs and runs, which may be spelled in many ways.
    """

    offsets: npt.NDArray[np.int64]
    hashes: npt.NDArray[np.uint64]
    counts: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int32]


def count_tokens(
    content: pa.Array,
    lexers: npt.NDArray[np.uint8],
    salts: npt.NDArray[np.uint64],
    features: npt.NDArray[np.uint8] | None = None,
) -> TokenCounts:
    """Count the tokens of every document of a column.

    Args:
        content: (D,) strings, none of them null; string or large_string, slices too.
        lexers: (D,) uint8 codes, see `lexers.lexer_of`.
        salts: (D,) uint64, see `kinds.kind_salt`.
        features: (D,) uint8 codes, see `features`; the words where not given.

    Returns:
        Tokens of all documents; one without any has none.

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
    """A view that cannot be written, so that the compiled code sees one type whoever owns the memory."""
    view = array.view()
    view.flags.writeable = False
    return view


@cache
def token_version(features: Features) -> str:
    """What the tokens of any text depend on, in a short string; other strings may mean other tokens.

    Rules of this code, 16 hex digits over the tables of characters (they come from this Python) and languages, and the
    features of each kind.
    """
    digest = hashlib.sha256(f"{tables_digest()} {syntax_digest()}".encode()).hexdigest()[:16]
    chosen = " ".join(f"{kind}={name}" for kind, name in features.model_dump().items())
    return f"tokens-{TOKEN_RULES}-{digest} {chosen}"

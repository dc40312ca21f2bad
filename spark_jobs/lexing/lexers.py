"""Choose the lexer of a document, and make the languages' tables for the compiled code.

- **prose**: words, lower-cased.
- **a language's own** (the languages of `language_syntax`): identifiers and numbers as they are; keywords and
  punctuation do not count; words of comments and strings as prose. All share one token space, so the word `total` of a
  comment is the identifier `total`. Code that was commented out, a key that became an attribute, and above all a string
  that a cut file left open therefore change few tokens, and the vocabulary is smaller. Documents are told apart by
  their rare tokens in any case.
- **generic** (other code, markup, data): words as they are, in code, comments and strings alike.

A language's lexer is no parser. It does not recognise: here-documents and `%w[]` of Shell, Ruby and Perl, text between
tags of JSX (an apostrophe there opens a string, up to the end of its line), regular expressions of JavaScript after `)`
and `}`, delimiters of C++ raw strings beyond their sixth byte, code in braces in strings of PHP, and strings nested in
strings beyond eight levels.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Final

import numpy as np

from headrace.kernels.mixing import plain_hash
from spark_jobs.lexing.language_syntax import (
    KEYWORD_SLOTS,
    SYNTAXES,
    Region,
    Syntax,
    SyntaxTables,
    byte_actions,
    packed,
)
from spark_jobs.threads import made_once

PROSE: Final = 0
GENERIC: Final = 1
FIRST_LANGUAGE: Final = 2

LEXERS: Final = ("prose", "generic", *(syntax.languages[0] for syntax in SYNTAXES))
"""Names of lexers by their codes."""

_BY_LANGUAGE: Final = {
    language: FIRST_LANGUAGE + code for code, syntax in enumerate(SYNTAXES) for language in syntax.languages
}


def lexer_of(kind: str, language: str | None) -> int:
    """The code of the lexer for a document.

    Args:
        kind: `documents.kind`: code, prose, markup, data.
        language: `documents.language`, None where it is not known.
    """
    if kind == "prose":
        return PROSE
    return _BY_LANGUAGE.get(language or "", GENERIC) if kind == "code" else GENERIC


def word_hash(word: bytes) -> int:
    """Hash of a token's bytes, before salt and mixing; equal to that of the compiled lexers (`words.hash_bytes`)."""
    return plain_hash(int.from_bytes(word[start : start + 8], "little") for start in range(0, len(word), 8))


@made_once
def syntax_tables(syntaxes: tuple[Syntax, ...] = SYNTAXES) -> SyntaxTables:
    """The arrays of some languages for compiled code, by default of all that have a lexer of their own."""
    from headrace.kernels.hash_tables import key_slot

    languages = len(syntaxes)
    keywords = np.zeros((languages, KEYWORD_SLOTS), dtype=np.uint64)
    first_region = np.zeros((languages, 257), dtype=np.int64)
    begins_in = np.full(languages, -1, dtype=np.int64)
    regions: list[Region] = []
    for code, syntax in enumerate(syntaxes):
        for keyword in dict.fromkeys(syntax.keywords.split()):
            h = word_hash(keyword.encode())
            keywords[code, key_slot.py_func(keywords[code], h >> 64 - (KEYWORD_SLOTS - 1).bit_length(), h)] = h
        ordered = sorted(syntax.regions, key=lambda region: (region.opening[0], -len(region.opening)))
        if syntax.begins_in >= 0:
            begins_in[code] = len(regions) + ordered.index(syntax.regions[syntax.begins_in])
        first_bytes = [region.opening[0] for region in ordered]
        first_region[code] = len(regions) + np.searchsorted(first_bytes, np.arange(257))
        regions += ordered
    return SyntaxTables(
        actions=np.stack([byte_actions(syntax) for syntax in syntaxes]),
        keywords=keywords,
        word_bytes=np.array([ord(syntax.word_byte) * 0x0101010101010101 for syntax in syntaxes], dtype=np.uint64),
        prefixes=np.array([syntax.prefixes for syntax in syntaxes], dtype=np.int64),
        begins_in=begins_in,
        first_region=first_region,
        regions=np.array(
            [(*packed(region.opening), *packed(region.closing), int(region.flags)) for region in regions],
            dtype=np.uint64,
        ),
    )


@cache
def syntax_digest() -> str:
    """SHA-256 of the descriptions of all languages, in hex."""
    parts = (array.astype(array.dtype.newbyteorder("<")).tobytes() for array in syntax_tables())
    return hashlib.sha256(b"".join(parts)).hexdigest()

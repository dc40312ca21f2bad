"""The features compared between documents: words, pairs of words, words and the structure of code, runs of words.

- **words**: every word is a feature.
- **word_pairs**: every two consecutive words are a feature; a text of one word has that word. Unrelated documents share
  fewer pairs than words, so a corpus of 10^8 documents or more needs fewer band keys; the same edit costs more
  similarity.
- **words_and_structure**, of code: the words, and half of the n-grams of its parts, n = STRUCTURE_TOKENS. Keywords and
  punctuation are parts unchanged; all identifiers are one part, so are all numbers and all strings; comments are left
  out. New names and new comments change the words and leave the structure.

      total = rate * 3  # in EUR     words: total rate 3 in eur     4-grams: [a = a *] [= a * 1]

The hash of an n-gram decides whether it is in the half that is taken, so two documents take the same ones of those they
share. `docs/start/performance.md` has the measurements. Code in a language without a lexer of its own has words
alone.

- **word_runs**: every word counts as the run of three words up to it; from the third occurrence of a run on,
also as that of 6, then of 12 and of 24 words.

A bag has no order and counts a word at most four times, so all texts of few different words would be duplicates of each
other: tables of small numbers, series, genes. Therefore a text counts words (or pairs) only while enough of them
differ: once more than two fifths of the different ones so far have occurred four times, each further word counts as
its run. (Two are added to the different ones, so that the first words decide nothing.) Where a third of the different
ones, of eight and more, have a digit, those are left out: in `1. A 2. C 3. B`, `{"t": 7, "on": true}` and
`feature_7: true` all numbers and labels differ, and all texts have them. (Labels that occurred four times are then left
out too, so that a text of labels alone is one of words.) Texts with words enough are counted as they
would be without this rule, and J remains the exact similarity of two bags.

      1 0 1 1 0 0 1 0 | 1 1 0 ...     of two words both have occurred four times: from here on 0 1 1, then 1 1 0, ...

Each kind of document has a vocabulary and a token space of its own: hashes are salted by the kind.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
from pydantic import model_validator

from spark_jobs.lake.declare.step import ConfigModel
from spark_jobs.lexing.lexers import lexer_of
from spark_jobs.sources.config.file_reading import KINDS

WORDS: Final = 0
WORD_PAIRS: Final = 1
WORDS_AND_STRUCTURE: Final = 2
WORD_RUNS: Final = 3

STRUCTURE_TOKENS: Final = 8
OFTEN: Final = 4
"""Occurrences of a word, in one text, from which on further ones add no information."""
FIRST_WORDS: Final = 8
NUMBERS_OF: Final = 3
"""With so many different words or more, those with a digit are left out once they are one in so many."""
RUN_WORDS: Final = (3, 6, 12, 24)
"""Lengths of runs. Strangers among monthly series are alike to 0.44 by runs of two, to 0.12 by runs of three."""
RUN_OFTEN: Final = 2

_CODES: Final = {
    "words": WORDS,
    "word_pairs": WORD_PAIRS,
    "words_and_structure": WORDS_AND_STRUCTURE,
    "word_runs": WORD_RUNS,
}
_OfText = Literal["words", "word_pairs", "word_runs"]


class Features(ConfigModel):
    """The compared features, by kind of document; a single name in place of a mapping is for all kinds."""

    code: Literal["words", "word_pairs", "word_runs", "words_and_structure"] = "words_and_structure"
    prose: _OfText = "words"
    markup: _OfText = "words"
    data: _OfText = "word_runs"

    @model_validator(mode="before")
    @classmethod
    def _one_for_all(cls, features: Any) -> Any:
        """Expand a single name to all kinds: "words" -> {"code": "words", "prose": "words", ..}."""
        return dict.fromkeys(KINDS, features) if isinstance(features, str) else features


def token_rules(
    kinds: Sequence[str], languages: Sequence[str | None], features: Features
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint64], npt.NDArray[np.uint8]]:
    """The lexer, salt and features of D documents, as arguments of `token_counts.count_tokens`.

    Args:
        kinds: (D,) `documents.kind`.
        languages: (D,) `documents.language`.
        features: of the corpus.

    Returns:
        Codes of lexers, salts, and codes of features, each (D,).
    """
    codes = {kind: _CODES[name] for kind, name in features.model_dump().items()}
    salts = {kind: kind_salt(kind) for kind in codes}
    return (
        np.array([lexer_of(*pair) for pair in zip(kinds, languages, strict=True)], np.uint8),
        np.array([salts[kind] for kind in kinds], np.uint64),
        np.array([codes[kind] for kind in kinds], np.uint8),
    )


def kind_salt(kind: str) -> int:
    """Salt of the tokens of a kind (`documents.kind`): 8 bytes of a SHA-256, little-endian."""
    return int.from_bytes(hashlib.sha256(f"headrace.dedup.kind.1\0{kind}".encode()).digest()[:8], "little")

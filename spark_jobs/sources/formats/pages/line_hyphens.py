"""Tell hyphens that a line end made from those that belong to a word.

    exam-      well-      COVID-      e-        A typesetter breaks no word that has a hyphen or a digit, none before a
    ple        known      19          mail      capital or after its first letter; so the last two are the words' own.

Else the text decides, with the stop list that covers most of it: a hyphen belongs to the word if the word is there with
one, or if it is not there without one and both parts are words of four letters or more. All others go. What is wrong
then: words that are there once only and whose parts are words too (data-base), and compounds of rare words.

Lists: justext, 500 frequent words of each of 100 languages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

MARK = "\x02"
"""Stands for a hyphen, and the line end behind it, in a text."""
_WORD = re.compile(rf"[^\W\d_]+(?:-[^\W\d_]+)*(?!\w|{MARK})")
_AROUND = re.compile(rf"([^\s{MARK}]*){MARK}([^\W_]*)")
_QUOTES = "([{\"'“‘«„¿¡"
_PART_LETTERS = 4


def words_of(texts: Iterable[str]) -> frozenset[str]:
    """The words of a file, in small letters, and the frequent ones of its language."""
    own = frozenset(word.lower() for text in texts for word in _WORD.findall(text))
    return own | max(_stop_lists(), key=lambda words: len(words & own), default=frozenset())


def join_lines(text: str, words: frozenset[str]) -> str:
    """The text with each mark replaced by a hyphen or by nothing."""
    return _AROUND.sub(lambda found: _joined(found[1], found[2], words), text)


def _joined(before: str, after: str, words: frozenset[str]) -> str:
    """Two parts of a word, the first with what stands before it, with a hyphen between them or with nothing."""
    left, right = before.lstrip(_QUOTES).lower(), after.lower()
    is_broken = left.isalpha() and len(left) > 1 and right.isalpha()
    is_cased = (before.isupper() and after.isupper()) or (after == right and not before.isupper())
    if not (is_broken and is_cased):
        return f"{before}-{after}"
    are_words = min(len(left), len(right)) >= _PART_LETTERS and left in words and right in words
    keeps = f"{left}-{right}" in words or (left + right not in words and are_words)
    return f"{before}-{after}" if keeps else before + after


@cache
def _stop_lists() -> tuple[frozenset[str], ...]:
    """The stop lists of all languages, in the order of their names; none where the package is not installed."""
    try:
        import justext
    except ImportError:
        return ()
    return tuple(justext.get_stoplist(name) for name in sorted(justext.get_stoplists()))

"""Recognise the text of a licence by the words that it shares with the known ones, in runs of three.

    text     MIT License / Copyright (c) 2020 Ada / Permission is hereby granted, ... / The Software shall do no evil.
    covered                                         Permission is hereby granted, ...
    extra    mit license                                                              shall do no evil

A text is a licence where nearly all of the licence's words are there, and what is there beside them changes nothing:
titles, names, addresses, other words for the holder. A sentence more inside of the terms, another licence's name or a
condition around them make it none. Known are the texts of `identify` (those of choosealicense.com).
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import Final, NamedTuple

from spark_jobs.threads import made_once

_RUN: Final = 3  # words
_MAX_MISSING: Final = 0.07  # share of the words of the terms that may be missing, and
_REPLACED: Final = 4  # so many words more, because holders have other names
_INSERTED: Final = 4  # words that may be added inside of the terms, beside replaced ones

_COPYRIGHT: Final = re.compile(
    r"(?m)^[^\w\n(©]*(?:[Pp]ortions |[Pp]arts |[Ss]ome |[Aa]ll [^\n]{0,40})?"
    r"(?:(?i:copyright)\b[^\w\n(]*(?:\([cC]\)|©|[cC]\b|\d{4}|by\b|[<\[{]|(?!(?i:holder|owner|notice|and|law))[A-Z][a-z])"
    r"|\([cC]\) ?(?:\d{4}|[Cc]opyright)|©)[^\n]*$|^\W*(?i:all rights reserved)\W*$"
)
_LIST_MARK: Final = re.compile(r"(?m)^[ \t]*(?:(?:\(?(?:\d{1,2}|[a-z]|[ivx]{1,4})[.)])|[-*•o#>]+)[ \t]+")
_COMMENT_MARK: Final = re.compile(r"(?m)^[ \t]*(?://+|/?\*+/?|#+|;+|%+|--+|>+)[ \t]?")
_TAG: Final = re.compile(r"<[^<>]*>")
_SPELLING: Final = {"licence": "license", "licences": "licenses", "licenced": "licensed"}
_END_OF_TERMS: Final = ("end", "of", "terms", "and", "conditions")
_APACHE_NOTICE: Final = ("licensed", "under", "the", "apache", "license")

# Words that are a sign of terms, or of a licence, beside the one that was recognised.
_TERMS: Final = frozenset(
    {"shall", "must", "permission", "permitted", "prohibited", "restrict", "restriction", "restrictions", "sell"}
    | {"advertising", "acknowledgement", "acknowledgment", "endorse", "warranty", "warranties", "redistribution"}
    | {"commercial", "proprietary", "dual", "dually", "either", "clause", "nuclear", "evil", "military", "exceptions"}
    | {"mit", "bsd", "isc", "apache", "psf", "zlib", "ofl", "sil", "mpl", "mozilla", "gpl", "gplv2", "gplv3", "lgpl"}
    | {"agpl", "gnu", "epl", "eclipse", "cddl", "commons", "boost", "unicode", "unlicense", "beopen", "openssl"}
)
_OWN: Final = {"mpl": "mozilla", "gpl": "gnu", "lgpl": "gnu", "agpl": "gnu", "epl": "eclipse", "cc": "commons"}


class _Known(NamedTuple):
    """A licence: its id, the words of its terms, and the runs of its whole text, an appendix included."""

    name: str
    term_words: tuple[str, ...]
    runs: frozenset[tuple[str, ...]]


def known_text(data: bytes) -> str | None:
    """The id of the licence whose text this is; None where it is no known one, or more than one."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    words = _words(text)
    runs = _runs(words)
    best: tuple[int, int, _Known] | None = None
    for known in _known_texts():
        if len(known.term_words) * (1 - _MAX_MISSING) > len(words):
            continue
        missing = _uncovered(known.term_words, runs)
        missed = sum(map(len, missing))
        if missed > _MAX_MISSING * len(known.term_words) + _REPLACED:
            continue
        extra = sum(map(len, _uncovered(words, known.runs)))
        if best is None or missed + extra < best[0]:
            best = (missed + extra, missed, known)
    return best[2].name if best is not None and _changes_nothing(words, best[2], best[1]) else None


def _changes_nothing(words: tuple[str, ...], known: _Known, missed: int) -> bool:
    """Whether the words beside those of a licence are none that state terms."""
    own = set(re.split(r"[^a-z0-9]+", known.name.lower()))
    own |= {_OWN[word] for word in own if word in _OWN}
    inserted, place, before = 0, 0, 0
    for covered, part in groupby(_covered(words, known.runs)):
        count = sum(1 for _ in part)
        extra = frozenset(words[place : place + count]) if not covered else frozenset()
        is_inside = before and place + count < len(words) and words[before - _RUN : before] != known.term_words[-_RUN:]
        if is_inside:
            inserted += len(extra) and count
        elif extra & _TERMS - own:
            return False
        place += count
        before = place if covered else before
    return inserted <= 2 * missed + _INSERTED


@made_once
def _known_texts() -> tuple[_Known, ...]:
    """The licences of `identify`."""
    from identify.vendor.licenses import LICENSES

    found = []
    for name, text in LICENSES:
        words = _words(text)
        ends = [k for k in range(len(words)) if words[k : k + len(_END_OF_TERMS)] == _END_OF_TERMS]
        found.append(_Known(name, words[: ends[0]] if ends else words, _runs(words)))
        notices = [k for k in range(len(words)) if words[k : k + len(_APACHE_NOTICE)] == _APACHE_NOTICE]
        if notices and name == "Apache-2.0":  # the notice alone, which its appendix gives
            found.append(_Known(name, words[notices[-1] :], _runs(words[notices[-1] :])))
    return tuple(found)


def _words(text: str) -> tuple[str, ...]:
    """The words of a text without lines of copyright, marks of lists and comments, and tags."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n")
    for pattern in (_TAG, _COMMENT_MARK):
        text = pattern.sub("", text)
    text = _LIST_MARK.sub("", _COPYRIGHT.sub("", text)).lower()
    return tuple(_SPELLING.get(word, word) for word in re.findall(r"[a-z0-9]+", text))


def _runs(words: tuple[str, ...]) -> frozenset[tuple[str, ...]]:
    return frozenset(words[k : k + _RUN] for k in range(len(words) - _RUN + 1))


def _covered(words: tuple[str, ...], runs: frozenset[tuple[str, ...]]) -> list[bool]:
    """For each word, whether it is in one of the given runs."""
    covered = [False] * len(words)
    for k in range(len(words) - _RUN + 1):
        if words[k : k + _RUN] in runs:
            covered[k : k + _RUN] = [True] * _RUN
    return covered


def _uncovered(words: tuple[str, ...], runs: frozenset[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The runs of words that lie between the given runs, before the first and behind the last."""
    marked = zip(words, _covered(words, runs), strict=True)
    return [tuple(word for word, _ in part) for covered, part in groupby(marked, key=lambda one: one[1]) if not covered]

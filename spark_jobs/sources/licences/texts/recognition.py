"""Find the licences' texts a file consists of, or the nearest one and the difference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from spark_jobs.sources.licences.texts.known import (
    RUN,
    Hashes,
    all_words,
    are_in,
    candidates,
    known,
    nearest,
    plain_words,
    run_hashes,
    runs_of,
)
from spark_jobs.sources.licences.texts.matching import TemplateSpan, difference, spans
from spark_jobs.sources.licences.texts.templates import LicenceTemplate
from spark_jobs.sources.licences.texts.words import LicenceWords, decoded, is_condition, listed

_MAX_BYTES: Final = 1_000_000  # of a file that is looked at
_CONTEXT: Final = 8  # words that are shown where a text first differs
_MAX_SHOWN: Final = 400  # characters of what is added or missing
_FAMILIES: Final = {
    "gpl": "gnu",
    "lgpl": "gnu",
    "agpl": "gnu",
    "gfdl": "gnu",
    "epl": "eclipse",
    "mpl": "mozilla",
    "cc": "commons",
    "ofl": "sil",
}

# Exceptions that belong to other licences than GNU's.
_LICENCES_OF_EXCEPTIONS: Final = {
    "LLVM-exception": "Apache-",
    "Swift-exception": "Apache-",
    "mxml-exception": "Apache-",
    "SHL-2.0": "Apache-",
    "SHL-2.1": "Apache-",
    "fmt-exception": "MIT",
    "Google-Patent-WebM": "BSD-3-",
    "GNOME-examples-exception": "CC-BY-SA-",
    "KiCad-libraries-exception": "CC-BY-SA-",
    "LZMA-exception": "CPL-",
    "PCRE2-exception": "BSD-3-",
    "QPL-1.0-INRIA-2004-exception": "QPL-",
    "polyparse-exception": "LGPL-",
}
_STATEMENT: Final = re.compile(
    r"(?P<subject>(?:\b[a-z0-9]+ ){1,4})(?:is|are) (?:also )?"
    r"(?:(?:released|licensed|distributed|published|available|covered|made available) )?"
    r"(?:(?:under|with|by) )?(?:the )?(?:terms of )?(?:the )?(?P<name>(?:[a-z0-9]+ ){1,5}?)(?:software )?licenses? "
    r"(?:version )?(?:[0-9] ){0,2}(?:(?:as )?reproduced below |below |as follows |see below )?"
)
_NAME_WORDS: Final = listed(
    "new modified simplified revised version style clause general public open source 2 3 0 v2 v3 x11"
)
_GNU: Final = ("GPL-", "LGPL-", "AGPL-")


class TextMatch(NamedTuple):
    """What a text is, or what it is near.

    Attributes:
        licence: the expression of SPDX ids equal to it; None for another text.
        nearest: the id of the template with most in common with it; None where none is near.
        added: words in it and not in the nearest, the first 400 characters.
        missing: words in the nearest and not in it, the first 400 characters.
    """

    licence: str | None
    nearest: str | None = None
    added: str = ""
    missing: str = ""


class _RecognisedPart(NamedTuple):
    """A template equal to a part of the text."""

    span: TemplateSpan
    letters: int
    rank: int
    template: LicenceTemplate


def known_text(data: bytes) -> str | None:
    """The SPDX expression of the licences with these texts; None where they are no known ones."""
    return recognised(data).licence


def recognised(data: bytes) -> TextMatch:
    """What the text of a file is, or what it is near."""
    if len(data) > _MAX_BYTES:
        return TextMatch(None)
    text = LicenceWords(decoded(data))
    hashes = run_hashes(text.letters)
    parts = _cover(text, hashes)
    ids = [part.template.name for part in parts]
    gaps = [(first, end) for first, end, title in _gaps(parts, text) if not _is_harmless(text, first, end, title, ids)]
    expression = _expression(parts)
    gaps += [_title(part, text) for part in parts if _contradicts(part, text)]
    if expression is None:  # exceptions without the licence that they belong to
        exceptions = [part.span for part in parts if part.template.kind == "exception"]
        gaps += [(text.word_at(span.start), text.word_at(span.end)) for span in exceptions]
    added = " … ".join(text.raw(first, end) for first, end in gaps)
    if expression is not None and not added:
        return TextMatch(expression)
    near = nearest(hashes)
    if parts and (near is None or 2 * sum(part.span.end - part.span.fixed for part in parts) > len(text.letters)):
        return TextMatch(None, max(parts, key=lambda part: part.letters).template.name, added[:_MAX_SHOWN])
    if near is None:
        return TextMatch(None)
    return TextMatch(None, known().templates[near].name, *_difference(text, hashes, near))


def _cover(text: LicenceWords, hashes: Hashes) -> list[_RecognisedPart]:
    """The templates covering most of a text without overlap, in its order."""
    table = known()
    parts = [
        _RecognisedPart(span, span.end - span.start, rank, table.templates[rank])
        for rank in candidates(hashes)
        for span in spans(table.compiled[rank], text)
    ]
    if len(parts) > 1:
        longest = max(parts, key=lambda part: part.letters).span
        parts = [p for p in parts if p.letters * 2 > longest.end - longest.start or not _holds(longest, p.span)]
    if len(parts) > 1:
        parts = [part._replace(letters=_shared(part, hashes)) for part in parts]
    parts.sort(key=lambda part: (part.span.end, part.span.fixed, part.rank))
    best: list[tuple[int, list[_RecognisedPart]]] = [(0, [])]  # of the first k parts: letters covered, and the parts
    for k, part in enumerate(parts):
        options = [best[k]]
        for limit in (part.span.fixed, part.span.start):  # what stands before the fixed words can be another's end
            before = k
            while before and parts[before - 1].span.end > limit:
                before -= 1
            covered, chosen = best[before]
            overlap = max(0, chosen[-1].span.end - part.span.start) if chosen else 0
            options.append((covered + part.letters - overlap, [*chosen, part]))
        best.append(max(options, key=lambda option: (option[0], -len(option[1]))))
    return best[-1][1]


def _holds(outer: TemplateSpan, inner: TemplateSpan) -> bool:
    return outer.start <= inner.start and inner.end <= outer.end


def _shared(part: _RecognisedPart, hashes: Hashes) -> int:
    """How many letters of a part are the template's own words, and no names."""
    of_part = hashes[part.span.start : max(part.span.start, part.span.end - RUN + 1)]
    return int(are_in(of_part, runs_of(part.rank)[0]).sum()) + 1


def _gaps(parts: list[_RecognisedPart], text: LicenceWords) -> Iterator[tuple[int, int, int]]:
    """The words between the parts, before the first and behind the last: first, end, and the end of the next title."""
    place = 0
    for part in parts:
        first, end = text.word_at(place), text.word_at(part.span.start)
        if first < end:
            yield first, end, text.word_at(part.span.fixed)
        place = part.span.end
    if text.word_at(place) < len(text.words):
        yield text.word_at(place), len(text.words), len(text.words)


def _is_harmless(text: LicenceWords, first: int, end: int, title: int, ids: list[str]) -> bool:
    """Whether words beside a licence's text are notices, titles, names or addresses, or say that it is the licence."""
    licence_words = _words_of_ids(ids)
    stated = _stated(text, first, title, licence_words)
    return all(
        k in stated or (text.is_name(k) and (text.words[k] in licence_words or not text.names_licence(k)))
        for k in range(first, end)
    )


def _words_of_ids(ids: list[str]) -> set[str]:
    words = {word for name in ids for word in re.split(r"[^a-z0-9]+", name.lower())}
    return words | {_FAMILIES[word] for word in words if word in _FAMILIES}


def _title(part: _RecognisedPart, text: LicenceWords) -> tuple[int, int]:
    return text.word_at(part.span.start), text.word_at(part.span.fixed)


def _contradicts(part: _RecognisedPart, text: LicenceWords) -> bool:
    """Whether the title of a part names another licence: `MIT License` above the text of JSON's."""
    named = {text.words[k] for k in range(*_title(part, text)) if text.names_licence(k)}
    others = named - _words_of_ids([part.template.name])
    return bool(others) and not others <= set(all_words(part.template.parts))


def _stated(text: LicenceWords, first: int, end: int, licence_words: set[str]) -> set[int]:
    """The words of a sentence to put something under the licences of the given words."""
    words = text.words[first:end]
    stated: set[int] = set()
    ends = np.cumsum([0, *(len(word) + 1 for word in words)])
    for statement in _STATEMENT.finditer(" ".join(words) + " "):
        subject, names = statement["subject"].split(), statement["name"].split()
        if all(word in licence_words or word in _NAME_WORDS for word in names) and not is_condition(subject):
            stated.update(
                range(
                    first + int(np.searchsorted(ends, statement.start())),
                    first + int(np.searchsorted(ends, statement.end())),
                )
            )
    return stated


def _expression(parts: list[_RecognisedPart]) -> str | None:
    """The licences of a text's parts; None without one, and for an exception of none of them."""
    licences: list[str] = []
    exceptions: list[str] = []
    for part in parts:
        (exceptions if part.template.kind == "exception" else licences).append(part.template.name)
    later = {name.removesuffix("-or-later") for name in licences if name.endswith("-or-later")}
    names = sorted({f"{base}-or-later" if (base := name.removesuffix("-only")) in later else name for name in licences})
    for exception in sorted(set(exceptions)):
        prefixes = _LICENCES_OF_EXCEPTIONS.get(exception, _GNU)
        of = [k for k, name in enumerate(names) if name.startswith(prefixes)]
        if len(of) != 1:
            return None
        names[of[0]] += (
            f" WITH {exception}" if " WITH " not in names[of[0]] else f" AND {names[of[0]].split()[0]} WITH {exception}"
        )
    return " AND ".join(names) or None


def _difference(text: LicenceWords, hashes: Hashes, rank: int) -> tuple[str, str]:
    """What a text has beside a template's words, and what it lacks of the required ones."""
    parts = known().templates[rank].parts
    fixed = LicenceWords(plain_words(parts, with_optional=False))
    more = " … ".join(text.raw(first, end) for first, end in _uncovered(text, hashes, runs_of(rank)[0]))
    lacking = _uncovered(fixed, run_hashes(fixed.letters), np.sort(hashes))
    less = " … ".join(fixed.raw(first, end) for first, end in lacking)
    if not more and not less and (first_difference := difference(known().compiled[rank], text)):
        place, part, letters = first_difference  # words that stand elsewhere in the licence too
        k, words = text.word_at(place), LicenceWords(str(parts[part]))
        j = max(0, words.word_at(letters + 1) - 1)
        more, less = (
            text.raw(k - 1, min(len(text.words), k + _CONTEXT)),
            words.raw(j, min(len(words.words), j + _CONTEXT)),
        )
    return more[:_MAX_SHOWN], less[:_MAX_SHOWN]


def _uncovered(text: LicenceWords, hashes: Hashes, others: Hashes) -> Iterator[tuple[int, int]]:
    """The runs of words of a text covered by none of some sorted runs of letters, names left out: first and end."""
    begins = np.zeros(len(text.letters) + 1, dtype=np.int64)
    shared = np.flatnonzero(are_in(hashes, others))
    begins[shared] += 1
    begins[shared + RUN] -= 1
    is_bare = np.cumsum(begins)[:-1] == 0
    bare = [bool(is_bare[start:end].any()) for start, end in zip(text.starts[:-1], text.starts[1:], strict=True)]
    first = None
    for k, is_outside in enumerate([*bare, False]):
        if is_outside and first is None:
            first = k
        elif not is_outside and first is not None:
            if not all(text.is_mark(j) or text.is_name(j) for j in range(first, k)):
                yield first, k
            first = None

"""Find where a text is what a template says, in time growing with the text's length alone.

A state is a place in the text's letters up to which the parts before hold. Each part takes all states a step on:
required words keep the states of their places, an optional part adds those behind it, a name adds the ends of the words
possible in one. No state is looked at twice for a part, so nothing is tried again and again.
"""

from __future__ import annotations

from os.path import commonprefix
from typing import Any, Final, NamedTuple, TypeAlias

from spark_jobs.sources.licences.texts.words import LicenceWords

States: TypeAlias = "dict[int, int]"  # place in the letters -> where the match began, the lowest

_MAX_MARKS: Final = 4  # words of the number of an item: `Article 1.2.a`
_MAX_NAMES: Final = 40  # words of a name
_MAX_UNCAPITALISED: Final = 2  # of these, words without a capital that no name need have
_MAX_DESCRIPTION: Final = 20  # of what a program does
_MAX_NOTICES: Final = 2000  # words of notices of copyright
_NOTICE_LETTERS: Final = 600  # of notices before the first words that have to be there


class TemplateSpan(NamedTuple):
    """A template's part of a text: from its first word or its first fixed words to its end, in letters."""

    start: int
    fixed: int
    end: int


class Compiled(NamedTuple):
    """The parts of a template without spaces: those before its first longer fixed words, and from these on."""

    head: tuple[Any, ...]
    body: tuple[Any, ...]
    head_letters: int


def compiled(parts: list[Any]) -> Compiled:
    """Prepare a template."""
    squeezed = _squeezed(parts)
    lengths = [len(part) if isinstance(part, str) else 0 for part in squeezed]
    first = next((k for k, length in enumerate(lengths) if length >= 20), lengths.index(max(lengths)))
    last = max(k for k, part in enumerate(squeezed) if isinstance(part, str))
    body = (*map(_inner, squeezed[first:last]), *squeezed[last:])
    return Compiled(squeezed[:first], body, _letters(squeezed[:first]) + _NOTICE_LETTERS)


def _inner(part: Any) -> Any:
    """A part with names between fixed words: they may be written without capitals."""
    if isinstance(part, str) or part[0] not in "aof":
        return part
    return (
        ("s",)
        if part[0] == "f"
        else (part[0], *(tuple(map(_inner, p)) if part[0] == "a" else _inner(p) for p in part[1:]))
    )


def _letters(part: Any) -> int:
    """At most so many letters are in a part, names left out."""
    return len(part) if isinstance(part, str) else sum(map(_letters, part))


def _squeezed(parts: Any) -> tuple[Any, ...]:
    return tuple(
        part.replace(" ", "")
        if isinstance(part, str)
        else (part[0], *(_squeezed(p) for p in part[1:]))
        if part[0] == "a"
        else (part[0], *_squeezed(part[1:]))
        for part in parts
    )


def spans(template: Compiled, text: LicenceWords) -> list[TemplateSpan]:
    """All of a template's parts in a text, in order of their fixed words."""
    fixed = template.body[0]
    places = []
    place = text.letters.find(fixed)
    while place >= 0:
        places.append(place)
        place = text.letters.find(fixed, place + 1)
    places = [place for place in places if place in text.index]
    if not places:
        return []
    seeds = {
        p for place in places for p in text.starts[text.word_at(place - template.head_letters) : text.index[place] + 1]
    }
    begins = _through(template.head, {seed: seed for seed in seeds}, text)
    ends: dict[int, tuple[int, int]] = {}  # the first and the last: names at the end can be the next text's title
    for end, origin in _through(template.body, {place: place for place in places if place in begins}, text).items():
        first, last = ends.get(origin, (end, end))
        ends[origin] = min(first, end), max(last, end)
    return [
        TemplateSpan(begins[origin], origin, end) for origin, both in sorted(ends.items()) for end in sorted(set(both))
    ]


def difference(template: Compiled, text: LicenceWords) -> tuple[int, int, int] | None:
    """Where a text first differs from a template's fixed words: place in the text, part, letters of it that are equal.

    None where it does not have the first longer fixed words, or differs by names.
    """
    place = text.letters.find(template.body[0])
    states = {place: place} if place in text.index else {}
    for k, part in enumerate(template.body, len(template.head)):
        behind = _step(part, states, text)
        if not behind and states and isinstance(part, str):
            equal = {p: len(commonprefix([part, text.letters[p : p + len(part)]])) for p in states}  # noqa: RUF071  # of letters, no paths
            place = max(equal, key=lambda p: (equal[p], p))
            return place + equal[place], k, equal[place]
        states = behind
    return None


def _through(parts: Any, states: States, text: LicenceWords) -> States:
    """The states behind a list of parts."""
    for part in parts:
        if not states:
            return states
        states = _step(part, states, text)
    return states


def _step(part: Any, states: States, text: LicenceWords) -> States:
    if isinstance(part, str):
        letters, length = text.letters, len(part)
        return {place + length: origin for place, origin in states.items() if letters.startswith(part, place)}
    kind = part[0]
    if kind == "o":
        return _joined([states, _through(part[1:], states, text)])
    if kind == "a":
        return _joined([_through(option, states, text) for option in part[1:]])
    return _joined([states, _free(kind, states, text)]) if kind in "bc" else _free(kind, states, text)


def _joined(several: list[States]) -> States:
    joined = dict(several[0])
    for states in several[1:]:
        for place, origin in states.items():
            joined[place] = min(origin, joined.get(place, origin))
    return joined


def _free(kind: str, states: States, text: LicenceWords) -> States:
    """The ends of the words from each state on that an item's number, a name or a notice may consist of."""
    is_part = {"b": text.is_mark, "n": text.is_number}.get(kind, text.is_name)
    most = _MAX_MARKS if kind == "b" else _MAX_NOTICES if kind == "c" else _MAX_NAMES
    most_uncapitalised = {"s": _MAX_UNCAPITALISED, "d": _MAX_DESCRIPTION}.get(kind, 0)
    behind: States = {}
    walked: dict[int, int] = {}  # ordinal of a word -> up to where the walk went that came by it
    for place in sorted(states, key=lambda place: (states[place], place)):
        k = first = text.index.get(place, len(text.words))
        last = min(len(text.words), first + most)
        passed: list[int] = []
        uncapitalised = 0
        while k < last:
            if not is_part(k):
                uncapitalised += 1
                if uncapitalised > most_uncapitalised or not text.is_no_condition(k):
                    break
            if k + 1 in walked:
                k = walked[k + 1]
                continue
            k += 1
            behind[text.starts[k]] = states[place]
            passed.append(k)
        walked.update(dict.fromkeys(passed, k))
    return behind

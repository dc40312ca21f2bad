"""The table of templates, ready to be looked up by the letters of a text.

Each run of 16 letters has a hash of 32 bits. A template has some runs rare in others, all in required parts: only a
text with all of these can be it, and only then it is tried. A sixteenth of all runs, chosen by hash, says which
template is nearest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from spark_jobs.sources.licences.texts.matching import Compiled, compiled
from spark_jobs.sources.licences.texts.templates import LicenceTemplate, read_templates
from spark_jobs.threads import made_once

Hashes: TypeAlias = npt.NDArray[np.uint32]

RUN: Final = 16  # letters
_SIGNS: Final = 6  # runs of a template that a text must have to be tried
_SAMPLE: Final = 16  # one of so many runs says what is near
_SHORT: Final = 6000  # letters of a text that is compared in full
_REFINED: Final = 8  # with so many templates
_KEPT: Final = 256  # templates whose runs are kept, 20 kB each
_LEAST_NEAR: Final = 0.3  # share of the template's runs or of the text's


class TemplateIndex(NamedTuple):
    """All templates.

    Attributes:
        templates: as read.
        compiled: for matching.
        signs: for each template hashes in its texts.
        sampled: (N,) hashes of all templates' sampled runs, sorted; with `owners`, (N,) the template of each.
        sizes: (templates,) how many sampled runs each has.
    """

    templates: tuple[LicenceTemplate, ...]
    compiled: tuple[Compiled, ...]
    signs: tuple[frozenset[int], ...]
    sign_table: npt.NDArray[np.bool_]
    sampled: Hashes
    owners: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]


def run_hashes(letters: str) -> Hashes:
    """(max(0, L - 15),) a hash of each run of 16 letters."""
    codes = np.frombuffer(letters.encode("utf-32-le"), dtype=np.uint32)
    factor = np.uint32(0x9E3779B1)
    length = 1
    while length < RUN:
        if len(codes) <= length:
            return np.empty(0, dtype=np.uint32)
        codes = codes[:-length] * factor + codes[length:]
        factor = np.uint32(int(factor) ** 2 & 0xFFFFFFFF)
        length *= 2
    return (codes ^ (codes >> np.uint32(15))) * np.uint32(0x2C1B3C6D)


@made_once
def known() -> TemplateIndex:
    """The table, made once a process: see `read_templates`."""
    templates = tuple(read_templates())
    fixed = [
        np.unique(
            np.concatenate(
                [run_hashes(part.replace(" ", "")) for part in fixed_parts(t.parts)] or [np.empty(0, np.uint32)]
            )
        )
        for t in templates
    ]
    every, counts = np.unique(np.concatenate(fixed), return_counts=True)
    signs = []
    for hashes in fixed:
        rarest = np.argsort(counts[np.searchsorted(every, hashes)], kind="stable")[:_SIGNS]
        signs.append(frozenset(hashes[rarest].tolist()))
    table = np.zeros(1 << 16, dtype=np.bool_)
    table[[sign >> 16 for of_one in signs for sign in of_one]] = True
    sampled = [_sample(all_hashes(t.parts)) for t in templates]
    owners = np.repeat(np.arange(len(templates)), [len(s) for s in sampled])
    hashes = np.concatenate(sampled)
    order = np.argsort(hashes, kind="stable")
    return TemplateIndex(
        templates,
        tuple(compiled(t.parts) for t in templates),
        tuple(signs),
        table,
        hashes[order],
        owners[order],
        np.bincount(owners, minlength=len(templates)),
    )


def candidates(hashes: Hashes) -> list[int]:
    """The templates with their signs in a text with these hashes."""
    table = known()
    present = frozenset(hashes[table.sign_table[hashes >> np.uint32(16)]].tolist())
    return [k for k, signs in enumerate(table.signs) if signs <= present]


def nearest(hashes: Hashes) -> int | None:
    """The template with most in common with a text, or None where none is near."""
    table, sample = known(), _sample(hashes)
    if not len(sample):
        return None
    lows, highs = np.searchsorted(table.sampled, sample, "left"), np.searchsorted(table.sampled, sample, "right")
    counts = highs - lows
    places = np.repeat(lows - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())  # low..high of each
    shared = np.bincount(table.owners[places], minlength=len(table.templates))
    likeness = 2 * shared / (table.sizes + len(sample))
    best = int(likeness.argmax())
    if shared[best] < max(1, _LEAST_NEAR * min(table.sizes[best], len(sample))):
        return None
    if len(hashes) > _SHORT:
        return best
    near = np.argsort(-likeness, kind="stable")[:_REFINED]  # a sample says little of a short text
    return int(max(near, key=lambda k: _likeness(hashes, k)))


def _likeness(hashes: Hashes, rank: int) -> float:
    """The runs common to a text and a template, of the longer: from 0 to 1."""
    runs, least = runs_of(rank)
    return int(are_in(hashes, runs).sum()) / max(len(hashes), least)


@made_once(most=_KEPT)
def runs_of(rank: int) -> tuple[Hashes, int]:
    """All runs of a template, sorted, and how many its text has without what is optional."""
    parts = known().templates[rank].parts
    return np.sort(all_hashes(parts)), len(run_hashes(_letters(parts, False)))


def are_in(hashes: Hashes, runs: Hashes) -> npt.NDArray[np.bool_]:
    """(N,) whether each of N hashes is among some sorted runs."""
    if not len(runs):
        return np.zeros(len(hashes), dtype=np.bool_)
    places = np.minimum(np.searchsorted(runs, hashes), len(runs) - 1)
    return np.asarray(runs[places] == hashes)


def fixed_parts(parts: list[Any]) -> Iterator[str]:
    """The required words of a template."""
    return (part for part in parts if isinstance(part, str))


def all_hashes(parts: list[Any]) -> Hashes:
    """(N,) the runs of a template's texts with what is optional and without, in SPDX's words of several."""
    return np.concatenate([run_hashes(_letters(parts, True)), run_hashes(_letters(parts, False))])


def all_words(parts: list[Any]) -> list[str]:
    """The words of all of a template's parts."""
    words: list[str] = []
    for part in parts:
        words += part.split() if isinstance(part, str) else all_words(part)
    return words


def plain_words(parts: list[Any], with_optional: bool) -> str:
    """A template's text in SPDX's own words where several may stand, without names and notices."""
    words = []
    for part in parts:
        if isinstance(part, str):
            words.append(part)
        elif part[0] == "o" and with_optional:
            words.append(plain_words(part[1:], with_optional))
        elif part[0] == "a":
            words.append(plain_words(part[-1], with_optional))
    return " ".join(words)


def _letters(parts: list[Any], with_optional: bool) -> str:
    return plain_words(parts, with_optional).replace(" ", "")


def _sample(hashes: Hashes) -> Hashes:
    return np.unique(hashes[(hashes >> np.uint32(8)) % np.uint32(_SAMPLE) == 0])

"""Texts of licences as projects write them, made from SPDX's templates, and such with other terms."""

from __future__ import annotations

import json
import lzma
import random
import textwrap
from functools import cache
from pathlib import Path
from typing import Any, Final

from spark_jobs.sources.licences.texts.words import EQUIVALENT

HOLDERS: Final = ("Ada Lovelace", "The Regents of the University of California", "ACME, Inc.", "Jürgen Müller")
NOTICES: Final = (
    "",
    "Copyright (c) 2020 Ada Lovelace <ada@example.org>. All rights reserved.\n",
    "© 1999-2003 ACME, Inc. and others\n",
)
CONDITIONS: Final = (
    "This software may not be used to train machine learning models.",
    "The Software shall be used for Good, not Evil.",
    "Commercial use requires a separate licence from Acme Inc.",
    "No right to sell the Software is granted.",
    "Use in nuclear facilities is prohibited.",
    "Non-commercial use only.",
    "AI training prohibited",
    "The Commons Clause applies to this license.",
    "Derivative datasets belong to Acme.",
    "Anyone earning over one million dollars owes Acme a share.",
    "Hosting as a service remains reserved to Acme.",
    "ACADEMIC RESEARCH ONLY.",
    "Source available; production use after 2027-01-01 only.",
)
_MARKS: Final = ("1.", "(a)", "* ", "2.3", "")


@cache
def official_texts() -> dict[str, str]:
    """The 728 texts of SPDX's list in its own rendering, by id (npm's `spdx-license-list` 6.12.0, CC0-1.0)."""
    texts: dict[str, str] = json.loads(lzma.decompress(Path(__file__).with_name("spdx_texts.json.xz").read_bytes()))
    return texts


def pieces(parts: list[Any], draw: random.Random) -> list[tuple[str, str]]:
    """A text of a template, in pieces with their kinds: `x` is words that have to be there."""
    chosen: list[tuple[str, str]] = []
    for part in parts:
        if isinstance(part, str):
            chosen.append(("x", part))
        elif part[0] == "o":
            chosen += [("o", words) for _, words in pieces(part[1:], draw)] if draw.random() < 0.5 else []
        elif part[0] == "a":
            chosen += [("a" if kind == "x" else kind, words) for kind, words in pieces(draw.choice(part[1:]), draw)]
        else:
            words = {"b": _MARKS, "c": NOTICES, "f": HOLDERS, "n": ("2 7 1",), "d": ("xsum - sums of things",)}[part[0]]
            chosen.append((part[0], draw.choice(words)))
    return chosen


def joined(chosen: list[tuple[str, str]]) -> str:
    """The text of pieces."""
    return " ".join(words for _, words in chosen if words)


def decorated(text: str, draw: random.Random) -> str:
    """The same words in another width, with marks of comments, ends of lines, quotes and British spelling."""
    british = {american: spelling for spelling, american in EQUIVALENT.items() if spelling != "https"}
    if draw.random() < 0.5:
        text = " ".join(british.get(word, word) for word in text.split(" "))
    if draw.random() < 0.5:
        text = text.upper() if draw.random() < 0.2 and "ü" not in text else text[:1].upper() + text[1:]
    if draw.random() < 0.3:
        text = "\n\n".join(f"“{line}”" if len(line) > 30 else line for line in text.split("\n"))
    if draw.random() < 0.3:
        text = text.replace("sublicense", "sub-license").replace(" http ", " https ")
    width = draw.choice([40, 72, 79, 100_000])
    lines = [line for part in text.split("\n") for line in textwrap.wrap(part, width, break_on_hyphens=False) or [""]]
    mark = draw.choice(["", "", "# ", "// ", " * ", "> ", "    ", "dnl ", ";; ", "-- "])
    return draw.choice(["\n", "\r\n", "\r"]).join(mark + line for line in lines)


def with_other_terms(chosen: list[tuple[str, str]], draw: random.Random) -> str:
    """The text of pieces with a condition more, a negation more, or some words of the terms less."""
    words, more = joined(chosen).split(" "), draw.choice(CONDITIONS)
    ways = ["inside", "end", "begin", "not"]
    slots = [k for k, (kind, _) in enumerate(chosen) if kind in "fc"]
    clauses = [k for k, (kind, text) in enumerate(chosen) if kind == "x" and len(text.split()) > 8]
    way = draw.choice(ways + ["slot"] * bool(slots) + ["less"] * bool(clauses))
    if way == "slot":
        k = draw.choice(slots)
        return joined([*chosen[: k + 1], ("x", more), *chosen[k + 1 :]])
    if way == "less":
        k = draw.choice(clauses)
        clause = chosen[k][1].split(" ")
        first = draw.randrange(len(clause) - 5)
        return joined([*chosen[:k], ("x", " ".join(clause[:first] + clause[first + 5 :])), *chosen[k + 1 :]])
    if way == "end":
        return joined(chosen) + draw.choice(["\n\n", ". "]) + more
    if way == "begin":
        return more + draw.choice(["\n\n", " "]) + joined(chosen)
    k = draw.randrange(1, len(words))
    return " ".join([*words[:k], "not" if way == "not" else more, *words[k:]])

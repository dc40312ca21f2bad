"""Texts of few different words: strangers stay apart, and copies with a few edits are found."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.dedup.bags.bag_arrays import Bags
from spark_jobs.dedup.bags.features import Features, token_rules
from spark_jobs.dedup.bags.token_counts import count_tokens
from spark_jobs.dedup.sketches.similarity import overlaps
from tests.tiers import is_nightly, sampled, tries

Draw = np.random.Generator
TEXTS = 375 if is_nightly() else 60
CODONS = [a + b + c for a in "ACGT" for b in "ACGT" for c in "ACGT"]


def rows(values: np.ndarray, width: int, separator: str) -> str:
    """Values in lines of a width."""
    texts = [str(value) for value in values.tolist()]
    return "\n".join(separator.join(texts[start : start + width]) for start in range(0, len(texts), width))


def numbers(draw: Draw) -> str:
    """A CSV of 600 numbers below 100."""
    return rows(draw.integers(0, 100, 600), 10, ",")


def series(draw: Draw) -> str:
    """Forty years of monthly temperatures of a place."""
    mean, swing = draw.normal(10, 6), draw.uniform(3, 12)
    months = np.arange(480)
    values = mean - swing * np.cos(months / 6 * np.pi) + draw.normal(0, 1.5, 480)
    dated = zip((1970 + months // 12).tolist(), (months % 12 + 1).tolist(), values.tolist(), strict=True)
    return "\n".join(f"{year}-{month:02d},{value:.1f}" for year, month, value in dated)


def few_words(draw: Draw) -> str:
    """400 words out of 60."""
    return " ".join(f"word{number}" for number in draw.integers(0, 60, 400))


def common_and_rare(draw: Draw) -> str:
    """500 words out of 60, of which some are much more common than others."""
    shares = 1 / np.arange(1, 61)
    return " ".join(f"word{number}" for number in draw.choice(60, 500, p=shares / shares.sum()))


def gene(draw: Draw) -> str:
    """800 codons, each gene with preferences of its own."""
    return " ".join(CODONS[codon] for codon in draw.choice(64, 800, p=draw.dirichlet(np.full(64, 2.0))))


def picture(levels: int) -> Callable[[Draw], str]:
    """A smooth picture of 24 x 24 grey values."""

    def drawn(draw: Draw) -> str:
        values = draw.normal(size=(24, 24))
        for _ in range(4):
            values = sum(np.roll(values, shift, axis) for axis in (0, 1) for shift in (-1, 0, 1)) / 6
        values = (values - values.min()) / np.ptp(values)
        return rows((values * (levels - 1)).round().astype(int).ravel(), 24, " ")

    return drawn


def answers(draw: Draw) -> str:
    """A hundred answers of yes and no."""
    return " ".join(draw.choice(["yes", "no"], 100))


def numbered(line: str, *values: str) -> Callable[[Draw], str]:
    """150 numbered lines, each with a number below 20 and one of a few values."""

    def drawn(draw: Draw) -> str:
        chosen = zip(draw.integers(0, 20, 150).tolist(), draw.choice(list(values), 150).tolist(), strict=True)
        return "\n".join(line.format(at=at, number=number, value=value) for at, (number, value) in enumerate(chosen))

    return drawn


KINDS: dict[str, tuple[str, Callable[[Draw], str]]] = {
    "numbers": ("data", numbers),
    "numbers as prose": ("prose", numbers),
    "numbers as code": ("code", numbers),
    "series": ("data", series),
    "series as prose": ("prose", series),
    "400 of 60 words": ("prose", few_words),
    "common and rare": ("markup", common_and_rare),
    "genes": ("prose", gene),
    "pictures of 16": ("data", picture(16)),
    "pictures of 64": ("prose", picture(64)),
    "answers": ("prose", answers),
    "quiz": ("prose", numbered("{at}. {value}", "A", "B", "C", "D")),
    "form": ("markup", numbered("Question {at}: {value}", "Yes", "No")),
    "sensor": ("prose", numbered('{{"t": {at}, "v": {number}, "on": {value}}}', "true", "false")),
    "inserts": ("code", numbered("INSERT INTO t VALUES ({at}, {number}, '{value}');", "Rome", "Oslo")),
    "features": ("prose", numbered("feature_{at}: {value}", "true", "false")),
    "longer lines": ("code", numbered("flag feature_{at} is {value}", "on", "off")),
    "cases": ("code", numbered("    case {at}: return {number};", "")),
    "records": ("markup", numbered("| {at} | {number} | {value} |", "x", "y", "z")),
}


def edited(text: str, draw: Draw) -> str:
    """The text with two of its words replaced by others of its own."""
    words = text.split(" ") if " " in text else text.split(",")
    for place in draw.integers(0, len(words), 2).tolist():
        words[place] = words[int(draw.integers(len(words)))]
    return (" " if " " in text else ",").join(words)


def weighed(texts: list[str], kind: str, documents: int) -> Bags:
    """Bags of texts as the steps make them, in a corpus of so many documents of which the others share no word."""
    rules = token_rules([kind] * len(texts), [None] * len(texts), Features())
    found = count_tokens(pa.array(texts, pa.large_string()), *rules)
    _, tokens, frequencies = np.unique(found.hashes, return_inverse=True, return_counts=True)
    units = np.clip(np.rint(8 * np.log((documents + 1) / (frequencies + 1))), 1, 255).astype(np.uint8)
    return Bags(found.offsets, found.hashes, units[tokens], np.minimum(found.counts, 4).astype(np.uint8))


def similarities(bags: Bags, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """J of pairs of rows."""

    def of(chosen: np.ndarray) -> Bags:
        spans = [np.arange(bags.offsets[row], bags.offsets[row + 1]) for row in chosen]
        offsets = np.concatenate([[0], np.cumsum([len(span) for span in spans])]).astype(np.int64)
        inside = np.concatenate(spans)
        return Bags(offsets, bags.hashes[inside], bags.units[inside], bags.levels[inside])

    shared, united = overlaps(of(left), of(right))
    return shared / united


LABELS = (
    "{0}",
    "feature_{0}",
    "f{0}",
    "q{0}a",
    "item{0:04d}",
    "v1.{0}",
    "x-{0}-y",
    "größe{0}",
    "row{0}:col",
    "0x{0:x}",
)
WORDS = ["the", "flag", "of", "this", "room", "in", "question", "was", "set", "by", "an", "operator", "here"]
VALUES = ["true", "false", "yes", "no", "on", "off", "Rome"]


def labelled(seed: int) -> tuple[str, Callable[[Draw], str]]:
    """A kind of documents, and texts of lines that are a label with a number, some words, and a few of seven values."""
    of_kind = random.Random(seed)
    label = " ".join([*of_kind.sample(WORDS, of_kind.choice((0, 0, 1, 2, 3, 5, 8, 12))), of_kind.choice(LABELS)])
    values, per_line = of_kind.sample(VALUES, of_kind.randint(2, 7)), of_kind.choice((1, 1, 2, 3))
    lines, separator = of_kind.choice((100, 150, 300)), of_kind.choice((": ", " = ", ",", "\t", " | "))

    def drawn(draw: Draw) -> str:
        chosen = draw.choice(values, (lines, per_line)).tolist()
        return "\n".join(separator.join([label.format(at), " ".join(line)]) for at, line in enumerate(chosen))

    return of_kind.choice(("prose", "code", "markup")), drawn


@sampled(5)
@pytest.mark.parametrize("name", KINDS)
def test_strangers_of_a_closed_vocabulary_are_no_duplicates_and_copies_are(name: str) -> None:
    """No two of a kind reach .7, in a corpus of these alone and in one of a thousand times as many documents.

    Of a hundred answers of yes and no two edits are many, and of 70,000 pairs of strangers one agrees in most: .701.
    """
    least, most = (0.4, 0.71) if name == "answers" else (0.8, 0.7)
    check(*KINDS[name], np.random.default_rng(7), TEXTS, least, most)


def test_labels_with_numbers_are_no_words_that_differ() -> None:
    """Of any shape, in lines of any length."""
    for seed in range(tries(400, 20)):
        check(*labelled(seed), np.random.default_rng(seed), 10, 0.7)


def check(kind: str, make: Callable[[Draw], str], draw: Draw, count: int, least: float, most: float = 0.7) -> None:
    """No two of so many texts are duplicates, and nine in ten copies with two other words are at least so similar."""
    texts = [make(draw) for _ in range(count)]
    copies = [edited(text, draw) for text in texts]
    each = np.arange(count)
    left, right = np.triu_indices(count, 1)
    for documents in (2 * count, 1000 * count):
        bags = weighed([*texts, *copies], kind, documents)
        assert similarities(bags, left, right).max() < most
        assert (similarities(bags, each, each + count) >= least).mean() >= 0.9

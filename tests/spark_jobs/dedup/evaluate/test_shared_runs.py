"""The measure that looks at the order of words."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from spark_jobs.dedup.evaluate.shared_runs import shared_runs
from tests.tiers import tries

Make = Callable[[random.Random], list[str]]
TEXTS: dict[str, Make] = {
    "numbers below 100": lambda draw: [f"{draw.randrange(100)}," for _ in range(600)],
    "60 words": lambda draw: [f"w{draw.randrange(60)}" for _ in range(400)],
    "codons": lambda draw: ["".join(draw.choices("acgt", k=3)) for _ in range(800)],
    "answers": lambda draw: draw.choices(["yes", "no"], k=400),
    "grey pictures": lambda draw: draw.choices(["0", "1", "2"], [6, 1, 1], k=784),
    "prose": lambda draw: draw.choices([f"word{n}" for n in range(2000)], [1 / (n + 3) for n in range(2000)], k=300),
    "Han": lambda draw: ["".join(chr(0x4E00 + int(draw.paretovariate(0.4)) % 3000) for _ in range(300))],
}


@pytest.mark.parametrize("name", TEXTS)
def test_strangers_share_next_to_no_run_and_edited_copies_most(name: str) -> None:
    """However few different words there are: below 0.1, and above 0.5 with one word in 50 changed."""
    draw = random.Random(5)
    for _ in range(tries(60, 8)):
        one, other = TEXTS[name](draw), TEXTS[name](draw)
        assert shared_runs(" ".join(one), " ".join(other)) < 0.1
        copy = list(" ".join(one)) if name == "Han" else list(one)
        for place in draw.sample(range(len(copy)), max(1, len(copy) // 50)):
            copy[place] = draw.choice(copy)
        assert shared_runs(" ".join(one), ("" if name == "Han" else " ").join(copy)) > 0.5


def test_short_texts_have_one_run() -> None:
    """Equal ones are 1, others 0; case and white space change nothing; neither has a word: 1."""
    assert shared_runs("Two words", "two\nWORDS") == 1
    assert shared_runs("two words", "words two") == 0
    assert shared_runs("", " ") == 1 and shared_runs("", "a word") == 0
    assert shared_runs("same " * 9, "same " * 50) == 1


def test_small_texts_by_hand() -> None:
    """A b c d e and a b c d f: runs abc, bcd of both, cde and cdf of one."""
    assert shared_runs("a b c d e", "a b c d f") in (0.5, 2 / 4)

"""Profanity: listed words and phrases, whole words after folding; the lists are named by their content."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from headrace_features.privacy.profanity.profanity import LISTS, ProfanityConfig, listed, phrases_to_count, profanity
from headrace_features.privacy.profanity.profanity_kernel import phrases_of, score
from spark_jobs.exceptions import ConfigError
from spark_jobs.filters.scorer import check_scorer

LIST = ["nit", "nit wit", "big nit", "wit of a nit", "wit", "a a", "\u8349\u6ce5", "gro\u00df nit"]


def _slow(text: str, phrases: list[list[str]]) -> tuple[int, float | None]:
    """Count runs of words in phrases, for words that are folded already."""
    words = text.split()
    spans = [(i, i + len(p)) for p in phrases for i in range(len(words)) if words[i : i + len(p)] == p]
    covered = {k for start, stop in spans for k in range(start, stop)}
    together = {k for start, stop in spans for k in range(start + 1, stop)}
    return len(covered - together), len(covered) / len(words) if words else None


@pytest.mark.nightly
def test_phrases_are_those_of_a_slow_search() -> None:
    """Phrases may overlap, begin one another and lie in one another; each run of words counts once."""
    draw = random.Random(1)
    texts = [
        " ".join(draw.choices(["nit", "wit", "big", "of", "a", "mill"], k=draw.randint(0, 14))) for _ in range(400)
    ]
    found = score(pa.array(texts), phrases_of(LIST))
    wanted = [_slow(text, [phrase.split() for phrase in LIST]) for text in texts]
    assert list(zip(*(column.to_pylist() for column in found.values()), strict=True)) == wanted
    assert max(count for count, _ in wanted) >= 4


@pytest.mark.parametrize(
    ("text", "count", "density"),
    [
        ("A Big NIT-wit!", 1, 3 / 4),
        ("unit, nitpick, witness", 0, 0),
        ("big,\n\tNIT", 1, 1),
        ("n\u200bi\u00adt \uff4e\uff49\uff54 GRO\u1e9e NIT", 3, 1),
        ("\u6211\u8349\u6ce5\u9a6c", 1, 1 / 2),
        ("n1t n.i.t", 0, 0),
        (" ?! \u200b", 0, None),
    ],
)
def test_words_are_whole_and_folded(text: str, count: int, density: float | None) -> None:
    """Case, compatibility forms and invisible characters do not matter; leetspeak is another word."""
    found = score(pa.array([text]), phrases_of(LIST))
    assert [column.to_pylist() for column in found.values()] == [[count], [density]]


def test_lists_are_read_and_named_by_their_content(tmp_path: Path) -> None:
    """Of languages, words and a file, without what is taken out; another content is another config."""
    pytest.importorskip("glin_profanity", reason="glin-profanity is in the extra filters")
    file = tmp_path / "own.txt"
    file.write_text("nitwit\n\n  Mill Race \n", "utf-8")
    config = ProfanityConfig(languages=("en", "de"), words=("dam",), file=str(file), without=("Anal",))
    words = listed(config.model_dump())
    assert {"nitwit", "Mill Race", "dam", "arsehole"} < set(words) and "" not in words
    assert "anal" not in words and "a$$" not in words
    table = phrases_to_count(config)
    assert profanity.score(pa.array(["the mill-race, a DAM"]), table)["profanity_count"].to_pylist() == [2]
    file.write_text("nitwit", "utf-8")
    with pytest.raises(ConfigError, match="the config says"):
        phrases_to_count(config)
    assert ProfanityConfig(**config.model_dump(exclude={"words_sha256"})) != config
    assert all(listed({**config.model_dump(), "languages": [one], "file": None}) for one in LISTS)
    check_scorer(profanity)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"languages": ["em"]}, "no list 'em'; did you mean 'es'"),
        ({"languages": [], "file": "nowhere.txt"}, "'nowhere.txt' cannot be read"),
        ({"language": ["en"]}, "language"),
    ],
)
def test_what_cannot_be_read_is_one_line(given: dict[str, object], message: str) -> None:
    """A list, a file, a misspelt field; a config that lists nothing fails before texts are read."""
    with pytest.raises(ValueError, match=message):
        ProfanityConfig.model_validate(given)
    with pytest.raises(ConfigError, match="nothing is listed"):
        phrases_to_count(ProfanityConfig(languages=()))

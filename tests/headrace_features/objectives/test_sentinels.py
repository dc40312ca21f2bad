"""Sentinels are found by name, in the forms that models are trained with; else refused in a line."""

from __future__ import annotations

import pytest

from headrace_features.objectives.config import FimConfig, SentinelNames
from headrace_features.objectives.sentinels import find_sentinels
from spark_jobs.exceptions import InputError
from tests.headrace_features.objectives.fim_tokenizer import STARCODER, fim_tokenizer

FORMS = {
    "StarCoder": STARCODER,
    "Qwen2.5-Coder": ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"),
    "DeepSeek-Coder": ("<｜fim▁begin｜>", "<｜fim▁end｜>", "<｜fim▁hole｜>"),
    "Code Llama": ("▁<PRE>", "▁<MID>", "▁<SUF>"),
    "Codestral": ("[PREFIX]", "[MIDDLE]", "[SUFFIX]"),
    "SantaCoder": ("<fim-prefix>", "<fim-middle>", "<fim-suffix>"),
}


@pytest.mark.parametrize("form", FORMS)
def test_sentinels_of_known_models_are_found(form: str) -> None:
    """Prefix, middle, suffix, each the right one."""
    file_text, ids = fim_tokenizer(FORMS[form])
    assert find_sentinels(file_text, FimConfig(), "objectives: code: fim") == ids


def test_other_names_are_told() -> None:
    """And a name that is not there is refused with the nearest."""
    file_text, ids = fim_tokenizer(("<a>", "<b>", "<c>"))
    named = FimConfig(sentinels=SentinelNames(prefix="<a>", middle="<b>", suffix="<c>"))
    assert find_sentinels(file_text, named, "x") == ids
    wrong = FimConfig(sentinels=SentinelNames(prefix="<a>", middle="<b>", suffix="<c"))
    with pytest.raises(InputError, match=r"x: the tokenizer has no token '<c'; nearest is '<c>'; name its tokens in"):
        find_sentinels(file_text, wrong, "x")
    twice = FimConfig(sentinels=SentinelNames(prefix="<a>", middle="<a>", suffix="<c>"))
    with pytest.raises(InputError, match="names a token twice"):
        find_sentinels(file_text, twice, "x")


def test_a_tokenizer_without_them_is_refused_in_one_line() -> None:
    """It says what was looked for, and what is nearest."""
    file_text, _ = fim_tokenizer(("<a>", "<fim_prefx>", "<c>"))
    with pytest.raises(InputError) as refused:
        find_sentinels(file_text, FimConfig(), "objectives: code: fim")
    text = str(refused.value)
    assert text.startswith("objectives: code: fim: the tokenizer has none of <fim_prefix>, <|fim_prefix|>, ")
    assert "nearest is '<fim_prefx>'; name its tokens in sentinels" in text and "\n" not in text
    file_text, _ = fim_tokenizer(("<fim_prefix>", "<fim_suffix>", "<c>"))
    with pytest.raises(InputError, match="lacks <fim_middle> of <fim_prefix> <fim_middle> <fim_suffix>; nearest is"):
        find_sentinels(file_text, FimConfig(), "x")


@pytest.mark.parametrize("names", [("x", "<fim_middle>", "<fim_suffix>"), ("<fim_prefix>", "def", "<fim_suffix>")])
def test_tokens_that_texts_have_are_no_sentinels(names: tuple[str, str, str]) -> None:
    """A letter and a word of the vocabulary are refused, by name."""
    file_text, _ = fim_tokenizer(is_qwen=True)
    prefix, middle, suffix = names
    config = FimConfig(sentinels=SentinelNames(prefix=prefix, middle=middle, suffix=suffix))
    word = next(name for name in names if "<" not in name)
    with pytest.raises(InputError, match=f"x: '{word}' is a token of texts, no sentinel"):
        find_sentinels(file_text, config, "x")

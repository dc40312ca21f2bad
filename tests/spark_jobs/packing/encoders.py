"""What tests of encoders share: tokenizers of the known splittings, texts hard to split, the reference's ids."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from hypothesis import strategies as st
from tokenizers import Tokenizer

from spark_jobs.tokens.fast.fast_encoder import NO_ENCODER, encoder_version
from spark_jobs.tokens.fast.pre_tokenization import DEEPSEEK_PATTERNS, SPLIT_PATTERNS
from spark_jobs.tokens.hf_tokenizer import train_byte_pairs

SOURCES = [path.read_text() for path in sorted(Path(__file__).parents[3].joinpath("spark_jobs").rglob("*.py"))]
SPLITTINGS = ("gpt2", *SPLIT_PATTERNS, "deepseek")

needs_fast_encoder = pytest.mark.skipif(encoder_version() == NO_ENCODER, reason="no fast encoder: headrace[platform]")

HARD_TEXT = st.text(
    st.one_of(
        st.sampled_from("/Éǅʰ中か\u0301"),
        st.sampled_from(
            "aAsStTrevmlldD1 2\n\n \r\t'’.,?!_-\u00a0\u0085\u2028\u3000\u200b\u200d\x00\x0b\x1cſK²Ⅷ١éß漢가🙂\ufeff"
        ),
        st.characters(codec="utf-8"),
    ),
    max_size=60,
)
"""Texts of characters that splittings treat in their own ways, and of any others."""


@cache
def trained_tokenizer() -> str:
    """A small tokenizer of this repository's own sources."""
    return train_byte_pairs(SOURCES, 2000, 2)


@cache
def tokenizer_of(splitting: str) -> str:
    """The same vocabulary under a way of splitting texts into words."""
    if splitting == "gpt2":
        return trained_tokenizer()
    return changed(trained_tokenizer(), pre_tokenizer=splitting_parts(splitting))


def splitting_parts(splitting: str) -> dict[str, object]:
    """The pre-tokenizer of a known splitting, as a tokenizer.json has it."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": splitting == "gpt2"}
    if splitting == "gpt2":
        return level
    splits = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in (DEEPSEEK_PATTERNS if splitting == "deepseek" else (SPLIT_PATTERNS[splitting],))
    ]
    return {"type": "Sequence", "pretokenizers": [*splits, level]}


def changed(file_text: str, **parts: object) -> str:
    """A tokenizer file with other parts."""
    return json.dumps({**json.loads(file_text), **parts})


def reference_ids(file_text: str, text: str) -> list[int]:
    """Ids by the library itself, on the whole text at once."""
    tokenizer = Tokenizer.from_str(file_text)
    tokenizer.encode_special_tokens = True
    return list(tokenizer.encode(text, add_special_tokens=False).ids)

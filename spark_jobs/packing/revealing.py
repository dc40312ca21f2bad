"""Tokenizers that show where texts are split: made to be probed, with the pre-tokenizer of a real one.

Ids tell words apart only where the vocabulary has a token over the place in question, and a real vocabulary has few
over rare characters. So two encoders can agree on all ids of short texts and still take a character for different
things. Two vocabularies leave no such doubt:

    whole words    every part of the probes is a token, and a word that is a token becomes it: one id is one word
                   "a1?"  ->  a  1  ?      or a1  ?       or  a  1?
    boundaries     two bytes are joined where a character ends and the next begins: what is not joined was split
                   "aéé"  ->  a+C3  A9+C3  A9     or, with a split after the first é,  a+C3  A9  C3  A9

The first needs a token per part of a probe, which is fine for ASCII; the second does for all 1.1 million code points.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from spark_jobs.packing.pre_tokenization import BYTE_NAMES, token_name

_LEADING: Final = range(0xC2, 0xF5)
_CONTINUING: Final = range(0x80, 0xC0)
ANCHORS: Final = b"a1?' \ns"
"""ASCII characters that probes put beside others."""


def whole_words(pre_tokenizer: Mapping[str, Any], probes: Iterable[str]) -> str:
    """A tokenizer.json in which every part of every probe is a token of its own.

    Args:
        pre_tokenizer: of the tokenizer that is probed.
        probes: short ASCII texts and others; memory grows with the square of their length.
    """
    parts = {
        probe[start:end] for probe in probes for start in range(len(probe)) for end in range(start + 1, len(probe) + 1)
    }
    return _tokenizer_json(pre_tokenizer, [token_name(part.encode()) for part in sorted(parts)], [])


def boundaries(pre_tokenizer: Mapping[str, Any]) -> str:
    """A tokenizer.json that joins the last byte of a character with the first of the next, and does nothing else.

    Neighbours are a character beyond ASCII and either another or one of `ANCHORS`. Of two neighbours of one anchor the
    one beyond ASCII is joined first.
    """
    pairs = [
        *itertools.product(_CONTINUING, _LEADING),
        *itertools.product(ANCHORS, _LEADING),
        *itertools.product(_CONTINUING, ANCHORS),
        *itertools.product(ANCHORS, ANCHORS),
    ]
    merges = [[BYTE_NAMES[left], BYTE_NAMES[right]] for left, right in pairs]
    return _tokenizer_json(pre_tokenizer, [left + right for left, right in merges], merges)


def _tokenizer_json(pre_tokenizer: Mapping[str, Any], tokens: Iterable[str], merges: list[list[str]]) -> str:
    """A byte-level BPE; without merges, words that are tokens become them."""
    vocabulary = {name: number for number, name in enumerate(dict.fromkeys([*BYTE_NAMES, *tokens]))}
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": not merges,
        "vocab": vocabulary,
        "merges": merges,
    }
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": pre_tokenizer,
            "post_processor": None,
            "decoder": byte_level,
            "model": model,
        }
    )

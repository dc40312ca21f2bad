#!/usr/bin/env bash
# fastokens 0.3.5 with tokenizers 0.23.3.
# One would guess: the pattern of GPT-4 and Llama 3, (?i:'s|'t|..), means the same in both, since fastokens reads the
#   same tokenizer.json; where case is ignored, U+017F (the long s of old prints, ſ) equals s.
# Seen: tokenizers ends a word after 'ſ, so "it'ſo" becomes: it, 'ſ, o; fastokens, whose loop for this pattern knows s and S
#   alone, has: it, 'ſo. With the same pattern in a group, which it runs through PCRE2, fastokens agrees with tokenizers.
#   Ids of a real vocabulary hide it, which has no token that begins with 'ſ; here every word is a token.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "fastokens==0.3.5" "tokenizers==0.23.3"
"$folder/venv/bin/python" - <<'PY'
import json
import sys

from fastokens import Tokenizer as Fast
from tokenizers import Tokenizer, pre_tokenizers

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXT = "it'\u017fo"
byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def spelled(part):
    return byte_level.pre_tokenize_str(part)[0][0]


words = [TEXT[start:end] for start in range(len(TEXT)) for end in range(start + 1, len(TEXT) + 1)]
names = list(dict.fromkeys([*sorted(pre_tokenizers.ByteLevel.alphabet()), *map(spelled, words)]))


def ids(pattern):
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {"type": "BPE", "ignore_merges": True, "vocab": {name: at for at, name in enumerate(names)}, "merges": []}
    file = json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
        "post_processor": None, "decoder": None, "model": model,
    })
    return [[names[at] for at in encoded] for encoded in (
        Tokenizer.from_str(file).encode(TEXT).ids, Fast.from_json_str(file).encode(TEXT).ids,
    )]


known, grouped = ids(PATTERN), ids(f"(?:{PATTERN})")
print("known pattern:   tokenizers", known[0], "fastokens", known[1])
print("the same, grouped: tokenizers", grouped[0], "fastokens", grouped[1])
sys.exit(0 if known[0] != known[1] and grouped[0] == grouped[1] == known[0] else 1)
PY

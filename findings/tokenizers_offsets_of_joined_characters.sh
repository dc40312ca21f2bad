#!/usr/bin/env bash
# tokenizers 0.23.3.
# One would guess: the offsets of a token are all characters of the text that it was made of, so that text[start:end]
#   decides the token, and with add_special_tokens=False no post-processor has a say in them.
# Seen: under NFC the token of `e` and a combining accent, one letter by then, has the offsets of `e` alone; the accent is of
#   no token. And a ByteLevel post-processor trims the blanks off all offsets though no special token is asked for: a token
#   of blanks has none, and a mask that is made of offsets leaves them out. Ids are the same without it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "tokenizers==0.23.3"
"$folder/venv/bin/python" - <<'PY'
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

letters = sorted(pre_tokenizers.ByteLevel.alphabet())
merges = [("Ã", "©"), ("Ġ", "x")]
names = [*letters, *map("".join, merges)]
made = Tokenizer(models.BPE({name: number for number, name in enumerate(names)}, merges))
made.normalizer = normalizers.NFC()
made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
joined = made.encode("e\u0301", add_special_tokens=False)
print("NFC of e and U+0301:", joined.tokens, joined.offsets, "of 2 characters")
before = made.encode("a  x", add_special_tokens=False)
made.post_processor = processors.ByteLevel(trim_offsets=True)
after = made.encode("a  x", add_special_tokens=False)
print("offsets without a post-processor:", before.offsets, "; with ByteLevel's:", after.offsets)
trims = before.ids == after.ids and before.offsets[1] == (1, 2) and after.offsets[1][0] == after.offsets[1][1]
raise SystemExit(0 if joined.offsets == [(0, 1)] and trims else 1)
PY

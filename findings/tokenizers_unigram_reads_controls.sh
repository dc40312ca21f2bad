#!/usr/bin/env bash
# tokenizers 0.23.3.
# One would guess: with `encode_special_tokens = True` the name of a control token in a text is encoded as text, whatever
#   the tokenizer's model; for BPE it is.
# Seen: a Unigram model (T5, XLM-R, NLLB: their `</s>` is a piece of its vocabulary) and a WordLevel one give the id of
#   the control: a text that says `</s>` has an end in its middle.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "tokenizers==0.23.3"
"$folder/venv/bin/python" - <<'PY'
from tokenizers import Tokenizer, models

letters = ["<s>", "</s>", "<unk>", *"a</s>"]
names = list(dict.fromkeys(letters))
unigram = Tokenizer(models.Unigram([(name, -1.0 if len(name) == 1 else 0.0) for name in names], unk_id=2))
merges = Tokenizer(models.BPE({name: number for number, name in enumerate(names)}, [], unk_token="<unk>"))
seen = {}
for name, tokenizer in (("unigram", unigram), ("bpe", merges)):
    tokenizer.add_special_tokens(["<s>", "</s>", "<unk>"])
    tokenizer.encode_special_tokens = True
    seen[name] = tokenizer.encode("a</s>a", add_special_tokens=False).tokens
print(seen)
raise SystemExit(0 if "</s>" in seen["unigram"] and "</s>" not in seen["bpe"] else 1)
PY

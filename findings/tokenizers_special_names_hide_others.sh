#!/usr/bin/env bash
# tokenizers 0.23.3.
# One would guess: with `encode_special_tokens = True` the name of a special token is text like any other, so an added token
#   that is not special is found wherever its name stands.
# Seen: the special name is matched first and then dropped, and its characters are used up: with `</s>` special and `>>`
#   added, `>>` is not found in `</s>>`, though `>>` is found in `<s>>`. The longest name counts too: with `</s>` special
#   and `</s` added, `</s` is never found in `</s>`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "tokenizers==0.23.3"
"$folder/venv/bin/python" - <<'PY'
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
tokenizer = Tokenizer(models.BPE({name: number for number, name in enumerate(alphabet)}, []))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.add_special_tokens([AddedToken("</s>", special=True)])
tokenizer.add_tokens([AddedToken(">>", normalized=False), AddedToken("</s", normalized=False)])
tokenizer.encode_special_tokens = True
seen = {text: tokenizer.encode(text, add_special_tokens=False).tokens for text in ("<s>>", "</s>>", "</s", "</s>")}
for text, tokens in seen.items():
    print(f"{text:6}", tokens)
expected = {"<s>>": ["<", "s", ">>"], "</s>>": [*"</s>>"], "</s": ["</s"], "</s>": [*"</s>"]}
raise SystemExit(0 if seen == expected else 1)
PY

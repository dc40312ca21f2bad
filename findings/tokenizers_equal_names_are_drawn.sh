#!/usr/bin/env bash
# tokenizers 0.23.3.
# One would guess: a tokenizer.json gives one list of ids for a text, whoever loads it and how often; of two added tokens
#   whose names the normalizer makes one (`<Q>` and `<q>` in lower case) the first, the last or neither is found.
# Seen: one of the two, by chance, each time the file is loaded (about 60 to 40): within one process and between processes
#   ids differ, and nothing says so.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "tokenizers==0.23.3"
"$folder/venv/bin/python" - <<'PY'
from collections import Counter

from tokenizers import AddedToken, Tokenizer, models, normalizers

tokenizer = Tokenizer(models.BPE({"<": 0, "q": 1, ">": 2}, []))
tokenizer.normalizer = normalizers.Lowercase()
tokenizer.add_tokens([AddedToken("<Q>", normalized=True), AddedToken("<q>", normalized=True)])
file = tokenizer.to_str()
seen = Counter(str(Tokenizer.from_str(file).encode("<q>").ids) for _ in range(200))
print("ids of <q> in 200 loads of one file:", dict(seen))
raise SystemExit(0 if len(seen) == 2 else 1)
PY

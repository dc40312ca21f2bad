#!/usr/bin/env bash
# tokenizers 0.23.3.
# One would guess: a model that samples (`Unigram(alpha=.., nbest_size=..)`) samples after it was saved and loaded, as a BPE
#   with `dropout` does, or that saving says what it leaves out.
# Seen: `to_str` writes `dropout` of a BPE and neither `alpha` nor `nbest_size` of a Unigram, and `from_str` ignores the two
#   where the file has them. So the loaded tokenizer gives one segmentation, without a word, and code that reads a file for
#   settings that draw does not see those of a Unigram in memory.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "tokenizers==0.23.3"
"$folder/venv/bin/python" - <<'PY'
import json

from tokenizers import Tokenizer, models

scores = [("<unk>", 0.0), ("a", -2.0), ("b", -2.0), ("ab", -2.5), ("aba", -3.0), ("bab", -3.1)]
vocabulary = {name: number for number, (name, _) in enumerate(scores)}
kinds = {
    "BPE": models.BPE(vocabulary, [("a", "b"), ("ab", "a")], dropout=0.9),
    "Unigram": models.Unigram(scores, 0, False, alpha=0.1, nbest_size=64),
}
seen = {}
for name, model in kinds.items():
    tokenizer = Tokenizer(model)
    loaded = Tokenizer.from_str(tokenizer.to_str())
    seen[name] = [len({str(one.encode("ab" * 6).ids) for _ in range(50)}) > 1 for one in (tokenizer, loaded)]
    print(name, "draws before and after saving:", seen[name], sorted(json.loads(tokenizer.to_str())["model"]))
raise SystemExit(0 if seen == {"BPE": [True, True], "Unigram": [True, False]} else 1)
PY

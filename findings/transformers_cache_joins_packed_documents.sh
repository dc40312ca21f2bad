#!/usr/bin/env bash
# transformers 5.24.0 with torch 2.13.0.
# One would guess: where position_ids begin anew a document ends, whether a cache is returned or not, since use_cache
#   decides what a forward call gives back, and nothing about what it computes.
# Seen: with use_cache=False the second document of a window does not depend on the first; with the default, a cache, or
#   with an attention_mask of ones, it does: the bounds are not read off position_ids there.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "transformers==5.24.0" "torch==2.13.0"
"$folder/venv/bin/python" - <<'PY'
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
model = LlamaForCausalLM(LlamaConfig(vocab_size=50, initializer_range=0.3, **sizes)).eval()
window = torch.randint(0, 50, (1, 12))
other = torch.cat([torch.randint(0, 50, (1, 6)), window[:, 6:]], 1)  # another first document
positions = torch.tensor([[*range(6), *range(6)]])


def leak(**how: object) -> float:
    with torch.no_grad():
        first, second = (model(ids, position_ids=positions, **how).logits[:, 6:] for ids in (window, other))
    return float((first - second).abs().max())


without, with_cache = leak(use_cache=False), leak()
ones = leak(use_cache=False, attention_mask=torch.ones_like(window))
print(f"the second document changes by {without} without a cache, {with_cache:.2f} with one, {ones:.2f} with ones")
raise SystemExit(0 if without == 0 and min(with_cache, ones) > 0.01 else 1)
PY

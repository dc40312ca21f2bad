#!/usr/bin/env bash
# transformers 5.24.0 (`transformers serve`) with torch 2.13.0.
# One would guess: temperature 1 samples, as at every endpoint of OpenAI's protocol, so eight seeds have several answers.
# Seen: one answer for all seeds, the likeliest: a model whose generation_config.json does not say do_sample is read
#   greedily, whatever the temperature. With do_sample in it the same requests have several answers.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill ${servers:-} 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "transformers[serving]==5.24.0" "torch==2.13.0"
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

letters = sorted(pre_tokenizers.ByteLevel.alphabet())
tokenizer = Tokenizer(models.BPE(vocab={one: number for number, one in enumerate(letters)}, merges=[]))
tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")
fast.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
torch.manual_seed(0)
sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
model = LlamaForCausalLM(LlamaConfig(vocab_size=257, eos_token_id=256, pad_token_id=256, **sizes))
for folder, samples in (("plain", False), ("sampling", True)):
    fast.save_pretrained(folder)
    model.generation_config.do_sample = samples
    model.save_pretrained(folder)
PY
export HF_HUB_OFFLINE=1
number=18377
for model in plain sampling; do
  "$folder/venv/bin/transformers" serve --host 127.0.0.1 --port $number "$folder/$model" >"$model.log" 2>&1 &
  servers="${servers:-} $!"
  number=$((number + 1))
done
"$folder/venv/bin/python" - <<'PY'
import json
import os
import time
import urllib.request


def answer(port: int, model: str, seed: int) -> str:
    body = {"model": os.path.abspath(model), "messages": [{"role": "user", "content": "say"}], "max_tokens": 16}
    data = json.dumps({**body, "temperature": 1.0, "seed": seed}).encode()
    address = f"http://127.0.0.1:{port}/v1/chat/completions"
    for _ in range(240):
        try:
            request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
            return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
        except OSError:
            time.sleep(0.5)
    raise SystemExit("no server")


plain, sampling = (len({answer(*where, seed) for seed in range(8)}) for where in ((18377, "plain"), (18378, "sampling")))
print(f"eight seeds at temperature 1: {plain} answer(s); with do_sample in the model's generation config {sampling}")
raise SystemExit(0 if plain == 1 and sampling > 1 else 1)
PY

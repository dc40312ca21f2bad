"""Measure what the proxy model learns of planted clusters, and what that and perplexity cost, in CPU seconds.

    python benchmarks/bench_cluster_losses.py [--steps 600]

Five kinds of texts, of each one half for the sample that the model is trained on, the other for a cluster.
"""

from __future__ import annotations

import base64
import os
import tempfile
import time
from pathlib import Path

import command
import numpy as np
import pyarrow as pa
from corpora import real, rfcs
from cpu_time import megabytes

from headrace_features.models.causal_model import one_thread, read_causal_model
from headrace_features.models.clusters.cluster_losses import ClusterLossesConfig
from headrace_features.models.clusters.proxy_config import ProxyModelConfig
from headrace_features.models.clusters.proxy_model import trained
from headrace_features.models.clusters.proxy_training import learnt
from headrace_features.models.model_file import pack_folder

WORDS = (
    "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut labore et dolore magna"
)


def kinds() -> dict[str, list[str]]:
    """Texts of each kind, 4,000 characters of each."""
    draw = np.random.default_rng(0)
    files = (file.read_text("utf-8", "ignore") for file in sorted(Path(os.__file__).parent.glob("*.py")))
    return {
        "random bytes in base 85": [base64.b85encode(draw.bytes(3200)).decode() for _ in range(150)],
        "Python files": [text[:4000] for text in files if len(text) > 4000],
        "RFCs": [text[5000:9000] for text in rfcs(500)[100:] if len(text) > 9000],
        "lorem ipsum, shuffled": [" ".join(draw.choice(WORDS.split(), 600)) for _ in range(150)],
        "one sentence repeated": ["The mill stands at the river and grinds the grain.\n" * 80] * 150,
    }


def perplexity(name: str, file: bytes, texts: list[str]) -> None:
    """Print how fast a model scores texts."""
    model = read_causal_model(file, name)
    model.score(pa.array(texts[:1]))
    started = time.process_time()
    model.score(pa.array(texts))
    seconds = time.process_time() - started
    size = sum(one.numel() for one in model.network.parameters())
    print(f"| {name} | {size:,} | {megabytes(texts) / seconds * 1e3:,.1f} KB/s |")


def llama(width: int, layers: int) -> bytes:
    """A random model of Llama's architecture with GPT-2's tokenizer, as a file."""
    tokenizer = real("tokenizers/gpt2.json").read_bytes()
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    shape = {"hidden_size": width, "intermediate_size": 3 * width, "num_hidden_layers": layers}
    heads = {"num_attention_heads": width // 64, "num_key_value_heads": width // 64}
    made = LlamaForCausalLM(LlamaConfig(vocab_size=50257, max_position_embeddings=1024, **shape, **heads))
    with tempfile.TemporaryDirectory() as folder:
        made.save_pretrained(folder)
        Path(folder, "tokenizer.json").write_bytes(tokenizer)
        return pack_folder(Path(folder), "llama")


def main() -> None:
    """Run all of it and print the tables."""
    parser = command.parser(__doc__)
    parser.add_argument("--steps", type=int, default=ProxyModelConfig().steps)
    parser.set_defaults(documents=75)
    given = command.read(parser, steps=5, documents=8)
    texts = kinds()
    documents = [text for of_kind in texts.values() for text in of_kind[::2][: given.documents]]
    order = np.random.default_rng(1).permutation(len(documents))
    started = time.process_time()
    row = {
        key: column[0].as_py()
        for key, column in trained([documents[i] for i in order], ProxyModelConfig(steps=given.steps)).items()
    }
    print(f"training: {time.process_time() - started:.0f} s, {row['byte_count']:,} bytes, loss {row['loss']:.3f}")
    model = read_causal_model(row["file"], "proxy", "cpu")
    print("| cluster | before | after | slope | seconds |")
    for name, of_kind in texts.items():
        started = time.process_time()
        found = learnt(model, of_kind[1::2][: 3 if given.small else 16], ClusterLossesConfig())
        seconds = time.process_time() - started
        assert found is not None
        print(f"| {name} | {found.before:.3f} | {found.after:.3f} | {found.slope:+.4f} | {seconds:.2f} |")
    print("| perplexity by | parameters | speed |")
    with one_thread():
        perplexity("the proxy model", row["file"], texts["RFCs"][: 2 if given.small else 40])
        if (file := command.attempt(llama, 256, 4)) is not None:
            perplexity("Llama, 256 wide, 4 layers", file, texts["RFCs"][: 1 if given.small else 20])


if __name__ == "__main__":
    main()

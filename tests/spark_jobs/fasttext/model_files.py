"""Write small fastText models with random numbers, as version 0.9.2 lays them out."""

from __future__ import annotations

import struct

import numpy as np

WORDS = ["</s>", "the", "quick", "brown", "fox", "naïve", "日本", "слово", "a", "it's"]


def fasttext_bytes(  # one argument for each setting that changes how a text is read
    loss: int, word_ngrams: int = 1, low: int = 0, high: int = 0, bucket: int = 300, labels: int = 5, seed: int = 0
) -> bytes:
    """A supervised model that is not quantized; loss: 1 hierarchical softmax, 2 negative, 3 softmax, 4 one-vs-all."""
    rng = np.random.default_rng(seed)
    dimension = 7
    names = [*WORDS, *(f"__label__topic{k}" for k in range(labels))]
    parts = [
        struct.pack("<2i", 793712314, 12),
        struct.pack("<12id", dimension, 5, 5, 1, 5, word_ngrams, loss, 3, bucket, low, high, 100, 1e-4),
        struct.pack("<3i2q", len(names), len(WORDS), labels, 1000, -1),
    ]
    for k, name in enumerate(names):
        is_label = name.startswith("__label__")
        parts.append(
            name.encode() + b"\0" + struct.pack("<qb", 500 - 7 * k * k % 97 if not is_label else 90 - k * k, is_label)
        )
    has_buckets = high > 0 or word_ngrams > 1
    rows = len(WORDS) + (bucket if has_buckets else 0)
    for count in (rows, labels):
        matrix = rng.normal(scale=2.0, size=(count, dimension)).astype("<f4")
        parts += [b"\0", struct.pack("<2q", count, dimension), matrix.tobytes()]
    return b"".join(parts)

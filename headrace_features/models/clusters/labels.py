"""The words to name a cluster: those of the largest weight in its most typical documents."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from headrace_features.models.clusters.embedding import EmbeddingConfig, count_weights
from spark_jobs.arrays import UInt8Array

_WORD = re.compile(r"[^\W\d_]{3,20}")


def label_words(texts: Sequence[str], weights: UInt8Array, config: EmbeddingConfig, count: int) -> list[str]:
    """The `count` words with the largest sum of tf-idf, each text scaled to a vector of length 1.

    Words shared by two texts or more come before words of a single text.

    Args:
        texts: of the typical documents, in a fixed order.
        weights: (2^BITS,) weight of each bucket.
        config: what a vector is.
        count: how many words.
    """
    counted = [Counter(_WORD.findall(text.lower())) for text in texts]
    words = sorted(set().union(*counted))
    weight_of = dict(zip(words, _weights(words, weights, config), strict=True))
    most = len(count_weights()) - 1
    scores: Counter[str] = Counter()
    holders: Counter[str] = Counter()
    for counts in counted:
        of_text = {word: int(count_weights()[min(n, most)]) * weight_of[word] for word, n in counts.items()}
        length = math.sqrt(sum(weight * weight for weight in of_text.values()))
        for word, weight in of_text.items():
            if weight:
                scores[word] += weight / length
                holders[word] += 1
    ranked = sorted(scores, key=lambda word: (holders[word] < 2, -scores[word], word))
    return ranked[:count]


def _weights(words: Sequence[str], weights: UInt8Array, config: EmbeddingConfig) -> list[int]:
    """The weight of each word's bucket; 0 if the kernel does not read it as exactly one word."""
    from headrace_features.models.classifier import kernel_arguments
    from headrace_features.models.classifier_kernel import count_texts

    features = config.model_copy(update={"character_ngrams": 0}).features
    starts, buckets, _ = count_texts(*kernel_arguments(pa.array(words, pa.large_string()), features))
    return [
        int(weights[buckets[start]]) if end == start + 1 else 0
        for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
    ]

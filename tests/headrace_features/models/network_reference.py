"""The network of the proxies again, in NumPy and the slow way: one document, one position, one head at a time."""

from __future__ import annotations

import math

import numpy as np

from headrace_features.models.network import Network
from spark_jobs.arrays import Float64Array


def log_probabilities(network: Network, document: list[int]) -> Float64Array:
    """(T, V): of the token behind each of a document's tokens."""
    weights = {name: value.detach().numpy().astype(np.float64) for name, value in network.named_parameters()}
    width = weights["widen.weight"].shape[0]
    heads = network.blocks[0].heads
    hidden = np.array([weights["widen.weight"] @ weights["tokens.weight"][token] for token in document])
    for position in range(len(document)):
        rates = np.exp(np.arange(0, width, 2) * (-9.21 / width))
        hidden[position] += 0.1 * np.concatenate([np.sin(position * rates), np.cos(position * rates)])
    for block in range(len(network.blocks)):
        own = {name.removeprefix(f"blocks.{block}."): value for name, value in weights.items()}
        parts = normed(hidden, own["before_attention.weight"]) @ own["query_key_value.weight"].T
        query, key, value = (part.reshape(len(document), heads, -1) for part in np.split(parts, 3, axis=1))
        mixed = np.zeros_like(query)
        for position in range(len(document)):
            for head in range(heads):
                match = key[: position + 1, head] @ query[position, head] / math.sqrt(width / heads)
                mixed[position, head] = np.exp(match) / np.exp(match).sum() @ value[: position + 1, head]
        hidden = hidden + mixed.reshape(len(document), -1) @ own["project.weight"].T
        inner = normed(hidden, own["before_feed_forward.weight"]) @ own["feed_forward.0.weight"].T
        inner *= 0.5 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
        hidden = hidden + inner @ own["feed_forward.2.weight"].T
    narrow = normed(hidden, weights["last_norm.weight"]) @ weights["narrow.weight"].T
    logits = narrow @ weights["tokens.weight"].T
    return np.asarray(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))


def normed(values: Float64Array, gains: Float64Array) -> Float64Array:
    """A layer norm without biases."""
    centred = values - values.mean(axis=1, keepdims=True)
    return np.asarray(centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5) * gains)


def nats(network: Network, document: list[int]) -> Float64Array:
    """(T - 1,): log-probability of each token of a document from the second on."""
    found = log_probabilities(network, document)
    return np.array([found[place, token] for place, token in enumerate(document[1:])])

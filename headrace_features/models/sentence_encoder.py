"""Sentence encoders that are transformers, in Hugging Face's layout; needs the extras torch and transformers.

A text is read in windows of as many tokens as the model takes, each with the tokenizer's special tokens and alone, so
that its vector does not depend on the texts beside it. Its vector is the mean of the last hidden states of all tokens
of all windows, or of the first token of each window where `1_Pooling/config.json` says so.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import nn

from headrace_features.models.causal_model import one_thread, read_network
from headrace_features.models.static_vectors import MOST_DIMENSIONS, POOLING, read_tokenizer, scaled
from spark_jobs.arrays import Int16Array
from spark_jobs.exceptions import InputError

_WINDOW_TOKENS: Final = 512
_PLACES_BEFORE: Final = 2  # RoBERTa numbers positions from 2 on


@dataclass(frozen=True)
class SentenceEncoder:
    """A transformer with its tokenizer, cutting texts into windows.

    Attributes:
        network: (1, T) token ids -> an object with `last_hidden_state`.
        tokenizer: of the library `tokenizers`.
        dimensions: V, numbers of a vector.
        first_alone: whether a window is represented by its first token alone.
    """

    labels: ClassVar[tuple[str, ...]] = ("vector",)
    network: nn.Module
    tokenizer: Tokenizer
    dimensions: int
    first_alone: bool

    def encode(self, texts: Sequence[str]) -> Int16Array:
        """(D, V) means of hidden states, scaled to LENGTH and rounded."""
        sums = np.zeros((len(texts), self.dimensions), np.float64)
        device = next(self.network.parameters()).device
        with torch.no_grad(), one_thread():
            for row, text in enumerate(texts):
                whole = self.tokenizer.encode(text)
                for window in (whole, *whole.overflowing):
                    if all(window.special_tokens_mask):
                        continue
                    ids = torch.tensor([window.ids], device=device)
                    hidden = self.network(input_ids=ids).last_hidden_state[0].double()
                    sums[row] += (hidden[0] if self.first_alone else hidden.sum(dim=0)).cpu().numpy()
        return scaled(sums)


def read_transformer(files: dict[str, bytes], name: str) -> SentenceEncoder:
    """Read the encoder from the files of its folder, offline; no code in it is run.

    Raises:
        InputError: transformers cannot read it, or it pools neither by mean nor by first token.
        SetupError: transformers is not installed.
    """
    with tempfile.TemporaryDirectory() as folder:
        for path, data in files.items():
            if "/" not in path:
                (Path(folder) / path).write_bytes(data)
        network = read_network("AutoModel", folder, name, "model", unused="pooler.")
    dimensions = int(network.config.hidden_size)
    if dimensions > MOST_DIMENSIONS:
        raise InputError(f"{name}: has {dimensions} dimensions, at most {MOST_DIMENSIONS} are read; take a smaller one")
    tokenizer = read_tokenizer(files["tokenizer.json"], name)
    window = json.loads(files.get("sentence_bert_config.json", b"{}")).get("max_seq_length") or _WINDOW_TOKENS
    places = getattr(network.config, "max_position_embeddings", None) or _WINDOW_TOKENS + _PLACES_BEFORE
    tokenizer.enable_truncation(min(window, places - _PLACES_BEFORE, _WINDOW_TOKENS))
    place = "cuda" if torch.cuda.is_available() else "cpu"
    return SentenceEncoder(network.eval().to(place), tokenizer, dimensions, _first_alone(files, name))


def _first_alone(files: dict[str, bytes], name: str) -> bool:
    """Whether a window is represented by its first token; else by the mean of its tokens.

    Raises:
        InputError: it is pooled in another way.
    """
    pooling: dict[str, Any] = json.loads(files.get(POOLING, b"{}"))
    modes = [mode for mode, on in pooling.items() if mode.startswith("pooling_mode_") and on is True]
    if modes not in ([], ["pooling_mode_mean_tokens"], ["pooling_mode_cls_token"]):
        raise InputError(f"{name}: pools by {', '.join(modes)}; take an encoder that pools by mean or first token")
    return modes == ["pooling_mode_cls_token"]

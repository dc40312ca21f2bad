"""Values that describe a training run: the model's size, the schedule, its rows, its result.

Nothing here needs torch, so that a declaration can be checked, and a plan made, where it is not installed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace_features.models.network_shape import ModelShape
from spark_jobs.arrays import Float64Array, Int32Array, Int64Array
from spark_jobs.exceptions import ConfigError, did_you_mean

# 1.1M, 15M and 125M weights with 4,096, 32,768 and 50,304 tokens; with 150,000 they are 1.8M, 14.9M and 124.5M.
SHAPES: Final[Mapping[str, ModelShape]] = MappingProxyType(
    {
        "proxy_1m": ModelShape(width=128, depth=3, heads=4, embedding_weights=500_000),
        "proxy_15m": ModelShape(width=384, depth=6, heads=6, embedding_weights=4_200_000),
        "proxy_125m": ModelShape(width=768, depth=12, heads=12, embedding_weights=39_000_000),
    }
)


def shape_of(name: str) -> ModelShape:
    """The shape of a model by its name.

    Raises:
        ConfigError: no model has this name.
    """
    if name not in SHAPES:
        raise ConfigError(f"model {name!r}: not known{did_you_mean(name, SHAPES)}")
    return SHAPES[name]


@dataclass(frozen=True)
class TrainingRun:
    """Everything deciding the trained weights but the rows.

    Attributes:
        shape: of the model.
        vocabulary_size: token ids are below it.
        window_tokens: most tokens of a document seeing each other; a longer one begins anew at every multiple of it.
        budget_tokens: tokens to train on, padding left out; the schedule ends there, to the token.
        learning_rate: the highest one.
        warm_share: part of the budget while the rate rises to it from 0; behind it a cosine falls to 0.
        weight_seed: of the first weights.
        device: `cpu`, or `cuda` (bf16 products, float32 weights).
        threads: of the CPU; another number may change the last bits. Several runs of one thread are quicker than one of
            several, and where the machine is busy threads spend their time waiting for each other.
    """

    shape: ModelShape
    vocabulary_size: int
    window_tokens: int
    budget_tokens: int
    learning_rate: float = 3e-3
    warm_share: float = 0.05
    weight_seed: int = 0
    device: str = "cpu"
    threads: int = 1

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ConfigError: a value makes no sense.
        """
        for field, least in (("vocabulary_size", 2), ("window_tokens", 2), ("budget_tokens", 1), ("threads", 1)):
            if getattr(self, field) < least:
                raise ConfigError(f"training run: {field} is {getattr(self, field)}; it is at least {least}")
        if not 0 < self.learning_rate <= 1:
            raise ConfigError(f"training run: learning_rate is {self.learning_rate}; it is above 0 and at most 1")
        if not 0 <= self.warm_share < 1:
            raise ConfigError(f"training run: warm_share is {self.warm_share}; it is at least 0 and below 1")
        if self.device not in ("cpu", "cuda"):
            raise ConfigError(f"training run: device is {self.device!r}; it is cpu or cuda")
        if self.shape.width % self.shape.heads:
            raise ConfigError(f"training run: width {self.shape.width} is no multiple of heads {self.shape.heads}")

    def rate_at(self, tokens: float) -> float:
        """The learning rate after so many tokens; 0 at the budget."""
        share = tokens / self.budget_tokens
        if share < self.warm_share:
            return self.learning_rate * share / self.warm_share
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * (share - self.warm_share) / (1 - self.warm_share)))


class TrainingBatch(Protocol):
    """Rows of one training step.

    Attributes:
        offset: of the first row; the rows of a run follow each other without a gap.
        input_ids: (R, L) token ids.
        document_ids: (R, L) int32, number of the document in its row, -1 in padding.
    """

    @property
    def offset(self) -> int:
        """Number of the first row."""

    @property
    def input_ids(self) -> NDArray[np.integer]:
        """(R, L) token ids."""

    @property
    def document_ids(self) -> Int32Array:
        """(R, L) number of each token's document in its row, -1 in padding."""


@dataclass(frozen=True)
class Trained:
    """A trained model, and the record of its training.

    Attributes:
        weights: of the model, little-endian float32 in the order of its parameters (`training.network_of` reads them).
        offsets: (S,) of the first row of each step; batches without a predicted token are no step.
        step_tokens: (S,) tokens read up to the end of each step, padding left out.
        losses: (S,) mean loss of each step before its change of the weights, in nats a predicted token.
        tokens: read in all; the budget.
        rows_digest: SHA-256 over offset, tokens and documents of every row read; equal for equal rows in steps of
            any size.
        seconds: of training, without the time before a kill missing from the checkpoint.
        parameter_count: trained numbers.
        device: name of the GPU, or `cpu` with its threads.
        torch_version: version of torch.
    """

    weights: bytes
    offsets: Int64Array
    step_tokens: Int64Array
    losses: Float64Array
    tokens: int
    rows_digest: str
    seconds: float
    parameter_count: int
    device: str
    torch_version: str

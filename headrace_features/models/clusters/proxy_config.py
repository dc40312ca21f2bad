"""How a proxy model is trained; the steps that say so are loaded without torch."""

from __future__ import annotations

import importlib.util

from pydantic import Field, model_validator

from spark_jobs.exceptions import SetupError
from spark_jobs.lake.declare.step import ConfigModel


class ProxyTrainingConfig(ConfigModel):
    """How long and at what rate a model is trained on documents, and how much of each it reads."""

    steps: int = Field(16, ge=1, description="steps of training")
    batch_pieces: int = Field(8, ge=1, description="pieces of documents in a step")
    piece_tokens: int = Field(256, ge=2, le=8192, description="most tokens of a piece; bytes, for a model over bytes")
    document_bytes: int = Field(2048, ge=2, le=1 << 20, description="bytes read of a document, from its beginning")
    learning_rate: float = Field(1e-3, gt=0, le=1, description="highest learning rate, of AdamW")
    seed: int = Field(0, ge=0, lt=1 << 63, description="seed of the sample and of the order of its pieces")


class ProxyModelConfig(ProxyTrainingConfig):
    """How large the model is, and what it is trained on; it reads at most `piece_tokens` bytes."""

    width: int = Field(64, ge=8, le=4096, description="dimensions of the vector of a byte; a multiple of heads")
    layers: int = Field(2, ge=1, le=64, description="number of transformer blocks")
    heads: int = Field(4, ge=1, le=64, description="number of attention heads")
    sample_bytes: int = Field(4 << 20, ge=1, le=1 << 30, description="least bytes of text to train on")
    steps: int = Field(600, ge=1, description="steps of training")
    batch_pieces: int = Field(16, ge=1, description="pieces of documents in a step")
    document_bytes: int = Field(4096, ge=2, le=1 << 20, description="bytes read of a document, from its beginning")
    learning_rate: float = Field(3e-3, gt=0, le=1, description="highest learning rate, of AdamW")

    @model_validator(mode="after")
    def _heads_divide(self) -> ProxyModelConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is no multiple of heads {self.heads}; change one of them")
        return self


def require_torch(name: str) -> None:
    """Raise if torch, needed by the step `name`, is not installed; torch is looked up, not imported.

    Raises:
        SetupError: torch is not installed.
    """
    if importlib.util.find_spec("torch") is None:
        raise SetupError(f"{name}: needs torch; pip install 'headrace[torch]', here and where Spark's workers run")

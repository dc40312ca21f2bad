"""Classifiers of texts: logistic regression over hashed word and character n-grams, trained on any labelled table.

They serve quality, advertisements, toxicity, topics; a pair of datasets (reference against raw) is a table with two
labels. `classifier_kernel` defines the features, `classifier_training` trains and evaluates. A model is a file of
canonical bytes, and its identity is their SHA-256:

    magic, version, length of the header | header: JSON of labels and settings | table | bias | SHA-256 of all before

The table has a row of float32 for every bucket, its idf and then a weight for each label (for two labels, for the
second alone), all little-endian.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pydantic import Field, ValidationError, model_validator

from headrace_features.models.model_file import DIGEST_BYTES, read_model_file, write_model_file
from spark_jobs.arrays import Float32Array, Float64Array
from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.step import ConfigModel

MAGIC: Final = b"headrace classifier\n"
Judged = tuple[pa.Array, pa.Array, dict[str, pa.Array]]


class FeaturesConfig(ConfigModel):
    """Which features of a text a classifier uses; part of its file."""

    bits: int = Field(18, ge=8, le=24, description="features are hashed into 2^bits buckets")
    word_ngrams: int = Field(2, ge=1, le=5, description="most words of a word n-gram")
    min_characters: int = Field(3, ge=1, le=8, description="fewest characters of a character n-gram, with word ends")
    max_characters: int = Field(4, ge=0, le=8, description="most characters of a character n-gram; 0: none are used")
    max_text_bytes: int = Field(1 << 16, ge=64, le=1 << 30, description="bytes read of a text, from its beginning")

    @model_validator(mode="after")
    def _ordered(self) -> FeaturesConfig:
        if 0 < self.max_characters < self.min_characters:
            raise ValueError(f"max_characters {self.max_characters} is below min_characters {self.min_characters}")
        return self


@dataclass(frozen=True)
class Classifier:
    """A trained model.

    Attributes:
        labels: (L,) names, in order.
        features: its features.
        table: (2^bits, 1 + K) idf and weights; K is L, or 1 where there are two labels.
        bias: (K,).
    """

    labels: tuple[str, ...]
    features: FeaturesConfig
    table: Float32Array
    bias: Float64Array

    @property
    def sha256(self) -> str:
        """Identity of the model: the hash at the end of its file."""
        return self.to_bytes()[-DIGEST_BYTES:].hex()

    def score(self, content: pa.Array) -> dict[str, pa.Array]:
        """The probability of every label.

        Returns:
            (D,) float64 by label; null in a text without a feature of the model.
        """
        probabilities = self._probabilities(content)
        return {label: pa.array(probabilities[:, k], from_pandas=True) for k, label in enumerate(self.labels)}

    def judge(self, content: pa.Array, labels: Sequence[str]) -> Judged:
        """(D,) the most probable label, (D,) its probability, and (D,) probabilities by label; null as for `score`."""
        probabilities = self._probabilities(content)
        is_judged = ~np.isnan(probabilities[:, 0])
        best = np.where(is_judged, probabilities.argmax(axis=1), 0)
        of_best = np.take_along_axis(probabilities, best[:, None], 1)[:, 0]
        return (
            pa.array(self.labels, pa.string()).take(pa.array(best, mask=~is_judged)),
            pa.array(of_best, from_pandas=True),
            {label: pa.array(probabilities[:, self.labels.index(label)], from_pandas=True) for label in labels},
        )

    def _probabilities(self, content: pa.Array) -> Float64Array:
        """(D, L) probabilities; NaN in a text without a feature of the model."""
        sums = self._sums(content)
        with np.errstate(over="ignore"):
            if len(self.labels) == 2:
                second = 1 / (1 + np.exp(-sums[:, 0]))
                return np.column_stack([1 - second, second])
            powers = np.exp(sums - sums.max(axis=1, initial=-np.inf, keepdims=True))
            shares: Float64Array = powers / powers.sum(axis=1, keepdims=True)
            return shares

    def to_bytes(self) -> bytes:
        """The bytes of its file; equal models have equal bytes."""
        body = self.table.astype("<f4").tobytes() + self.bias.astype("<f8").tobytes()
        return write_model_file(MAGIC, {"labels": self.labels, "features": self.features.model_dump()}, body)

    def _sums(self, content: pa.Array) -> Float64Array:
        """(D, K) linear scores (logits) of texts."""
        from headrace_features.models.classifier_kernel import score_texts

        sums = np.empty((len(content), len(self.bias)), np.float64)
        score_texts(*kernel_arguments(content, self.features), self.table, self.bias, sums)
        return sums


def read_classifier(data: bytes, name: str) -> Classifier:
    """Read a model from its file.

    Raises:
        InputError: the bytes are no classifier, of another version, or damaged.
    """
    header, body = read_model_file(MAGIC, data, name, "train one with `train`")
    try:
        features, labels = FeaturesConfig(**header["features"]), tuple(header["labels"])
    except (ValueError, ValidationError, KeyError, TypeError) as error:
        raise InputError(f"{name}: its header makes no sense to this headrace; train it again") from error
    columns = 1 if len(labels) == 2 else len(labels)
    rows = 1 << features.bits
    table_end = 4 * rows * (1 + columns)
    if table_end + 8 * columns != len(body):
        raise InputError(f"{name}: is damaged, its header promises another length; copy the file again")
    table = np.frombuffer(body[:table_end], "<f4").reshape(rows, 1 + columns)
    bias = np.frombuffer(body[table_end:], "<f8")
    return Classifier(labels, features, table.copy(), bias.copy())


def kernel_arguments(content: pa.Array, features: FeaturesConfig) -> tuple[Any, ...]:
    """Arguments of `count_texts` and `score_texts`: settings, tables of characters, bytes and offsets of texts."""
    from headrace_features.models.classifier_kernel import FeatureSettings
    from spark_jobs.lexing.word_characters import word_tables
    from spark_jobs.text.text_columns import utf8_arrays

    tables = word_tables()
    return FeatureSettings(**features.model_dump()), tables.classes, tables.lower, *utf8_arrays(content)

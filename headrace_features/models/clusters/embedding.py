"""Turn texts into vectors: hashed tf-idf under a seeded random projection, in exact integers.

    words      counted by hash into 2^16 buckets, by the classifiers' counting kernel
    weight     round(16 (1 + ln count)) * idf of the bucket, an integer frozen with the centroids
    project    the sum of weight * (a row of V random signs for each bucket), an integer
    vector     that sum, scaled to the length SCALE and rounded: V int16, 2 V bytes

The distance of two projected vectors is about that of the tf-idf vectors themselves, the more so the more dimensions
there are (Achlioptas 2003, "Database-friendly random projections"). The whole is exact: sums are of integers, and every
part of the product of two vectors is below 2^22 (Cauchy-Schwarz), so that a matrix product in float32 gives the same
integer on every machine, in any order of sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from pydantic import Field

from headrace.kernels.mixing import GOLDEN, mix64
from headrace_features.models.classifier import FeaturesConfig, kernel_arguments
from spark_jobs.arrays import Int8Array, Int16Array, Int32Array, Int64Array, UInt8Array
from spark_jobs.lake.declare.step import ConfigModel
from spark_jobs.threads import made_once

if TYPE_CHECKING:
    import pyarrow as pa

SCALE: Final = 2030  # with the rounding of 512 coordinates a vector is shorter than 2^11, a squared distance below 2^24
BITS: Final = 16
_IDF_SCALE: Final = 16.0
_COUNT_SCALE: Final = 16.0
_MOST_COUNT: Final = 4096


class EmbeddingConfig(ConfigModel):
    """What a vector is; all of it is frozen with the centroids."""

    dimensions: int = Field(
        512,
        ge=64,
        le=512,
        multiple_of=64,
        description="dimensions of a vector; fewer are faster and separate topics less well",
    )
    character_ngrams: int = Field(
        0, ge=0, le=5, description="also count n-grams of so many characters, for scripts without spaces; 0 for words"
    )
    max_text_bytes: int = Field(1 << 15, ge=64, le=1 << 20, description="bytes read of a text, from its beginning")
    seed: int = Field(0, ge=0, lt=1 << 63, description="seed of the projection and of the first centroids")

    @property
    def features(self) -> FeaturesConfig:
        """The config of the kernel to count words or n-grams."""
        return FeaturesConfig(
            bits=BITS,
            word_ngrams=1,
            min_characters=max(self.character_ngrams, 1),
            max_characters=self.character_ngrams,
            max_text_bytes=self.max_text_bytes,
        )


def embed(content: pa.Array, weights: UInt8Array, config: EmbeddingConfig) -> Int16Array:
    """Turn a column of texts into vectors.

    Args:
        content: (D,) strings, none of them null.
        weights: (2^BITS,) weight of each bucket.
        config: what a vector is.

    Returns:
        (D, V) vectors of length SCALE; all 0 where no feature of a text has a weight.
    """
    from headrace_features.models.classifier_kernel import count_texts
    from headrace_features.models.clusters.embedding_kernel import project

    vectors = np.empty((len(content), config.dimensions), np.int16)
    counted = count_texts(*kernel_arguments(content, config.features))
    project(*counted, count_weights(), weights, _signs(config.dimensions, config.seed), SCALE, vectors)
    return vectors


def document_counts(content: pa.Array, config: EmbeddingConfig) -> Int64Array:
    """(2^BITS,) number of texts with each bucket."""
    from headrace_features.models.classifier_kernel import count_texts

    _, buckets, _ = count_texts(*kernel_arguments(content, config.features))
    return np.bincount(buckets, minlength=1 << BITS)


def bucket_weights(in_documents: Int64Array, document_count: int, cluster_count: int) -> UInt8Array:
    """The weight of each bucket: round(16 ln((N + 1) / (df + 1))), at most 255.

    A bucket in fewer than two documents of the sample, or in fewer than a quarter of a mean cluster, weighs 0: it tells
    documents apart and not topics, and under the projection such words, weighing most, drown the others.
    Purity of 64 clusters of Python files by package: .80 with this bound, .71 without (benchmarks/bench_clusters.py).

    Args:
        in_documents: (2^BITS,) df, the documents with each bucket.
        document_count: N.
        cluster_count: number of clusters to be fitted.
    """
    least = max(2, document_count // (4 * cluster_count))
    weights = np.rint(_IDF_SCALE * np.log((document_count + 1) / (in_documents + 1)))
    return np.where(in_documents >= least, np.minimum(weights, 255), 0).astype(np.uint8)


@made_once(most=1)
def count_weights() -> Int32Array:
    """(C,) round(16 (1 + ln count)) for counts 0 to `_MOST_COUNT`; count 0 as 1."""
    counts = np.maximum(np.arange(_MOST_COUNT + 1), 1)
    return np.rint(_COUNT_SCALE * (1 + np.log(counts))).astype(np.int32)


@made_once(most=2)
def _signs(dimensions: int, seed: int) -> Int8Array:
    """(2^BITS, V) random signs, 1 or -1: bits of SplitMix64 (Steele et al. 2014) at bucket, dimension and seed."""
    parts = np.arange((1 << BITS) * dimensions // 64, dtype=np.uint64) + (np.uint64(seed) << np.uint64(1))
    mixed = mix64((parts + np.uint64(1)) * GOLDEN)
    bits = np.unpackbits(mixed.astype("<u8").view(np.uint8), bitorder="little")
    return (bits.astype(np.int8) * 2 - 1).reshape(1 << BITS, dimensions)

"""The size of the small transformers trained here; no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_LEAST_RANK: Final = 8


@dataclass(frozen=True)
class ModelShape:
    """Size of a decoder. Its embedding is a product of two matrices, so a large vocabulary leaves weights for blocks.

    Attributes:
        width: numbers per token inside the model.
        depth: blocks.
        heads: of attention; they divide the width.
        embedding_weights: most weights of the vocabulary, about; the rank is chosen by it.
    """

    width: int
    depth: int
    heads: int
    embedding_weights: int

    def rank(self, vocabulary_size: int) -> int:
        """Numbers of a token's embedding before it is widened: 8 to `width`."""
        return max(_LEAST_RANK, min(self.width, self.embedding_weights // vocabulary_size))

    def parameter_count(self, vocabulary_size: int) -> int:
        """All weights: V r + 2 r d + n (12 d^2 + 2 d) + d, for a vocabulary V, rank r, width d and n blocks.

        The embedding (V r) is the output's too; r d widen it and narrow the output; a block has 4 d^2 weights of
        attention, 8 d^2 of the feed-forward and two norms of d gains. No biases.
        """
        rank, d = self.rank(vocabulary_size), self.width
        return vocabulary_size * rank + 2 * rank * d + self.depth * (12 * d * d + 2 * d) + d

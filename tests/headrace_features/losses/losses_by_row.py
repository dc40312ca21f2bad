"""Losses that follow from a batch's rows, and what should be written down of them, by a loop over tokens."""

from __future__ import annotations

import numpy as np
import torch

from blender_service.torch import Batch

Segments = dict[tuple[int, int], tuple[str, int, float]]
"""Document, tokens and sum, by row of the blend and number of the segment."""


def drawn(batch: Batch, seed: int = 0) -> torch.Tensor:
    """A loss for each token that follows from its place in the blend, and nonsense where none counts."""
    rows, width = batch["labels"].shape
    drawing = (np.random.default_rng([seed, batch["offset"] + row]) for row in range(rows))
    losses = torch.from_numpy(np.stack([random.gamma(2.0, 1.5, width) for random in drawing]).astype(np.float32))
    return torch.where(batch["labels"] == -100, torch.nan, losses)


def by_token(batch: Batch, losses: torch.Tensor) -> Segments:
    """Segments with a loss."""
    found: Segments = {}
    first = 0
    for row, numbers in enumerate(batch["document_ids"].tolist()):
        for place, number in enumerate(numbers[: losses.shape[1]]):
            if batch["labels"][row, place] != -100:
                document = batch["documents"][int(batch["segment_documents"][first + number])]
                key = batch["offset"] + row, number
                _, tokens, total = found.get(key, ("", 0, 0.0))
                found[key] = document, tokens + 1, total + float(losses[row, place])
        first += max(numbers) + 1
    return found

"""Train a causal model on texts, and measure how much it learns from some; needs the extra `torch`.

Seeded and in one thread, so that the same texts and the same model give the same numbers on one machine.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from headrace_features.models.causal_model import CausalModel, cut, one_thread, padded

if TYPE_CHECKING:
    from headrace_features.models.clusters.proxy_config import ProxyTrainingConfig

_LOOKS = 5  # measurements of the loss, from before the first step to after the last
_HELD_OUT = 4  # one of so many documents
_WARM_SHARE = 0.1


@dataclass(frozen=True)
class Learnt:
    """Losses of the held-out documents of a sample, in nats a byte of UTF-8.

    Attributes:
        before: loss before training.
        after: loss after training.
        slope: change of the loss per step, by the least-squares line through the measurements.
    """

    before: float
    after: float
    slope: float


def learnt(model: CausalModel, documents: Sequence[str], config: ProxyTrainingConfig) -> Learnt | None:
    """Train a copy of a model on documents and measure its loss on every fourth, held out.

    The model itself is not changed. Of a single document the second half is held out.

    Args:
        model: on any device; it is trained on the CPU.
        documents: in random order, such as that of a hash.
        config: of the training.

    Returns:
        None where there is too little text to train on and hold out, or the loss diverged to NaN or infinity.
    """
    texts = [text for document in documents if (text := cut(document, config.document_bytes))]
    held_out, shown = texts[::_HELD_OUT], [text for place, text in enumerate(texts) if place % _HELD_OUT]
    if len(texts) == 1:
        half = len(texts[0]) // 2
        held_out, shown = [texts[0][half:]], [texts[0][:half]]
    byte_count = sum(len(text.encode()) for text in held_out)
    learner = replace(model, network=copy.deepcopy(model.network).cpu())
    shown_pieces, unseen = pieces(learner, shown, config), pieces(learner, held_out, config)
    if not shown_pieces or not unseen:
        return None
    looks = sorted({round(config.steps * look / (_LOOKS - 1)) for look in range(_LOOKS)})
    losses: list[float] = []

    def look(step: int) -> None:
        if step in looks:
            losses.append(total_loss(learner, unseen, config) / byte_count)

    train(learner, shown_pieces, config, look)
    if not all(map(math.isfinite, losses)):
        return None
    middle = sum(looks) / len(looks)
    spread = sum((step - middle) ** 2 for step in looks)
    slope = sum((step - middle) * loss for step, loss in zip(looks, losses, strict=True)) / spread
    return Learnt(losses[0], losses[-1], slope)


def pieces(model: CausalModel, texts: Sequence[str], config: ProxyTrainingConfig) -> list[list[int]]:
    """Texts as pieces of `piece_tokens` tokens and the next one (0-256, 256-512, ..): each token is predicted once."""
    size = min(config.piece_tokens, model.window)
    cut = []
    for text in texts:
        ids = model.encode(text)
        cut += [ids[start : start + size + 1] for start in range(0, len(ids) - 1, size)]
    return cut


def train(
    model: CausalModel, shown: Sequence[list[int]], config: ProxyTrainingConfig, look: Callable[[int], None]
) -> None:
    """Change the parameters of a model by AdamW, with a rate rising over a tenth of the steps and falling to 0.

    Args:
        model: on the CPU.
        shown: pieces; each epoch takes them in another random order.
        config: of the training.
        look: called before each step and at the end, with the number of completed steps.
    """
    draw = torch.Generator().manual_seed(config.seed)
    optimizer = torch.optim.AdamW(model.network.parameters(), weight_decay=0.0)
    order: list[int] = []
    with one_thread():
        for step in range(config.steps):
            look(step)
            while len(order) < config.batch_pieces:
                order += torch.randperm(len(shown), generator=draw).tolist()
            chosen, order = order[: config.batch_pieces], order[config.batch_pieces :]
            rising = (step + 1) / max(1, _WARM_SHARE * config.steps)
            optimizer.param_groups[0]["lr"] = config.learning_rate * min(rising, 1 - step / config.steps)
            losses, count = _losses(model, [shown[index] for index in chosen])
            optimizer.zero_grad()
            (losses / count).backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.network.parameters(), 1.0)
            optimizer.step()
        look(config.steps)


def total_loss(model: CausalModel, unseen: Sequence[list[int]], config: ProxyTrainingConfig) -> float:
    """Sum over all predicted tokens of the pieces of their loss, in nats."""
    with torch.no_grad(), one_thread():
        batches = range(0, len(unseen), config.batch_pieces)
        return sum(float(_losses(model, unseen[start : start + config.batch_pieces])[0]) for start in batches)


def _losses(model: CausalModel, batch: Sequence[list[int]]) -> tuple[torch.Tensor, int]:
    """Sum of the losses of a batch of pieces, and its number of predicted tokens."""
    counts = [len(piece) - 1 for piece in batch]
    return model.token_losses(*padded(batch, (len(batch), max(counts)))).sum(), sum(counts)

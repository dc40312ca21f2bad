"""Trains a tiny transformer on batches that come over gRPC: `python examples/train_tiny.py --blend ID --steps 60`.

A stand-in for a training job: everything it knows of the data comes from Blender. Documents that share a window do not
see each other, positions start at 0 in each of them, and no loss is taken across their ends or in padding.
With --state FILE the run saves where it stands (weights, optimizer and data together) and goes on from there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from blender_service.exceptions import BlenderError
from blender_service.torch import BlendDataset


class Block(nn.Module):
    """Pre-norm attention and feed-forward, residual."""

    def __init__(self, width: int, head_count: int) -> None:
        super().__init__()
        self.head_count = head_count
        self.before_attention = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.project = nn.Linear(width, width, bias=False)
        self.before_feed_forward = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden: Tensor, visible: Tensor) -> Tensor:
        """Mix what each position may see into it."""
        batch, length, width = hidden.shape
        parts = self.query_key_value(self.before_attention(hidden))
        query, key, value = parts.view(batch, length, 3, self.head_count, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=visible)
        hidden = hidden + self.project(mixed.transpose(1, 2).reshape(batch, length, width))
        changed: Tensor = hidden + self.feed_forward(self.before_feed_forward(hidden))
        return changed


class TinyTransformer(nn.Module):
    """A decoder with tied embeddings; the vocabulary's embedding is factored so that it does not outweigh the rest."""

    positions: Tensor

    def __init__(self, vocabulary_size: int, window_tokens: int, width: int = 128, depth: int = 3) -> None:
        super().__init__()
        self.rank = max(8, min(width, 500_000 // vocabulary_size))  # about half a million weights for any vocabulary
        self.tokens = nn.Embedding(vocabulary_size, self.rank)
        self.widen = nn.Linear(self.rank, width, bias=False)
        self.register_buffer("positions", sinusoids(window_tokens, width), persistent=False)
        self.blocks = nn.ModuleList(Block(width, head_count=4) for _ in range(depth))
        self.last_norm = nn.LayerNorm(width)
        self.narrow = nn.Linear(width, self.rank, bias=False)
        nn.init.normal_(self.tokens.weight, std=0.1)

    def forward(self, input_ids: Tensor, position_ids: Tensor, document_ids: Tensor, labels: Tensor) -> Tensor:
        """Give the mean loss over all labels that count.

        Args:
            input_ids: (R, L).
            position_ids: (R, L), from 0 in every document.
            document_ids: (R, L), equal where two positions may see each other.
            labels: (R, L), -100 where no loss is taken.
        """
        causal = torch.ones(input_ids.shape[1], input_ids.shape[1], dtype=torch.bool).tril()
        visible = (document_ids[:, :, None] == document_ids[:, None, :]) & causal
        hidden = self.widen(self.tokens(input_ids)) + self.positions[position_ids]
        for block in self.blocks:
            hidden = block(hidden, visible[:, None])
        counted = labels != -100
        scores = self.narrow(self.last_norm(hidden[counted])) @ self.tokens.weight.T
        return functional.cross_entropy(scores, labels[counted])


def sinusoids(length: int, width: int) -> Tensor:
    """Give (length, width) fixed position vectors (Vaswani et al. 2017), scaled to the size of the embeddings."""
    rates = torch.exp(torch.arange(0, width, 2) * (-9.21 / width))
    angles = torch.arange(length)[:, None] * rates
    return 0.1 * torch.cat([angles.sin(), angles.cos()], dim=1)


def endless(dataset: BlendDataset) -> Generator[dict[str, Tensor], None, None]:
    """Give the blend's batches, from its start again where it ends."""
    while True:
        before = dataset.state_dict()["offset"]
        yield from dataset
        if dataset.state_dict()["offset"] == before == 0:
            raise BlenderError("train: the blend holds less than one batch; lower --batch-rows")
        dataset.load_state_dict({"blend": dataset.blend.blend_id, "offset": 0})


def train(dataset: BlendDataset, steps: int, batch_rows: int, crop_tokens: int, state: Path | None) -> dict[str, Any]:
    """Train for some steps.

    Args:
        dataset: the batches.
        steps: to take now.
        batch_rows: rows of a step, for the count of tokens.
        crop_tokens: tokens of each window to train on; a CPU demonstration needs no more.
        state: file to go on from, if it exists, and to save to.

    Returns:
        first_loss, last_loss (of the first and the last step), tokens, parameters, seconds.
    """
    torch.manual_seed(0)
    torch.set_num_threads(2)
    started = time.monotonic()
    window_tokens = min(dataset.blend.window_tokens, crop_tokens)
    model = TinyTransformer(dataset.blend.vocabulary_size, dataset.blend.window_tokens)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    if state is not None and state.exists():
        saved = torch.load(state, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        dataset.load_state_dict(saved["data"])
    losses: list[float] = []
    with closing(endless(dataset)) as batches:
        for step, batch in enumerate(batches, start=1):
            part = {name: tensor[:, :window_tokens] for name, tensor in batch.items()}
            loss = model(**part)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
            if step % 10 == 0 or step == 1:
                sys.stdout.write(f"step {step:4d}  loss {losses[-1]:.3f}  {time.monotonic() - started:.1f} s\n")
                sys.stdout.flush()
            if step >= steps:
                break
        if state is not None:
            saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "data": dataset.state_dict()}
            torch.save(saved, state)
    return {
        "first_loss": round(losses[0], 4),
        "last_loss": round(losses[-1], 4),
        "tokens": len(losses) * batch_rows * dataset.blend.window_tokens,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "seconds": round(time.monotonic() - started, 1),
    }


def main(arguments_given: Sequence[str] | None = None) -> int:
    """Read the command line and train; an error that a user can mend is one line and exit status 2."""
    parser = argparse.ArgumentParser(description="Train a tiny transformer on a blend.")
    parser.add_argument("--address", default="127.0.0.1:7170", help="of a Blender server (headrace serve)")
    parser.add_argument("--blend", required=True, help="id or name")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-rows", type=int, default=8, help="windows of a step")
    parser.add_argument("--crop-tokens", type=int, default=128, help="tokens of each window to train on")
    parser.add_argument("--state", type=Path, help="save to this file at the end, and go on from it if it exists")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    arguments = parser.parse_args(arguments_given)
    if arguments.steps < 1:
        parser.error("--steps must be at least 1")
    try:
        dataset = BlendDataset(arguments.address, arguments.blend, arguments.batch_rows)
        result = train(dataset, arguments.steps, arguments.batch_rows, arguments.crop_tokens, arguments.state)
    except BlenderError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if arguments.json:
        sys.stdout.write(json.dumps(result) + "\n")
    else:
        sys.stdout.write(
            f"loss {result['first_loss']} -> {result['last_loss']}, {result['tokens']} tokens served, "
            f"{result['parameters']} parameters, {result['seconds']} s\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

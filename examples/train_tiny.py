"""Train a tiny transformer on batches that come over gRPC: `python examples/train_tiny.py --blend ID --steps 60`.

A stand-in for a training job, which gets all data from Blender. Documents that share a window do not attend to each
other, positions start at 0 in each of them, and no loss is taken across their ends or in padding.
With --state FILE the run saves its state (weights, optimizer and data together) and continues from it, under any number
of processes: `--processes 2`, killed at any moment, then `--processes 3`. The file also holds offset and digest of
every row that went into the weights, and --prove compares them with the blend: rows 0 to N-1, each once.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
import time
import zlib
from collections.abc import Generator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor, distributed, nn
from torch.multiprocessing.spawn import ProcessExitedException, start_processes
from torch.nn import functional

from headrace import DENSE, Batch, BlendDataset, BlenderError, Identity, LossWriter, connect_blender


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
        """Add to each position what it attends to, then the feed-forward of the result."""
        batch, length, width = hidden.shape
        parts = self.query_key_value(self.before_attention(hidden))
        query, key, value = parts.view(batch, length, 3, self.head_count, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=visible)
        hidden = hidden + self.project(mixed.transpose(1, 2).reshape(batch, length, width))
        changed: Tensor = hidden + self.feed_forward(self.before_feed_forward(hidden))
        return changed


class TinyTransformer(nn.Module):
    """A decoder with tied embeddings, factored so that a large vocabulary does not have most of the parameters."""

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
        """Give the loss of each token, (R, L), 0 where the label is -100.

        Args:
            input_ids: (R, L).
            position_ids: (R, L), from 0 in every document.
            document_ids: (R, L), equal for two positions of one document, which attend to each other.
            labels: (R, L), -100 where no loss is taken.
        """
        causal = torch.ones(input_ids.shape[1], input_ids.shape[1], dtype=torch.bool).tril()
        visible = (document_ids[:, :, None] == document_ids[:, None, :]) & causal
        hidden = self.widen(self.tokens(input_ids)) + self.positions[position_ids]
        for block in self.blocks:
            hidden = block(hidden, visible[:, None])
        counted = labels != -100
        scores = self.narrow(self.last_norm(hidden[counted])) @ self.tokens.weight.T
        losses = functional.cross_entropy(scores, labels[counted], reduction="none")
        return torch.zeros(labels.shape).masked_scatter(counted, losses)


def sinusoids(length: int, width: int) -> Tensor:
    """Give (length, width) fixed position vectors (Vaswani et al. 2017), scaled to the size of the embeddings."""
    rates = torch.exp(torch.arange(0, width, 2) * (-9.21 / width))
    angles = torch.arange(length)[:, None] * rates
    return 0.1 * torch.cat([angles.sin(), angles.cos()], dim=1)


@dataclass
class Progress:
    """The state that a run saves, with the rows that went into its weights.

    Attributes:
        path: of the file, None to save nothing.
        rows: offset and digest of every row that went into the weights, of all ranks on rank 0, else of this rank.
        fresh: offset and digest of this rank's rows since the state was last saved.
    """

    path: Path | None
    rows: list[tuple[int, int]] = field(default_factory=list)
    fresh: list[tuple[int, int]] = field(default_factory=list)

    def load(self, model: nn.Module, optimizer: torch.optim.Optimizer, dataset: BlendDataset) -> None:
        """Load the state from the file, if there is one."""
        if self.path is None or not self.path.exists():
            return
        saved = torch.load(self.path, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        dataset.load_state_dict(saved["data"])
        self.rows = saved["rows"]

    def count(self, batch: Batch) -> None:
        """Note the rows of a step."""
        ids = batch["input_ids"].numpy()
        self.fresh += [(batch["offset"] + i, digest(row)) for i, row in enumerate(ids)]

    def save(self, model: nn.Module, optimizer: torch.optim.Optimizer, dataset: BlendDataset) -> None:
        """Write weights, offset and rows in one file, whose rename is atomic: a kill leaves the old or the new one."""
        parts: list[Any] = [self.fresh]
        if distributed.is_initialized():
            parts = [None] * distributed.get_world_size()
            distributed.all_gather_object(parts, self.fresh)
        self.fresh = []
        self.rows += [row for part in parts for row in part]
        if self.path is not None and is_first():
            saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "data": dataset.state_dict()}
            written = self.path.with_suffix(".new")
            torch.save({**saved, "rows": self.rows}, written)
            written.replace(self.path)


def digest(row: Any) -> int:
    """Give a checksum of a row's token ids, whatever their width."""
    return zlib.crc32(row.astype("<u4").tobytes())


def is_first() -> bool:
    """Whether this process prints and saves for all."""
    return not distributed.is_initialized() or distributed.get_rank() == 0


def summed(value: Tensor) -> Tensor:
    """Add up a tensor over all processes, in place."""
    if distributed.is_initialized():
        distributed.all_reduce(value)
    return value


def add_up_gradients(model: nn.Module) -> None:
    """Replace the gradients of every process by their sum over all processes."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    total = summed(torch.cat([gradient.flatten() for gradient in gradients]))
    first = 0
    for gradient in gradients:
        gradient.copy_(total[first : first + gradient.numel()].view_as(gradient))
        first += gradient.numel()


def endless(dataset: BlendDataset) -> Generator[Batch, None, None]:
    """Give the blend's batches, from its start again where it ends."""
    while True:
        before = dataset.state_dict()["offset"]
        yield from dataset
        if dataset.state_dict()["offset"] == before == 0:
            raise BlenderError("train: the blend holds less than one batch; lower --batch-rows")
        dataset.load_state_dict({"blend": dataset.blend.blend_id, "offset": 0})


def train(dataset: BlendDataset, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train for some steps; every process reads its part of each, and the gradients are added up.

    Args:
        dataset: the batches of this process.
        arguments: of the command line.

    Returns:
        first_loss, last_loss (of the first and the last step), tokens, parameters, seconds, input_stall_share.
    """
    torch.manual_seed(0)
    torch.set_num_threads(max(1, 2 // arguments.processes))
    started = time.monotonic()
    window_tokens = min(dataset.blend.window_tokens, arguments.crop_tokens)
    model = TinyTransformer(dataset.blend.vocabulary_size, dataset.blend.window_tokens)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    progress = Progress(arguments.state)
    progress.load(model, optimizer, dataset)
    losses: list[float] = []
    # A long run sends one step in ten, the default; of this short one every step is looked at.
    writer = LossWriter(arguments.address, arguments.run, every=1) if arguments.run else nullcontext()
    with closing(endless(dataset)) as batches, log_of(arguments) as log, writer as sent:
        for step, batch in enumerate(batches, start=1):
            part = {name: batch[name][:, :window_tokens] for name in DENSE}
            token_losses = model(**part)
            if sent is not None:
                sent.add(batch["offset"], token_losses, batch)
            mean = token_losses.sum() / (part["labels"] != -100).sum()
            loss = mean * (dataset.loss_scale / arguments.processes)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            add_up_gradients(model)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            progress.count(batch)
            losses.append(summed(loss.detach()).item())
            log.write(json.dumps({"offset": int(batch["offset"]), "loss": losses[-1]}) + "\n")
            if is_first() and (step % 10 == 0 or step == 1):
                sys.stdout.write(f"step {step:4d}  loss {losses[-1]:.3f}  {time.monotonic() - started:.1f} s\n")
                sys.stdout.flush()
            if step >= arguments.steps or (arguments.save_every and step % arguments.save_every == 0):
                if sent is not None:
                    sent.flush()
                progress.save(model, optimizer, dataset)
            if step >= arguments.steps:
                break
    return {
        "first_loss": round(losses[0], 4),
        "last_loss": round(losses[-1], 4),
        "tokens": len(losses) * arguments.batch_rows * dataset.blend.window_tokens,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "seconds": round(time.monotonic() - started, 1),
        "input_stall_share": round(dataset.input_stall_share, 4),
    }


def log_of(arguments: argparse.Namespace) -> IO[str]:
    """The file that the losses go to; where no such file is wanted, or another process writes it, they go nowhere."""
    path = arguments.losses if arguments.losses is not None and is_first() else os.devnull
    return Path(path).open("a", encoding="utf-8")


def run_rank(rank: int, arguments: argparse.Namespace, meeting: str) -> None:
    """Train as one of several processes, which find each other by the file `meeting`."""
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=arguments.processes,
        timeout=timedelta(seconds=120),
    )
    try:
        result = train(open_dataset(arguments, rank), arguments)
    except BlenderError as error:
        sys.stderr.write(f"rank {rank}: {error}\n")
        os._exit(2)  # the others may wait for this process in an all-reduce
    if rank == 0:
        report(result, arguments.json)
    distributed.destroy_process_group()


def open_dataset(arguments: argparse.Namespace, rank: int) -> BlendDataset:
    """Open one process's part of the blend."""
    return BlendDataset(
        arguments.address,
        arguments.blend,
        arguments.batch_rows,
        rank=rank,
        world_size=arguments.processes,
        uneven=arguments.uneven,
        tensors=(*DENSE, "segment_documents"),
        identity=Identity(run=arguments.run),
    )


def prove(arguments: argparse.Namespace) -> str:
    """Compare the rows that went into the saved weights with the blend, read again in one process.

    Raises:
        BlenderError: a row is missing, came twice, or had other tokens.
    """
    saved = torch.load(arguments.state, weights_only=True)
    rows, count = sorted(saved["rows"]), saved["data"]["offset"]
    if [offset for offset, _ in rows] != list(range(count)):
        raise BlenderError(
            f"prove: the {len(rows)} rows consumed are not rows 0 to {count - 1} of the blend, each once"
        )
    with connect_blender(arguments.address) as client:
        read = [digest(row) for batch in client.read(saved["data"]["blend"], 0, count) for row in batch.input_ids]
    if read != [found for _, found in rows]:
        wrong = next(offset for offset, found in rows if read[offset] != found)
        raise BlenderError(f"prove: row {wrong} is another one than was consumed")
    return f"the rows consumed are exactly 0 to {count - 1}, each once, token for token"


def report(result: dict[str, Any], as_json: bool) -> None:
    """Print the result of the training."""
    if as_json:
        sys.stdout.write(json.dumps(result) + "\n")
        return
    sys.stdout.write(
        f"loss {result['first_loss']} -> {result['last_loss']}, {result['tokens']} tokens served, "
        f"{result['parameters']} parameters, {result['seconds']} s, {result['input_stall_share']:.1%} of it waiting\n"
    )


def main(arguments_given: Sequence[str] | None = None) -> int:
    """Read the command line and train; an error that a user can mend is one line and exit status 2."""
    parser = argparse.ArgumentParser(description="Train a tiny transformer on a blend.")
    parser.add_argument("--address", default="127.0.0.1:7170", help="address of a Blender server (headrace serve)")
    parser.add_argument("--blend", required=True, help="id or name of the blend")
    parser.add_argument("--steps", type=int, default=60, help="training steps")
    parser.add_argument("--batch-rows", type=int, default=8, help="windows of a step, all processes together")
    parser.add_argument("--crop-tokens", type=int, default=128, help="tokens of each window to train on")
    parser.add_argument(
        "--processes", type=int, choices=range(1, 5), default=1, help="processes that share every step (gloo)"
    )
    parser.add_argument("--uneven", action="store_true", help="allow parts that differ by a row; losses are scaled")
    parser.add_argument("--state", type=Path, help="save to this file at the end, and continue from it if it exists")
    parser.add_argument("--save-every", type=int, default=0, metavar="STEPS", help="also save every so many steps")
    parser.add_argument("--prove", action="store_true", help="train nothing; check the rows of --state")
    parser.add_argument("--run", default="", help="name of this run, for `headrace runs --training`")
    parser.add_argument(
        "--losses",
        type=Path,
        help="append the loss of each step to this file, for `headrace runs --training RUN --losses`",
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON at the end")
    arguments = parser.parse_args(arguments_given)
    if arguments.steps < 1:
        parser.error("--steps must be at least 1")
    if arguments.prove and (arguments.state is None or not arguments.state.exists()):
        parser.error("--prove needs the --state of a run")
    try:
        if arguments.prove:
            sys.stdout.write(prove(arguments) + "\n")
            return 0
        if arguments.processes == 1:
            report(train(open_dataset(arguments, 0), arguments), arguments.json)
            return 0
        # Optimisers import this at their first step, which takes seconds: imported here, it is shared by the forks.
        # Nothing has opened a connection yet, so forking is safe for gRPC.
        importlib.import_module("torch._dynamo")
        with tempfile.TemporaryDirectory() as folder:
            ranks = (arguments, f"{folder}/meeting")
            start_processes(run_rank, ranks, nprocs=arguments.processes, start_method="fork")  # type: ignore[no-untyped-call]
    except BlenderError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except ProcessExitedException as error:
        return error.exit_code  # the process said why
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Train a small transformer on rows of packed documents: the same rows, run and device give the same weights.

It imports NumPy, torch and the standard library alone, and trains from a file where nothing else is installed:

    python -m headrace_features.experiments.training --windows windows.npz --out result.npz --budget-tokens 1000000
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import os
import pickle
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from headrace_features.experiments.training_run import SHAPES, Trained, TrainingBatch, TrainingRun, shape_of
from headrace_features.models.network import Network, layout
from spark_jobs.arrays import Int32Array
from spark_jobs.exceptions import ConfigError, InputError, SetupError, SparkJobsError

_WEIGHT_DECAY: Final = 0.1


def new_network(run: TrainingRun) -> Network:
    """The model of a run before its first step."""
    return Network(run.shape, run.vocabulary_size, run.window_tokens, run.weight_seed)


def network_of(run: TrainingRun, weights: bytes) -> Network:
    """The trained model of a run, on the run's device.

    Raises:
        InputError: the weights are of another shape or vocabulary.
    """
    network = new_network(run)
    values = np.frombuffer(weights, "<f4") if len(weights) % 4 == 0 else np.empty(0, "<f4")
    wanted = run.shape.parameter_count(run.vocabulary_size)
    if len(values) != wanted:
        raise InputError(f"weights: {len(weights)} bytes, the run's model has {4 * wanted}; give the run they are of")
    nn.utils.vector_to_parameters(torch.from_numpy(values.copy()), network.parameters())
    return network.to(_device(run)).eval()


def train(
    batches: Iterable[TrainingBatch], run: TrainingRun, *, checkpoint: Path | None = None, checkpoint_steps: int = 200
) -> Trained:
    """Train a model on rows until its budget of tokens is read; the last step has as many tokens as are left.

    Args:
        batches: rows in order; rows before the checkpoint's `next_offset` may be missing or are skipped.
        run: what to train.
        checkpoint: file for a killed run to resume from, to the same weights; it is not deleted.
        checkpoint_steps: steps between two checkpoints; one more is written at the end.

    Raises:
        ConfigError: the checkpoint is of another run, or the rate is so high that the loss is nan or infinite.
        InputError: rows are missing, have tokens outside of the vocabulary, or end before the budget.
        SetupError: the device is missing.
    """
    with _deterministic(run):
        state = _State(run, _device(run))
        if checkpoint is not None and checkpoint.exists():
            state.load(checkpoint)
        state.go_on_from = time.monotonic()
        saved = state.tokens
        for batch in batches:
            if state.tokens == run.budget_tokens:
                break
            if state.next_offset is not None and batch.offset + len(batch.input_ids) <= state.next_offset:
                continue
            state.step(batch)
            if checkpoint is not None and len(state.losses) % checkpoint_steps == 0:
                state.save(checkpoint)
                saved = state.tokens
        if state.tokens < run.budget_tokens:
            raise InputError(
                f"train: the rows end after {state.tokens} tokens, the budget is {run.budget_tokens}; "
                "lower budget_tokens, or read the rows again"
            )
        if checkpoint is not None and saved < state.tokens:
            state.save(checkpoint)
        return state.trained()


def next_offset(checkpoint: Path) -> int:
    """The offset of the first row not yet read by a run, by its checkpoint; 0 if the file does not exist."""
    return int(_read_checkpoint(checkpoint)["next_offset"]) if checkpoint.exists() else 0


class _State:
    """A model in training, its optimizer, and a record of the rows read."""

    def __init__(self, run: TrainingRun, device: torch.device) -> None:
        self.run = run
        self.network = new_network(run).to(device)
        matrices = [values for values in self.network.parameters() if values.dim() > 1]
        gains = [values for values in self.network.parameters() if values.dim() == 1]
        groups = [{"params": matrices, "weight_decay": _WEIGHT_DECAY}, {"params": gains, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=True)
        self.tokens = 0
        self.next_offset: int | None = None
        self.digest = b""
        self.offsets: list[int] = []
        self.step_tokens: list[int] = []
        self.losses: list[float] = []
        self.seconds_before = 0.0
        self.go_on_from = 0.0

    def step(self, batch: TrainingBatch) -> None:
        """Train one step on some rows; tokens beyond the budget are ignored."""
        input_ids, document_ids = self._checked(batch)
        count = int(np.count_nonzero(document_ids >= 0))
        places = layout(document_ids, self.run.window_tokens) if count else None
        if places is not None and len(places.before):
            rate = self.run.rate_at(self.tokens + count / 2)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            with torch.autocast("cuda", torch.bfloat16, enabled=self.run.device == "cuda"):
                loss_tensor = self.network.loss(input_ids, places)
            self.optimizer.zero_grad(set_to_none=True)
            loss_tensor.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            self.optimizer.step()
            loss = loss_tensor.item()
            if not np.isfinite(loss):
                raise ConfigError(
                    f"train: the loss is {loss} at the rows from {batch.offset} on, learning_rate "
                    f"{self.run.learning_rate}; lower it"
                )
            self.offsets.append(batch.offset)
            self.step_tokens.append(self.tokens + count)
            self.losses.append(loss)
        for row in range(len(input_ids)):
            self._count_row(batch.offset + row, input_ids[row], document_ids[row])
        self.tokens += count
        self.next_offset = batch.offset + len(input_ids)

    def _checked(self, batch: TrainingBatch) -> tuple[NDArray[np.integer], Int32Array]:
        """`input_ids` and `document_ids` of a step, with tokens beyond the budget marked as padding.

        Raises:
            InputError: they are not the next rows, or not of the run's vocabulary.
        """
        if self.next_offset not in (None, batch.offset):
            raise InputError(f"train: row {batch.offset} came where row {self.next_offset} was to come")
        input_ids, document_ids = np.asarray(batch.input_ids), np.asarray(batch.document_ids, np.int32)
        if input_ids.ndim != 2 or input_ids.shape != document_ids.shape:
            raise InputError(f"train: input_ids {input_ids.shape}, document_ids {document_ids.shape}; both are (R, L)")
        real = document_ids >= 0
        strange = real & ((input_ids < 0) | (input_ids >= self.run.vocabulary_size))
        if strange.any():
            raise InputError(
                f"train: row {batch.offset + int(strange.any(axis=1).argmax())} has token {input_ids[strange][0]}, "
                f"the vocabulary has {self.run.vocabulary_size}"
            )
        beyond = np.cumsum(real).reshape(real.shape) > self.run.budget_tokens - self.tokens
        return input_ids, np.where(beyond, np.int32(-1), document_ids)

    def _count_row(self, offset: int, input_ids: NDArray[np.integer], document_ids: Int32Array) -> None:
        """Add a row to the digest; it depends neither on the width of padding nor on the rows a step."""
        real = document_ids >= 0
        if real.any():
            row = np.concatenate([[offset], input_ids[real], document_ids[real]]).astype("<i8")
            self.digest = hashlib.sha256(self.digest + row.tobytes()).digest()

    def save(self, path: Path) -> None:
        """Write everything the rest of the run depends on; a kill leaves this file or the one before."""
        value = {
            "run": asdict(self.run),
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "tokens": self.tokens,
            "next_offset": self.next_offset,
            "digest": self.digest,
            "offsets": self.offsets,
            "step_tokens": self.step_tokens,
            "losses": self.losses,
            "seconds": self._seconds(),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        with unfinished.open("wb") as file:
            torch.save(value, file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)

    def load(self, path: Path) -> None:
        """Restore the state that `save` wrote.

        Raises:
            ConfigError: the file is of another run.
        """
        value = _read_checkpoint(path)
        mine, saved = asdict(self.run), value["run"]
        if other := [field for field in mine if mine[field] != saved.get(field)]:
            raise ConfigError(
                f"checkpoint {path}: of a run with {other[0]} {saved.get(other[0])}, this one has {mine[other[0]]}; "
                "give each run a file of its own"
            )
        self.network.load_state_dict(value["network"])
        self.optimizer.load_state_dict(value["optimizer"])
        self.tokens, self.next_offset, self.digest = value["tokens"], value["next_offset"], value["digest"]
        self.offsets, self.step_tokens, self.losses = value["offsets"], value["step_tokens"], value["losses"]
        self.seconds_before = value["seconds"]

    def _seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.go_on_from

    def trained(self) -> Trained:
        """The result of the finished run."""
        cuda = self.run.device == "cuda"
        return Trained(
            weights=self.network.to_bytes(),
            offsets=np.array(self.offsets, np.int64),
            step_tokens=np.array(self.step_tokens, np.int64),
            losses=np.array(self.losses, np.float64),
            tokens=self.tokens,
            rows_digest=self.digest.hex(),
            seconds=self._seconds(),
            parameter_count=self.run.shape.parameter_count(self.run.vocabulary_size),
            device=torch.cuda.get_device_name() if cuda else f"cpu, {self.run.threads} threads",
            torch_version=str(torch.__version__),
        )


def _read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a file of `save`.

    Raises:
        InputError: the file is no checkpoint.
    """
    try:
        value: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
    except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        raise InputError(f"checkpoint {path}: cannot be read ({str(error)[:100]}); remove it to begin anew") from error
    return value


def _device(run: TrainingRun) -> torch.device:
    """The device of a run.

    Raises:
        SetupError: it asks for a GPU and there is none.
    """
    if run.device == "cuda" and not torch.cuda.is_available():
        raise SetupError("train: device is cuda and torch sees none; use cpu, or a torch that is built for this GPU")
    return torch.device(run.device)


@contextlib.contextmanager
def _deterministic(run: TrainingRun) -> Iterator[None]:
    """Make torch deterministic, with the run's number of threads; restores its former settings at the end."""
    threads, before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    memory: Any = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory
    if run.device == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # torch refuses cuBLAS without it
    torch.set_num_threads(run.threads)
    torch.use_deterministic_algorithms(True)
    memory.fill_uninitialized_memory = False  # every number that is read was written
    try:
        yield
    finally:
        memory.fill_uninitialized_memory = filled
        torch.use_deterministic_algorithms(before)
        torch.set_num_threads(threads)


@dataclass(frozen=True)
class MemoryRows:
    """Rows in memory; see `training_run.TrainingBatch`."""

    offset: int
    input_ids: NDArray[np.integer]
    document_ids: Int32Array


def rows_of(
    input_ids: NDArray[np.integer], document_ids: Int32Array, batch_rows: int, start: int = 0
) -> Iterator[MemoryRows]:
    """Endless batches of rows in memory from offset `start` on; after the last row they begin again with the first."""
    count = len(input_ids)
    for offset in itertools.count(start, batch_rows):
        chosen = np.arange(offset, offset + batch_rows) % count
        yield MemoryRows(offset, input_ids[chosen], document_ids[chosen])


def main(words: Sequence[str] | None = None) -> int:
    """Train on windows in a file; an error for the user to mend is one line and exit status 2."""
    parser = argparse.ArgumentParser(description="Train a small transformer on windows of tokens.")
    parser.add_argument("--windows", type=Path, required=True, help=".npz with input_ids and document_ids, (R, L)")
    parser.add_argument("--out", type=Path, required=True, help=".npz to write: losses, weights, digest, seconds")
    parser.add_argument("--model", default="proxy_1m", help=f"one of {', '.join(SHAPES)}")
    parser.add_argument("--vocabulary-size", type=int, help="by default one more than the largest id")
    parser.add_argument("--window-tokens", type=int, help="most tokens that see each other; by default L")
    parser.add_argument("--budget-tokens", type=int, help="without padding; by default each row once")
    parser.add_argument("--batch-rows", type=int, default=8, help="rows a step")
    parser.add_argument("--learning-rate", type=float, default=3e-3, help="the highest one")
    parser.add_argument("--weight-seed", type=int, default=0, help="of the first weights")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=1, help="of the CPU")
    parser.add_argument("--checkpoint", type=Path, help="file from which a killed run goes on")
    arguments = parser.parse_args(words)
    try:
        with np.load(arguments.windows) as windows:
            input_ids, document_ids = windows["input_ids"], windows["document_ids"]
        run = TrainingRun(
            shape_of(arguments.model),
            vocabulary_size=arguments.vocabulary_size or int(input_ids.max()) + 1,
            window_tokens=arguments.window_tokens or input_ids.shape[1],
            budget_tokens=arguments.budget_tokens or int((document_ids >= 0).sum()),
            learning_rate=arguments.learning_rate,
            weight_seed=arguments.weight_seed,
            device=arguments.device,
            threads=arguments.threads,
        )
        start = next_offset(arguments.checkpoint) if arguments.checkpoint else 0
        batches = rows_of(input_ids, document_ids, arguments.batch_rows, start)
        trained = train(batches, run, checkpoint=arguments.checkpoint)
    except (SparkJobsError, OSError, KeyError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    np.savez(arguments.out, **{**asdict(trained), "weights": np.frombuffer(trained.weights, "<f4")})
    sys.stdout.write(
        f"loss {trained.losses[0]:.4f} -> {trained.losses[-1]:.4f}, {trained.tokens} tokens, "
        f"{trained.parameter_count} parameters, {trained.seconds:.1f} s "
        f"({trained.tokens / trained.seconds:,.0f} tokens a second), {trained.device}\n"
    )
    return 0


if __name__ == "__main__":
    from headrace.process.interrupts import heed_interrupts

    heed_interrupts()
    sys.exit(main())

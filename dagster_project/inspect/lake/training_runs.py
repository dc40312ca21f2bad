"""Training runs of the lake: named readers of blends from the register, and the runs of experiments."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from pyiceberg.catalog import Catalog

from dagster_project.exceptions import CommandError
from spark_jobs.exceptions import nearest

if TYPE_CHECKING:
    from blender_service.server.run_register import RunRead, RunRegister

_BEFORE = 15  # losses that a loss is compared with
_LEAST = 3


@dataclass(frozen=True)
class Spike:
    """A loss above those before it.

    Attributes:
        offset: of the blend.
        loss: there.
        median: of the losses before it.
        rise: loss less median.
    """

    offset: int
    loss: float
    median: float
    rise: float


@dataclass(frozen=True)
class RecordedRun:
    """A run.

    Attributes:
        name: in the register; of a run of an experiment the key of its row in `system.evaluations`.
        reads: what it read of blends, of a named run.
        evaluation: its row there, of a run of an experiment.
    """

    name: str
    reads: tuple[RunRead, ...] = ()
    evaluation: dict[str, Any] | None = None


def open_register(catalogue: Catalog) -> RunRegister:
    """The register of named runs."""
    from blender_service.blend.store import open_store
    from blender_service.server.run_register import RunRegister

    return RunRegister(open_store(catalogue).objects)


def named_reads(catalogue: Catalog) -> list[RunRead]:
    """What all runs of the register read, by run."""
    register = open_register(catalogue)
    return [read for run in register.names() for read in register.reads(run)]


def take_losses(catalogue: Catalog, run: str, log: Path) -> tuple[int, int, int]:
    """Take the losses of a run over from its log: lines of JSON with `loss`, and `offset` or `step`.

    An offset is the row of the blend at which a step began; step 0 began where the run began to read.

    Returns:
        Lines with a loss, those of them that are new, and lines without a finite loss, which are left out.

    Raises:
        RunNotFoundError: no run has that name.
        CommandError: a line is no JSON, or does not say where its loss is of.
    """
    register = open_register(catalogue)
    first = register.reads(run)[0]
    losses: dict[int, float] = {}
    lines, left_out = log.read_text(encoding="utf-8").splitlines(), 0
    for number, line in enumerate(lines, 1):
        try:
            fields = json.loads(line)
            loss = float(fields.get("loss", math.nan))
            if not math.isfinite(loss):
                left_out += 1
            elif "offset" in fields or first.step_rows:
                losses[
                    int(fields["offset"] if "offset" in fields else first.first + fields["step"] * first.step_rows)
                ] = loss
            else:
                raise CommandError(f"{log}:{number}: run {run} did not say how many rows a step has; write `offset`")
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            wanted = '{"offset": 4096, "loss": 2.31} or {"step": 64, "loss": 2.31}'
            raise CommandError(f"{log}:{number}: {line[:80]} is no line as {wanted}") from error
    return len(lines) - left_out, register.add_losses(run, losses, datetime.now(UTC)), left_out


def has_read(read: RunRead, blend_id: str, offset: int) -> bool:
    """Whether a run was trained on a row of a blend, as far as that is known."""
    end = read.end if read.consumed is None else read.consumed
    return read.blend_id == blend_id and read.first <= offset < end


def training_runs(catalogue: Catalog) -> list[RecordedRun]:
    """All runs: those of the register by name, then those of experiments, the newest first."""
    from spark_jobs.lake.run.evaluations import known_rows

    register = open_register(catalogue)
    named = [RecordedRun(name, tuple(register.reads(name))) for name in register.names()]
    return [*named, *(RecordedRun(row["key"], evaluation=row) for row in reversed(known_rows(catalogue)))]


def find_run(runs: Sequence[RecordedRun], name: str) -> RecordedRun:
    """The newest run of a name.

    Raises:
        CommandError: none of these has it.
    """
    there = {run.name: run for run in reversed(runs)}
    if name not in there:
        raise CommandError(f"training run {name} is not known{nearest(name, there)}; give the client a run name")
    return there[name]


def batch_of(run: RecordedRun, step: int) -> tuple[str, int, int]:
    """Where the batch of a step of a run is: its blend, the offset of its first row, how many rows it has.

    Step 0 began where the run began to read; of a run of an experiment, steps are those whose losses it kept.

    Raises:
        CommandError: the run has no such step, or did not say how many rows a step has.
    """
    if run.evaluation is not None:
        offsets = sorted(part["offset"] for part in run.evaluation["losses"])
        if not 0 <= step < len(offsets):
            raise CommandError(f"training run {run.name} has the steps 0 to {len(offsets) - 1}, not {step}")
        after = offsets[step + 1] if step + 1 < len(offsets) else 2 * offsets[step] - (offsets[step - 1] if step else 0)
        return run.evaluation["blend"], offsets[step], max(after - offsets[step], 1)
    first, last = run.reads[0], run.reads[-1]
    if not first.step_rows:
        raise CommandError(f"training run {run.name} did not say how many rows a step has; look at its blend")
    offset = first.first + step * first.step_rows
    if step < 0 or offset >= max(read.end for read in run.reads):
        steps = -(-(max(read.end for read in run.reads) - first.first) // first.step_rows)
        raise CommandError(f"training run {run.name} has the steps 0 to {steps - 1}, not {step}")
    return last.blend_id, offset, first.step_rows


def running_medians(losses: Sequence[float]) -> Any:
    """(N) the median of the up to fifteen losses before each of N; not a number for the first three."""
    if not losses:
        return np.zeros(0)
    padded = np.concatenate([np.full(_BEFORE, np.nan), np.asarray(losses, float)])[:-1]
    before = sliding_window_view(padded, _BEFORE)
    medians = np.full(len(losses), np.nan)
    medians[_LEAST:] = np.nanmedian(before[_LEAST:], axis=1)
    return medians


def spikes(offsets: Sequence[int], losses: Sequence[float], most: int = 10) -> list[Spike]:
    """The largest rises over the running median, each once: where its neighbours rise less.

    Args:
        offsets: (N) of the blend, ascending.
        losses: (N) at these offsets.
        most: largest number of spikes to give.
    """
    medians = running_medians(losses)
    rises = np.nan_to_num(np.asarray(losses, float) - medians, nan=0.0)
    around = np.concatenate([[0.0], rises, [0.0]])
    peaks = np.flatnonzero((rises > 0) & (rises >= around[:-2]) & (rises > around[2:]))
    chosen = peaks[np.argsort(-rises[peaks], kind="stable")][:most]
    return [Spike(int(offsets[at]), float(losses[at]), float(medians[at]), float(rises[at])) for at in chosen]

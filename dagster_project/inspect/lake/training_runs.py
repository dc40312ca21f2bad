"""Training runs that the lake knows: named readers of blends from the register, and the runs of experiments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from pyiceberg.catalog import Catalog

if TYPE_CHECKING:
    from blender_service.server.run_register import RunRead

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
class TrainingRun:
    """A run.

    Attributes:
        name: in the register; of a run of an experiment the key of its row in `system.evaluations`.
        reads: what it read of blends, of a named run.
        evaluation: its row there, of a run of an experiment.
    """

    name: str
    reads: tuple[RunRead, ...] = ()
    evaluation: dict[str, Any] | None = None


def named_reads(catalogue: Catalog) -> list[RunRead]:
    """What all runs of the register read, by run."""
    from blender_service.blend.store import open_store
    from blender_service.server.run_register import RunRegister

    register = RunRegister(open_store(catalogue).objects)
    return [read for run in register.names() for read in register.reads(run)]


def has_read(read: RunRead, blend_id: str, offset: int) -> bool:
    """Whether a run was trained on a row of a blend, as far as that is known."""
    end = read.end if read.consumed is None else read.consumed
    return read.blend_id == blend_id and read.first <= offset < end


def training_runs(catalogue: Catalog) -> list[TrainingRun]:
    """All runs: those of the register by name, then those of experiments, the newest first."""
    from dagster_project.experiments.records import known_rows

    by_name: dict[str, list[RunRead]] = {}
    for read in named_reads(catalogue):
        by_name.setdefault(read.run, []).append(read)
    named = [TrainingRun(name, tuple(reads)) for name, reads in by_name.items()]
    return [*named, *(TrainingRun(row["key"], evaluation=row) for row in reversed(known_rows(catalogue)))]


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
        most: largest number of spikes that is given.
    """
    medians = running_medians(losses)
    rises = np.nan_to_num(np.asarray(losses, float) - medians, nan=0.0)
    around = np.concatenate([[0.0], rises, [0.0]])
    peaks = np.flatnonzero((rises > 0) & (rises >= around[:-2]) & (rises > around[2:]))
    chosen = peaks[np.argsort(-rises[peaks], kind="stable")][:most]
    return [Spike(int(offsets[at]), float(losses[at]), float(medians[at]), float(rises[at])) for at in chosen]

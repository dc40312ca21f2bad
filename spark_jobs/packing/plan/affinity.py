"""Choose how many neighbours in repositories share a window: the smallest theta whose plan fills the windows enough.

Theta is the least fill at which neighbours are packed as one unit (`repository_runs`). The units of every theta were
counted in one pass, and a plan takes milliseconds. A smaller theta keeps more neighbours together and leaves fewer
small units to fill the gaps, so the first theta, ascending, that reaches the target keeps the most. If none does,
documents are packed by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spark_jobs.packing.plan.best_fit import SlotTable, plan_sequences
from spark_jobs.packing.plan.placement import PlanShard
from spark_jobs.packing.plan.repository_runs import ALONE, EVERY_RUN
from spark_jobs.packing.plan.units import UnitCounts
from spark_jobs.packing.plan.window_order import ONE_CELL, PlanNumbers


@dataclass(frozen=True)
class AffinityPlan:
    """The chosen plan, and how many neighbours it keeps together.

    Attributes:
        theta: least fill of a kept run, in percent of L; ALONE where documents are packed by themselves.
        plans: one per shard.
        token_count: tokens of all units, specials included.
        piece_count: pieces of documents.
        unit_count: units of the pieces.
        joinable: upper bound of `kept`: neighbours in one unit if no run is split again (EVERY_RUN).
        cuts_in_rows: cuts of rows longer than a window; None where documents have no rows.
    """

    theta: int
    plans: tuple[SlotTable, ...]
    token_count: int
    piece_count: int
    unit_count: int
    joinable: int
    cuts_in_rows: int | None = None

    @property
    def kept(self) -> int:
        """Pairs of neighbours in a common unit: k - 1 in a unit of k pieces."""
        return self.piece_count - self.unit_count

    @property
    def window_count(self) -> int:
        """Windows of all shards."""
        return sum(plan.window_count for plan in self.plans)

    @property
    def utilisation(self) -> float:
        """Share of all positions with a token; 1.0 for no windows."""
        position_count = sum(plan.window_count * plan.window_tokens for plan in self.plans)
        return self.token_count / position_count if position_count else 1.0

    def facts(self) -> dict[str, str]:
        """The entries about the packing for the snapshot's summary."""
        in_rows = {} if self.cuts_in_rows is None else {"headrace.packing.cuts-in-rows": str(self.cuts_in_rows)}
        return {
            **in_rows,
            "headrace.packing.units": str(self.unit_count),
            "headrace.packing.windows": str(self.window_count),
            "headrace.packing.utilisation": f"{self.utilisation:.6f}",
            "headrace.packing.units-per-window": f"{self.unit_count / max(1, self.window_count):.3f}",
            "headrace.packing.theta": "none" if self.theta == ALONE else f"{self.theta / 100:.2f}",
            "headrace.packing.neighbours-kept": str(self.kept),
            "headrace.packing.neighbours-joinable": str(self.joinable),
        }


def choose_plan(
    histograms: Mapping[tuple[int, int], Mapping[int, int]],
    thetas: tuple[int, ...],
    shard_count: int,
    window_tokens: int,
    target_utilisation: float,
    lengths: Sequence[int] = (),
) -> AffinityPlan:
    """Plan with each theta in turn until one fills the windows well enough.

    Args:
        histograms: units per length, by (theta, shard).
        thetas: those to try, ascending, ALONE last; the last is taken whatever it reaches. EVERY_RUN is not tried: its
            histograms give `joinable`.
        shard_count: number of plans.
        window_tokens: L.
        target_utilisation: least share of positions with a token.
        lengths: of the sequences of each plan; L if there are none.
    """

    def units(theta: int) -> int:
        return sum(sum(histograms.get((theta, shard), {}).values()) for shard in range(shard_count))

    pieces, bound = units(ALONE), units(EVERY_RUN)
    for theta in thetas:
        of_theta = [histograms.get((theta, shard), {}) for shard in range(shard_count)]
        tokens = sum(length * count for histogram in of_theta for length, count in histogram.items())
        plans, empty = list[SlotTable](), 0
        for histogram, length in zip(of_theta, lengths or [window_tokens] * shard_count, strict=True):
            plans.append(plan_sequences(histogram, window_tokens, length))
            empty += plans[-1].window_count * window_tokens - int(plans[-1].lengths @ plans[-1].counts)
            # Of the plans of many cells the first few tell that a theta leaves too many positions empty.
            if theta != thetas[-1] and tokens and tokens / (tokens + empty) < target_utilisation:
                break
        else:
            chosen = AffinityPlan(theta, tuple(plans), tokens, pieces, units(theta), pieces - bound if bound else 0)
            if theta == thetas[-1] or chosen.utilisation >= target_utilisation:
                return chosen
    raise ValueError("choose_plan: no theta to try")


def plan_shards(
    chosen: AffinityPlan, counts: UnitCounts, bucket_count: int, numbers: PlanNumbers = ONE_CELL
) -> tuple[PlanShard, ...]:
    """Combine the chosen plans with each bucket's first slots, as tasks need them to place units.

    Args:
        chosen: the plans.
        counts: units of the chosen theta by order bucket.
        bucket_count: order buckets.
        numbers: of the plans.
    """
    shard_count = len(chosen.plans)
    of_buckets = counts.bucket * (shard_count // numbers.class_count) // bucket_count  # as `placement.plan_shard_of`
    shard = numbers.of(of_buckets, counts.length)
    first_windows = np.cumsum([0, *(plan.window_count for plan in chosen.plans)]).tolist()
    by_shard = np.argsort(shard, kind="stable")
    bounds = np.searchsorted(shard[by_shard], np.arange(shard_count + 1))
    shards = []
    for number, plan in enumerate(chosen.plans):
        in_shard = by_shard[bounds[number] : bounds[number + 1]]
        ranks = UnitCounts(counts.bucket[in_shard], counts.length[in_shard], counts.count[in_shard]).ranks(
            *plan.first_slots()
        )
        shards.append(PlanShard(plan, ranks, first_windows[number]))
    return tuple(shards)

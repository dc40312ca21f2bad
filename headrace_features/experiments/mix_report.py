"""What came out of a search for a mix: the mix, how sure that is, and what else could be had."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dagster as dg
import numpy as np

from headrace_features.experiments.report import record_table
from spark_jobs.arrays import Float64Array
from spark_jobs.lake.declare.pictures import COLOURS, describe, margin, new_axes, png
from spark_jobs.mixes.law import RANK_AGREEMENT, Front, Law, Proposal
from spark_jobs.mixes.search import Runs


@dataclass(frozen=True)
class FittedMix:
    """A proposed mix.

    Attributes:
        experiment: its name.
        sources: names, in the order of shares.
        sets: names of the held-out sets.
        proposal: shares, predicted loss and interval.
        law: the fitted law to predict it.
        front: mixes of which none is better on all sets.
        model: size of the models.
        runs: the mixes and their losses.
        tokens: of each source.
        target: tokens of the run that the mix is for.
        thinned: share of each source's rows that runs read.
        unmatched: by set, what a run measured more without thinning; empty where nothing is thinned.
        notes: what of an earlier mix goes on.
        trained: runs done for it.
        blend: id of the blend of the mix.
    """

    experiment: str
    sources: tuple[str, ...]
    sets: tuple[str, ...]
    proposal: Proposal
    law: Law
    front: Front
    model: str
    runs: Runs
    tokens: Float64Array
    target: int
    thinned: float
    unmatched: tuple[float, ...]
    notes: tuple[str, ...]
    trained: int
    blend: str = ""

    def __str__(self) -> str:
        """The shares and the predicted loss in one line."""
        proposal, held_out, agreement = self.proposal, self.law.held_out, RANK_AGREEMENT[self.model]
        off = (
            f"error {held_out.error:.4f} (by their mean {held_out.baseline:.4f}), ranks {held_out.rank_correlation:.2f}"
        )
        bounded = (
            f"; as often as allowed: {', '.join(self.sources[n] for n in proposal.bounded)}" if proposal.bounded else ""
        )
        return (
            f"{self._shares(proposal.mix)}: predicted {proposal.loss:.4f} ({proposal.low:.4f} to {proposal.high:.4f}), "
            f"the natural mix {proposal.natural_loss:.4f}; held-out runs: {off}; {self.model} ranks mixes as 1B does "
            f"with a correlation of {agreement:.2f}{bounded}; blend {self.blend[:12]}"
        )

    def text(self) -> str:
        """The report for a terminal."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield from self.notes
        yield str(self)
        yield ""
        rows = list(self.front_rows())
        rows = [{name: name for name in rows[0]}, *rows]
        widths = {name: max(len(row[name]) for row in rows) for name in rows[0]}
        yield from ("  ".join(f"{value:<{widths[name]}}" for name, value in row.items()).rstrip() for row in rows)
        yield ""
        yield from self.trade_offs()
        yield from self.repeats()

    def front_rows(self) -> Iterator[dict[str, str]]:
        """The front as rows of a table: predicted loss on each set, with its difference from the natural mix."""
        for label, mix, losses in self._points():
            of_sets = zip(self.sets, losses, losses - self.front.natural, strict=True)
            cells = {name: f"{loss:.4f} ({more:+.4f})" for name, loss, more in of_sets}
            yield {"mix": self._shares(mix), "for": label, **cells}

    def trade_offs(self) -> Iterator[str]:
        """What is won where, and what it costs elsewhere, where that is more than the error."""
        errors = self.law.held_out.set_errors
        lost = self.front.conflicts(errors)
        for (won, other), loss in sorted(lost.items(), key=lambda item: -item[1]):
            against = f"{self.sets[other]} (error {errors[other]:.4f})"
            yield f"a trade-off: the best mix for {self.sets[won]} loses {loss:.4f} on {against}"
        if not lost:
            yield "no trade-off seen: the best mix for each set is as good for the others, within the errors"

    def repeats(self) -> Iterator[str]:
        """How often sources are read, and the error of small runs that do not match it."""
        if not self.unmatched:
            return
        epochs = zip(self.sources, self.proposal.mix * self.target / self.tokens, strict=True)
        read = ", ".join(f"{name} {count:.2f}" for name, count in epochs)
        off = ", ".join(f"{name} {more:+.4f}" for name, more in zip(self.sets, self.unmatched, strict=True))
        yield (
            f"a run of {self.target:,} tokens reads {read} times, and small ones so do of 1/{1 / self.thinned:,.0f} of "
            f"the rows; of all rows the best mix of the first round measures otherwise: {off}"
        )

    def metadata(self) -> dict[str, Any]:
        """The mix as metadata of the asset's page."""
        shares = {
            f"share_{name}": round(float(share), 4) for name, share in zip(self.sources, self.proposal.mix, strict=True)
        }
        held_out = self.law.held_out
        picture = base64.b64encode(self.plot()).decode()
        lines = (*self.notes, *self.trade_offs(), *self.repeats())
        return {
            **shares,
            "predicted_loss": self.proposal.loss,
            "natural_loss": self.proposal.natural_loss,
            "held_out_error": held_out.error,
            "held_out_error_of_mean": held_out.baseline,
            "held_out_rank_correlation": held_out.rank_correlation,
            "ranks_agree_with_1B": RANK_AGREEMENT[self.model],
            "blend": self.blend,
            "front": record_table(self.front_rows()),
            "notes": dg.MetadataValue.md("\n".join(f"- {line}" for line in lines)),
            "won_and_lost": dg.MetadataValue.md(f"![won and lost](data:image/png;base64,{picture})"),
        }

    def plot(self) -> bytes:
        """What each mix of the front wins and loses on each set, against the natural mix; a PNG."""
        axes = new_axes(7, 1.6 + 0.5 * len(self.sets), margin(self.sets))
        places = -np.arange(len(self.sets))
        axes.axvline(0, color="k", linewidth=0.8)
        for number, (label, _, losses) in enumerate(self._points()):
            colour, more = COLOURS[number % len(COLOURS)], losses - self.front.natural
            axes.plot(more, places, "o-", color=colour, alpha=0.9 if label else 0.2, label=label or None)
        axes.set_yticks(places.tolist(), self.sets)
        describe(axes, "predicted loss against the natural mix; less is better", "")
        return png(axes)

    def _points(self) -> Iterator[tuple[str, Float64Array, Float64Array]]:
        """Each mix of the front, and the proposed one, with what it is best for and its losses."""
        best: dict[int, list[str]] = {}
        for name, at in zip(self.sets, self.front.best, strict=True):
            best.setdefault(at, []).append(name)
        chosen = self.proposal.mix
        distances = np.abs(self.front.mixes - chosen).max(axis=1)
        for at, (mix, losses) in enumerate(zip(self.front.mixes, self.front.losses, strict=True)):
            label = f"best for {', '.join(best[at])}" if at in best else ""
            if at == distances.argmin():
                label = f"proposed; {label}" if label else "proposed"
            yield label, mix, losses

    def _shares(self, mix: Float64Array) -> str:
        return ", ".join(f"{name} {share:.3f}" for name, share in zip(self.sources, mix, strict=True))

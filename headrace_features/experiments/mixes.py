"""`headrace run`: small runs over mixes of sources, a law of the loss through them, its proposed mix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.server.blender import Blender
from blender_service.tables.packed_table import load_table
from dagster_project.exceptions import CommandError
from headrace_features.experiments.declaration import Variant
from headrace_features.experiments.experiment import LakeExperiment
from spark_jobs.lake.files.lookups import read_batches
from spark_jobs.lake.run.evaluations import known_rows
from spark_jobs.mixes.designs import design, most_shares
from spark_jobs.mixes.law import RANK_AGREEMENT, Law, Proposal, fit, propose

_SHARE_DIGITS: Final = 4


@dataclass(frozen=True)
class FittedMix:
    """A proposed mix.

    Attributes:
        sources: names, in the order of shares.
        proposal: shares, predicted loss and interval.
        law: the fitted law to predict it.
        model: size of the models.
        blend: id of the blend of the mix.
        trained: runs done for it.
    """

    sources: tuple[str, ...]
    proposal: Proposal
    law: Law
    model: str
    blend: str
    trained: int

    def __str__(self) -> str:
        """The shares and the predicted loss in one line."""
        shares = zip(self.sources, self.proposal.mix, strict=True)
        mix = ", ".join(f"{name} {share:.3f}" for name, share in shares)
        proposal, held_out, agreement = self.proposal, self.law.held_out, RANK_AGREEMENT[self.model]
        off = (
            f"error {held_out.error:.4f} (by their mean {held_out.baseline:.4f}), ranks {held_out.rank_correlation:.2f}"
        )
        bounded = (
            f"; as often as allowed: {', '.join(self.sources[n] for n in proposal.bounded)}" if proposal.bounded else ""
        )
        return (
            f"{mix}: predicted {proposal.loss:.4f} ({proposal.low:.4f} to {proposal.high:.4f}), the natural mix "
            f"{proposal.natural_loss:.4f}; held-out runs: {off}; {self.model} ranks mixes as 1B does with a "
            f"correlation of {agreement:.2f}{bounded}; blend {self.blend[:12]}"
        )

    def metadata(self) -> dict[str, Any]:
        """The mix as metadata of the asset's page."""
        shares = {
            f"share_{name}": round(float(share), 4) for name, share in zip(self.sources, self.proposal.mix, strict=True)
        }
        held_out = self.law.held_out
        return {
            **shares,
            "predicted_loss": self.proposal.loss,
            "natural_loss": self.proposal.natural_loss,
            "held_out_error": held_out.error,
            "held_out_error_of_mean": held_out.baseline,
            "held_out_rank_correlation": held_out.rank_correlation,
            "ranks_agree_with_1B": RANK_AGREEMENT[self.model],
            "blend": self.blend,
        }


def fit_mix(experiment: LakeExperiment) -> FittedMix:
    """Do the missing runs of the mixes, fit the law, and create the blend of its proposed mix.

    Raises:
        CommandError: a table is not there, or the sources are too small.
    """
    declared, lake = experiment.declared, (experiment.catalogue, experiment.settings)
    assert declared.mixes is not None
    names, tables = tuple(declared.mixes.sources), tuple(declared.mixes.sources.values())
    sizes = [_tokens(experiment, table) for table in tables]
    alone = {name: Variant(sources={table: 1.0}) for name, table in declared.mixes.sources.items()}
    budget = LakeExperiment(declared, *lake, alone).budget(names[0])
    most = most_shares(sizes, budget, declared.mixes.max_epochs)
    mixes = np.round(design(sizes, most, seed=0, runs=declared.mixes.runs), _SHARE_DIGITS)
    variants = {
        f"mix_{number:02}": Variant(sources={t: float(s) for t, s in zip(tables, mix, strict=True) if s > 0})
        for number, mix in enumerate(mixes)
    }
    experiment = LakeExperiment(declared, *lake, variants)
    experiment.check()
    missing = experiment.missing()
    trained = sum(1 for _ in experiment.do(missing))
    keys = {(experiment.key(run), run.variant) for run in experiment.runs()}
    rows = [row for row in known_rows(experiment.catalogue, declared.name) if (row["key"], row["variant"]) in keys]
    sets = sorted({score["set"] for row in rows for score in row["scores"] if score["measure"] == "bits_per_byte"})
    if not sets:
        raise CommandError(f"experiment {declared.name}: a mix is fitted to bits a byte; give a held-out set")
    losses = np.array([[_mean(rows, variant, name) for name in sets] for variant in experiment.variants])
    law = fit(mixes / mixes.sum(axis=1, keepdims=True), losses)
    proposal = propose(law, sizes, most)
    shares = [max(round(float(share), _SHARE_DIGITS), 0.0) for share in proposal.mix]
    sources = tuple(
        SourceSpec(table, str(share), name, max_epochs=0)
        for name, table, share in zip(names, tables, shares, strict=True)
        if share > 0
    )
    blend = Blender(experiment.catalogue).create(BlendSpec(sources)).blend_id
    return FittedMix(names, proposal, law, declared.model_size, blend, trained)


def _mean(rows: list[dict[str, Any]], variant: str, name: str) -> float:
    """The mean of a set over the seeds and rates of a mix."""
    scores = [score for row in rows if row["variant"] == variant for score in row["scores"]]
    return float(
        np.mean([score["value"] for score in scores if (score["set"], score["measure"]) == (name, "bits_per_byte")])
    )


def _tokens(experiment: LakeExperiment, table: str) -> int:
    """Tokens of a packed table, padding left out.

    Raises:
        CommandError: it is not there.
    """
    if load_table(experiment.catalogue, table) is None:
        raise CommandError(f"experiment {experiment.declared.name}: {table} is not there; run its corpus first")
    return sum(
        sum(batch["token_count"].to_pylist()) for batch in read_batches(experiment.catalogue, table, ("token_count",))
    )

"""`headrace run`: small runs over mixes of sources in two rounds, a law of the loss through them, its proposed mix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.server.blender import Blender
from blender_service.tables.packed_table import load_table
from dagster_project.exceptions import CommandError
from headrace.tables.cells import CELL_COLUMN, split_table
from headrace_features.experiments.declaration import ExperimentDeclaration, Variant
from headrace_features.experiments.experiment import LakeExperiment
from headrace_features.experiments.mix_report import FittedMix
from headrace_features.experiments.thinning import kept_rows
from spark_jobs.arrays import Float64Array
from spark_jobs.lake.files.lookups import read_batches
from spark_jobs.lake.run.evaluations import known_rows
from spark_jobs.mixes.search import Bounds, Reuse, Runs, Search, reuse

_SHARE_DIGITS: Final = 4
_LEAST_ROWS: Final = 8  # of a thinned source; of fewer, rounding changes the repeats by more than 6%
_ALIKE: Final = ("budget_tokens", "budget_bytes", "seeds", "learning_rates", "model_size", "near_share")


@dataclass(frozen=True)
class MixSearch:
    """The search that an experiment declares, on a lake.

    Attributes:
        experiment: with each source alone as its variants.
        names: of the sources.
        tables: of them.
        search: over them, and behind them former sources that are no more, if their runs count in the law.
        target: tokens of the run that the mix is for.
        thinned: share of their rows that small runs read.
        former: what of the earlier mix goes on; None without one.
    """

    experiment: LakeExperiment
    names: tuple[str, ...]
    tables: tuple[str, ...]
    search: Search
    target: int
    thinned: float
    former: Reuse | None = None

    @property
    def declared(self) -> ExperimentDeclaration:
        """The experiment's declaration."""
        return self.experiment.declared

    @property
    def is_settled(self) -> bool:
        """Whether all sources are as in the former mix, so that nothing is left to search."""
        return self.former is not None and not self.former.added and not self.former.removed

    def lines(self) -> Iterator[str]:
        """What a run of it would do."""
        name, search, mixes = self.declared.name, self.search, self.declared.mixes
        assert mixes is not None
        if self.former is not None:
            yield from self._reuse_lines(self.former, str(mixes.former))
        if self.is_settled:
            return
        first = self.variants(search.first_round(), 0)
        missing = len(self.experiment.of(first).missing())
        each = self.declared.seeds * len(self.declared.learning_rates)
        total, all_over = search.run_count * each, search.first_count * each
        yield (
            f"{name}: {total} runs on mixes of {len(search.repeats.parts)} sources, {all_over} of them all over, of "
            f"which {missing} are to be done, then {total - all_over} near the best; "
            f"{self.experiment.budget(self.names[0]):,} tokens each"
        )
        if self.thinned < 1:
            yield (
                f"{name}: runs read 1/{1 / self.thinned:,.0f} of each source's rows, to repeat them as a run of "
                f"{self.target:,} tokens will; {each} more tell the error of not doing so"
            )

    def _reuse_lines(self, former: Reuse, name: str) -> Iterator[str]:
        told = [f"new {', '.join(former.added)}"] if former.added else []
        told += [f"no more, or changed: {', '.join(former.removed)}"] if former.removed else []
        kept = ", ".join(f"{source} {share:.3f}" for source, share in former.kept.items())
        where = f"{self.declared.name}: from {name}"
        if self.is_settled:
            yield f"{where}: all sources are as they were, so its runs are the answer: 0 runs"
        elif not former.kept:
            yield f"{where}: no source is as it was ({'; '.join(told)}), so nothing is saved"
        elif len(former.kept) == 1:
            yield f"{where}: {kept.split()[0]} alone is as it was ({'; '.join(told)}), so no run is saved"
        else:
            each = self.declared.seeds * len(self.declared.learning_rates)
            runs = 0 if self.search.former is None else len(self.search.former.mixes)
            yield (
                f"{where}: kept at their ratio, as one source: {kept}; {'; '.join(told)}; that saves "
                f"{former.saved * each} runs" + (f", and {runs} former mixes count in the law" if runs else "")
            )

    def variants(self, mixes: Float64Array, start: int) -> dict[str, Variant]:
        """The variants of mixes, numbered from `start` on."""
        return {f"mix_{number:02}": self._variant(mix, self.thinned) for number, mix in enumerate(mixes, start)}

    def _variant(self, mix: Float64Array, thinned: float) -> Variant:
        now = mix[: len(self.tables)].round(_SHARE_DIGITS)  # of former sources that are no more nothing is read
        shares = {table: float(share) for table, share in zip(self.tables, now, strict=True)}
        return Variant(sources={table: share for table, share in shares.items() if share > 0}, thinned=thinned)

    def measured(self, variants: dict[str, Variant], train: bool) -> tuple[Float64Array, int]:
        """(J, K) losses of variants on the held-out sets, and how many runs were done for it.

        Raises:
            CommandError: runs are missing and not to be trained, or nothing is held out.
        """
        if not variants:
            return np.empty((0, len(self.sets))), 0
        experiment = self.experiment.of(variants)
        experiment.check()
        missing = experiment.missing()
        if missing and not train:
            name = self.declared.name
            raise CommandError(f"experiment {name}: {len(missing)} of its runs are not done; run: headrace run {name}")
        done = sum(1 for _ in experiment.do(missing))
        keys = {(experiment.key(run), run.variant) for run in experiment.runs()}
        known = known_rows(experiment.catalogue, self.declared.name)
        rows = [row for row in known if (row["key"], row["variant"]) in keys]
        return np.array([[_mean(rows, variant, name) for name in self.sets] for variant in variants]), done

    @property
    def sets(self) -> list[str]:
        """The held-out sets, in their order.

        Raises:
            CommandError: there is none.
        """
        if not self.declared.held_out:
            raise CommandError(f"experiment {self.declared.name}: a mix is fitted to bits a byte; give a held-out set")
        return sorted(self.declared.held_out)

    def trained(self, mixes: Float64Array, start: int, train: bool) -> tuple[Runs, int]:
        """Runs on mixes as their variants have them, and how many were done."""
        losses, done = self.measured(self.variants(mixes, start), train)
        rounded = mixes.round(_SHARE_DIGITS)
        return Runs(rounded / rounded.sum(axis=1, keepdims=True), losses), done

    def fitted(self, train: bool = True) -> FittedMix:
        """Do the missing runs of both rounds, fit the law, propose.

        Raises:
            CommandError: runs are missing and not to be trained.
        """
        search, mixes = self.search, self.declared.mixes
        assert mixes is not None
        aims = [mixes.aims.get(name, 0.0) for name in self.sets] if mixes.aims else None
        none = np.empty((0, len(search.tokens)))
        first, done = self.trained(none if self.is_settled else search.first_round(), 0, train)
        law = search.law(first, aims)
        near, more = self.trained(none if self.is_settled else search.second_round(law), len(first.mixes), train)
        runs = first.followed_by(near)
        law = search.law(runs, aims)
        at = len(first.mixes) if len(near.mixes) else 0
        apart, last = np.empty((0, len(self.sets))), 0
        if self.thinned < 1 and not self.is_settled:
            whole = {f"mix_{at:02}_unthinned": self._variant(runs.mixes[at], 1)}
            apart, last = self.measured(whole, train)
        count = len(mixes.sources)
        proposal, front = search.proposal(law), search.front(law)
        return FittedMix(
            self.declared.name,
            self.names,
            tuple(self.sets),
            replace(proposal, mix=proposal.mix[:count]),
            law,
            replace(front, mixes=front.mixes[:, :count]),
            self.declared.model_size,
            runs,
            search.tokens[:count],
            self.target,
            self.thinned,
            tuple((apart - runs.losses[at : at + 1]).ravel().tolist()) if len(apart) else (),
            tuple(self._reuse_lines(self.former, str(mixes.former))) if self.former is not None else (),
            done + more + last,
        )


def fit_mix(experiment: LakeExperiment, train: bool = True) -> FittedMix:
    """Do the missing runs of the mixes, fit the law, and create the blend of its proposed mix.

    Raises:
        CommandError: a table is not there, the sources are too small, or runs are missing and not to be trained.
    """
    wanted = search_of(experiment)
    if wanted.is_settled and wanted.search.former is None:  # its runs were measured otherwise
        former = fit_mix(_former(experiment), train=False)
        return replace(former, experiment=experiment.declared.name, notes=tuple(wanted.lines()))
    fitted = wanted.fitted(train)
    shares = fitted.proposal.mix.round(_SHARE_DIGITS).tolist()
    sources = tuple(
        SourceSpec(table, str(share), name, max_epochs=0)
        for name, table, share in zip(wanted.names, wanted.tables, shares, strict=True)
        if share > 0
    )
    return replace(fitted, blend=Blender(experiment.catalogue).create(BlendSpec(sources)).blend_id)


def search_of(experiment: LakeExperiment) -> MixSearch:
    """The search of an experiment with mixes.

    Raises:
        CommandError: a table is not there, a source is too small, or the former experiment is not done.
    """
    declared, mixes = experiment.declared, experiment.declared.mixes
    assert mixes is not None
    alone = {name: Variant(sources={table: 1.0}) for name, table in mixes.sources.items()}
    base = LakeExperiment(declared, experiment.catalogue, experiment.settings, alone)
    budget = base.budget(next(iter(alone)))
    target = mixes.target_tokens or budget
    sizes = [_size(experiment, table) for table in mixes.sources.values()]
    for name, size in zip(mixes.sources, sizes, strict=True):
        if kept_rows(size.rows, budget / target) < min(_LEAST_ROWS, size.rows):
            raise CommandError(
                f"experiment {declared.name}: {name} has {size.rows} rows, and {budget / target:.2g} of them are less "
                f"than {_LEAST_ROWS}; raise budget_tokens, or leave target_tokens out"
            )
    tokens = [size.tokens for size in sizes]
    least = np.array([mixes.least.get(name, 0.0) for name in mixes.sources])
    names, tables = tuple(mixes.sources), tuple(mixes.sources.values())
    if mixes.former is None:
        search = Search.of(tokens, target, Bounds(mixes.max_epochs, least), run_count=mixes.runs)
        return MixSearch(base, names, tables, search, target, budget / target)
    former = search_of(_former(experiment))
    before = former.fitted(train=False)
    there = dict(zip(former.names, former.tables, strict=True))
    shares = dict(zip(before.sources, before.proposal.mix.tolist(), strict=True))
    kept = reuse(shares, {name: there.get(name) == table for name, table in mixes.sources.items()})
    runs = None
    if kept.kept and _is_alike(base, former.experiment):
        # In the law each former source that is no more has a place behind the others, and no share of a mix.
        gone = [name for name in former.names if name not in kept.kept]
        column = [names.index(name) if name in kept.kept else len(names) + gone.index(name) for name in former.names]
        known = before.runs if former.search.former is None else former.search.former.followed_by(before.runs)
        # Of runs that the former search had from an earlier one, those on what it lost itself are left out.
        is_whole = known.mixes[:, len(former.names) :].sum(axis=1) == 0
        placed = np.zeros((int(is_whole.sum()), len(names) + len(gone)))
        placed[:, column] = known.mixes[is_whole, : len(former.names)]
        runs = Runs(placed, known.losses[is_whole])
        tokens += [int(former.search.tokens[former.names.index(name)]) for name in gone]
    extra = len(tokens) - len(names)
    parts = np.hstack([kept.parts, np.zeros((len(kept.parts), extra))])
    bounds = Bounds(
        mixes.max_epochs, np.append(least, np.zeros(extra)), np.append(np.ones(len(names)), np.zeros(extra))
    )
    search = Search.of(tokens, target, bounds, parts, mixes.runs, runs)
    return MixSearch(base, names, tables, search, target, budget / target, kept)


def _is_alike(experiment: LakeExperiment, former: LakeExperiment) -> bool:
    """Whether runs of two experiments are trained and measured in the same way."""
    now, before = experiment.declared, former.declared
    assert now.mixes is not None and before.mixes is not None
    fields = all(getattr(now, name) == getattr(before, name) for name in _ALIKE)
    return fields and now.mixes.target_tokens == before.mixes.target_tokens and experiment.measures == former.measures


def _former(experiment: LakeExperiment) -> LakeExperiment:
    """The experiment that another goes on from.

    Raises:
        CommandError: it is not declared, or has no mixes.
    """
    from headrace_features.experiments import declared as declarations

    assert experiment.declared.mixes is not None and experiment.declared.mixes.former is not None
    declared = declarations.declared_experiment(experiment.declared.mixes.former)
    if declared.mixes is None:
        raise CommandError(
            f"experiment {experiment.declared.name}: {declared.name} has variants; name one with mixes in `from`"
        )
    return LakeExperiment(declared, experiment.catalogue, experiment.settings)


def _mean(rows: Sequence[dict[str, Any]], variant: str, name: str) -> float:
    """The mean of a set over the seeds and rates of a mix."""
    scores = [score for row in rows if row["variant"] == variant for score in row["scores"]]
    return float(
        np.mean([score["value"] for score in scores if (score["set"], score["measure"]) == (name, "bits_per_byte")])
    )


class _Size(NamedTuple):
    """What a source has."""

    rows: int
    tokens: int


def _size(experiment: LakeExperiment, source: str) -> _Size:
    """Rows and tokens of a packed table or of some of its cells, padding left out.

    Raises:
        CommandError: the table is not there, or no row is in these cells.
    """
    table, choice = split_table(source)
    where = f"experiment {experiment.declared.name}: {source}"
    if load_table(experiment.catalogue, table) is None:
        raise CommandError(f"{where} is not there; run its corpus first")
    columns = ("token_count",) if choice is None else ("token_count", CELL_COLUMN)
    rows = tokens = 0
    for batch in read_batches(experiment.catalogue, table, columns):
        taken = np.asarray(batch["token_count"], np.int64)
        if choice is not None:
            cells = batch[CELL_COLUMN].to_pylist()
            chosen = {cell for cell in set(cells) if choice.takes(cell)}
            taken = taken[[cell in chosen for cell in cells]]
        rows, tokens = rows + len(taken), tokens + int(taken.sum())
    if not rows:
        raise CommandError(f"{where} has no row; see headrace corpus cells, or leave it out")
    return _Size(rows, tokens)

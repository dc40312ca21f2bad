"""What came out of an experiment: verdicts, what differs between the data of its variants, a plot."""

from __future__ import annotations

import base64
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import dagster as dg
import numpy as np

from dagster_project.exceptions import CommandError
from headrace_features.experiments.comparison import Comparison, PairComparison, Scores, VariantVerdict, compare
from headrace_features.experiments.curves import Worth, tokens_worth
from headrace_features.experiments.experiment import LakeExperiment
from spark_jobs.lake.declare.pictures import margin, new_axes, png
from spark_jobs.lake.run.evaluations import known_rows

_LOWER_IS_BETTER: Final = ("bits_per_byte",)
_DECIDES: Final = ("bits_per_byte", "nats_per_byte", "value")  # accuracy stands beside it: it is at chance at this size
_SET, _CHANCE = "set and measure", "by chance"
_CURVE_STEPS: Final = 20  # a law through fewer losses says nothing


@dataclass(frozen=True)
class Report:
    """The results of an experiment so far.

    Attributes:
        experiment: its name.
        rows: of `system.evaluations`, one for each run.
        planned: all of its runs.
        compared: verdicts of pairs and sets; None while a variant has no run.
        differences: what differs between the data, a line each.
    """

    experiment: str
    rows: list[dict[str, Any]]
    planned: int
    compared: Comparison | None
    differences: tuple[str, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of the report, for Dagster to see a change."""
        return hashlib.sha256("".join(sorted(row["key"] for row in self.rows)).encode()).hexdigest()

    def line(self) -> str:
        """The verdicts in one line."""
        if self.compared is None:
            return "nothing to compare yet"
        first = self.compared.pairs[0].first
        against = [pair for pair in self.compared.pairs if first in (pair.first, pair.second)]
        return "; ".join(_short(pair) for pair in against)

    def text(self) -> str:
        """The report for a terminal."""
        return "\n".join(self._lines())

    def metadata(self) -> dict[str, Any]:
        """The report as metadata of the asset's page."""
        shown: dict[str, Any] = {"runs": len(self.rows), "runs_planned": self.planned}
        shown["means"] = record_table(mean_rows(self.rows))
        shown["data"] = dg.MetadataValue.md("\n".join(f"- {line}" for line in self.differences))
        if self.compared is not None:
            shown["verdicts"] = record_table(self.verdict_rows())
            if nothing := self.tell_nothing():
                shown["tells_nothing_at_this_size"] = ", ".join(nothing)
            picture = base64.b64encode(self.plot()).decode()
            shown["plot"] = dg.MetadataValue.md(f"![scores](data:image/png;base64,{picture})")
        return shown

    def plot(self) -> bytes:
        """Scores of each variant on each set, every seed a point; a PNG."""
        sets = sorted(
            {(score["set"], score["measure"]) for row in self.rows for score in row["scores"] if _decides(score)}
        )
        variants = list(dict.fromkeys(row["variant"] for row in self.rows))
        names = [f"{name}, {measure.replace('_', ' ')}" for name, measure in sets]
        axes = new_axes(7, 1.2 + 0.4 * len(sets) * len(variants), margin(names))
        for number, (name, measure) in enumerate(sets):
            for place, variant in enumerate(variants):
                values = [
                    score["value"]
                    for row in self.rows
                    for score in row["scores"]
                    if (row["variant"], score["set"], score["measure"]) == (variant, name, measure)
                ]
                height = -(number * (len(variants) + 1) + place)
                label = variant if not number else None
                axes.plot(values, [height] * len(values), "o", color=f"C{place % 10}", alpha=0.5, label=label)
                axes.plot([np.mean(values)], [height], "k|", markersize=14)
        ticks = [-(n * (len(variants) + 1) + (len(variants) - 1) / 2) for n in range(len(sets))]
        axes.set_yticks(ticks, names)
        axes.legend(loc="best")
        return png(axes)

    def _lines(self) -> Iterator[str]:
        yield f"{self.experiment}: {len(self.rows)} of {self.planned} runs are done"
        yield ""
        yield from _means(self.rows)
        if self.compared is not None:
            yield ""
            yield from (_long(pair, self._worth(pair)) for pair in self.compared.pairs)
            if nothing := self.tell_nothing():
                yield f"tells nothing at this size: {', '.join(nothing)} (seeds differ more than variants)"
        yield ""
        yield from self.differences

    def tell_nothing(self) -> list[str]:
        """Names of the sets with seeds of a variant differing more than variants do."""
        return [result.evaluation_set for result in self.compared.sets if result.tells_nothing] if self.compared else []

    def verdict_rows(self) -> Iterator[dict[str, str]]:
        """The verdicts as rows of a table."""
        yield from map(self._verdict_row, self.compared.pairs if self.compared is not None else ())

    def _verdict_row(self, pair: PairComparison) -> dict[str, str]:
        worth = self._worth(pair)
        return {
            "variants": f"{pair.first} against {pair.second}",
            "set": pair.evaluation_set,
            "verdict": str(pair.verdict),
            "difference": f"{pair.difference:+.4f} ({pair.low:+.4f} to {pair.high:+.4f})",
            "seeds": str(len(pair.seeds)),
            "seeds_to_see_it": f"{pair.seeds_needed:,}" if pair.seeds_needed is not None else "",
            "tokens_to_gain_it": str(worth) if worth else "",
        }

    def _worth(self, pair: PairComparison) -> Worth | None:
        """How many times the tokens the worse variant would take to gain a difference in bits a byte.

        By the loss curves of its runs at the highest rate: its loss would have to fall by the same share. None where
        there are none.
        """
        worse = pair.first if pair.difference > 0 else pair.second
        runs = [row for row in self.rows if row["variant"] == worse and row["seed"] in pair.seeds]
        runs = [row for row in runs if row["learning_rate"] == max(pair.by_rate)]
        bits = [score["value"] for row in runs for score in row["scores"] if _is_bits_of(score, pair.evaluation_set)]
        if not bits or not all(len(row["losses"]) >= _CURVE_STEPS for row in runs):
            return None
        curves = []
        for row in runs:
            offsets, losses = (np.array([point[name] for point in row["losses"]], float) for name in ("offset", "loss"))
            curves.append(((offsets + 1).astype(np.int64), losses))
        last = np.mean([losses[-max(1, len(losses) // 20) :].mean() for _, losses in curves])
        return tokens_worth(curves, abs(pair.difference) / float(np.mean(bits)) * float(last))


def report_of(experiment: LakeExperiment) -> Report:
    """The results of an experiment so far.

    Raises:
        CommandError: no run was done.
    """
    declared = experiment.declared
    planned = list(experiment.runs())
    current = {(experiment.key(run), run.variant, run.seed) for run in planned}
    recorded = known_rows(experiment.catalogue, declared.name)
    rows = list({(row["key"], row["variant"], row["seed"]): row for row in recorded}.values())
    rows = [row for row in rows if (row["key"], row["variant"], row["seed"]) in current]
    if not rows:
        raise CommandError(f"experiment {declared.name}: not run as it is now; run: headrace run {declared.name}")
    scores, lower = _scores(rows)
    scores = {name: scores[name] for name in experiment.variants if name in scores}
    complete = len(scores) > 1 and all(scores[name].keys() == scores[next(iter(scores))].keys() for name in scores)
    share = experiment.read_share if not declared.command else lambda first, second: 0.0
    compared = compare(scores, lower_is_better=lower, read_share=share) if complete else None
    rows.sort(key=lambda row: (list(experiment.variants).index(row["variant"]), row["seed"], -row["learning_rate"]))
    return Report(declared.name, rows, len(planned), compared, tuple(_differences(experiment)))


def _decides(score: Mapping[str, Any]) -> bool:
    return score["measure"] in _DECIDES


def _scores(rows: list[dict[str, Any]]) -> tuple[dict[str, Scores], list[str]]:
    """Scores by variant, set, seed and rate, and the sets where less is better."""
    scores: dict[str, dict[str, dict[int, dict[float, float]]]] = {}
    lower = set()
    for row in rows:
        for score in filter(_decides, row["scores"]):
            of_set = scores.setdefault(row["variant"], defaultdict(lambda: defaultdict(dict)))
            of_set[score["set"]][row["seed"]][row["learning_rate"]] = score["value"]
            if score["measure"] in _LOWER_IS_BETTER:
                lower.add(score["set"])
    return dict(scores), sorted(lower)


def _is_bits_of(score: Mapping[str, Any], name: str) -> bool:
    return bool(score["set"] == name and score["measure"] in _LOWER_IS_BETTER)


def record_table(rows: Iterable[Mapping[str, str]]) -> dg.TableMetadataValue:
    """Rows as a table of the page."""
    records = [dg.TableRecord(dict(row)) for row in rows]
    columns = [dg.TableColumn(name) for name in records[0].data] if records else []
    return dg.MetadataValue.table(records, dg.TableSchema(columns))


def mean_rows(rows: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    """Variants x sets: the mean over seeds of each rate, accuracy with its chance level beside it."""
    values: dict[tuple[str, str, float], list[float]] = defaultdict(list)
    chances: dict[tuple[str, str], float | None] = {}
    for row in rows:
        for score in row["scores"]:
            name = f"{score['set']} {score['measure'].replace('_', ' ')}"
            values[name, row["variant"], row["learning_rate"]].append(score["value"])
            chances[name, row["variant"]] = score["chance"]
    for name, rate in dict.fromkeys((name, rate) for name, _, rate in values):
        chance = next((value for (scored, _), value in chances.items() if scored == name and value is not None), None)
        cells = {_SET: f"{name}, rate {rate:g}"}
        for variant in dict.fromkeys(row["variant"] for row in rows):
            some = values.get((name, variant, rate))
            cells[variant] = f"{np.mean(some):.4f}" if some else "-"
        yield {**cells, _CHANCE: f"{chance:.3f}" if chance is not None else ""}


def _means(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The rows of `mean_rows` as lines for a terminal."""
    means = list(mean_rows(rows))
    width = max(len(row[_SET]) for row in means)
    variants = [name for name in means[0] if name not in (_SET, _CHANCE)]
    yield f"{'mean over seeds':<{width}}  " + "  ".join(f"{variant:>12}" for variant in variants)
    for row in means:
        beside = f"  (by chance {row[_CHANCE]})" if row[_CHANCE] else ""
        yield f"{row[_SET]:<{width}}  " + "  ".join(f"{row[variant]:>12}" for variant in variants) + beside


def _short(pair: PairComparison) -> str:
    return f"{pair.first} against {pair.second} on {pair.evaluation_set}: {pair.verdict}"


def _long(pair: PairComparison, worth: Worth | None) -> str:
    """A verdict with its interval, what it is worth in tokens, and what it would take where none is seen."""
    if not pair.seeds:
        return f"{_short(pair)}: no seed was done by both"
    interval = f"difference {pair.difference:+.4f}, {pair.level:.1%} interval {pair.low:+.4f} to {pair.high:+.4f}"
    text = f"{_short(pair)} ({interval}, {len(pair.seeds)} seeds)"
    if pair.verdict is VariantVerdict.NO_DIFFERENCE_SEEN and pair.seeds_needed is not None:
        text += f"; to see one of this size takes {pair.seeds_needed:,} seeds"
    if pair.verdict is VariantVerdict.DEPENDS_ON_THE_RATE:
        text += ": " + ", ".join(f"{value:+.4f} at {rate:g}" for rate, value in sorted(pair.by_rate.items()))
    return text + (f"; as much as {worth} the tokens would gain" if worth else "")


def _differences(experiment: LakeExperiment) -> Iterator[str]:
    """What each variant consists of, and what it shares with the first."""
    if experiment.declared.command:
        return
    first = next(iter(experiment.variants))
    base = experiment.contents(first, 0)
    for name in experiment.variants:
        contents, line = experiment.contents(name, 0), f"{name}: {experiment.line(name)}"
        if name != first:
            both = len(np.intersect1d(contents.documents, base.documents, assume_unique=True))
            same = "the same rows" if contents.digest == base.digest else f"{both:,} documents in common"
            line += f"; {same} with {first}"
        yield line
    count = len(experiment.excluded)
    yield f"left out wherever they stand: {count:,} documents that are held out, nearly so, or of their families"
    if experiment.declared.seeds > 1:
        yield (
            "the samples of the seeds are disjoint"
            if experiment.disjoint
            else (f"the samples of the seeds overlap, for {experiment.declared.seeds} budgets are more than an epoch")
        )

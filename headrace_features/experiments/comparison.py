"""Which variant is better, and how sure that is: paired over seeds, corrected for the number of comparisons.

Every variant is trained with the same seeds, so a pair is compared by its differences, one per seed: a seed's effect on
both cancels. With several learning rates a seed's difference is the mean over them, and a second test asks whether
the order turns: better at one rate *and* worse at another, each by a test of its own (an intersection-union test, the
least favourable rates being those of no difference). Better at one and equal at another is better. All tests of an
experiment (pairs x sets, twice with several rates) are corrected together, so that one call in twenty experiments of
equal variants is wrong, not one in twenty pairs.

    two rates, five seeds     rate 3e-3: a - b    rate 3e-5: a - b     verdict
    the same order            -.031 +- .004       -.012 +- .003        a is better (less is better here)
    another order             -.031 +- .004       +.012 +- .003        depends on the rate
    better at one rate        -.031 +- .004       +.001 +- .003        a is better
    nothing                   -.001 +- .004       +.002 +- .003        no difference seen

Runs that read most of a variant's data read nearly the same, so seeds vary less than other data of the kind would. So
the error is that of Nadeau and Bengio (2003, "Inference for the Generalization Error"): the variance between
seeds counts 1/n + f/(1 - f) times, where f is the share of a run's data missing in the other variant.
Without it, of 40 pairs of equal halves, each run reading a third, six were called different.

Sources: Student's t for paired samples; Holm 1979, "A Simple Sequentially Rejective Multiple Test Procedure";
Berger 1982, "Multiparameter Hypothesis Testing and Acceptance Sampling": the intersection-union test; Gail and Simon
1985: interactions that turn an order;
Heineman et al. 2025 (arXiv 2508.13144), "Signal and Noise": noise against spread of a benchmark; arXiv 2512.24503: one
learning rate for all variants can reverse their order; Miller 2024 (arXiv 2411.00640), "Adding Error Bars to Evals".
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from scipy import special, stats

from spark_jobs.arrays import Float64Array
from spark_jobs.exceptions import InputError, did_you_mean

ALPHA: Final = 0.05  # share of experiments with equal variants in which any pair is called different
POWER: Final = 0.8
_MOST_SEEDS: Final = 100_000
_MOST_SHARE: Final = 0.9
_QUANTILES: Final = 400  # exact to .001

# The scores of one variant: evaluation set -> seed -> learning rate -> number.
Scores = Mapping[str, Mapping[int, Mapping[float, float]]]


class VariantVerdict(StrEnum):
    """The verdict on the first of two variants on one evaluation set."""

    BETTER = "better"
    WORSE = "worse"
    NO_DIFFERENCE_SEEN = "no difference seen"
    DEPENDS_ON_THE_RATE = "depends on the rate"


@dataclass(frozen=True)
class PairComparison:
    """One variant against another, on a set.

    Attributes:
        first: the variant of the verdict.
        second: what it is compared with.
        evaluation_set: the set.
        verdict: whether the first is better.
        difference: mean of first - second over seeds and rates; nan without a seed.
        low: lower end of the interval around it, which has 0 inside unless the main test decides.
        high: upper end.
        level: of the interval: 1 minus the level of Holm's procedure for this pair.
        p_value: of the difference, corrected.
        rate_p_value: of an order that is the same, or none, at all rates, corrected; 1 with one rate.
        by_rate: mean difference at each learning rate.
        seeds: those with a score of both at every rate compared.
        left_out: seeds with a score missing, or nan.
        deviation: standard deviation of the differences between seeds; nan below two seeds.
        seeds_needed: to see a difference of this size, or of the stated size, with probability .8; None where no number
            of seeds would do.
    """

    first: str
    second: str
    evaluation_set: str
    verdict: VariantVerdict
    difference: float
    low: float
    high: float
    level: float
    p_value: float
    rate_p_value: float
    by_rate: Mapping[float, float]
    seeds: tuple[int, ...]
    left_out: tuple[int, ...]
    deviation: float
    seeds_needed: int | None


@dataclass(frozen=True)
class SetSignal:
    """Whether an evaluation set can tell variants of this model size apart.

    Attributes:
        evaluation_set: the set.
        spread: difference between the best and the worst variant's mean.
        noise: standard deviation between seeds of one variant, without a seed's effect on all variants.
        tells_nothing: the noise is larger than the spread and no pair is told apart: `tells nothing at this size`.
    """

    evaluation_set: str
    spread: float
    noise: float
    tells_nothing: bool


@dataclass(frozen=True)
class Comparison:
    """The comparisons of all pairs of variants on all sets, and the signal of each set."""

    pairs: tuple[PairComparison, ...]
    sets: tuple[SetSignal, ...]


@dataclass(frozen=True)
class _Differences:
    """The scores of a pair on a set: `values` (S, R), first - second, at the common S seeds and R rates."""

    pair: tuple[str, str]
    evaluation_set: str
    values: Float64Array
    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    left_out: tuple[int, ...]

    @property
    def means(self) -> Float64Array:
        """(S,) mean difference of each seed over the rates."""
        return self.values.mean(axis=1) if self.seeds else np.empty(0)


def compare(
    scores: Mapping[str, Scores],
    *,
    lower_is_better: Collection[str],
    stated_difference: float | None = None,
    alpha: float = ALPHA,
    read_share: Callable[[str, str], float] = lambda first, second: 0.0,
) -> Comparison:
    """Decide for each pair of variants and each set which is better.

    Args:
        scores: by variant, set, seed and learning rate; nan or a missing one is a failed run.
        lower_is_better: sets where less is better, such as bits a byte.
        stated_difference: difference for `seeds_needed`; by default the measured one.
        alpha: highest probability of calling any of equal variants different, all pairs and sets together.
        read_share: (first, second) -> share of a run's data missing in the other variant; above .9 counts
            as .9.

    Raises:
        InputError: fewer than two variants, variants with different sets, or an unknown name in `lower_is_better`.
    """
    sets = _sets(scores, lower_is_better)
    differences = [_differences(scores, pair, name) for name in sets for pair in itertools.combinations(scores, 2)]
    shares = [min(read_share(*pair_of.pair), _MOST_SHARE) for pair_of in differences]
    excess = [share / (1 - share) for share in shares]
    main = [_p_value(pair_of.means, more) for pair_of, more in zip(differences, excess, strict=True)]
    by_rate = [_rate_p_value(pair_of.values, more) for pair_of, more in zip(differences, excess, strict=True)]
    several = any(len(pair_of.rates) > 1 for pair_of in differences)
    corrected, levels = holm(np.array(main + (by_rate if several else [])), alpha)
    rate_corrected = corrected[len(main) :] if several else np.ones(len(main))
    pairs = tuple(
        _decide(
            pair_of,
            corrected[number],
            rate_corrected[number],
            levels[number],
            alpha,
            pair_of.evaluation_set in lower_is_better,
            stated_difference,
            excess[number],
        )
        for number, pair_of in enumerate(differences)
    )
    return Comparison(pairs, tuple(_signal(scores, name, pairs) for name in sets))


def _sets(scores: Mapping[str, Scores], lower_is_better: Collection[str]) -> list[str]:
    """The names of the sets; an InputError unless all variants have the same."""
    if len(scores) < 2:
        raise InputError(f"compare: {len(scores)} variants; give two at least")
    first, *others = scores
    for other in others:
        if set(scores[other]) != set(scores[first]):
            names = sorted(set(scores[other]) ^ set(scores[first]))
            raise InputError(
                f"compare: {first} and {other} are not of the same sets, such as {names[0]}; evaluate both"
            )
    for name in lower_is_better:
        if name not in scores[first]:
            raise InputError(f"compare: lower_is_better has {name!r}{did_you_mean(name, scores[first])}")
    return list(scores[first])


def _differences(scores: Mapping[str, Scores], pair: tuple[str, str], name: str) -> _Differences:
    """The differences of a pair on the set `name`; a rate without both scores of any seed is left out."""
    first, second = (scores[variant][name] for variant in pair)
    seeds = sorted({*first, *second})
    rates = sorted({rate for by_seed in (first, second) for by_rate in by_seed.values() for rate in by_rate})
    values = np.array(
        [
            [first.get(seed, {}).get(rate, np.nan) - second.get(seed, {}).get(rate, np.nan) for rate in rates]
            for seed in seeds
        ]
    ).reshape(len(seeds), len(rates))
    is_measured = np.isfinite(values)
    of_rate = is_measured.any(axis=0)
    whole = is_measured[:, of_rate].all(axis=1) & of_rate.any()
    return _Differences(
        pair,
        name,
        values[whole][:, of_rate],
        tuple(itertools.compress(rates, of_rate)),
        tuple(itertools.compress(seeds, whole)),
        tuple(itertools.compress(seeds, ~whole)),
    )


def _p_value(differences: Float64Array, excess: float) -> float:
    """P-value of a mean of 0, two-sided Student's t with variance / n replaced by variance * (1/n + `excess`)."""
    return min(1.0, 2 * min(_p_below(differences, excess), _p_below(-differences, excess)))


def _p_below(differences: Float64Array, excess: float) -> float:
    """P-value of a mean of 0 or more, one-sided, as `_p_value`."""
    count = len(differences)
    if count < 2:
        return 1.0
    mean, error = differences.mean(), differences.std(ddof=1) * np.sqrt(1 / count + excess)
    if error == 0:
        return float(mean >= 0)
    return float(stats.t.cdf(mean / error, count - 1))


def _rate_p_value(values: Float64Array, excess: float) -> float:
    """P-value of an order that does not turn: better at one rate and worse at another are both needed to reject it.

    Of two rates the greater one-sided p-value is valid; of all ordered pairs of rates the least counts, by Bonferroni.
    """
    below, above = ([_p_below(sign * column, excess) for column in values.T] for sign in (1, -1))
    pairs = list(itertools.permutations(range(values.shape[1]), 2))
    return min((1.0, *(len(pairs) * max(below[first], above[other]) for first, other in pairs)))


def holm(p_values: Float64Array, alpha: float = ALPHA) -> tuple[Float64Array, Float64Array]:
    """P-values corrected by Holm's procedure, and its level for each hypothesis.

    In ascending order, all hypotheses after the first accepted one get its level; an interval of 1 - level has 0 inside
    exactly where the corrected p-value is above `alpha`.
    """
    count = len(p_values)
    order = np.argsort(p_values, kind="stable")
    factors = count - np.arange(count)
    corrected, levels = np.empty(count), np.empty(count)
    corrected[order] = np.minimum(1, np.maximum.accumulate(p_values[order] * factors))
    rejected = int(np.count_nonzero(corrected <= alpha))
    levels[order] = alpha / factors[np.minimum(np.arange(count), rejected)] if rejected < count else alpha / factors
    return corrected, levels


def _decide(
    differences: _Differences,
    p_value: float,
    rate_p_value: float,
    level: float,
    alpha: float,
    less: bool,
    stated: float | None,
    excess: float,
) -> PairComparison:
    """The verdict on a pair, with its interval."""
    means, by_rate = differences.means, differences.values.mean(axis=0) if differences.seeds else np.empty(0)
    difference = float(means.mean()) if differences.seeds else np.nan
    deviation = float(means.std(ddof=1)) if len(means) > 1 else np.nan
    error = deviation * np.sqrt(1 / len(means) + excess) if len(means) > 1 else np.nan
    half = stats.t.isf(level / 2, len(means) - 1) * error if len(means) > 1 else np.inf
    verdict = VariantVerdict.NO_DIFFERENCE_SEEN
    if rate_p_value <= alpha:
        verdict = VariantVerdict.DEPENDS_ON_THE_RATE
    elif p_value <= alpha:
        verdict = VariantVerdict.BETTER if (difference < 0) == less else VariantVerdict.WORSE
    size = abs(difference if stated is None else stated)
    return PairComparison(
        *differences.pair,
        evaluation_set=differences.evaluation_set,
        verdict=verdict,
        difference=difference,
        low=difference - half if differences.seeds else -np.inf,
        high=difference + half if differences.seeds else np.inf,
        level=1 - level,
        p_value=p_value,
        rate_p_value=rate_p_value,
        by_rate=dict(zip(differences.rates, by_rate.tolist(), strict=False)),
        seeds=differences.seeds,
        left_out=differences.left_out,
        deviation=deviation,
        seeds_needed=seeds_needed(size, deviation, level, excess=excess) if np.isfinite(deviation) else None,
    )


def _signal(scores: Mapping[str, Scores], name: str, pairs: Sequence[PairComparison]) -> SetSignal:
    """Noise and spread of a set, over the seeds and rates of all variants."""
    tables = [scores[variant][name] for variant in scores]
    cells = sorted({(seed, rate) for table in tables for seed, by_rate in table.items() for rate in by_rate})
    values = np.array([[table.get(seed, {}).get(rate, np.nan) for seed, rate in cells] for table in tables])
    whole = np.isfinite(values).all(axis=0)
    values, rates = values[:, whole], np.array([rate for _, rate in cells])[whole]
    if not values.size:
        return SetSignal(name, np.nan, np.nan, True)
    spread = float(np.ptp(values.mean(axis=1)))
    squares, freedom = 0.0, 0
    for rate in np.unique(rates):
        at_rate = values[:, rates == rate]
        rest = at_rate - at_rate.mean(axis=0) - at_rate.mean(axis=1, keepdims=True) + at_rate.mean()
        squares += float(np.square(rest).sum())
        freedom += (at_rate.shape[0] - 1) * (at_rate.shape[1] - 1)
    noise = float(np.sqrt(squares / freedom)) if freedom else np.nan
    is_decided = any(
        pair.evaluation_set == name and pair.verdict != VariantVerdict.NO_DIFFERENCE_SEEN for pair in pairs
    )
    return SetSignal(name, spread, noise, not is_decided and not noise <= spread)


def power_of(seeds: int, difference: float, deviation: float, level: float = ALPHA) -> float:
    """Probability of finding a difference by a paired t-test with `seeds` seeds, at least 2: noncentral t.

    Computed as a mean over the sample deviation's quantiles, since SciPy's `nct` gives nan for many arguments.
    """
    if deviation == 0:
        return float(difference != 0)
    shift = abs(difference) / deviation * np.sqrt(seeds)
    middles = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    critical = stats.t.isf(level / 2, seeds - 1) * np.sqrt(stats.chi2.ppf(middles, seeds - 1) / (seeds - 1))
    return float(1 - np.mean(special.ndtr(critical - shift) - special.ndtr(-critical - shift)))


def seeds_needed(
    difference: float, deviation: float, level: float = ALPHA, power: float = POWER, excess: float = 0.0
) -> int | None:
    """The least number of seeds to find a difference with probability `power`.

    Args:
        difference: between two variants.
        deviation: standard deviation of the differences of seeds. From five seeds it is itself known only within a
            factor of .6 to 2.9, the number of seeds within the square of that.
        level: of the test, corrected for all that is compared.
        power: probability of finding it.
        excess: f / (1 - f) of the share f of the data read by a run; more seeds do not lower that part.

    Returns:
        None where 100,000 seeds do not suffice, or the difference is 0.
    """
    if deviation == 0 or difference == 0:
        return 2 if difference else None
    # Start with the seeds of a test that knows the deviation; one that estimates it takes a few more.
    sure = special.ndtri(1 - level / 2) + special.ndtri(power)
    left = difference**2 - excess * (sure * deviation) ** 2
    if left <= 0:
        return None
    difference = float(np.sqrt(left))
    seeds = sure * deviation / difference
    if seeds**2 > _MOST_SEEDS:
        return None
    count = max(2, int(seeds**2))
    while power_of(count, difference, deviation, level) < power:
        count += 1
    return count

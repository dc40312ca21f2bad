"""Comparison: SciPy's paired t, Holm by hand, and how often equal variants are called different."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from headrace_features.experiments.comparison import (
    Comparison,
    VariantVerdict,
    compare,
    holm,
    power_of,
    seeds_needed,
)
from spark_jobs.exceptions import InputError

RATES = (3e-3, 3e-5)
DIFFERENT = {VariantVerdict.BETTER, VariantVerdict.WORSE, VariantVerdict.DEPENDS_ON_THE_RATE}


def simulated(
    draw: np.random.Generator, effects: dict[str, tuple[float, float]], sets: int = 3, seeds: int = 5
) -> Comparison:
    """Bits a byte near 2 with a seed's own level (.02), noise of a run (.01 and .004), an effect by rate."""
    scores: dict[str, dict[str, dict[int, dict[float, float]]]] = {variant: {} for variant in effects}
    for one in range(sets):
        level = 2 + 0.02 * draw.standard_normal((seeds, 2))
        for variant, effect in effects.items():
            values = level + effect + np.array([0.01, 0.004]) * draw.standard_normal((seeds, 2))
            scores[variant][f"s{one}"] = {
                s: dict(zip(RATES, row, strict=True)) for s, row in enumerate(values.tolist())
            }
    return compare(scores, lower_is_better=[f"s{one}" for one in range(sets)])


@pytest.mark.nightly
def test_of_40_equal_pairs_few_are_called_different_and_bad_halves_are_seen() -> None:
    """Equal: at most 5 of 40 experiments, and about 1 in 20 of 200; a half that costs .08 bits: at least 38 of 40."""
    draw = np.random.default_rng(37)
    equal = [simulated(draw, {"a": (0, 0), "b": (0, 0)}) for _ in range(200)]
    called = [any(pair.verdict in DIFFERENT for pair in one.pairs) for one in equal]
    assert sum(called[:40]) <= 5
    assert sum(called) <= 19  # 200 x .05 and three standard deviations
    bad = [simulated(draw, {"good": (0, 0), "bad": (0.08, 0.04)}) for _ in range(40)]
    assert sum(all(pair.verdict == VariantVerdict.BETTER for pair in one.pairs) for one in bad) >= 38
    three = [simulated(draw, {"a": (0, 0), "b": (0, 0), "bad": (0.08, 0.04)}) for _ in range(40)]
    of_bad = [pair for one in three for pair in one.pairs if pair.second == "bad"]
    assert np.mean([pair.verdict == VariantVerdict.BETTER for pair in of_bad]) > 0.9
    assert sum(pair.verdict in DIFFERENT for one in three for pair in one.pairs if pair.second == "b") <= 5
    assert not any(signal.tells_nothing for one in bad for signal in one.sets)


def test_an_order_that_differs_between_rates_is_said() -> None:
    """Better at the high rate and worse at the low one is neither; the same order with other sizes is better."""
    draw = np.random.default_rng(0)
    turned = simulated(draw, {"a": (0, 0), "b": (0.06, -0.03)}, sets=1)
    assert [pair.verdict for pair in turned.pairs] == [VariantVerdict.DEPENDS_ON_THE_RATE]
    assert turned.pairs[0].by_rate[3e-3] < 0 < turned.pairs[0].by_rate[3e-5]
    assert not turned.sets[0].tells_nothing
    same = simulated(draw, {"a": (0, 0), "b": (0.08, 0.02)}, sets=1)
    assert [pair.verdict for pair in same.pairs] == [VariantVerdict.BETTER]


EFFECTS = {"equal": (0, 0), "better_at_one": (0.03, 0), "at_the_other": (0, 0.012), "turned": (0.03, -0.012)}


@pytest.mark.parametrize("kind", EFFECTS)
@pytest.mark.parametrize("sets", [1, pytest.param(4, marks=pytest.mark.nightly)])
def test_the_order_is_said_to_turn_where_it_turns_alone(kind: str, sets: int) -> None:
    """Of 600 experiments with an effect at one rate alone, or with none, at most 5% turn; one that turns is seen."""
    draw = np.random.default_rng(len(kind) + sets)
    told = [simulated(draw, {"a": (0, 0), "b": EFFECTS[kind]}, sets) for _ in range(600)]
    turns = np.mean([any(pair.verdict is VariantVerdict.DEPENDS_ON_THE_RATE for pair in one.pairs) for one in told])
    of_pairs = [pair.verdict for one in told for pair in one.pairs]
    if kind == "turned":
        assert np.mean([verdict is VariantVerdict.DEPENDS_ON_THE_RATE for verdict in of_pairs]) > (0.6, 0.2)[sets > 1]
        assert np.mean([verdict is VariantVerdict.WORSE for verdict in of_pairs]) < 0.01
    else:
        assert turns <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 600)
    if kind == "better_at_one":
        assert of_pairs.count(VariantVerdict.WORSE) == 0
        assert np.mean([verdict is VariantVerdict.BETTER for verdict in of_pairs]) > (0.4, 0.1)[sets > 1]
    if kind == "equal":
        called = np.mean([any(pair.verdict in DIFFERENT for pair in one.pairs) for one in told])
        assert called <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 600)


def test_one_pair_is_a_paired_t_test() -> None:
    """P-value, interval and deviation are SciPy's, and more is better where less is not said to be."""
    draw = np.random.default_rng(3)
    a, b = draw.normal(0.5, 0.05, 6), draw.normal(0.2, 0.05, 6)
    scores = {name: {"x": {s: {1e-3: v} for s, v in enumerate(values)}} for name, values in (("a", a), ("b", b))}
    (pair,) = compare(scores, lower_is_better=[]).pairs
    expected = stats.ttest_rel(a, b)
    interval = expected.confidence_interval(0.95)
    assert (pair.p_value, pair.low, pair.high) == pytest.approx((expected.pvalue, interval.low, interval.high))
    assert pair.verdict == VariantVerdict.BETTER and pair.deviation == pytest.approx(np.std(a - b, ddof=1))
    turned = compare(scores, lower_is_better=["x"]).pairs[0]
    assert turned.verdict == VariantVerdict.WORSE


def test_holm_is_holm_and_intervals_agree_with_it() -> None:
    """Against the procedure step by step; an interval has 0 outside exactly where its hypothesis falls."""
    draw = np.random.default_rng(5)
    for _ in range(200):
        p = draw.uniform(0, 1, 6) ** 4
        corrected, levels = holm(p)
        fallen = np.zeros(6, bool)
        for step, number in enumerate(np.argsort(p)):
            if p[number] > 0.05 / (6 - step):
                break
            fallen[number] = True
        assert ((corrected <= 0.05) == fallen).all() and ((p <= levels) == fallen).all()
    equal = [pair for _ in range(30) for pair in simulated(draw, {"a": (0, 0), "b": (0.01, 0.01)}).pairs]
    assert all((pair.low <= 0 <= pair.high) == (pair.p_value > 0.05) for pair in equal)


def test_the_number_of_seeds_is_that_which_simulation_needs() -> None:
    """With as many seeds 80% of 4,000 simulated tests see the difference, with one less fewer; SciPy's t decides."""
    count = seeds_needed(0.8, 1.0)
    assert count == 15  # the textbook's number for an effect of .8, two-sided .05
    draw = np.random.default_rng(1)
    seen = stats.ttest_1samp(draw.normal(0.8, 1, (4000, count)), 0, axis=1).pvalue < 0.05
    assert seen.mean() == pytest.approx(power_of(count, 0.8, 1.0), abs=0.02)
    assert power_of(count - 1, 0.8, 1.0) < 0.8 <= power_of(count, 0.8, 1.0)
    assert (seeds_needed(0, 1.0), seeds_needed(1e-6, 1.0), seeds_needed(1.0, 0.0)) == (None, None, 2)
    assert seeds_needed(100.0, 1.0, level=1e-6) is not None


def test_runs_that_came_to_nothing_are_named_and_the_rest_is_compared() -> None:
    """A seed without a number is left out of the pair; a rate at which one variant has none, too."""
    scores = {
        "a": {"x": {s: {1e-3: 1.0 + s, 1e-5: 2.0 + s} for s in range(5)}},
        "b": {"x": {s: {1e-3: 1.5 + s + 0.01 * s, 1e-5: np.nan} for s in range(5)}},
    }
    scores["b"]["x"][2][1e-3] = np.nan
    (pair,) = compare(scores, lower_is_better=["x"]).pairs
    assert (pair.seeds, pair.left_out, list(pair.by_rate)) == ((0, 1, 3, 4), (2,), [1e-3])
    assert pair.verdict == VariantVerdict.BETTER
    same = compare({"a": scores["a"], "b": scores["a"]}, lower_is_better=["x"])
    assert (same.pairs[0].verdict, same.pairs[0].p_value) == (VariantVerdict.NO_DIFFERENCE_SEEN, 1)
    none = compare({"a": scores["a"], "b": {"x": {}}}, lower_is_better=["x"])
    assert none.pairs[0].verdict == VariantVerdict.NO_DIFFERENCE_SEEN and none.sets[0].tells_nothing
    with pytest.raises(InputError, match="did you mean 'x'"):
        compare(scores, lower_is_better=["xx"])
    with pytest.raises(InputError, match="not of the same sets, such as x"):
        compare({"a": scores["a"], "b": {"y": {}}}, lower_is_better=[])


def test_a_set_that_is_all_noise_tells_nothing() -> None:
    """Noise is what is left without the level of seed and variant; a set with a spread above it is not marked."""
    draw = np.random.default_rng(2)
    noise = draw.normal(0, 0.1, (3, 5)) * 1
    tables = {"noise": noise - noise.mean(axis=1, keepdims=True), "signal": noise / 100 + np.array([[0], [1], [2]])}
    scores = {
        variant: {name: {s: {1e-3: table[number, s]} for s in range(5)} for name, table in tables.items()}
        for number, variant in enumerate("abc")
    }
    found = {one.evaluation_set: one for one in compare(scores, lower_is_better=[]).sets}
    assert found["noise"].tells_nothing and not found["signal"].tells_nothing
    rest = tables["signal"] - tables["signal"].mean(axis=0) - tables["signal"].mean(axis=1, keepdims=True)
    assert found["signal"].noise == pytest.approx(np.sqrt(((rest + tables["signal"].mean()) ** 2).sum() / 8))


@pytest.mark.nightly
def test_runs_that_read_much_of_their_data_are_no_surer_for_it() -> None:
    """Seeds of equal halves whose data differ for good: without the share far too often, with it at most so often."""
    draw, count, share = np.random.default_rng(4), 400, 1 / 3
    called = {0.0: 0, share: 0}
    for _ in range(count):
        # Means of samples of a third of 300 numbers, of which each half has its own 300.
        halves = {name: draw.normal(size=300) for name in "ab"}
        scores = {
            name: {"set": {seed: {0.1: draw.choice(one, 100, replace=False).mean()} for seed in range(5)}}
            for name, one in halves.items()
        }
        for given in called:
            (pair,) = compare(scores, lower_is_better=["set"], read_share=lambda *_, given=given: given).pairs
            called[given] += pair.verdict is not VariantVerdict.NO_DIFFERENCE_SEEN
    assert called[0.0] > 0.15 * count and called[share] < 0.07 * count
    assert seeds_needed(1.0, 1.0, excess=share / (1 - share)) is None
    assert (seeds_needed(2.2, 1.0, excess=share / (1 - share)) or 0) > (seeds_needed(2.2, 1.0) or 0)

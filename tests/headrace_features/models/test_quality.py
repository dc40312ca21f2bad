"""Quality: a weighted sum that can be computed again from its components."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from headrace_features.models.quality import QualityConfig, check_components, quality_step
from spark_jobs.exceptions import ConfigError
from spark_jobs.filters.policy import signal_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = signal_columns({"model_scores": {"quality_hq": "double", "quality_label": "string"}})


def test_the_sum_is_that_of_its_components(spark: SparkSession) -> None:
    """Ranges cut off, a range may fall, truth counts as 1, and a sum that lacks a component is null."""
    keys = "shard int, doc_id string"
    signals = spark.createDataFrame(
        [(0, "a", "prose", 500, True), (0, "b", "code", 5000, False), (1, "c", "prose", 0, True)],
        f"{keys}, kind string, word_count long, is_short boolean",
    )
    scores = spark.createDataFrame([(0, "a", 0.75), (0, "b", 0.5)], f"{keys}, quality_hq double")
    config = QualityConfig(
        weights={"word_count": 0.5, "model_scores.quality_hq": 2.0, "is_short": -1.0},
        ranges={"word_count": (0, 1000), "model_scores.quality_hq": (1, 0)},
    )
    assert (config.tables, list(config.weights)) == (
        ("model_scores",),
        ["is_short", "model_scores.quality_hq", "word_count"],
    )
    rows = {row.doc_id: row for row in quality_step(config.tables)(signals, config, model_scores=scores).collect()}
    assert {name: row.score for name, row in rows.items()} == {"a": -1 + 2 * 0.25 + 0.25, "b": 2 * 0.5 + 0.5, "c": None}
    assert [tuple(one) for one in rows["c"].components] == [
        ("is_short", 1.0, -1.0),
        ("model_scores.quality_hq", None, 2.0),
        ("word_count", 0.0, 0.5),
    ]
    for row in rows.values():
        if row.score is not None:
            assert row.score == sum(one.value * one.weight for one in row.components)


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({"word_cuont": 1}, r"there is no signal 'word_cuont'; did you mean 'word_count'"),
        ({"model_scores.hq": 1}, r"there is no signal 'model_scores.hq'"),
        ({"model_scores.quality_label": 1}, "model_scores.quality_label is string; only numbers and booleans"),
        ({"documents.byte_count": 1}, "there is no signal 'documents.byte_count'"),
    ],
)
def test_components_that_cannot_be_summed_are_refused(weights: Any, said: str) -> None:
    """With the nearest signal."""
    with pytest.raises(ConfigError, match=said):
        check_components(QualityConfig(weights=weights), COLUMNS)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "at least 1 item"),
        ({"weights": {"a": 1}, "ranges": {"b": (0, 1)}}, "'b' has no weight"),
        ({"weights": {"a": 1}, "ranges": {"a": (1, 1)}}, r"a is \[1.0, 1.0\]; give two numbers"),
    ],
)
def test_a_config_that_weighs_nothing_is_refused(given: Any, said: str) -> None:
    """No weights, a range without a weight, a range of nothing."""
    with pytest.raises(ValidationError, match=said):
        QualityConfig.model_validate(given)

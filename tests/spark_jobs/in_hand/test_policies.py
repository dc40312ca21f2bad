"""Texts in hand by a policy: what the steps of a lake judge, row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from spark_jobs.exceptions import ConfigError, InputError
from spark_jobs.filters.heuristics.heuristics import heuristics
from spark_jobs.filters.verdicts import VerdictsConfig, verdicts_step
from spark_jobs.in_hand.policies import filter_texts
from spark_jobs.text.signals import SignalsConfig, signals
from spark_jobs.text.texts import TextsConfig
from spark_jobs.text.texts import texts as texts_step
from tests.tiers import sampled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS = [
    "A whole sentence stands here, and it ends with a point.\nAnother one follows it, as one would expect of prose.",
    "menu\nhome\nabout\ncontact\n" * 5,
    "The same line again and again.\n" * 12,
    "",
    "e\u0301t\u00e9 \r\n carriage returns and marks that are composed, in a line that is long enough to be one.",
]


@sampled()
@pytest.mark.parametrize("policy", ["fineweb", "gopher", "c4"])
def test_verdicts_are_those_of_the_steps(spark: SparkSession, policy: str) -> None:
    """The tables that a lake computes of the same texts: who goes on, rules, values, bounds."""
    ddl = "dataset string, shard int, doc_id string, kind string, language string, content string"
    rows = [("d", 0, str(number), "prose", None, text) for number, text in enumerate(TEXTS)]
    texts = texts_step(spark.createDataFrame(rows, ddl), TextsConfig()).frames["texts"]
    measured = signals(texts, SignalsConfig())
    scores = {"heuristics": heuristics(texts)}
    config = VerdictsConfig(policy=policy)
    judged = verdicts_step(["heuristics"])(measured, config=config, **scores).toArrow().sort_by("doc_id").to_pylist()
    found = filter_texts(TEXTS, policy=policy)
    assert [int(row["doc_id"]) for row in judged if row["kept"]] == found.row_numbers.tolist()
    expected = [(int(row["doc_id"]), *rule.values()) for row in judged for rule in row["failed"]]
    assert [tuple(row.values()) for row in found.failed.to_pylist()] == expected and expected


def test_no_text_fails_a_rule_of_its_own() -> None:
    """It is told with the others, and the rest is judged."""
    found = filter_texts([TEXTS[0], None, TEXTS[1]])
    assert found.row_numbers.tolist() == [0]
    assert found.failed.filter(pa.compute.equal(found.failed["row"], 1))["rule"].to_pylist() == ["no_text"]
    assert "1 of 3 rows are kept" in repr(found)


def test_a_policy_may_be_rules_in_hand() -> None:
    """As it may be in YAML."""
    rules = {"name": "mine", "rules": [{"rule": "too_short", "signal": "word_count", "below": 3}]}
    assert filter_texts(["two words", "three words now"], policy=rules).rows == ["three words now"]


def test_what_a_text_does_not_tell_is_refused() -> None:
    """Facts of a file, a look at a whole dataset, a name that there is not."""
    stars = {"name": "mine", "rules": [{"rule": "few_stars", "signal": "metadata.stars", "below": 3}]}
    with pytest.raises(ConfigError, match=r"it reads metadata\.stars"):
        filter_texts(["a"], policy=stars)
    with pytest.raises(ConfigError, match="fineweb"):
        filter_texts(["a"], policy="finewebb")
    with pytest.raises(InputError, match="there is no kind 'cod'"):
        filter_texts(["a"], kind="cod")

"""The sample of a judge: spread over the dataset, a function of its rows and the seed, with weights that lead back."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from headrace_features.synthetic.labels.agreement import weighted_kappa
from headrace_features.synthetic.labels.rubric import JudgeConfig, templates_of
from headrace_features.synthetic.labels.sampled import sampled
from headrace_features.synthetic.labels.strata import REST, allocate
from headrace_features.synthetic.requests import Parent, request_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@given(st.dictionaries(st.text("abc", max_size=4), st.integers(1, 500), min_size=1), st.integers(1, 600))
def test_shares_of_strata_add_up(counts: dict[str, int], sample: int) -> None:
    """Each stratum has at least one and at most all of its documents; small ones are sampled together, none is lost."""
    found = allocate(counts, sample)
    strata = set(found.values())
    assert sum(one.sampled for one in strata) == min(sample, sum(counts.values()))
    assert sum(one.count for one in strata) == sum(counts.values())
    assert all(1 <= one.sampled <= one.count for one in strata) and found.keys() == counts.keys()
    assert all((one.name == REST) == (counts[own] * sample < sum(counts.values())) for own, one in found.items())


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2))
def test_kappa_is_that_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    """With quadratic weights; null where all scores are one."""
    first, second = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    found = weighted_kappa(first, second)
    if len({*first.tolist(), *second.tolist()}) == 1:
        assert found is None
    else:
        reference = cohen_kappa_score(first, second, weights="quadratic", labels=list(range(6)))
        assert found == pytest.approx(reference, abs=1e-9)


def _dataset(count: int) -> list[dict[str, Any]]:
    """Documents of a common and a rare language; the rare and the long ones have more of what is measured."""
    drawn = random.Random(1)
    rows = []
    for number in range(count):
        language = drawn.choices(["en", "de", None], [0.9, 0.07, 0.03])[0]
        words = drawn.choice([20, 20, 20, 400])
        hits = drawn.randint(0, 2) + 2 * (language == "de") + 2 * (words > 20)
        text = " ".join(["hit"] * hits + ["other"] * words) if number else " \n"
        rows.append({"shard": number % 3, "doc_id": f"{number:032x}", "language": language, "content": text})
    return rows


def _judge(**more: Any) -> JudgeConfig:
    endpoint = {"url": "http://x/v1", "model": "m", "reads_characters": 300}
    return JudgeConfig.model_validate({"rubric": "Count hits.", "endpoint": endpoint, "sample": 400, **more})


def _sampled(spark: SparkSession, rows: list[dict[str, Any]], judge: JudgeConfig) -> dict[str, Any]:
    texts = spark.createDataFrame(
        [(one["shard"], one["doc_id"], "prose", one["language"], one["content"]) for one in rows],
        "shard int, doc_id string, kind string, language string, content string",
    )
    signals = texts.selectExpr("shard", "doc_id", "kind", "cast(char_length(content) as bigint) as character_count")
    return {row.doc_id: row for row in sampled(texts, signals, judge).collect()}


def test_a_weighted_mean_of_the_sample_is_that_of_the_dataset(spark: SparkSession) -> None:
    """The sample is uneven on purpose; its weights add up to the dataset, and undo that."""
    rows, judge = _dataset(4000), _judge()
    hits = {one["doc_id"]: one["content"].count("hit") for one in rows}
    found = _sampled(spark, rows, judge)
    assert len(found) == 400 and sum(one.weight for one in found.values()) == pytest.approx(4000)
    truth = sum(hits.values()) / 4000
    plain = sum(hits[doc_id] for doc_id in found) / 400
    weighted = sum(hits[doc_id] * one.weight for doc_id, one in found.items()) / 4000
    assert abs(weighted - truth) < 0.12 and abs(plain - truth) > 3 * abs(weighted - truth) and plain - truth > 0.3
    strata = Counter(one.stratum for one in found.values())
    assert strata["de, 1000 to 4000"] >= 10 and strata.keys() >= {"en, 0 to 250", "no language, 0 to 250"}
    mixed = random.Random(2).sample(rows, len(rows))
    assert _sampled(spark, mixed, judge) == found and _sampled(spark, rows, _judge(seed=1)).keys() != found.keys()


def test_a_sample_is_spread_over_clusters_and_languages_of_a_scorer(spark: SparkSession) -> None:
    """What is in no cluster is a stratum too, and so is what has no language; the text's own language is not asked."""
    texts = spark.createDataFrame(
        [(0, f"{n:032x}", "prose" if n % 2 else "code", "own", "a text") for n in range(40)],
        "shard int, doc_id string, kind string, language string, content string",
    )
    signals = texts.selectExpr("shard", "doc_id", "kind", "cast(6 as bigint) as character_count")
    languages = texts.selectExpr("doc_id", "if(kind = 'prose', 'de', null) as language")
    clusters = texts.where("kind = 'prose'").selectExpr("doc_id", "cast(7 as int) as coarse")
    judge = _judge(sample=20, spread_by=["cluster", "kind", "language"], clusters_of="main")
    found = sampled(texts, signals, judge, languages, clusters).collect()
    counts = Counter((row.stratum, row.stratum_count, row.weight) for row in found)
    assert counts == {("cluster 7, prose, de", 20, 2.0): 10, ("no cluster, code, no language", 20, 2.0): 10}


def test_a_dataset_without_documents_has_an_empty_sample(spark: SparkSession) -> None:
    """And no error."""
    assert _sampled(spark, [], _judge()) == {}


def test_a_row_has_what_the_judge_reads_and_the_keys_of_its_requests(spark: SparkSession) -> None:
    """Cut at the start to what the model reads; white space is asked about by nobody; 5% have two keys."""
    rows, judge = _dataset(60), _judge(sample=100, repeat=0.05)
    found = _sampled(spark, rows, judge)
    assert len(found) == 60 and {one.weight for one in found.values()} == {1.0}
    template, again = templates_of(judge)
    for one in rows:
        row, part = found[one["doc_id"]], one["content"][:300]
        assert (row.content, row.characters_read, row.character_count) == (part, len(part), len(one["content"]))
        asked = Parent("any", "any", part, 0, 0)
        first, second = (request_of(asked, shape, judge.endpoint, n).key for n, shape in enumerate((template, again)))
        assert row.key == (first if part.strip() else None) and row.second_key in (None, second)
    assert found[rows[0]["doc_id"]].key is None and sum(row.second_key is not None for row in found.values()) == 3

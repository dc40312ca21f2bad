"""Answers of a judge: asked for once, landed once, and read as scores or reasons, whatever the endpoint does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog import Catalog

from headrace.tables.catalogue import load_table
from headrace.tables.settings import settings_at
from headrace_features.synthetic.attempts import AnswerStore
from headrace_features.synthetic.families import descendants
from headrace_features.synthetic.generated_config import BEGIN_TEXT, END_TEXT
from headrace_features.synthetic.labels.agreement import agreement
from headrace_features.synthetic.labels.answers import ask_judge, forget_labels, lacks_answers, store_name
from headrace_features.synthetic.labels.judged import judged
from headrace_features.synthetic.labels.rubric import JudgeConfig, templates_of
from headrace_features.synthetic.labels.sampled import sampled
from headrace_features.synthetic.requests import Parent, request_of
from headrace_features.synthetic.stand_in import StandIn
from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.step import renamed
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.inspect.test_lake_status import put
from tests.headrace_features.synthetic.misbehaving import Misbehaving
from tests.headrace_features.synthetic.test_generated import served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAYS = {"fine": "Score: 2", "wild": "Score: 9", "chat": "What a text!", "mute": "", "twin": "3"}
TEXTS = {**{name: name for name in SAYS}, "other_twin": "twin", "blank": " \n"}


def says(prompt: str) -> str:
    """The answer that the text of a prompt is meant to get."""
    return SAYS.get(prompt.partition(BEGIN_TEXT)[2].rpartition(END_TEXT)[0], "Score: 1")


def judge_of(url: str, **more: Any) -> JudgeConfig:
    """A judge of an endpoint."""
    asking = {"at_once": 4, "backoff_seconds": 0.05, "answer_seconds": 5, "silence_seconds": 5, "attempts": 2}
    endpoint = {"url": url, "model": "m", "answer_tokens": 20}
    return JudgeConfig.model_validate({"rubric": "Count.", "endpoint": endpoint, "asking": asking, **more})


def put_sample(catalogue: Catalog, judge: JudgeConfig, texts: dict[str, str], twice: tuple[str, ...] = ()) -> None:
    """The table `notes.sampled_worth`, as the step would make it."""
    first, again = templates_of(judge)
    rows = []
    for doc_id, text in texts.items():
        part = Parent("", "", text, 0, 0)
        key = request_of(part, first, judge.endpoint).key if text.strip() else None
        second = request_of(part, again, judge.endpoint, 1).key if doc_id in twice else None
        rows.append({"doc_id": doc_id, "content": text, "key": key, "second_key": second, "weight": 2.0})
    if load_table(catalogue, "notes.sampled_worth") is not None:
        catalogue.drop_table("notes.sampled_worth")
    put(catalogue, "notes", renamed(sampled, "sampled_worth").table, 0, rows)


def read(spark: SparkSession, catalogue: Catalog, judge: JudgeConfig) -> dict[str, Any]:
    """The rows of the step `judged` by document, and its row of `agreement` under an empty name."""
    sample, answers = (
        spark.createDataFrame(catalogue.load_table(f"notes.{name}_worth").scan().to_arrow())
        for name in ("sampled", "answers")
    )
    rows = judged(sample, answers, judge)
    (compared,) = agreement(rows).collect()
    return {**{row.doc_id: row for row in rows.collect()}, "": compared}


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalog:
    """Of an empty lake."""
    return open_catalogue(settings_at(tmp_path))


def test_every_sampled_document_has_a_score_or_a_reason(spark: SparkSession, catalogue: Catalog) -> None:
    """Equal texts are one request; what the judge says that is no score stays a row, in its words."""
    stand_in = StandIn(judge=says)
    with served(stand_in) as url:
        judge = judge_of(url)
        put_sample(catalogue, judge, TEXTS, twice=("fine", "twin", "chat"))
        assert lacks_answers("notes", "worth", catalogue)
        ask_judge("notes", "worth", judge, catalogue, 1)
        assert len(stand_in.bodies) == 5 + 3 and not lacks_answers("notes", "worth", catalogue)
        ask_judge("notes", "worth", judge, catalogue, 1)
        assert len(stand_in.bodies) == 8, "a key that was answered is never asked again"
    found = read(spark, catalogue, judge)
    assert {name: (row.score, row.reason) for name, row in found.items() if name} == {
        "fine": (2, None),
        "wild": (None, "outside_rubric"),
        "chat": (None, "no_score"),
        "mute": (None, "empty"),
        "twin": (3, None),
        "other_twin": (3, None),
        "blank": (None, "no_text"),
    }
    assert found["chat"].answer == "What a text!" and found["chat"].second_reason == "no_score"
    assert [found[name].second_score for name in ("fine", "twin", "wild")] == [2, 3, None]
    compared = found[""]
    assert (compared.sampled_count, compared.scored_count, compared.twice_count) == (7, 3, 2)
    assert compared.reasons == "empty 1, no_score 1, no_text 1, outside_rubric 1"
    assert (compared.mean_score, compared.same_share, compared.weighted_kappa) == (pytest.approx(8 / 3), 1.0, 1.0)


@pytest.mark.nightly
def test_a_run_that_stops_goes_on_and_lands_each_answer_once(spark: SparkSession, catalogue: Catalog) -> None:
    """What a budget left is not asked yet; a kill before or after landing loses nothing; a new rubric asks anew."""
    texts = {f"doc{number}": f"text {number}" for number in range(30)}
    stand_in = StandIn(judge=says)
    with served(stand_in) as url:
        poor, rich = judge_of(url, budget={"tokens": 900}), judge_of(url)
        put_sample(catalogue, poor, texts)
        ask_judge("notes", "worth", poor, catalogue, 1)
        done = len(stand_in.bodies)
        scored = [row.reason for name, row in read(spark, catalogue, poor).items() if name]
        assert 0 < done < 30 and scored.count(None) == done and scored.count("not_asked") == 30 - done
        landed = catalogue.load_table("notes.answers_worth")
        landed.append(landed.scan().to_arrow())  # as a kill between landing and noting it leaves it
        ask_judge("notes", "worth", rich, catalogue, 1)
        assert len(stand_in.bodies) == 30
        found = read(spark, catalogue, rich)
        assert found[""].scored_count == 30 == len(found) - 1
        other = judge_of(url, rubric="Count again.")
        put_sample(catalogue, other, texts)
        assert lacks_answers("notes", "worth", catalogue)
        assert {row.reason for name, row in read(spark, catalogue, other).items() if name} == {"not_asked"}
        ask_judge("notes", "worth", other, catalogue, 1)
        assert len(stand_in.bodies) == 60
    with pytest.raises(InputError, match=r"no answer came: no answer succeeded for 0.2 s"):
        dead = judge_of("http://127.0.0.1:9/v1", asking={"silence_seconds": 0.2, "backoff_seconds": 0.05})
        put(
            catalogue, "notes", renamed(sampled, "sampled_dead").table, 0, [{"doc_id": "a", "content": "a", "key": "a"}]
        )
        ask_judge("notes", "dead", dead, catalogue, 1)


def test_a_request_that_failed_is_open_again(spark: SparkSession, catalogue: Catalog) -> None:
    """No answer is no fact: the row says that it failed until one comes."""
    stand_in = Misbehaving({"unavailable": 1.0}, judge=says)
    with served(stand_in) as url:
        judge = judge_of(url)
        put_sample(catalogue, judge, {"a": "fine", "b": "chat"})
        with pytest.raises(InputError, match="no answer came: every request failed"):
            ask_judge("notes", "worth", judge, catalogue, 1)
        assert {row.reason for name, row in read(spark, catalogue, judge).items() if name} == {"failed"}
        assert lacks_answers("notes", "worth", catalogue)
        stand_in.faults.clear()
        ask_judge("notes", "worth", judge, catalogue, 1)
    found = read(spark, catalogue, judge)
    assert (found["a"].score, found["b"].reason, len(found)) == (2, "no_score", 3)
    assert not lacks_answers("notes", "worth", catalogue)


def test_what_was_said_about_a_document_goes_with_it(catalogue: Catalog) -> None:
    """Its answers and the tables with its text; other documents stay answered; a judge's answer is no descendant."""
    with served(StandIn(judge=says)) as url:
        judge = judge_of(url)
        put_sample(catalogue, judge, {"gone": "one", "stays": "two"}, twice=("gone",))
        ask_judge("notes", "worth", judge, catalogue, 1)
    assert descendants(catalogue, {"gone", "stays"}) == set()
    assert list(forget_labels(catalogue, {"nobody"}, 1)) == []
    (line,) = forget_labels(catalogue, {"gone", "nobody"}, 1)
    assert line.startswith("notes.answers_worth: what was said about 1 of them is out")
    assert len(catalogue.load_table("notes.answers_worth").metadata.snapshots) == 1, "no earlier state has its answers"
    assert catalogue.load_table("notes.answers_worth").scan().to_arrow()["doc_id"].to_pylist() == ["stays"]
    assert load_table(catalogue, "notes.sampled_worth") is None
    store = AnswerStore(catalogue, store_name("notes", "worth"))
    assert sum(store.outcomes().values()) == 1
    AnswerStore(catalogue, "note_").forget()  # of another dataset, whose name is no pattern
    assert sum(store.outcomes().values()) == 1
    AnswerStore(catalogue, "notes").forget()
    assert store.outcomes() == {} and store.spent() == (0, 0, 0)


def test_of_several_answers_of_a_key_the_same_is_taken_in_any_order(spark: SparkSession, catalogue: Catalog) -> None:
    """One that came before one that failed, else the least: which is read first decides nothing."""
    judge = judge_of("http://127.0.0.1:1")
    put_sample(catalogue, judge, TEXTS)
    sample = spark.createDataFrame(catalogue.load_table("notes.sampled_worth").scan().to_arrow())
    keys = sorted({row.key for row in sample.collect() if row.key})
    answers = [
        {"key": key, "reason": reason, "text": text, "detail": detail, "model": "m"}
        for key in keys
        for reason, text, detail in (("failed", "", "b"), ("failed", "", "a"), ("", "2", ""), ("", "1", ""))[
            : 4 if key == keys[0] else 2
        ]
    ]
    taken = [
        {
            row.doc_id: (row.score, row.answer, row.detail)
            for row in judged(sample, spark.createDataFrame(rows).coalesce(1), judge).collect()
        }
        for rows in (answers, answers[::-1])
    ]
    assert taken[0] == taken[1]
    assert {found for found in taken[0].values() if found[0] is not None or found[2]} == {(1, "1", ""), (None, "", "a")}

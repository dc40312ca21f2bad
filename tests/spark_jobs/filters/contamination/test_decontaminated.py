"""What goes on of survivors when benchmarks stand in the registry, and what the registry's present state is called."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.tables.settings import settings_at
from spark_jobs.exceptions import InputError
from spark_jobs.filters.contamination.decontaminated import (
    DecontaminatedConfig,
    PresentEvals,
    decontaminated,
    present_evals,
    retire,
)
from spark_jobs.filters.contamination.eval_set import EvalText, encode, item_id
from spark_jobs.lake.run.registry import record
from spark_jobs.lake.session.catalogue import open_catalogue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUESTION = "How many mills stand along the river if every one of the nine weirs turns two wheels and the last has none"
PARTLY = " ".join(QUESTION.split()[:14])
TEXTS = {
    "whole": f"They asked us. {QUESTION}? Nobody knew.",
    "shouted": f"> {QUESTION.upper()}!",
    "partly": f"{PARTLY} in this town, he said, and went on to speak of something else for a while.",
    "clean": "Nothing of the kind stands here, whatever the question was.",
    "empty": "",
}


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lake whose registry holds a question in two versions, and another one."""
    settings = settings_at(tmp_path)
    for name, value in settings.properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    catalogue = open_catalogue(settings)
    assert present_evals(catalogue) == PresentEvals()
    for name, version, text in (("quiz", "1", "An older question"), ("quiz", "2", QUESTION), ("other", "1", QUESTION)):
        record(catalogue, "eval_set", name, version, encode([EvalText(item_id(text), "q", text)]))
    return tmp_path


def test_the_newest_of_every_eval_set_is_searched_for(lake: Path) -> None:
    """Its digest changes with what a label stands for, not with the order of entries."""
    found = present_evals(open_catalogue(settings_at(lake)))
    assert found.labels == ("other@1", "quiz@2") and len(found.digest) == 64


def test_an_eval_set_that_is_retired_is_searched_for_no_more(lake: Path) -> None:
    """A new version brings it back; what is none is named."""
    catalogue = open_catalogue(settings_at(lake))
    retire(catalogue, "quiz")
    assert present_evals(catalogue).labels == ("other@1",)
    with pytest.raises(InputError, match=r"eval set quiz: is not searched for .there are other"):
        retire(catalogue, "quiz")
    record(catalogue, "eval_set", "quiz", "3", encode([EvalText(item_id(QUESTION), "q", QUESTION)]))
    assert present_evals(catalogue).labels == ("other@1", "quiz@3")
    with pytest.raises(InputError, match="eval_set Bad name@1: write a name of a-z"):
        record(catalogue, "eval_set", "Bad name", "1", b"")


def test_documents_that_hold_items_are_left_out(lake: Path, spark: SparkSession) -> None:
    """All with a finding by default; with `min_share` only those that hold so much of an item."""
    rows = [("notes", 0, doc_id, text) for doc_id, text in TEXTS.items()]
    texts = spark.createDataFrame(rows, "dataset string, shard int, doc_id string, content string")
    survivors = texts.where("doc_id <> 'shouted'").select("dataset", "shard", "doc_id")
    for min_share, kept in ((0.0, {"clean", "empty"}), (0.9, {"clean", "empty", "partly"})):
        made = decontaminated.function(survivors, texts, DecontaminatedConfig(evals=("quiz@2",), min_share=min_share))
        held = {row["doc_id"]: row for row in made.frames["contaminated"].collect()}
        assert {row["doc_id"] for row in made.frames["decontaminated"].collect()} == kept
        assert held.keys() == {"whole", "partly"} and held["whole"]["max_share"] == 1.0
        assert {doc_id for doc_id, row in held.items() if row["removed"]} == held.keys() - kept
        (finding,) = held["whole"]["findings"]
        start, end = finding["start"], finding["end"]
        assert TEXTS["whole"].encode()[start:end].decode() == QUESTION
        for frame in made.persisted:
            frame.unpersist()
    with pytest.raises(InputError, match="eval set quiz@3 is not in the registry; did you mean 'quiz@2'"):
        decontaminated.function(survivors, texts, DecontaminatedConfig(evals=("quiz@3",)))

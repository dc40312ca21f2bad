"""Labels of a judge: from a sample to a policy that the learned classifier decides, whatever the endpoint does."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from blender_service.auth.visibility import Visibility
from dagster_project.assets.datasets import DatasetDeclaration, dataset_assets
from dagster_project.exceptions import DefinitionError
from headrace.tables.catalogue import load_table
from headrace.tables.settings import settings_at
from headrace_features.models.assets import ModelDeclaration, model_assets
from headrace_features.models.registered import ModelFacts
from headrace_features.synthetic.labels.answers import forget_labels
from headrace_features.synthetic.stand_in import StandIn, counting_judge
from spark_jobs.lake.plan.excisions import record_excisions
from spark_jobs.lake.run.registry import entries
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.project import Project, failures, lake_settings
from tests.headrace_features.synthetic.test_generated import served

pytest.importorskip("sklearn", reason="scikit-learn is in the extra filters")
MATTER = ("because", "therefore", "hence", "proof", "example")
OTHERS = [
    "the",
    "mill",
    "stood",
    "at",
    "river",
    "stone",
    "and",
    "its",
    "wheel",
    "turned",
    "slowly",
    "while",
    "rain",
    "fell",
    "over",
    "old",
    "roofs",
    "of",
    "town",
]
TABLES = [f"notes.{name}" for name in ("documents", "arrivals", "repositories", "provenance", "texts", "signals")]
LABELS = ["notes.sampled_worth", "notes.judged_worth", "notes.agreement_worth"]


def truth(text: str) -> int:
    """What the judge counts."""
    return min(5, sum(word in MATTER for word in text.split()))


def write(root: Path, count: int) -> dict[str, str]:
    """Texts of two lengths in two languages, of which one is rare; long ones hold more of the words that matter."""
    drawn, texts = random.Random(3), dict[str, str]()
    lines = []
    for number in range(count):
        is_long = drawn.random() < 0.2
        words = drawn.choices(OTHERS, k=120 if is_long else 20)
        words += drawn.choices(MATTER, k=drawn.choice([0, 3, 4, 5] if is_long else [0, 0, 0, 1, 3]))
        drawn.shuffle(words)
        texts[f"t{number}"] = f"{number} {' '.join(words)}"
        language = "de" if drawn.random() < 0.1 else "en"
        lines.append(json.dumps({"id": f"t{number}", "body": texts[f"t{number}"], "tongue": language}))
    (root / "files").mkdir(parents=True, exist_ok=True)
    (root / "files" / "a.jsonl").write_text("\n".join(lines))
    return texts


def notes(root: Path, url: str, *, judge: dict[str, Any] | None = None, **more: Any) -> list[Any]:
    """The assets of a dataset that has a judge."""
    source = {"kind": "files", "path": str(root / "files"), "text_column": "body", "id_column": "id"}
    asking = {"backoff_seconds": 0.05, "answer_seconds": 5, "silence_seconds": 20}
    worth = {"rubric": "Count what argues.", "endpoint": {"url": url, "model": "m"}, "asking": asking, **(judge or {})}
    declared = DatasetDeclaration(
        "notes", {**source, "language_column": "tongue"}, judged={"worth": worth}, allow_empty=True, **more
    )
    with lake_settings(root):
        return dataset_assets(declared)


@pytest.mark.nightly
def test_a_policy_judges_by_a_classifier_that_learned_from_a_judge(tmp_path: Path) -> None:
    """A sample is scored, weights lead back to the dataset, a model learns, and a rule keeps what the judge would."""
    texts = write(tmp_path, 900)
    with served(StandIn(judge=counting_judge(MATTER))) as url:
        judge = {"sample": 500, "repeat": 0.1}
        model = model_assets(
            ModelDeclaration("worth", {"table": "notes.judged_worth", "label_column": "score", "high_from": 3})
        )
        project = Project(tmp_path, *notes(tmp_path, url, judge=judge), *model)
        result = project.run(*TABLES, *LABELS, "worth.classifier", "worth.evaluation")
        assert result.success, failures(result)
    rows = project.rows("notes.judged_worth", "score", "reason", "weight", "content", "second_score", "stratum")
    assert len(rows) == 500 and all(score == truth(text) for score, _, _, text, *_ in rows)
    assert sum(weight for _, _, weight, *_ in rows) == pytest.approx(900)
    real = sum(map(truth, texts.values())) / 900
    ((sampled, scored, mean, twice, same, share, kappa),) = project.rows(
        "notes.agreement_worth",
        *("sampled_count", "scored_count", "mean_score", "twice_count", "same_count", "same_share", "weighted_kappa"),
    )
    assert (sampled, scored, twice, same, share, kappa) == (500, 500, 50, 50, 1.0, 1.0)
    assert abs(mean - real) < 0.08 < sum(score for score, *_ in rows) / 500 - real, "weights undo the uneven sample"
    catalogue = open_catalogue(settings_at(tmp_path))
    (entry,) = entries(catalogue, "model", "worth")
    facts = ModelFacts.of(entry)
    assert facts.labels == ("high", "low") and facts.accuracy is not None and facts.accuracy > 0.85
    rules = {"rules": [{"rule": "not_worth", "signal": "model_scores.worth_high", "below": 0.5}]}
    scorers = {"model_scores": {"models": {entry.label: ["high"]}}}
    again = project.changed(*notes(tmp_path, "http://127.0.0.1:9/v1", judge=judge, scorers=scorers, policy=rules))
    result = again.run("notes.model_scores", "notes.verdicts")
    assert result.success, failures(result)
    kept = dict(again.rows("notes.verdicts", "doc_id", "kept"))
    content = dict(again.rows("notes.texts", "doc_id", "content"))
    right = sum(kept[doc_id] == (truth(text) >= 3) for doc_id, text in content.items())
    assert right > 0.9 * len(kept) == 810


@pytest.mark.nightly
def test_a_sample_follows_its_dataset(tmp_path: Path) -> None:
    """What is new is asked about, and nothing again; an excised document is in no table of the judge, nor asked about.

    An endpoint that is gone fails nothing where all is answered.
    """
    write(tmp_path, 40)
    stand_in = StandIn(judge=counting_judge(MATTER))
    with served(stand_in) as url:
        judge = {"sample": 30, "repeat": 0, "spread_by": ["length"]}
        project = Project(tmp_path, *notes(tmp_path, url, judge=judge))
        assert project.run(*TABLES, *LABELS).success
        assert len(stand_in.bodies) == 30 == len(project.rows("notes.answers_worth", "key"))
        assert project.facts("notes.judged_worth")["dagster/row_count"] == 30
        write(tmp_path, 60)
        result = project.run(*TABLES, *LABELS)
        assert result.success, failures(result)
        asked = len(stand_in.bodies)
        assert 30 < asked < 55 and all(reason is None for (reason,) in project.rows("notes.judged_worth", "reason"))
        assert sum(weight for (weight,) in project.rows("notes.judged_worth", "weight")) == pytest.approx(60)
    gone = project.rows("notes.judged_worth", "doc_id")[0][0]
    catalogue = open_catalogue(settings_at(tmp_path))
    record_excisions(catalogue, None, {gone}, "by hand")
    assert len(list(forget_labels(catalogue, {gone}, 5))) == 1
    assert load_table(catalogue, "notes.judged_worth") is None
    with served(stand_in) as url:
        again = project.changed(*notes(tmp_path, url, judge=judge))
        result = again.run(*LABELS)
        assert result.success, failures(result)
        assert gone not in {doc_id for (doc_id,) in again.rows("notes.sampled_worth", "doc_id")}
        assert len(again.rows("notes.judged_worth", "doc_id")) == 30 and len(stand_in.bodies) == asked + 1
    result = again.run(*LABELS)
    assert result.success, failures(result)


def test_a_judge_that_cannot_be_is_refused_when_definitions_load(tmp_path: Path) -> None:
    """A name for no table, a value, texts that stay on the device."""
    for more, said in (
        ({"judged": {"Worth": {}}}, "judged: 'Worth' cannot be part of a table's name"),
        ({"judged": {"worth": {"rubric": "x"}}}, "dataset notes: judged: worth: config endpoint is missing"),
        ({"visibility": Visibility("on_device")}, "is on the network, and notes is on_device"),
    ):
        endpoint = {"url": "http://judge.example/v1", "model": "m"}
        declared: dict[str, Any] = {"judged": {"worth": {"rubric": "x", "endpoint": endpoint}}, **more}
        with pytest.raises(DefinitionError) as caught, lake_settings(tmp_path):
            dataset_assets(DatasetDeclaration("notes", {"kind": "files", "path": "/none"}, **declared))
        assert said in str(caught.value)

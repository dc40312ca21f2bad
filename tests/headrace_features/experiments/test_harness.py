"""Tasks of lm-evaluation-harness: the same questions as `questions`, scored the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is an extra")
pytest.importorskip("lm_eval", reason="lm-evaluation-harness is an extra")

from dagster_project.exceptions import CommandError
from headrace_features.experiments.declaration import Harness
from headrace_features.experiments.evaluation import ChoiceQuestion, score_items
from headrace_features.experiments.harness import harness_digest, harness_scores
from headrace_features.models.network import Network
from headrace_features.models.network_shape import ModelShape

NETWORK = Network(ModelShape(16, 2, 2, 2000), vocabulary_size=256, window_tokens=60).eval()
QUESTIONS = [
    {"question": "The cat", "choices": ["sat", "flew away"], "answer": 1},
    {"question": "A dog", "choices": ["ran", "x"], "answer": 0},
    {"question": "Über", "choices": ["größe", "klein"], "answer": 0},
]
CHOICES = """
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
doc_to_choice: "{{choices}}"
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""
WRITTEN = """
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{choices[0]}}"
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""


def encode(text: str) -> list[int]:
    """Bytes."""
    return list(text.encode())


def given(folder: Path, *names: str) -> dict[str, Any]:
    """A declaration as the process is given it."""
    return Harness(tasks=names, folder=folder).model_dump(mode="json")


@pytest.mark.nightly
def test_a_task_is_scored_as_the_same_questions_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Log-probability per byte and accuracy with its chance; what writes is refused, what is not known is named."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(one) + "\n" for one in QUESTIONS), "utf-8")
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    for name, file, text in (
        ("animals", "questions", CHOICES),
        ("written", "questions", WRITTEN),
        ("lost", "none", CHOICES),
    ):
        data = (
            f"dataset_path: json\ndataset_kwargs: {{data_files: {{test: {tmp_path}/{file}.jsonl}}}}\ntest_split: test"
        )
        (tasks / f"{name}.yaml").write_text(f"task: {name}\n{data}\n{text}")
    found = {one["measure"]: one for one in harness_scores(given(tasks, "animals"), NETWORK, encode)}
    items = [
        ChoiceQuestion(str(one["question"]), tuple(f" {choice}" for choice in one["choices"]), int(str(one["answer"])))  # type: ignore[attr-defined]
        for one in QUESTIONS
    ]
    expected = score_items(NETWORK, items, encode)
    assert found["nats_per_byte"]["value"] == pytest.approx(float(expected.nats_per_byte.mean()), rel=1e-5)
    assert {one["set"] for one in found.values()} == {"animals"} and found["acc"]["chance"] == 0.5
    likeliest = [
        max(
            range(2),
            key=lambda at: score_items(
                NETWORK, [ChoiceQuestion(item.context, (item.choices[at],))], encode
            ).log_probabilities[0],
        )
        for item in items
    ]
    assert found["acc"]["value"] == pytest.approx(
        np.mean([a == item.right for a, item in zip(likeliest, items, strict=True)])
    )
    with pytest.raises(CommandError, match="written: it asks for written text"):
        list(harness_scores(given(tasks, "written"), NETWORK, encode))
    with pytest.raises(CommandError, match=r"harness, tasks lost: .*none.jsonl"):
        list(harness_scores(given(tasks, "lost"), NETWORK, encode))


def test_scores_are_known_by_tasks_and_their_files(tmp_path: Path) -> None:
    """An edited task is another score."""
    declared = Harness(tasks=("animals",), folder=tmp_path)
    (tmp_path / "animals.yaml").write_text(CHOICES)
    before = harness_digest(declared)
    assert before == harness_digest(declared) != harness_digest(declared.model_copy(update={"limit": 2}))
    (tmp_path / "animals.yaml").write_text(CHOICES + "\n")
    assert harness_digest(declared) != before

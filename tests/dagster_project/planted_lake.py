"""A lake with planted duplicates: two datasets, one corpus of two increments, made by the project's own assets.

notes    records of `a.jsonl`, then of `b.jsonl` in a second increment:
         alone-*     share nothing with any other
         base        of 100 words; twin has its bytes, shout its letters; near-N has N of the words replaced
         windows     has Windows line ends; short has too few words
         late        of the second increment, like base
manual   a file `page.md` that changed before the corpus first looked, and `guide.md`, like base
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest

from dagster_project.assets.corpora import CorpusDeclaration, corpus_assets
from dagster_project.assets.datasets import DatasetDeclaration, dataset_assets
from dagster_project.cli.run.step_lines import failure_text
from dagster_project.definitions import build
from dagster_project.resources import LakeResource
from headrace.tables.settings import settings_at

WORDS = [
    f"{first}{second}{third}"
    for first in ("mil", "wat", "sto", "gra", "flo", "dam")
    for second in "aeiou"
    for third in ("ra", "ter", "nel", "sluice", "wheel", "shaft", "gear", "race", "pond", "lock")
]
EDITS = (2, 4, 8, 12, 16)
ALONE = 12


@dataclass(frozen=True)
class PlantedLake:
    """Where the lake is, and what was planted.

    Attributes:
        root: folder of the lake.
        environment: PyIceberg's settings of it.
        texts: text by record id or file name.
    """

    root: Path
    environment: dict[str, str]
    texts: dict[str, str]


def make(root: Path) -> PlantedLake:
    """Write the files and run the project three times: the manual, the first increment, the second."""
    source, lake = root / "source", root / "lake"
    for folder in (source / "notes", source / "manual", lake):
        folder.mkdir(parents=True)
    environment = {f"PYICEBERG_CATALOG__LAKE__{k.upper()}": v for k, v in settings_at(lake).properties.items()}
    texts = planted_texts()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        (source / "manual" / "page.md").write_text(draw(900, 90))
        (source / "manual" / "guide.md").write_text(texts["guide.md"])
        (source / "notes" / "a.jsonl").write_text(
            "".join(_record(name, text) for name, text in texts.items() if name not in ("late", "guide.md", "page.md"))
        )
        with dg.DagsterInstance.ephemeral() as instance:
            _run(source, instance, "manual")
            (source / "manual" / "page.md").write_text(texts["page.md"])
            _run(source, instance, "manual", "notes", "small")
            (source / "notes" / "b.jsonl").write_text(_record("late", texts["late"]))
            _run(source, instance, "manual", "notes", "small")
    return PlantedLake(lake, environment, texts)


def planted_texts() -> dict[str, str]:
    """Every text, by record id or file name."""
    base = draw(0, 100)
    return {
        "base": base,
        "twin": base,
        "shout": base.upper() + "!!",
        **{f"near-{count}": edited(base, count, seed=count) for count in EDITS},
        **{f"alone-{number}": draw(100 + number, 80) for number in range(ALONE)},
        "windows": draw(500, 30) + "\r\n" + draw(501, 30) + "\r\n",
        "short": "too few",
        "late": edited(base, 3, seed=77),
        "guide.md": edited(base, 5, seed=78),
        "page.md": draw(901, 90),
    }


def draw(seed: int, count: int) -> str:
    """Different words, ten a line."""
    words = random.Random(seed).sample(WORDS, count)
    return "\n".join(" ".join(words[start : start + 10]) for start in range(0, count, 10))


def edited(text: str, count: int, seed: int) -> str:
    """The text with so many words replaced by others that it does not have."""
    chosen = random.Random(seed)
    words = text.split()
    others = chosen.sample(sorted(set(WORDS) - set(words)), count)
    for place, other in zip(chosen.sample(range(len(words)), count), others, strict=True):
        words[place] = other
    return "\n".join(" ".join(words[start : start + 10]) for start in range(0, len(words), 10))


def _record(name: str, text: str) -> str:
    return json.dumps({"id": name, "body": text, "repo": f"shelf-{len(name) % 3}"}) + "\n"


def _run(source: Path, instance: dg.DagsterInstance, *groups: str) -> None:
    """Materialize the tables of some namespaces."""
    rule = {"rule": "too_few_words", "signal": "word_count", "below": 5, "kinds": ["prose", "markup"]}
    bounds = {"extends": ["headrace"], "rules": [rule]}
    records = {"text_column": "body", "id_column": "id", "repository_column": "repo"}
    datasets = [
        DatasetDeclaration(
            name="notes", source={"kind": "files", "path": str(source / "notes"), **records}, policy=bounds, shards=2
        ),
        DatasetDeclaration(name="manual", source={"kind": "files", "path": str(source / "manual")}, policy=bounds),
    ]
    corpus = CorpusDeclaration(
        name="small",
        datasets=("notes", "manual"),
        tokenizer={"train": {"vocabulary_size": 400, "sample_bytes": 100_000}},
        window_tokens=(256,),
    )
    run_declared(datasets, [corpus], instance, groups)


def run_declared(
    datasets: Sequence[DatasetDeclaration],
    corpora: Sequence[CorpusDeclaration],
    instance: dg.DagsterInstance,
    groups: Sequence[str],
    without: Sequence[str] = (),
    further: Sequence[dg.AssetsDefinition] = (),
) -> None:
    """Materialize the tables of some namespaces of a project, but for those that nothing of interest reads."""
    assets = [*further, *(asset for dataset in datasets for asset in dataset_assets(dataset))]
    assets += [asset for corpus in corpora for asset in corpus_assets(corpus)]
    project = build(dg.Definitions(assets=assets), LakeResource(spark_config={"spark.sql.shuffle.partitions": "2"}))
    keys = [key for asset in assets for key in asset.keys if key.path[0] in groups and key.path[1] not in without]
    result = project.resolve_job_def("everything").execute_in_process(
        instance=instance,
        asset_selection=keys,
        raise_on_error=False,
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
    )
    failed = result.filter_events(lambda event: event.is_step_failure)
    assert result.success, [f"{event.step_key}: {failure_text(event)}" for event in failed]

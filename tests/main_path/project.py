"""A small project like a user's: two datasets, one or two corpora, run by Dagster on the lake of the environment.

`python -m tests.main_path.project SOURCE [both]` runs it once in a process of its own, which can be killed.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import dagster as dg

from dagster_project.assets.corpora import CorpusDeclaration, corpus_assets
from dagster_project.assets.datasets import DatasetDeclaration, dataset_assets
from dagster_project.assets.deduplication import Deduplication
from dagster_project.cli.run.step_lines import failure_text
from dagster_project.definitions import build
from dagster_project.resources import LakeResource
from headrace.tables.settings import settings_at

_REPOSITORIES = ("h11", "markupsafe", "mdurl", "jinja2", "click")
_MOMENT = 1_760_000_000
_NOTE_FILES = 4
_NOTES = 240


@dataclass(frozen=True)
class Outcome:
    """What one run did.

    Attributes:
        success: whether every step ended well.
        computed: places computed by table, only where there were any.
        versions: data version of every table.
        failures: why steps failed.
    """

    success: bool
    computed: dict[str, str]
    versions: dict[str, str]
    failures: tuple[str, ...]


def point_at(root: Path) -> dict[str, str]:
    """Environment of a lake in a folder."""
    values = settings_at(root).properties
    return {f"PYICEBERG_CATALOG__LAKE__{name.upper()}": value for name, value in values.items()}


def definitions(source: Path, both: bool, spark_config: dict[str, str] | None = None) -> dg.Definitions:
    """The project's definitions; `both` adds a second corpus over the notes alone."""
    datasets = [
        DatasetDeclaration(
            name="tools",
            source={"kind": "python_code", "directories": [f"{source}/code/*"]},
            shards=2,
        ),
        DatasetDeclaration(
            name="notes",
            source={"kind": "files", "path": f"{source}/notes", "text_column": "body", "id_column": "id"},
            policy={"extends": ["headrace"], "set": {"prose.too_few_words": 5}},
        ),
    ]
    corpora = [
        CorpusDeclaration(
            name="main",
            datasets=("tools", "notes"),
            tokenizer={"train": {"vocabulary_size": 600, "sample_bytes": 400_000}},
            window_tokens=(256,),
        )
    ]
    if both:
        corpora.append(
            CorpusDeclaration(
                name="prose",
                datasets=("notes",),
                deduplication=Deduplication(levels=("exact",)),
                tokenizer={"train": {"vocabulary_size": 400, "sample_bytes": 100_000}},
                window_tokens=(128,),
            )
        )
    assets = [asset for dataset in datasets for asset in dataset_assets(dataset)]
    assets += [asset for corpus in corpora for asset in corpus_assets(corpus)]
    return build(dg.Definitions(assets=assets), LakeResource(spark_config=dict(spark_config or {})))


def run(source: Path, both: bool = False, spark_config: dict[str, str] | None = None) -> Outcome:
    """Materialize everything once, in this process."""
    project = definitions(source, both, spark_config)
    with dg.DagsterInstance.ephemeral() as instance:
        result = project.resolve_job_def("everything").execute_in_process(
            instance=instance,
            raise_on_error=False,
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        )
        computed, versions = {}, {}
        for event in result.get_asset_materialization_events():
            values = {name: value.value for name, value in event.materialization.metadata.items()}
            table = ".".join(event.asset_key.path) if event.asset_key else ""
            versions[table] = values["data_version"]
            if not values["skipped"]:
                computed[table] = values["increments_computed"]
        failed = result.filter_events(lambda event: event.is_step_failure)
        return Outcome(result.success, computed, versions, tuple(failure_text(event) for event in failed))


def write_first(source: Path, backwards: bool = False) -> None:
    """Files of the first increment: real packages as repositories, notes as records, in either order of writing.

    Contents, places and times are the same each time; only the order in which files come into being differs.
    """
    shutil.rmtree(source, ignore_errors=True)
    files = {**_code(), **_notes(range(_NOTES))}
    for name in sorted(files, reverse=backwards):
        _put(source / name, files[name], _MOMENT)


def write_second(source: Path, backwards: bool = False) -> None:
    """About 1% new and 1% edited documents: a new module, an edited one, new notes, edited notes."""
    code = _code()
    edited = next(name for name in sorted(code) if name.endswith("jinja2/environment.py"))
    files = {
        edited: code[edited].replace("Environment", "Surroundings"),
        "code/mdurl/mdurl/_more.py": "def more(x: int) -> int:\n    # a module that is new\n    return x + 1\n",
        **_notes(range(_NOTES, _NOTES + 3), "notes/more.jsonl"),
        **{name: text for name, text in _notes(range(_NOTES), edited=(7, 101)).items() if name != "notes/0.jsonl"},
    }
    for name in sorted(files, reverse=backwards):
        _put(source / name, files[name], _MOMENT + 60)


def _put(file: Path, text: str, moment: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    os.utime(file, (moment, moment))


def _code() -> dict[str, str]:
    """Sources of a few installed distributions, by path below the source."""
    found = {}
    for name in _REPOSITORIES:
        for file in metadata.files(name) or ():
            if str(file).endswith(".py") and ".." not in str(file):
                found[f"code/{name}/{file}"] = Path(str(file.locate())).read_text()
    return found


def _notes(numbers: range, file: str | None = None, edited: tuple[int, ...] = ()) -> dict[str, str]:
    """Notes as JSONL, a tenth of them repeating another one's letters."""
    import json

    words = [
        "water",
        "wheel",
        "mill",
        "race",
        "river",
        "stone",
        "grain",
        "flour",
        "sluice",
        "dam",
        "channel",
        "level",
        "flow",
        "power",
        "gear",
        "shaft",
    ]
    parts: dict[str, list[str]] = {}
    for number in numbers:
        source = number - 1 if number % 10 == 9 else number
        draw = random.Random(source)
        body = " ".join(draw.choice(words) for _ in range(20 + source % 60))
        if number % 10 == 9:
            body = body.capitalize() + "!"
        if number in edited:
            body += " and then it changed"
        name = file or f"notes/{number % _NOTE_FILES}.jsonl"
        parts.setdefault(name, []).append(json.dumps({"id": number, "body": f"{body} note {source}"}))
    return {name: "\n".join(lines) + "\n" for name, lines in parts.items()}


if __name__ == "__main__":
    done = run(Path(sys.argv[1]), both="both" in sys.argv[2:])
    sys.stderr.write("\n".join(done.failures))
    sys.exit(0 if done.success else 1)

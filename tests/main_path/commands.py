"""Every command of `headrace --help` as one story, from a project that is written to tables that are dropped.

`python -m tests.main_path.commands FOLDER` runs it in one process, which starts Spark once, on the lake of the
environment, and prints a line of JSON for each command: its words, its exit status, and what it said.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from dagster_project.cli import headrace, run_command
from headrace.tables.settings import load_settings
from spark_jobs.lake.files.lookups import first_rows
from spark_jobs.lake.session.catalogue import open_catalogue

_WORDS = ("river", "wheel", "gate", "water", "mill", "race", "turbine", "slope", "channel", "stone", "grain", "bread")
_DATASETS = {
    "notes": """
  source:
    {kind: files, path: "{{ project_root }}/notes.jsonl", text_column: body, id_column: id, metadata_columns: [grade]}
  landing: copy
  policy: {extends: [headrace], set: {prose.too_few_words: 5}}
  retention: {days: 3650, then: delete}
""",
    "held": """
  source: {kind: files, path: "{{ project_root }}/held", text_column: body, id_column: id}
  trust: quarantine
""",
    "feed": """
  source: {kind: stream, path: "{{ project_root }}/feed", text_column: body, id_column: id, seal_records: 2}
""",
}
_CORPUS = """type: headrace.Corpus
attributes:
  name: first
  datasets: [notes]
  tokenizer: {train: {vocabulary_size: 320}}
  window_tokens: [64]
  samples: text
"""
_STRICT = """name: strict
version: 1
extends: [headrace]
set: {prose.too_few_words: 30}
"""
_ARPA = """\\data\\
ngram 1=4

\\1-grams:
-1.0\t<unk>
-1.0\t<s>
-1.0\t</s>
-1.0\twater

\\end\\
"""

# One command a line, all to end with status 0. `demo`, `serve` and `ui` are not here: they go on until they are stopped
# or take another project, and run in processes of their own.
STORY = """
init mill --at {root}/other
doctor
features
plan
dataset add more --from {root}/more.jsonl --text-column body --id-column id
dataset show
run notes first
run notes first
corpus show
table show
table show first
table show first.packed_notes_64 --rows 2
dataset show notes
search water
runs
run --last
status
status --cost
policy add {root}/strict.yaml
policy show
policy show strict
policy preview notes .
policy preview notes headrace {root}/strict.yaml
evals add quiz --from {root}/quiz.jsonl --columns question,answer
evals show
run first
evals show first
evals delete quiz
model add water --from {root}/water.arpa --version 1
model show
model show water@1
release v1 --corpus first
release
release v1
dataset verify notes
dataset archive notes --thaw
run held
quarantine show
quarantine show held --increment 0
quarantine release held --increment 0 --reason looked-at
run held
quarantine refuse held --increment 1 --reason refused
run --follow feed --once
doc why {document}
doc show {document}
doc show --source {document}
doc show --duplicates {document}
doc show --windows {document}
corpus show --thresholds first
doc trace first.packed_notes_64 0 3
export first.packed_notes_64 {root}/exported
blend create mix --source first.packed_notes_64 --max-epochs 0
blend show
blend show mix
blend show mix 0
blend show mix --tokens 1000
blend update mix mix-2 --at 8 --dry-run
blend update mix mix-2 --at 8
blend repeats mix --at 300
blend repeats mix --at 300 --document {document}
runs --training
blend delete mix-2
run notes first
diff notes@v1 notes
diff first@v1 first
corpus show first
dataset show --card first
doc excise --superseded first --yes
doc excise {document} --yes
corpus refresh first --yes
run first
maintain --only compaction first.survivors notes.texts
maintain --only expiry first.survivors --days 0
maintain --days 0 --dry-run
maintain --days 0
dataset delete held --increment 0 --plan
dataset delete feed --yes --reason story
release v1 --delete --yes
dataset delete --declaration more --yes
table delete notes.signals notes.texts --yes
"""


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command below one that is no group itself."""
    if not isinstance(command, click.Group):
        yield path
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        yield from leaves(command.get_command(context, name) or click.Command(name), (*path, name))


def told() -> set[tuple[str, ...]]:
    """The commands that the story has."""
    lines = [tuple(line.split()) for line in STORY.split("\n") if line]
    return {path for path in leaves(headrace) if any(line[: len(path)] == path for line in lines)}


def _sentence(document: int, number: int) -> str:
    first, second, third = (_WORDS[(document * 5 + document // 12 + number * step) % len(_WORDS)] for step in (1, 3, 4))
    return f"On day {document * 9 + number} the {first} of the {second} was seen from the {third}, {number} miles away."


def write_project(root: Path) -> None:
    """The project's declarations and the files that its commands read."""
    files = {
        "pyproject.toml": '[tool.dg.project]\nroot_module = "mill"\n',
        "mill/__init__.py": "",
        "mill/definitions.py": (
            "from pathlib import Path\nimport dagster as dg\nfrom dagster_project.definitions import load_project\n\n"
            "@dg.definitions\ndef definitions():\n    return load_project(Path(__file__).parent)\n"
        ),
        "mill/defs/__init__.py": "",
        "mill/defs/first/defs.yaml": _CORPUS,
        "strict.yaml": _STRICT,
        "water.arpa": _ARPA,
    }
    for name, attributes in _DATASETS.items():
        head = f"type: headrace.Dataset\nattributes:\n  name: {name}"
        files[f"mill/defs/{name}/defs.yaml"] = f"{head}{attributes}"
    text = [" ".join(_sentence(n, k) for k in range(8)) for n in range(32)]
    records: dict[str, list[dict[str, Any]]] = {
        "notes.jsonl": [
            *({"id": str(n), "body": one, "grade": "good" if n % 2 else "bad"} for n, one in enumerate(text)),
            {"id": "few", "body": "Too few.", "grade": "bad"},
        ],
        "more.jsonl": [{"id": "1", "body": text[0]}],
        "held/0.jsonl": [{"id": "1", "body": text[1]}],
        "feed/0.jsonl": [{"id": str(n), "body": text[n]} for n in range(2)],
        "quiz.jsonl": [{"question": "Who grinds the grain and where is it?", "answer": "The miller, in the mill."}],
    }
    files |= {name: "".join(f"{json.dumps(row)}\n" for row in rows) for name, rows in records.items()}
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)


def before(root: Path, words: list[str]) -> None:
    """What people do between two commands: files that arrive, a page that is filled in."""
    if words[:2] == ["quarantine", "release"]:
        (root / "held/1.jsonl").write_text((root / "held/0.jsonl").read_text().replace('"1"', '"2"'))
    if words[:2] == ["runs", "--training"]:
        notes = (root / "notes.jsonl").read_text()
        (root / "notes.jsonl").write_text(notes.replace('"id": "0", "body": "', '"id": "0", "body": "Anew. '))


def _rows(table: str, columns: list[str], wanted: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    found = first_rows(open_catalogue(load_settings()).load_table(table), columns, 1000).to_pylist()
    return [row for row in found if wanted(row)]


@functools.cache
def document() -> str:
    """A document that is packed."""
    (window,) = _rows("first.packed_notes_64", ["ordinal", "segments"], lambda row: row["ordinal"] == 0)
    return str(window["segments"][0]["doc_id"])


def main(root: Path) -> None:
    """Run the story in a folder; every command that ends otherwise than it should is in what is printed."""
    write_project(root)
    os.chdir(root)
    for line in filter(None, STORY.split("\n")):
        facts = {"root": str(root), "document": document() if "{document}" in line else ""}
        words = shlex.split(line.format(**facts))
        said = io.StringIO()
        before(root, words)
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                status = run_command(words)
            except Exception as error:  # noqa: BLE001  what no command should raise is what the test looks for
                status, _ = 1, said.write(repr(error))
        sys.stdout.write(json.dumps({"words": line, "status": status, "said": said.getvalue()}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

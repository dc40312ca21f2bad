"""Without the folder of a feature the main road goes on, and whoever asks for the feature is told its name."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.headrace_features.deleted import Deleted
from tests.spark_jobs.sources.git_repositories import Repository

_ROOT = Path(__file__).parents[2]
# What a user asks of each feature: a command or its option, and a name of Python.
ASKED = {
    "apis": (["dataset", "add", "items", "--kind", "api", "--from", "http://127.0.0.1:1/items"], "Page"),
    "experiments": (["experiment", "show"], "Experiment"),
    "explore": (["explore"], ""),
    "synthetic": (["worker"], ""),
    "rollouts": (["serve", "--rollouts", "file.toml"], "RolloutWriter"),
}
FEATURES = [*ASKED]
IN_CORE = ("dataset", "serve")  # commands that a feature only adds to


def test_core_names_no_feature() -> None:
    """Neither by an import nor in a string; the front door has imports for type checkers alone."""
    features = [path.parent.name for path in (_ROOT / "headrace_features").glob("*/__init__.py")]
    named = re.compile(rf"headrace_features\.({'|'.join(features)})\b")
    found = set()
    for package in ("blender_service", "dagster_project", "headrace", "spark_jobs"):
        for file in (_ROOT / package).rglob("*.py"):
            tree = ast.parse(file.read_text("utf-8"))
            for node in (one for one in tree.body if not isinstance(one, ast.If)):  # `if TYPE_CHECKING`
                if named.search(ast.unparse(node)):
                    found.add(str(file.relative_to(_ROOT)))
    assert found == set()


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_that_is_not_there_is_told_by_name(feature: str, tmp_path: Path) -> None:
    """Its commands are not in the help; one line says which feature brings the command, the option or the name."""
    copy = Deleted(tmp_path, feature)
    words, name = ASKED[feature]
    shown = copy.headrace("--help")
    listed = re.findall(r"^  (\w+) ", shown.stdout, re.MULTILINE)
    assert shown.returncode == 0 and "run" in listed
    assert (words[0] in listed) == (words[0] in IN_CORE)
    copy.headrace("init", "pond")
    asked = copy.headrace(*words, folder=tmp_path / "pond")
    assert asked.returncode == 2
    assert f"is of the feature {feature}, which is not installed here" in asked.stderr.splitlines()[-1]
    if name:
        asked = copy.python("-c", f"import headrace; headrace.{name}")
        assert f"AttributeError: headrace.{name} is of the feature {feature}" in asked.stderr.splitlines()[-1]


def test_a_declaration_of_a_feature_that_is_not_there_is_told_with_its_file(tmp_path: Path) -> None:
    """An experiment."""
    copy = Deleted(tmp_path, "experiments")
    assert copy.headrace("init", "pond").returncode == 0
    file = tmp_path / "pond" / "pond" / "defs" / "trial" / "defs.yaml"
    file.parent.mkdir()
    file.write_text("type: headrace.Experiment\nattributes: {name: trial}\n")
    planned = copy.headrace("plan", folder=tmp_path / "pond")
    assert planned.returncode == 2
    assert "defs.yaml: type headrace.Experiment is of the feature experiments" in planned.stderr.splitlines()[-1]


DECLARED = {
    "{kind: stream, path: inbox, text_column: text, id_column: id}": "apis",
    "{kind: files, urls: addresses.txt}": "apis",
    "{kind: generated, parents: {dataset: notes}, templates: [simple], endpoint: {url: 'http://a.b'}}": "synthetic",
    "{kind: executed, parents: {dataset: code}}": "synthetic",
    "{kind: files, path: notes}, judged: {good: {}}": "synthetic",
}


@pytest.mark.parametrize(("source", "feature"), DECLARED.items())
def test_a_source_of_a_feature_that_is_not_there_is_told_with_its_file(
    source: str, feature: str, tmp_path: Path
) -> None:
    """In a line, before anything starts."""
    copy = Deleted(tmp_path, feature)
    copy.headrace("init", "pond")
    file = tmp_path / "pond" / "pond" / "defs" / "items" / "defs.yaml"
    file.parent.mkdir()
    file.write_text(f"type: headrace.Dataset\nattributes: {{name: items, source: {source}}}\n")
    planned = copy.headrace("plan", folder=tmp_path / "pond")
    assert planned.returncode == 2
    assert re.search(rf"defs\.yaml: .* is of the feature {feature}, which", planned.stderr.splitlines()[-1])


@pytest.mark.nightly
@pytest.mark.parametrize("feature", FEATURES)
def test_the_main_road_goes_on(feature: str, tmp_path: Path) -> None:
    """From files, git and Parquet to a blend, by the commands of the tour."""
    copy = Deleted(tmp_path, feature)
    copy.headrace("init", "pond")
    pond = tmp_path / "pond"
    texts = [file.read_text("utf-8") for file in (_ROOT / "docs").rglob("*.md")]
    pq.write_table(pa.table({"body": texts}), pond / "rows.parquet")
    mill = tmp_path / "mill"
    Repository(mill).commit(a_py="def grind(corn):\n    return corn * 2\n" * 40, read__me_md=texts[0])
    done = [
        copy.headrace(*words, folder=pond)
        for words in (
            ["dataset", "add", "rows", "--from", "rows.parquet", "--text-column", "body", "--corpus", "first"],
            ["dataset", "add", "code", "--kind", "git", "--corpus", "first", "--set", f"source.repositories=[{mill}]"],
            +[f"source.repositories=[{tmp_path / 'mill'}]"],
            ["plan"],
            ["run"],
            ["blend", "create", "half", "--source", "first.packed_rows_64=1"],
            ["blend", "show", "half", "0", "--rows", "1"],
        )
    ]
    assert [one.returncode for one in done] == [0] * 6, [one.stderr[-2000:] for one in done]
    assert "first.packed_rows_64" in done[3].stdout and "row 0" in done[5].stdout

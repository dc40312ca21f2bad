"""Without the folder of a feature the main road goes on, and whoever asks for the feature is told its name."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.features import features
from tests.headrace_features.deleted import Deleted
from tests.tiers import is_nightly, sampled

_ROOT = Path(__file__).parents[2]
# What a user asks of each feature: a command or its option, and a name of Python.
ASKED = {
    "apis": (["dataset", "add", "items", "--kind", "api", "--from", "http://127.0.0.1:1/items"], "Page"),
    "composition": (["mix", "plan", "main"], ""),
    "conversations": ([], ""),  # which are asked for by a column
    "experiments": (["experiment", "show"], "Experiment"),
    "explore": (["explore"], ""),
    "formats": ([], ""),  # whose formats are asked for by files
    "hub": (["export", "hub", "notes.texts", "out"], ""),
    "losses": (["runs", "--worst", "llm-7b"], ""),
    "models": (["model", "show"], "read_classifier"),
    "objectives": ([], ""),  # which a corpus or a blend declares
    "privacy": (["quarantine", "show"], ""),
    "synthetic": (["worker"], ""),
    "rollouts": (["serve", "--rollouts", "file.toml"], "RolloutWriter"),
}
FEATURES = [*ASKED]
IN_CORE = ("dataset", "export", "runs", "serve")  # commands that a feature only adds to
# What a declaration asks of each feature, as lines of a dataset.
DECLARED = {
    "apis": {
        "source: {kind: stream, path: inbox, text_column: text, id_column: id}": "'stream'",
        "source: {kind: files, urls: addresses.txt}": "",
    },
    "conversations": {f"source: {{kind: files, path: {_ROOT}, messages_column: messages}}": "column 'messages'"},
    "formats": {f"source: {{kind: files, path: {_ROOT}, ocr: rapidocr}}": "part 'ocr'"},
    "hub": {"source: {kind: hub, repo_id: mill/pages, text_column: text}": "'hub'"},
    "synthetic": {
        "source: {kind: generated, parents: {dataset: notes}, templates: [simple], endpoint: {url: 'http://a.b'}}": "",
        "source: {kind: executed, parents: {dataset: code}}": "'executed'",
        "judged: {good: {}}": "part 'judged'",
    },
    "models": {
        "scorers: {model_scores: {models: {own@1: [good]}}}": "scorer 'model_scores'",
        "scorers: {vectors: {model: own@1}}": "scorer 'vectors'",
        "quality: {weights: {word_count: 1}}": "part 'quality'",
        "policy: {rules: [{rule: bad, signal: model_scores.own_good, below: 1}]}": "the scorer 'model_scores'",
    },
    "privacy": {
        "redact: {mail: replace}": "part 'redact'",
        "scorers: {profanity: {}}": "scorer 'profanity'",
        "scorers: {personal_data: {}}": "scorer 'personal_data'",
        "trust: quarantine": "part 'quarantine'",
        "policy: {rules: [{rule: rude, signal: profanity.profanity_count, above: 0}]}": "the scorer 'profanity'",
    },
}


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


@sampled()
@pytest.mark.parametrize("feature", [feature for feature in FEATURES if ASKED[feature][0]])
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


@pytest.mark.nightly
@pytest.mark.parametrize(("feature", "kind"), [("experiments", "Experiment"), ("models", "Model")])
def test_a_declaration_of_a_feature_that_is_not_there_is_told_with_its_file(
    feature: str, kind: str, tmp_path: Path
) -> None:
    """An experiment, a model."""
    copy = Deleted(tmp_path, feature)
    assert copy.headrace("init", "pond").returncode == 0
    file = tmp_path / "pond" / "pond" / "defs" / "trial" / "defs.yaml"
    file.parent.mkdir()
    file.write_text(f"type: headrace.{kind}\nattributes: {{name: trial}}\n")
    planned = copy.headrace("plan", folder=tmp_path / "pond")
    assert planned.returncode == 2
    assert f"defs.yaml: type headrace.{kind} is of the feature {feature}" in planned.stderr.splitlines()[-1]


@pytest.mark.nightly
def test_what_corpora_and_other_features_ask_of_models_is_told_by_name(tmp_path: Path) -> None:
    """Clusters, duplicates by vectors; words of lists, which n-grams count; the network of experiments."""
    copy = Deleted(tmp_path, "models")
    copy.headrace("init", "pond")
    folder = tmp_path / "pond" / "pond" / "defs"
    corpus = folder / "first" / "defs.yaml"
    plain = "type: headrace.Corpus\nattributes:\n  name: first\n  datasets: [notes]\n"
    for line in ("clusters: {}", "cluster_losses: {}"):
        corpus.write_text(f"{plain}  {line}\n")
        planned = copy.headrace("plan", folder=tmp_path / "pond")
        assert planned.returncode == 2
        assert "corpus first: part 'clusters' is of the feature models, which" in planned.stderr.splitlines()[-1]
    chosen = "{vectors: own, datasets: [notes], threshold: 0.9}"
    corpus.write_text(f"{plain}  select: [semantic: {chosen}]\n")
    planned = copy.headrace("plan", folder=tmp_path / "pond")
    assert planned.returncode == 2
    assert "select: selection 'semantic' is of the feature models, which" in planned.stderr.splitlines()[-1]
    corpus.write_text(plain)
    dataset = folder / "notes" / "defs.yaml"
    dataset.write_text(f"{dataset.read_text()}\n  scorers: {{profanity: {{}}}}\n")
    planned = copy.headrace("plan", folder=tmp_path / "pond")
    assert planned.returncode == 2
    assert "the scorer 'profanity' needs the feature models, which" in planned.stderr.splitlines()[-1]
    dataset.write_text("type: headrace.Experiment\nattributes: {name: trial}\n")
    planned = copy.headrace("plan", folder=tmp_path / "pond")
    assert planned.returncode == 2
    assert "experiment trial needs the feature models, which" in planned.stderr.splitlines()[-1]


@sampled()
@pytest.mark.parametrize("feature", DECLARED)
def test_what_a_dataset_asks_of_a_feature_that_is_not_there_is_told_by_name(feature: str, tmp_path: Path) -> None:
    """In one line, by the plan; a step by `python -m spark_jobs`. The long tier tries all lines."""
    copy = Deleted(tmp_path, feature)
    copy.headrace("init", "pond")
    file = tmp_path / "pond" / "pond" / "defs" / "asked" / "defs.yaml"
    file.parent.mkdir()
    lines = list(DECLARED[feature].items())
    for line, name in lines if is_nightly() else lines[:1]:
        source = "" if line.startswith("source:") else f"source: {{kind: files, path: {tmp_path}}}"
        file.write_text(f"type: headrace.Dataset\nattributes:\n  name: asked\n  {source}\n  {line}\n")
        planned = copy.headrace("plan", folder=tmp_path / "pond")
        assert planned.returncode == 2, planned.stdout
        answer = planned.stderr.splitlines()[-1]
        assert "asked" in answer
        assert re.search(rf"{re.escape(name)} is of the feature {feature}, which", answer)
    if not (steps := features()[feature].entries.get("steps")):
        return
    step = next(iter(steps))
    asked = copy.python("-m", "spark_jobs", step, "--output", "out")
    assert asked.returncode == 2
    assert f"step {step!r} is of the feature {feature}" in asked.stderr.splitlines()[-1]


@pytest.mark.nightly
def test_deletion_tells_what_stays_of_a_feature_that_is_not_there(tmp_path: Path) -> None:
    """Of a dataset its answers, of documents what models wrote from them, which nobody here can find."""
    copy = Deleted(tmp_path, "synthetic")
    copy.headrace("init", "pond")
    pond = tmp_path / "pond"
    (pond / "saved").mkdir()
    (pond / "saved" / "a.md").write_text("# A mill")
    copy.headrace("dataset", "add", "pages", "--from", "saved", folder=pond)
    assert copy.headrace("run", "pages", folder=pond).returncode == 0
    stays = "stays, for it is not installed here; delete it where it is"
    planned = copy.headrace("dataset", "delete", "pages", "--plan", folder=pond)
    assert f"what the feature synthetic keeps of pages {stays}" in planned.stdout.splitlines()
    excised = copy.headrace("doc", "excise", "0" * 32, "--with-derived", "--yes", folder=pond)
    assert f"what the feature synthetic wrote from these {stays}" in excised.stdout.splitlines()


@pytest.mark.nightly
def test_files_of_a_format_that_is_not_there_say_so_and_are_read_once_it_is(tmp_path: Path) -> None:
    """A row of arrivals names the feature, and the rest lands; in an archive it is one line of an error."""
    copy = Deleted(tmp_path, "formats")
    copy.headrace("init", "pond")
    pond, paragraph = tmp_path / "pond", "The mill grinds the corn of the village every day. " * 9
    files = {"a.md": "# A mill", "b.html": f"<html><body><p>{paragraph}</p></body></html>"}
    (pond / "saved").mkdir()
    for name, text in files.items():
        (pond / "saved" / name).write_text(text)
    copy.headrace("dataset", "add", "pages", "--from", "saved", folder=pond)
    rows = "import headrace; print(headrace.connect().table('pages.{}').to_pylist())"
    assert copy.headrace("run", "pages", folder=pond).returncode == 0
    arrivals = copy.python("-c", rows.format("arrivals"), folder=pond).stdout
    assert "its reader html is of the feature formats" in arrivals and "not_installed" in arrivals
    copied = shutil.ignore_patterns("__pycache__")
    shutil.copytree(_ROOT / "headrace_features" / "formats", tmp_path / "headrace_features" / "formats", ignore=copied)
    assert copy.headrace("run", "pages", folder=pond).returncode == 0
    documents = copy.python("-c", rows.format("documents"), folder=pond).stdout
    assert "A mill" in documents and "The mill grinds" in documents
    shutil.rmtree(tmp_path / "headrace_features" / "formats")
    with zipfile.ZipFile(pond / "saved" / "c.zip", "w") as archive:
        archive.writestr("d.html", files["b.html"])
    stopped = copy.headrace("run", "pages", folder=pond)
    assert stopped.returncode != 0
    assert "c.zip#d.html: its reader html is of the feature formats" in stopped.stdout


@pytest.mark.nightly
@pytest.mark.parametrize("feature", FEATURES)
def test_the_main_road_goes_on(feature: str, tmp_path: Path) -> None:
    """From files, git and Parquet to a blend, by the commands of the tour."""
    copy = Deleted(tmp_path, feature)
    copy.headrace("init", "pond")
    pond = tmp_path / "pond"
    texts = [file.read_text("utf-8") for file in (_ROOT / "docs").rglob("*.md")]
    pq.write_table(pa.table({"body": texts}), pond / "rows.parquet")
    shutil.copytree(_ROOT / "docs", pond / "pages", ignore=shutil.ignore_patterns("*.png", "*.py"))
    shutil.copytree(_ROOT / "examples", pond / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    who = ("-c", "user.name=pond", "-c", "user.email=pond@localhost")
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "examples"]):
        subprocess.run(["git", *words], cwd=pond / "examples", check=True)
    done = [
        copy.headrace(*words, folder=pond)
        for words in (
            ["dataset", "add", "rows", "--from", "rows.parquet", "--text-column", "body", "--corpus", "first"],
            ["dataset", "add", "pages", "--from", "pages", "--corpus", "first"],
            ["dataset", "add", "code", "--kind", "git", "--from", "examples", "--corpus", "first"],
            ["plan"],
            ["run"],
            ["blend", "create", "half", "--source", "first.packed_rows_64=1"],
            ["blend", "show", "half", "0", "--rows", "1"],
        )
    ]
    assert [one.returncode for one in done] == [0] * 7, [one.stderr[-2000:] for one in done]
    made = {name for name in ("rows", "pages", "code") if f"first.packed_{name}_64" in done[4].stdout}
    assert made == {"rows", "pages", "code"} and "row 0" in done[6].stdout

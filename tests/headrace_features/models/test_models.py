"""A model from two datasets to a verdict: trained, entered into the registry, named by a dataset, judged by a rule."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dagster_project.assets.datasets import DatasetDeclaration, dataset_assets
from dagster_project.cli import run_command
from dagster_project.exceptions import DagsterProjectError, DefinitionError
from dagster_project.project.loading import load_definitions
from headrace.tables.settings import settings_at
from headrace_features.models.assets import ModelDeclaration, model_assets
from headrace_features.models.classifier import Classifier, read_classifier
from headrace_features.models.classifier_training import TrainingConfig, train
from headrace_features.models.model_scores import ModelScoresConfig, located, with_columns
from headrace_features.models.ngram_model import NgramModel
from headrace_features.models.registered import find_models, is_unrecorded, load_model
from spark_jobs.exceptions import InputError
from spark_jobs.fasttext.model import read_fasttext
from spark_jobs.filters.scorer import check_scorer
from spark_jobs.lake.run.registry import entries
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.conftest import WriteDefs
from tests.dagster_project.project import Project, failures, key, lake_settings
from tests.spark_jobs.fasttext.model_files import fasttext_bytes

pytest.importorskip("sklearn", reason="scikit-learn is in the extra filters")
WORDS = {"wiki": "river stone bridge harbour granite century", "crawl": "buy cheap now click offer free"}
SMALL = {"features": {"bits": 10}, "min_texts": 2}


def texts(name: str, count: int) -> list[str]:
    """Texts of a dataset's own words and some that all have."""
    draw = random.Random(name)
    words = [*WORDS[name].split(), "the", "of", "and"]
    return [" ".join(draw.choices(words, k=draw.randint(4, 12))) for _ in range(count)]


def write(root: Path) -> None:
    """Two datasets; every fourth text of `crawl` is one of the other kind, and a coin was thrown for each."""
    draw = random.Random(5)
    crawl = [("wiki" if n % 4 == 0 else "crawl", text) for n, text in enumerate(texts("crawl", 80))]
    crawl = [(of, text if of == "crawl" else texts("wiki", 200)[100 + n]) for n, (of, text) in enumerate(crawl)]
    for name, rows in (("wiki", [("wiki", text) for text in texts("wiki", 60)]), ("crawl", crawl)):
        (root / name).mkdir(parents=True)
        lines = [
            {"id": f"{name}{n}", "body": text, "of": of, "coin": draw.choice("ht")} for n, (of, text) in enumerate(rows)
        ]
        (root / name / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))


def dataset(root: Path, name: str, **more: Any) -> list[Any]:
    """The assets of a dataset."""
    source = {"kind": "files", "path": str(root / name), "text_column": "body", "id_column": "id"}
    declared = DatasetDeclaration(name, {**source, "metadata_columns": ["of", "coin"]}, **more)
    with lake_settings(root):
        return dataset_assets(declared)


def model(name: str, **train: Any) -> list[Any]:
    """The assets of a model."""
    return model_assets(ModelDeclaration(name, {**SMALL, **train}))


PAIR = {"reference": ["wiki"], "raw": ["crawl"]}
TRAINED = [f"{name}.{table}" for name in ("quality", "kinds") for table in ("classifier", "evaluation")]
LANDED = [
    f"{name}.{table}" for name in WORDS for table in ("documents", "arrivals", "repositories", "provenance", "texts")
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Two datasets, a model of the pair, and models of a table with labels, good and bad."""
    root = tmp_path_factory.mktemp("models")
    write(root)
    project = Project(
        root,
        *(asset for name in WORDS for asset in dataset(root, name)),
        *model("quality", **PAIR, min_auc=0.5),
        *model("kinds", table="crawl.texts", label_column="metadata.of"),
        *model("coins", table="crawl.texts", label_column="metadata.coin", min_auc=0.95),
        *model("alone", table="crawl.texts", label_column="documents.kind"),
        *model_assets(ModelDeclaration("style", {"ngrams": ["wiki"], "order": 2})),
        *model("missing", table="crawl.texts", label_column="langauge"),
    )
    result = project.run(*LANDED, *TRAINED, "style.ngrams")
    assert result.success, failures(result)
    return project


@pytest.mark.nightly
def test_a_trained_model_is_entered_by_its_hash(lake: Project) -> None:
    """The bytes in the table, the file in the warehouse and the entry are one model; a second run adds none."""
    catalogue = open_catalogue(settings_at(lake.root))
    (entry,) = entries(catalogue, "model", "quality")
    (row,) = catalogue.load_table("quality.classifier").scan().to_arrow().to_pylist()
    trained = read_classifier(row["file"], "quality")
    assert trained.sha256 == row["sha256"] and row["sha256"].startswith(entry.version) and len(entry.version) == 12
    ((facts, file),) = find_models(catalogue, [entry.label])
    read = load_model(file)
    assert isinstance(read, Classifier) and read.to_bytes() == row["file"]
    assert facts.labels == ("raw", "reference") and row["train_count"] + row["test_count"] == 140
    measured = [(one.label, one.auc) for one in facts.evaluation]
    assert measured == sorted(lake.rows("quality.evaluation", "label", "auc")) and min(auc for _, auc in measured) > 0.7
    assert sum(one.test_count for one in facts.evaluation) == row["test_count"] > 10
    assert lake.run(*TRAINED).success
    assert [one.label for one in entries(catalogue, "model", "quality")] == [entry.label]
    assert "data:image/png" in str(lake.facts("quality.evaluation"))
    Path(file.location).write_bytes(row["file"][:-1] + b"?")
    assert is_unrecorded(catalogue, "quality", "classifier") and lake.run(*TRAINED).success
    assert Path(file.location).read_bytes() == row["file"] and not is_unrecorded(catalogue, "quality", "classifier")


@pytest.mark.nightly
def test_a_rule_judges_by_a_model(lake: Project) -> None:
    """`model_scores.quality_reference below 0.5` leaves out what is like the raw dataset; values are the model's."""
    catalogue = open_catalogue(settings_at(lake.root))
    (quality,), (kinds,), (style,) = (entries(catalogue, "model", one) for one in ("quality", "kinds", "style"))
    wanted = {quality.label: ["reference"], kinds.label: [], style.label: ["perplexity"]}
    scorers = {"model_scores": {"models": wanted}}
    rules = [
        {"rule": "raw", "signal": "model_scores.quality_reference", "below": 0.5},
        {"rule": "poor", "signal": "quality.score", "below": 1.0},
    ]
    weights = {"model_scores.quality_reference": 2.0, "word_count": 1e-9}
    more: dict[str, Any] = {"scorers": scorers, "quality": {"weights": weights}, "policy": {"rules": rules}}
    scored = lake.changed(*dataset(lake.root, "crawl", **more))
    result = scored.run("crawl.signals", "crawl.model_scores", "crawl.quality", "crawl.verdicts")
    assert result.success, failures(result)
    columns = ("quality_label", "quality_confidence", "quality_reference", "kinds_label", "style_perplexity")
    rows = {doc_id: values for doc_id, *values in scored.rows("crawl.model_scores", "doc_id", *columns)}
    contents = dict(scored.rows("crawl.texts", "doc_id", "content"))
    read = load_model(find_models(catalogue, [quality.label])[0][1])
    assert isinstance(read, Classifier)
    expected = read.score(pa.array(contents[doc_id] for doc_id in rows))["reference"].to_pylist()
    assert [values[2] for values in rows.values()] == expected and len(rows) == 80
    predicts = load_model(find_models(catalogue, [style.label])[0][1])
    assert isinstance(predicts, NgramModel)
    expected = predicts.score(pa.array(contents[doc_id] for doc_id in rows))["perplexity"].to_pylist()
    assert [values[4] for values in rows.values()] == expected
    for best, confidence, reference, *_ in rows.values():
        assert best == ("reference" if reference > 0.5 else "raw") and confidence == max(reference, 1 - reference)
    of = {doc_id: dict(metadata)["of"] for doc_id, metadata in scored.rows("crawl.documents", "doc_id", "metadata")}
    assert sum(of[doc_id] == values[3] for doc_id, values in rows.items()) >= 76
    own, others = ([row[4] for d, row in rows.items() if (of[d] == "wiki") is is_own] for is_own in (True, False))
    assert sorted(own)[len(own) // 2] < min(others)
    kept = dict(scored.rows("crawl.verdicts", "doc_id", "kept"))
    assert {doc_id for doc_id, is_kept in kept.items() if is_kept} == {d for d, row in rows.items() if row[2] >= 0.5}
    assert 0 < sum(kept.values()) < 80
    counts = dict(scored.rows("crawl.signals", "doc_id", "word_count"))
    sums = dict(scored.rows("crawl.quality", "doc_id", "score"))
    assert sums == {doc_id: row[2] * 2 + counts[doc_id] * 1e-9 for doc_id, row in rows.items()}


@pytest.mark.nightly
def test_a_bad_model_is_not_published(lake: Project) -> None:
    """Neither rows nor an entry; one label alone and a column that is not there are one line each."""
    said = [
        line
        for name in ("coins", "alone", "missing")
        for line in failures(lake.run(f"{name}.classifier", f"{name}.evaluation"))
    ]
    assert "auc_is_high_enough: 2 rows" in said[0]
    assert said[1:] == [
        "alone.classifier: classifier: column 'documents.kind' has the one label 'prose'; two labels or more are "
        "needed",
        "classifier: the table has no column 'langauge'; did you mean 'language'? (there are increment, shard, doc_id, "
        "kind, language, content, letters_sha256, edits)",
    ]
    catalogue = open_catalogue(settings_at(lake.root))
    assert entries(catalogue, "model", "coins") == []
    assert catalogue.load_table("coins.classifier").current_snapshot() is None


@pytest.mark.parametrize(
    ("models", "said"),
    [
        ({}, r"models: it is {}; write {NAME@VERSION: \[LABEL, ..\]}"),
        (["quality@1"], r"models: it is \['quality@1'\]; write {NAME@VERSION"),
        ({"quality": ["hq"]}, "'quality' names no model and version"),
        ({"q@1": ["a b", "A-B"]}, "q@1: the column q_a_b comes twice"),
        ({"q@1": [], "q@2": []}, "q@2: the column q_label comes twice"),
        ({"q@1": ["新闻"]}, "the column q_ comes twice, or its label has no Latin letter"),
    ],
)
def test_what_no_scores_can_be_made_of_is_refused(models: Any, said: str, tmp_path: Path) -> None:
    """When definitions load; whether models are there is asked when they run."""
    with pytest.raises(DefinitionError, match=said):
        dataset(tmp_path, "crawl", scorers={"model_scores": {"models": models}})


def test_rules_on_columns_that_a_config_does_not_make_are_refused(tmp_path: Path) -> None:
    """The nearest column is named."""
    rule = {"rule": "raw", "signal": "model_scores.quality_refrence", "below": 0.5}
    with pytest.raises(DefinitionError, match=r"did you mean 'model_scores.quality_reference'"):
        scorers = {"model_scores": {"models": {"quality@1": ["reference"]}}}
        dataset(tmp_path, "crawl", scorers=scorers, policy={"rules": [rule]})


@pytest.mark.parametrize(
    ("train", "said"),
    [
        ({}, "train has nothing to train on; write"),
        ({"reference": ["a"]}, "train has reference; write"),
        ({"reference": ["a"], "raw": ["b"], "table": "c.texts"}, "train has reference and raw and table; write"),
        ({"reference": ["a"], "raw": "a"}, "a is both reference and raw"),
        ({"table": "tweets"}, "table 'tweets' is no NAMESPACE.TABLE; write tweets.texts"),
        ({"table": "tweets.texts", "min_acu": 0.5}, "min_acu: there is no such field; did you mean 'min_auc'"),
    ],
)
def test_declarations_that_train_nothing_are_refused(train: dict[str, Any], said: str) -> None:
    """In one line, with what to write."""
    with pytest.raises(DefinitionError, match=said):
        model_assets(ModelDeclaration("quality", train))


def trained_file(folder: Path) -> Path:
    """The file of a classifier."""
    table = pa.table({"content": texts("wiki", 40) + texts("crawl", 40), "label": ["wiki"] * 40 + ["crawl"] * 40})
    made, _ = train(table, TrainingConfig.model_validate(SMALL))
    (folder / "own.model").write_bytes(made.to_bytes())
    return folder / "own.model"


def test_models_are_added_listed_and_shown(tmp_path: Path, lake_env: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name and version is one model for good; the hash is the version where none is given."""
    file = trained_file(tmp_path)
    sha256 = read_classifier(file.read_bytes(), "own").sha256
    assert run_command(["model", "show"]) == 0
    assert run_command(["model", "add", "own", "--from", str(file)]) == 0
    assert run_command(["model", "add", "own", "--from", str(file), "--version", "1"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("the registry has no model;")
    assert f"own@{sha256[:12]}: classifier, 2 labels, 0.0 MB" in said
    assert "`scorers: {model_scores: {models: {own@1: [wiki]}}}`" in said
    assert [one.name for one in (lake_env / "models").iterdir()] == [sha256]
    assert run_command(["model", "show", "--json"]) == 0
    assert [one["model"] for one in json.loads(capsys.readouterr().out)] == [f"own@{sha256[:12]}", "own@1"]
    assert run_command(["model", "show", "own"]) == 0
    assert "own@1: classifier, 0.0 MB, hash" in capsys.readouterr().out
    arpa = "of a test\n\\data\\\nngram 1=2\n\n\\1-grams:\n-0.3\t<unk>\n-0.3\t</s>\n\n\\end\\\n"
    (tmp_path / "own.arpa.gz").write_bytes(gzip.compress(arpa.encode()))
    assert run_command(["model", "add", "plain", "--from", str(tmp_path / "own.arpa.gz"), "--version", "1"]) == 0
    assert "`scorers: {model_scores: {models: {plain@1: [perplexity]}}}`" in capsys.readouterr().out
    (scored,) = with_columns(ModelScoresConfig(models={"plain@1": ["perplexity"]})).table.columns[3:]
    assert scored.name == "plain_perplexity"
    with pytest.raises(InputError, match=r"model plain@1 has no labels; write plain@1: \[perplexity\]"):
        located(ModelScoresConfig(models={"plain@1": []}))


def test_files_that_are_no_models_are_refused(
    tmp_path: Path, lake_env: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A damaged file, one of another kind, another model under a known version, a name that is not there."""
    file = trained_file(tmp_path)
    assert run_command(["model", "add", "own", "--from", str(file), "--version", "1"]) == 0
    data = bytearray(file.read_bytes())
    data[-100] ^= 1
    for content, said in (
        (bytes(data), "model own: is damaged"),
        (b"no model at all, but long enough for a header", "model own: is no fastText model"),
    ):
        (tmp_path / "bad").write_bytes(content)
        assert run_command(["model", "add", "own", "--from", str(tmp_path / "bad")]) == 2
        assert said in capsys.readouterr().err
    data[-100] ^= 1
    other, _ = train(
        pa.table({"content": texts("wiki", 50) + texts("crawl", 50), "label": ["a"] * 50 + ["b"] * 50}),
        TrainingConfig.model_validate(SMALL),
    )
    (tmp_path / "other").write_bytes(other.to_bytes())
    assert run_command(["model", "add", "own", "--from", str(tmp_path / "other"), "--version", "1"]) == 2
    assert run_command(["model", "add", "Own!", "--from", str(file)]) == 2
    assert run_command(["model", "show", "onw"]) == 2
    said = capsys.readouterr().err
    assert "own@1 is in the registry with another content" in said and "model 'Own!': not a name" in said
    assert "did you mean 'own'?" in said
    for wanted, message in (
        ({"own@2": []}, "own@2 is not in the registry; did you mean 'own@1'"),
        ({"own@1": ["wki"]}, "model own@1 has no label 'wki'; did you mean 'wiki'"),
    ):
        with pytest.raises(InputError, match=message):
            located(ModelScoresConfig(models=wanted))
    ((_, stored, _),) = located(ModelScoresConfig(models={"own@1": ["wiki"]}))
    (lake_env / "models" / stored.sha256).write_bytes(other.to_bytes())
    with pytest.raises(InputError, match=r"has SHA-256 .*, another; headrace run own writes it again"):
        load_model(stored)
    (lake_env / "models" / stored.sha256).unlink()
    with pytest.raises(InputError, match="cannot be read"):
        load_model(stored)


def test_a_fasttext_model_scores_as_it_says(tmp_path: Path, lake_env: Path) -> None:
    """Label and probability are those of the model, null where a model knows nothing; hard texts are no error."""
    file = tmp_path / "own.bin"
    file.write_bytes(fasttext_bytes(3, word_ngrams=2))
    assert lake_env.exists() and run_command(["model", "add", "own", "--from", str(file), "--version", "1"]) == 0
    trained = trained_file(tmp_path)
    assert run_command(["model", "add", "kinds", "--from", str(trained), "--version", "1"]) == 0
    config = ModelScoresConfig(models={"own@1": ["topic1"], "kinds@1": ["wiki", "crawl"]})
    tried = check_scorer(with_columns(config), config, more=["the quick brown fox"])
    own = read_fasttext(file.read_bytes(), "own")
    best, confidence, found = own.judge(pa.array(["the quick brown fox"]), ["topic1"])
    kinds = read_classifier(trained.read_bytes(), "kinds").score(pa.array(["the quick brown fox"]))
    empty, *_, row = tried.drop_columns("text").to_pylist()
    assert (empty["kinds_label"], empty["kinds_confidence"], empty["kinds_wiki"]) == (None, None, None)
    assert row == {
        "own_label": best[0].as_py(),
        "own_confidence": confidence[0].as_py(),
        "own_topic1": found["topic1"][0].as_py(),
        "kinds_label": "wiki",
        "kinds_confidence": kinds["wiki"][0].as_py(),
        **{f"kinds_{label}": values[0].as_py() for label, values in kinds.items()},
    }


MODEL = "type: headrace.Model\nattributes: {{name: quality, train: {{reference: [{0}], raw: [crawl]}}}}\n"
NOTES = """\
type: headrace.Dataset
attributes: {{name: {0}, source: {{kind: files, path: /nowhere, text_column: body}}, visibility: {1}}}
"""


def test_a_model_in_yaml_is_two_tables_that_nothing_starts(declare: WriteDefs, lake_env: Path) -> None:
    """A run trains it, the daemon does not; a dataset may name a version that is not there yet."""
    del lake_env
    declare("wiki", NOTES.format("wiki", "public"))
    scorers = "scorers: {model_scores: {models: {quality@000000000000: [reference]}}}"
    declare("crawl", NOTES.format("crawl", f"public, {scorers}"))
    declare("quality", MODEL.format("wiki"))
    graph = load_definitions().resolve_asset_graph()
    made = graph.get(key("quality.classifier"))
    assert made.parent_keys == {key("wiki.texts"), key("crawl.texts")} and made.automation_condition is None
    assert graph.get(key("quality.evaluation")).check_keys
    assert graph.has(key("crawl.model_scores"))


@pytest.mark.parametrize(
    ("reference", "visibility", "said"),
    [
        ("wikki", "public", "reads wikki.texts: no asset defines it; did you mean 'wiki.texts'?"),
        ("wiki", "{restricted: [one]}", "declare `visibility: {restricted: [one]}` for quality"),
    ],
)
def test_a_model_of_what_may_not_be_read_is_refused(
    declare: WriteDefs, lake_env: Path, reference: str, visibility: str, said: str
) -> None:
    """A dataset that is not there, and one that fewer people may see than the model."""
    del lake_env
    declare("wiki", NOTES.format("wiki", visibility))
    declare("crawl", NOTES.format("crawl", "public"))
    declare("quality", MODEL.format(reference))
    with pytest.raises(DagsterProjectError) as error:
        load_definitions()
    assert said in str(error.value)

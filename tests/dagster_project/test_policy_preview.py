"""`headrace policy`: what is said before anything runs is what the run then does."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression

from dagster_project.assets.datasets import DatasetDeclaration, dataset_assets
from dagster_project.cli import run_command
from dagster_project.exceptions import CommandError, DefinitionError
from dagster_project.inspect.corpora import reviews, rule_inputs
from dagster_project.inspect.corpora.policy_preview import compare, preview
from dagster_project.inspect.corpora.rule_inputs import read_documents
from headrace.tables.settings import settings_at
from spark_jobs.filters.policy_resolution import resolve
from spark_jobs.filters.scorer import scorer
from spark_jobs.lake.declare.tables import Column
from spark_jobs.lake.files.lookups import parts
from spark_jobs.lake.run.registry import entries
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.project import Project, lake_settings
from tests.tiers import sampled

DOCUMENTS = 120


CLASH = scorer(name="texts", version="1", columns=(Column("n", "int", "n"),))(lambda content: {})


@scorer(name="shouting", version="1", columns=(Column("mark_fraction", "double", "of the characters"),))
def shouting(content: pa.Array) -> dict[str, pa.Array]:
    """Measure exclamation marks."""
    marks = pc.cast(pc.count_substring(content, "!"), pa.float64())
    length = pc.utf8_length(content)
    return {"mark_fraction": pc.divide(marks, pc.if_else(pc.equal(length, 0), None, length))}


STRICT = {
    "name": "strict",
    "version": 1,
    "extends": ["headrace"],
    "set": {"prose.too_few_words": 20, "too_many_digits": "off"},
    "rules": [
        {"rule": "loud", "signal": "shouting.mark_fraction", "above": 0.05, "languages": ["en"]},
        {"rule": "few_stars", "signal": "metadata.stars", "below": 3},
        {"rule": "foreign", "signal": "documents.language", "not_in": ["en", "de", "Python"]},
    ],
}


def write(folder: Path) -> None:
    """Documents of each kind, with stars and languages; some are manifests, some have no stars."""
    draw = random.Random(3)
    folder.mkdir(parents=True)
    lines = []
    for number in range(DOCUMENTS):
        words = [draw.choice(["a", "word", "of", "some", "length", "!", "12", "***"]) for _ in range(number % 90)]
        row = {
            "id": "package.json" if number % 17 == 0 else f"d{number}",
            "body": " ".join(words),
            "lang": draw.choice(["en", "de", "fr", None]),
            "of": draw.choice(["prose", "prose", "code", "data"]),
            "stars": draw.choice(["1", "3", "many", None]),
            "repo": f"r{number}",
        }
        lines.append(json.dumps(row))
    (folder / "notes.jsonl").write_text("\n".join(lines))


def declared(root: Path, **more: Any) -> Project:
    """A dataset with a scorer and a second policy."""
    columns = {"text_column": "body", "id_column": "id", "language_column": "lang", "kind_column": "of"}
    source = {"kind": "files", "path": str(root / "notes"), "metadata_columns": ["stars"], "repository_column": "repo"}
    given: dict[str, Any] = {
        "scorers": {f"{__name__}:shouting": {}},
        "variants": {"strict": STRICT},
        "steps": {"verdicts": {"manifests": "leave_out"}},
        **more,
    }
    with lake_settings(root):
        assets = dataset_assets(DatasetDeclaration("notes", {**source, **columns}, shards=2, **given))
    return Project(root, *assets)


TABLES = tuple(f"notes.{name}" for name in ("documents", "texts", "signals", "shouting", "verdicts", "verdicts_strict"))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake that ran once."""
    root = tmp_path_factory.mktemp("policies")
    write(root / "notes")
    assert declared(root).run(*TABLES, "notes.arrivals", "notes.repositories", "notes.provenance").success
    return root


def verdicts(root: Path, table: str) -> dict[str, list[str]]:
    """Failed rules by document, as the run wrote them."""
    rows = open_catalogue(settings_at(root)).load_table(table).scan().to_arrow().to_pylist()
    assert all(row["kept"] == (row["failed"] == []) for row in rows)
    return {row["doc_id"]: [one["rule"] for one in row["failed"]] for row in rows}


@sampled()
@pytest.mark.parametrize(("table", "policy"), [("notes.verdicts", "headrace"), ("notes.verdicts_strict", STRICT)])
def test_preview_and_run_agree_on_every_document(lake: Path, table: str, policy: Any) -> None:
    """Documents kept, and by rule how many it drops, and how many it alone drops."""
    ran = verdicts(lake, table)
    catalogue = open_catalogue(settings_at(lake))
    chosen = resolve(policy)
    found = preview(read_documents(catalogue, "notes", [chosen]), chosen)
    assert found.before.documents == len(ran) == DOCUMENTS
    assert found.kept.documents == sum(not failed for failed in ran.values()) > 5
    drops: Counter[str] = Counter(rule for failed in ran.values() for rule in failed)
    alone: Counter[str] = Counter(failed[0] for failed in ran.values() if len(failed) == 1)
    for counted, expected in (("drops", drops), ("alone", alone)):
        by_rule: Counter[str] = Counter()
        for rule in found.rules:
            by_rule[rule.rule] += getattr(rule, counted)
        assert +by_rule == expected
    assert drops["manifest"] and alone
    sizes = {
        row["doc_id"]: row["byte_count"]
        for row in catalogue.load_table("notes.documents").scan().to_arrow().to_pylist()
    }
    assert found.kept.bytes == sum(sizes[doc_id] for doc_id, failed in ran.items() if not failed)
    assert found.kept.tokens == round(found.kept.bytes / 4) and not found.measured


def test_what_people_decided_is_told_of_what_the_rule_drops(lake: Path) -> None:
    """Of reviewed documents those that this threshold drops; the others say nothing of it."""
    catalogue = open_catalogue(settings_at(lake))
    ran = verdicts(lake, "notes.verdicts_strict")
    failed = sorted(doc_id for doc_id, rules in ran.items() if "few_stars" in rules)
    kept = next(doc_id for doc_id, rules in ran.items() if "few_stars" not in rules)
    said = {failed[0]: "right", failed[1]: "right", failed[2]: "wrong", failed[3]: "unsure", kept: "wrong"}
    rows = [{"doc_id": doc_id, "rule": "few_stars", "decision": one} for doc_id, one in said.items()]
    reviews.record(catalogue, "notes.verdicts_strict", rows, "ann")
    chosen = resolve(STRICT)
    found = {rule.rule: rule for rule in preview(read_documents(catalogue, "notes", [chosen]), chosen).rules}
    assert str(found["few_stars"].precision) == "0.67 (0.21 to 0.94) of 3, 1 unsure"
    assert str(found["loud"].precision) == "not reviewed"


def test_documents_that_were_not_scored_are_told(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would pass rules on scores that they lack, and fail them in the run."""
    read = rule_inputs._read

    def partly(
        catalogue: Catalog, dataset: str, part: BooleanExpression, table: str, columns: Sequence[str]
    ) -> pa.Table:
        rows = read(catalogue, dataset, part, table, columns)
        return rows.slice(2) if table == "shouting" else rows

    monkeypatch.setattr(rule_inputs, "_read", partly)
    said = rf"notes\.shouting lacks 2 of {DOCUMENTS} documents looked at; run `headrace run notes\.shouting` first"
    with pytest.raises(CommandError, match=said):
        list(read_documents(open_catalogue(settings_at(lake)), "notes", [resolve(STRICT)]))


@pytest.mark.nightly
def test_a_preview_takes_the_memory_of_a_part(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut into parts of a few documents, nothing that is read at once has more, and what is said is the same."""
    catalogue, policies = open_catalogue(settings_at(lake)), [resolve("headrace"), resolve(STRICT)]
    whole = compare(read_documents(catalogue, "notes", policies), *policies)
    monkeypatch.setattr(rule_inputs, "parts", partial(parts, rows=10))
    sizes = [part.rows.num_rows for part in read_documents(catalogue, "notes", policies)]
    assert len(sizes) > DOCUMENTS / 10 and sum(sizes) == DOCUMENTS and max(sizes) < 25
    assert compare(read_documents(catalogue, "notes", policies), *policies) == whole


def test_a_declared_scorer_that_has_not_run_is_told_from_none(lake: Path) -> None:
    """The message says what to run; a scorer that nobody declares is still no scorer."""
    catalogue = open_catalogue(settings_at(lake))
    policy = resolve({"rules": [{"rule": "r", "signal": "languages.confidence", "below": 0.5}]})
    declared = {"languages": {"confidence": "double"}}
    with pytest.raises(CommandError, match=r"notes\.languages has not been computed yet; first: headrace run notes\.l"):
        next(read_documents(catalogue, "notes", [policy], lambda: declared))
    with pytest.raises(CommandError, match="there is no scorer 'languages' in notes; add"):
        next(read_documents(catalogue, "notes", [policy]))


def test_documents_on_both_sides_of_a_threshold_are_the_nearest(lake: Path) -> None:
    """By the distance from it, then by id."""
    catalogue = open_catalogue(settings_at(lake))
    policy = resolve({"rules": [{"rule": "few", "signal": "word_count", "below": 40}]})
    rule = preview(read_documents(catalogue, "notes", [policy]), policy).rules[0]
    rows = catalogue.load_table("notes.signals").scan().to_arrow().to_pylist()
    order = sorted((abs(row["word_count"] - 40), row["doc_id"], row["word_count"]) for row in rows)
    assert list(rule.failing) == [(doc_id, count) for _, doc_id, count in order if count < 40][:10]
    assert list(rule.passing) == [(doc_id, count) for _, doc_id, count in order if count >= 40][:10]


def test_policies_are_compared_document_by_document(lake: Path) -> None:
    """The four parts are all there is, and each rule is counted where it makes the difference."""
    policies = [resolve("headrace"), resolve(STRICT)]
    found = compare(read_documents(open_catalogue(settings_at(lake)), "notes", policies), *policies)
    ran, strict = verdicts(lake, "notes.verdicts"), verdicts(lake, "notes.verdicts_strict")
    both = {(not ran[doc_id], not strict[doc_id]) for doc_id in ran}
    assert len(both) == 4
    counts = Counter((not ran[doc_id], not strict[doc_id]) for doc_id in ran)
    order = {"both": (True, True), "first": (True, False), "second": (False, True), "neither": (False, False)}
    assert {name: size.documents for name, size in found.kept_by.items()} == {k: counts[v] for k, v in order.items()}
    assert found.lost == Counter(rule for doc_id, rules in strict.items() if not ran[doc_id] for rule in rules)
    assert found.gained == Counter(rule for doc_id, rules in ran.items() if not strict[doc_id] for rule in rules)
    lost = sorted(doc_id for doc_id in ran if not ran[doc_id] and strict[doc_id])
    assert list(found.examples["first"]) == lost[:10]


def test_a_run_enters_its_policies_for_good(lake: Path) -> None:
    """Both are in the registry; another policy of the same name and version fails the run with one line."""
    catalogue = open_catalogue(settings_at(lake))
    there = {one.label: one.content_hash for one in entries(catalogue, "policy")}
    assert there == {"headrace@1": resolve("headrace").content_hash, "strict@1": resolve(STRICT).content_hash}
    project = declared(lake, variants={"strict": {**STRICT, "set": {}}})
    result = project.run("notes.verdicts_strict")
    (failure,) = result.filter_events(lambda event: event.is_step_failure)
    assert not result.success and "give it a new version" in str(failure.event_specific_data)


@pytest.mark.nightly
def test_the_commands_add_show_preview_and_compare(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file is added, found by name and previewed with another threshold; mistakes are one line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_DEBUG", "")
    (tmp_path / "own.yaml").write_text("{name: own, version: 7, extends: [headrace]}")
    (tmp_path / "gopher.yaml").write_text("{name: gopher, version: 9, rules: []}")

    def run(*words: str) -> tuple[int, str]:
        with lake_settings(lake):
            status = run_command(["policy", *words])
        out, err = capsys.readouterr()
        return status, out or err

    assert run("add", "own.yaml")[1].startswith("own@7: 13 rules, hash ")
    assert "headrace brings a policy of this name" in run("add", "gopher.yaml")[1]
    listed = json.loads(run("show", "--json")[1])
    assert {"web_en@1", "own@7", "strict@1"} <= {row["policy"] for row in listed}
    assert "too_few_words" in run("show", "own")[1]
    found = json.loads(run("preview", "notes", "own@7", "--set", "prose.too_few_words=9", "--json")[1])
    assert found["policy"].startswith("own@7+") and found["rules"][0]["threshold"] == 9
    status, said = run("preview", "notes", "own", "--rule", "too_few_words")
    assert status == 0 and "fail too_few_words (prose)" in said and "% of the documents are kept" in said
    status, said = run("preview", "notes", "own", str(tmp_path / "own.yaml"))
    assert status == 0 and "both" in said
    for words, message in (
        (
            ("preview", "notes", "gopher"),
            "there is no scorer 'heuristics' in notes; add to attributes of its declaration `scorers: {heuristics: {}}",
        ),
        (("preview", "nots", "own"), "did you mean 'notes'?"),
        (("preview", "notes", "own", "--set", "x"), "write RULE=VALUE"),
        (("preview", "notes", "own", "--rule", "too_few"), "there is no rule 'too_few'; did you mean 'too_few_words'?"),
        (("show", "onw"), "policy onw: there is none; did you mean 'own'?"),
    ):
        status, said = run(*words)
        assert status == 2 and message in said and said.count("\n") == 1, said


def test_a_policy_reads_only_what_the_dataset_measures(tmp_path: Path) -> None:
    """Found when the project loads, before anything runs."""
    with pytest.raises(
        DefinitionError, match=r"dataset notes: .*rule loud reads shouting.mark_fraction: there is no sc"
    ):
        declared(tmp_path, scorers={})


def test_a_scorer_has_a_table_of_its_own(tmp_path: Path) -> None:
    """Neither the name of a table that every dataset has, nor that of another scorer."""
    with pytest.raises(DefinitionError, match=r"the table texts of a scorer is headrace's own; rename the scorer"):
        declared(tmp_path, scorers={f"{__name__}:CLASH": {}})

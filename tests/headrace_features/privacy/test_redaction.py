"""A dataset that redacts: from its files to packed tokens, and from a token back to the bytes of its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dagster_project.assets.datasets import DatasetDeclaration, dataset_assets
from dagster_project.cli import run_command
from dagster_project.exceptions import DefinitionError
from dagster_project.inspect.corpora.policy_preview import preview
from dagster_project.inspect.corpora.rule_inputs import read_documents
from dagster_project.inspect.documents.trace import TokenTracer
from dagster_project.metadata import Samples
from headrace.tables.settings import settings_at
from headrace_features.privacy.personal_data.names import NamesConfig, located
from headrace_features.privacy.personal_data.personal_data import AuditConfig, personal_data_audit, with_model
from spark_jobs.exceptions import InputError
from spark_jobs.filters.policy_resolution import resolve
from spark_jobs.filters.scorer import check_scorer
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.project import Project, failures, key, lake_settings
from tests.dagster_project.traced_lake import SIZE, write_corpus
from tests.headrace_features.models.ruled_pipeline import ruled_pipeline

POLICY = {"name": "any", "version": 1, "rules": [{"rule": "empty", "signal": "word_count", "below": 1}]}
TABLES = (
    "arrivals",
    "documents",
    "repositories",
    "provenance",
    "raw_texts",
    "personal_data",
    "texts",
    "signals",
    "verdicts",
)
REDACT = {"mail": "replace", "card": "drop"}
WORDS = "Whoever reads this line a second time has read it twice, which is more often than it was written. "
PAGES = {
    "clean.txt": f"{WORDS}Nothing personal stands here.",
    "mail.txt": f"{WORDS}\r\nJose\u0301 <ada@lovelace.org> wrote to bo@lovelace.org;\r\nADA@LOVELACE.ORG answered.",
    "card.txt": f"{WORDS}She paid by card 4111 1111 1111 1111, said ada@lovelace.org.",
}


def declaration(root: Path, **more: Any) -> DatasetDeclaration:
    """A dataset over the pages."""
    return DatasetDeclaration("notes", {"kind": "files", "path": str(root / "pages")}, policy=POLICY, **more)


@pytest.mark.nightly
def test_a_token_of_a_redacted_text_leads_back_to_its_file(
    tmp_path: Path, spark: object, capfd: pytest.CaptureFixture[str]
) -> None:
    """What was replaced is in no table after `raw_texts`; a document is dropped by name; a preview says the same."""
    (tmp_path / "pages").mkdir()
    for name, text in PAGES.items():
        (tmp_path / "pages" / name).write_bytes(text.encode())
    with lake_settings(tmp_path):
        project = Project(tmp_path, *dataset_assets(declaration(tmp_path, redact=REDACT)))
    ran = project.run(*(f"notes.{table}" for table in TABLES))
    assert ran.success, failures(ran)

    names = dict(project.rows("notes.documents", "doc_id", "path"))
    texts = {names[doc_id]: text for doc_id, text in project.rows("notes.texts", "doc_id", "content")}
    assert texts["clean.txt"] == PAGES["clean.txt"]
    assert texts["mail.txt"] == f"{WORDS}\nJos\u00e9 <<MAIL_1>> wrote to <MAIL_2>;\n<MAIL_1> answered."
    assert texts["card.txt"] == f"{WORDS}She paid by card <CARD_1>, said <MAIL_1>."
    raw = {names[doc_id]: text for doc_id, text in project.rows("notes.raw_texts", "doc_id", "content")}
    assert "José <ada@lovelace.org>" in raw["mail.txt"]
    found = {names[doc_id]: spans for doc_id, spans in project.rows("notes.personal_data", "doc_id", "spans")}
    assert [(span["kind"], span["action"]) for span in found["card.txt"]] == [
        ("dataset", "show", "--card", "drop"),
        ("mail", "replace"),
    ]
    verdicts = {names[doc_id]: failed for doc_id, failed in project.rows("notes.verdicts", "doc_id", "failed")}
    dropped = [{"rule": "personal_data", "value": 1.0, "threshold": 0.0}]
    assert verdicts == {"clean.txt": [], "mail.txt": [], "card.txt": dropped}

    catalogue = open_catalogue(settings_at(tmp_path))
    policy = resolve(POLICY)
    previewed = preview(read_documents(catalogue, "notes", [policy]), policy)
    assert {rule.rule: rule.drops for rule in previewed.rules} == {"empty": 0, "personal_data": 1, "manifest": 0}
    assert previewed.kept.documents == 2

    write_corpus(catalogue, "notes", 0, {doc_id: texts[name] for doc_id, name in names.items() if verdicts[name] == []})
    tracer = TokenTracer(catalogue, f"main.packed_notes_{SIZE}")
    text, source, replaced, covered = texts["mail.txt"].encode(), PAGES["mail.txt"].encode(), set(), dict[int, bytes]()
    for (ordinal,) in project.rows(f"main.packed_notes_{SIZE}", "ordinal"):
        for token in (tracer.trace(ordinal, position) for position in range(SIZE)):
            if token.what == "token" and token.path == "mail.txt":
                assert token.text_start is not None and token.source_start is not None
                own = text[token.text_start : token.text_end]
                led = source[token.source_start : token.source_end]
                covered[token.text_start] = own
                replaced |= set() if own == led else {led.decode()}
    assert b"".join(covered[start] for start in sorted(covered)) == text
    assert {one.strip(" <>") for one in replaced} >= {"ada@lovelace.org", "bo@lovelace.org", "ADA@LOVELACE.ORG"}

    with lake_settings(tmp_path):
        capfd.readouterr()
        said_of = {}
        for doc_id, name in names.items():
            assert run_command(["doc", "why", doc_id]) == 0
            said_of[name] = capfd.readouterr().out
    assert "redacted 3" in said_of["mail.txt"]
    assert "failed personal_data (1, the bound is 0)" in said_of["card.txt"]


def test_a_dataset_reads_raw_texts_only_where_it_redacts(tmp_path: Path) -> None:
    """Signals, verdicts and the corpus read `texts` as ever; without an action there is no further table."""
    plain = tables(declaration(tmp_path))
    assert tables(declaration(tmp_path, redact={"mail": "keep"})) == plain
    assert not plain & {"notes.raw_texts", "notes.personal_data"}
    redacting = tables(declaration(tmp_path, redact=REDACT, scorers={"personal_data": {"min_confidence": 0.9}}))
    assert redacting == plain | {"notes.raw_texts", "notes.personal_data"}
    steps = {"texts": {"min_letters": 5}}
    assets = dataset_assets(declaration(tmp_path, redact=REDACT, steps=steps, samples=Samples.TEXT))
    graph = Project(tmp_path, *assets).definitions.resolve_asset_graph()
    assert graph.get(key("notes.raw_texts")).child_keys == {key("notes.texts"), key("notes.personal_data")}
    assert key("notes.personal_data") in graph.get(key("notes.verdicts")).parent_keys
    assert graph.get(key("notes.raw_texts")).metadata["samples"] == "ids"
    assert graph.get(key("notes.texts")).metadata["samples"] == "text"
    kept = dataset_assets(declaration(tmp_path, redact={"mail": "replace"}))
    graph = Project(tmp_path, *kept).definitions.resolve_asset_graph()
    assert key("notes.personal_data") not in graph.get(key("notes.verdicts")).parent_keys


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"redact": {"mial": "replace"}}, "dataset notes: redact: no rule finds 'mial'; did you mean 'mail'"),
        ({"redact": {"mail": "dorp"}}, "redact: mail: there is no action 'dorp'; did you mean 'drop'"),
        ({"redact": REDACT, "steps": {"raw_texts": {}}}, "there is no step 'raw_texts'; did you mean 'texts'"),
    ],
)
def test_what_redact_cannot_mean_is_refused(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    """One line that names the nearest."""
    with pytest.raises(DefinitionError, match=said):
        dataset_assets(declaration(tmp_path, **more))


@pytest.mark.nightly
def test_a_model_finds_names_for_a_dataset(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It is of the registry or a folder; then its kinds can be redacted, and another model is another config."""
    pytest.importorskip("spacy", reason="spacy is in the extra names")
    folder = ruled_pipeline(tmp_path / "people", {"PERSON": "Bj\u00f6rn \u010capek", "GPE": "Oslo"})
    text = "My name is Bj\u00f6rn \u010capek and I live in Oslo, b@lovelace.org."
    with lake_settings(tmp_path):
        assert run_command(["model", "add", "people", "--from", str(folder), "--version", "1"]) == 0
        assert "people@1: names, 2 labels" in (said := capfd.readouterr().out) and "names: {model: people@1}" in said
        assert run_command(["model", "show", "people"]) == 0 and "GPE, PERSON" in capfd.readouterr().out
        for model in ("people@1", str(folder)):
            scorers: dict[str, Any] = {"personal_data": {"names": {"model": model}}}
            assert "notes.raw_texts" in tables(declaration(tmp_path, redact={"name": "replace"}, scorers=scorers))
            with pytest.raises(DefinitionError, match=r"neither a rule nor .* finds 'nam'; did you mean 'name'"):
                tables(declaration(tmp_path, redact={"nam": "drop"}, scorers=scorers))
            with pytest.raises(DefinitionError, match="is of use where kinds are redacted"):
                tables(declaration(tmp_path, scorers=scorers))
            names = located(NamesConfig(model=model))
            config = AuditConfig(actions={"name": "drop"}, names=names)
            (found,) = check_scorer(personal_data_audit, config, [text], texts=()).to_pylist()
            spans = [(one["kind"], text.encode()[one["start"] : one["end"]].decode()) for one in found["spans"]]
            assert spans == [("name", "Bj\u00f6rn \u010capek"), ("mail", "b@lovelace.org")]
            assert (found["drop_count"], found["mail_count"]) == (1, 1)
        for model, wanted in (
            ("people@2", "people@2 is not in the registry; did you mean 'people@1'"),
            (str(tmp_path), "has no meta.json of spaCy"),
        ):
            with pytest.raises(DefinitionError, match=wanted):
                tables(declaration(tmp_path, redact=REDACT, scorers={"personal_data": {"names": {"model": model}}}))
    ruled_pipeline(folder, {"PERSON": "Ada"})
    assert names.sha256 != located(NamesConfig(model=str(folder))).sha256
    changed = AuditConfig(actions={"name": "drop"}, names=names.model_copy(update={"sha256": "0" * 64}))
    with pytest.raises(InputError, match="it had 000000000000; run it again"):
        with_model(changed)


def tables(declared: DatasetDeclaration) -> set[str]:
    """The tables of a dataset."""
    return {".".join(one.path) for asset in dataset_assets(declared) for one in asset.keys}

"""Datasets and corpora in YAML: what loads, and what is refused in one line that names file and field."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_project import components
from dagster_project.assets.datasets import DatasetDeclaration, dataset_assets
from dagster_project.assets.deduplication import Deduplication, deduplication_chain
from dagster_project.cli import run_command
from dagster_project.exceptions import DefinitionError
from dagster_project.lake_asset import older_input
from dagster_project.project.loading import load_definitions
from dagster_project.resources import LakeResource
from dagster_project.run_config import bind_config
from headrace.tables.settings import settings_at
from spark_jobs.dedup.removal.survivors import survivors
from spark_jobs.exceptions import StepRunError
from spark_jobs.lake.declare.tables import Table
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.step_key import config_json
from spark_jobs.lake.session.catalogue import ensure_table, open_catalogue
from spark_jobs.sources.documents import ARRIVALS, DOCUMENTS
from spark_jobs.text.texts import TEXTS
from tests.dagster_project.conftest import WriteDefs
from tests.dagster_project.project import key
from tests.tiers import sampled

DATASET = """\
type: headrace.Dataset
attributes:
  name: notes
  source: {{kind: files, path: {path}, text_column: body}}
  samples: text
  owners: ["team:notes", "someone@example.com"]
  shards: 4
  allow_empty: true
  policy: {{extends: [headrace], set: {{prose.too_few_words: 7}}}}
"""
CORPUS = """\
type: headrace.Corpus
attributes:
  name: small
  datasets: [notes]
  revisions: {notes: all}
  superseded: excise
  on_delete: excise
  tokenizer: {train: {vocabulary_size: 300}}
  window_tokens: [64, 128]
  deduplication: {levels: [exact, near], thresholds: [0.6, 0.9], apply: 0.9, known_good: [good],
    features: {prose: word_pairs}}
"""


def dataset(line: str, source: str = "{kind: files, path: /nowhere}") -> str:
    """A dataset with one more attribute."""
    return f"type: headrace.Dataset\nattributes:\n  name: notes\n  source: {source}\n  {line}\n"


def corpus(line: str) -> str:
    """A corpus with one more attribute."""
    return f"type: headrace.Corpus\nattributes:\n  name: small\n  datasets: [notes]\n  {line}\n"


def test_a_dataset_and_a_corpus_become_chains_of_assets(declare: WriteDefs, tmp_path: Path) -> None:
    """Every step is an asset of the namespace, in the group of its name, under the declaration's owners."""
    declare("notes", DATASET.format(path=tmp_path))
    declare("small", CORPUS)
    graph = load_definitions().resolve_asset_graph()
    tables = [one for one in graph.get_all_asset_keys() if graph.get(one).group_name != "maintenance"]
    assert {".".join(asset.path) for asset in tables} == {
        *(f"notes.{t}" for t in ("arrivals", "documents", "repositories", "provenance", "texts", "signals")),
        *(f"notes.{t}" for t in ("verdicts", "dependencies", "dependency_methods")),
        *(f"small.{t}" for t in ("increments", "members", "revisions", "exact_duplicates", "survivors", "ordered")),
        *(f"small.{t}" for t in ("vocabulary", "bags", "background", "signatures", "buckets", "bands", "pairs")),
        *(f"small.{t}" for t in ("large_buckets", "components", "removals", "thresholds")),
        *(f"small.{t}" for t in ("tokenizer", "tokenizer_certificate", "tokens", "token_statistics")),
        *(f"small.{t}" for t in ("packed_notes_64", "packed_notes_128")),
    }
    assert key("notes.dependencies") in graph.get(key("small.ordered")).parent_keys
    assert key("small.removals") in graph.get(key("small.survivors")).parent_keys
    verdicts = graph.get(key("notes.verdicts"))
    assert verdicts.group_name == "notes"
    assert list(verdicts.owners) == ["team:notes", "someone@example.com"]
    assert verdicts.parent_keys == {key("notes.signals"), key("notes.documents")}
    assert graph.get(key("small.members")).parent_keys >= {key("notes.texts"), key("notes.verdicts")}


def test_an_api_and_a_stream_are_declared_like_files(declare: WriteDefs) -> None:
    """They have one table more, for the changes of their fields; a mistake in a paginator is named by its field."""
    columns = "text_column: body, id_column: id"
    api = "kind: api, url: 'https://host.example/v1', paginator: {{kind: {kind}}}"
    for source in (api.format(kind="link_header"), "kind: stream, path: /nowhere"):
        declare("notes", dataset("shards: 2", f"{{{source}, {columns}}}"))
        assert key("notes.schema_changes") in load_definitions().resolve_asset_graph().get_all_asset_keys()
    declare("notes", dataset("shards: 2", f"{{{api.format(kind='curser')}, {columns}}}"))
    with pytest.raises(DefinitionError, match=r"paginator.*'curser' is not known; did you mean 'cursor'"):
        load_definitions()


def test_what_yaml_says_is_the_default_of_the_run_config(declare: WriteDefs, tmp_path: Path) -> None:
    """The Launchpad shows the declared values, so a run from the UI is the run that YAML means."""
    declare("notes", DATASET.format(path=tmp_path))
    declare("small", CORPUS)
    job = load_definitions().resolve_implicit_global_asset_job_def()

    def default(op: str, field: str) -> Any:
        schema: Any = job.graph.node_named(op).definition.config_schema
        return schema.config_type.fields[field].default_value

    assert default("notes__documents", "shards") == 4
    assert default("notes__documents", "source")["text_column"] == "body"
    rules = [one for one in default("notes__verdicts", "policy")["rules"] if one["rule"] == "too_few_words"]
    assert [one["below"] for one in rules] == [7, 1, 1]
    assert default("small__members", "revisions") == {"notes": "all"}
    assert [default("small__revisions", field) for field in ("latest", "superseded")] == [[], "excise"]
    assert [default(f"small__{step}", "on_delete") for step in ("members", "revisions")] == ["excise"] * 2
    assert default("notes__documents", "allow_empty") is True
    assert default("small__tokenizer", "vocabulary_size") == 300
    features = {"code": "words_and_structure", "prose": "word_pairs", "markup": "words", "data": "word_runs"}
    assert default("small__vocabulary", "features") == default("small__bags", "features") == features
    assert default("small__packed_notes_128", "window_tokens") == 128
    assert default("small__members", "known_good") == ["good"]
    assert default("small__buckets", "threshold") == 0.6
    assert [default(f"small__{step}", "thresholds") for step in ("pairs", "removals")] == [[0.6, 0.9]] * 2
    assert default("small__survivors", "threshold") == 0.9


def test_thresholds_by_kind_reach_the_steps_that_compare_and_remove() -> None:
    """All thresholds together where groups are numbered; by kind where pairs are stored and where documents go.

    Written as one list, or by kind with the same for all, they are the config and so the data version of before.
    """
    lists = ({"thresholds": [0.7, 0.8]}, {"thresholds": {"default": [0.7, 0.8]}, "apply": {"default": 0.8}})
    plain, same = (_config_of(given) for given in lists)
    assert plain == same
    assert plain["pairs"] == '{"max_bucket_pairs":131072,"thresholds":[0.7,0.8]}'
    assert plain["survivors"] == '{"threshold":0.8}'
    by_kind = _config_of({"thresholds": {"code": [0.5], "default": [0.7, 0.8]}, "apply": {"code": 0.5}})
    assert all('"thresholds":[0.5,0.7,0.8]' in by_kind[step] for step in ("components", "removals"))
    others = '"data":[0.7,0.8],"markup":[0.7,0.8],"prose":[0.7,0.8]'
    assert all(f'"thresholds":{{"code":[0.5],{others}}}' in by_kind[step] for step in ("pairs", "thresholds"))
    for step, other in (("buckets", 0.7), ("survivors", 0.8)):
        threshold = f'{{"code":0.5,"data":{other},"markup":{other},"prose":{other}}}'
        assert f'"threshold":{threshold}' in by_kind[step]


def _config_of(given: dict[str, Any]) -> dict[str, str]:
    """The configs of the steps of a corpus with such a deduplication, as step keys have them."""
    declared = bind_config(Deduplication, "corpus main", given)
    chain = deduplication_chain(
        declared, survivors, lambda name: f"main.{name}", lambda name: (f"notes.{name}",), (), {}
    )
    return {made.name: config_json(made.config.model_validate(config)) for made, _, config, _ in chain}


SCORER = """\
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.filters.scorer import scorer
from spark_jobs.lake.declare.tables import Column


@scorer(name="shouting", version="1", columns=(Column("mark_count!", "int", "exclamation marks"),))
def shouting(content: pa.Array) -> dict[str, pa.Array]:
    'Count exclamation marks.'
    return {"mark_count": pc.count_substring(content, "!")}
"""


def test_scorers_policies_and_variants_become_assets(declare: WriteDefs, tmp_path: Path) -> None:
    """A scorer of the project's own; a policy from a file beside the declaration; a corpus that takes a variant."""
    (tmp_path / "declared" / "scorers.py").write_text(SCORER)
    lines = ["scorers: {declared.scorers:shouting: {}}", "variants: {calm: calm.yaml}"]
    file = declare("notes", dataset("\n  ".join(lines)))
    calm = "{name: calm, version: 2, extends: [headrace], rules: [{rule: loud, signal: shouting.mark_count, above: 9}]}"
    (file.parent / "calm.yaml").write_text(calm)
    declare("small", CORPUS.replace("revisions:", "variants: {notes: calm}\n  revisions:"))
    graph = load_definitions().resolve_asset_graph()
    assert graph.get(key("notes.shouting")).parent_keys == {key("notes.texts")}
    assert graph.get(key("notes.shouting")).description.startswith("One row per text. Count exclamation marks.")
    asked = {key(f"notes.{name}") for name in ("signals", "documents")}
    assert graph.get(key("notes.verdicts")).parent_keys == asked
    assert graph.get(key("notes.verdicts_calm")).parent_keys == {*asked, key("notes.shouting")}
    read = graph.get(key("small.members")).parent_keys
    assert key("notes.verdicts_calm") in read and key("notes.verdicts") not in read


def test_selections_reach_the_corpus_as_they_are_listed(declare: WriteDefs, monkeypatch: pytest.MonkeyPatch) -> None:
    """YAML takes `off` for a boolean, and an entry may be a name alone."""
    seen: list[Any] = []
    monkeypatch.setattr(components, "corpus_assets", lambda declared: seen.append(declared.select) or [])
    declare("notes", dataset("shards: 1"))
    declare("small", corpus("select: [passages, shape: {drop: [1], losses: {rate: 0.5}}, decontaminate: off]"))
    load_definitions()
    shape = {"shape": {"drop": [1], "losses": {"rate": 0.5}}}
    assert seen == [("passages", shape, {"decontaminate": False})]


def test_a_corpus_of_exact_duplicates_alone_has_no_further_steps(declare: WriteDefs, tmp_path: Path) -> None:
    """The level `near` is left out as a whole."""
    declare("notes", DATASET.format(path=tmp_path))
    declare("small", CORPUS.replace("levels: [exact, near]", "levels: [exact]"))
    graph = load_definitions().resolve_asset_graph()
    tables = {asset.path[1] for asset in graph.get_all_asset_keys() if asset.path[0] == "small"}
    assert "exact_duplicates" in tables and not tables & {"vocabulary", "bags", "pairs", "removals", "thresholds"}


def test_the_level_repository_leads_into_removals(declare: WriteDefs, tmp_path: Path) -> None:
    """Files of repositories that go are decided with all others; what lies inside what is a table beside."""
    declare("notes", DATASET.format(path=tmp_path))
    declare("small", CORPUS.replace("levels: [exact, near]", "levels: [exact, near, repository], min_stars: 10"))
    graph = load_definitions().resolve_asset_graph()
    assert key("small.repository_removal_files") in graph.get(key("small.removals")).parent_keys
    assert key("small.repository_removal_files") not in graph.get(key("small.survivors")).parent_keys
    assert graph.get(key("small.repository_containments")).parent_keys == {key("small.repository_bags")}


@sampled(12)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(
            dataset("sauce: 3"), "sauce: there is no such field; did you mean 'source'?", id="unknown attribute"
        ),
        pytest.param(dataset("shards: many"), "shards: Input should be a valid integer", id="wrong type"),
        pytest.param(dataset("shards: 3"), "3 is no power of two", id="not a power of two"),
        pytest.param(
            dataset("samples: txt"),
            "samples: 'txt' is not known; did you mean 'text'? (there are none, ids",
            id="samples",
        ),
        pytest.param(dataset("owners: [me]"), "Invalid owner 'me'", id="owner"),
        pytest.param(
            dataset("", "{kind: ftp}"),
            "source 'ftp' is not known (there are python_code, ",
            id="unknown source kind",
        ),
        pytest.param(dataset("", "{path: x}"), "source.kind is missing; write one of python_code, ", id="no kind"),
        pytest.param(dataset("", "{kind: files}"), "path is missing; write it, or urls", id="source without path"),
        pytest.param(dataset("", "{kind: files, pth: x}"), "source.pth: there is no such field; did", id="source path"),
        pytest.param(dataset("shard: 2"), "shard: there is no such field; did you mean 'shards'?", id="field"),
        pytest.param(
            dataset("").replace("attributes", "atributes"),
            "atributes: there is no such field; did you mean 'attributes'?",
            id="attributes",
        ),
        pytest.param(dataset("steps: {txts: {a: 1}}"), "no step 'txts'; did you mean 'texts'?", id="unknown step"),
        pytest.param(dataset("steps: {texts: {a: 1}}"), "notes/texts: config a: there is no such", id="step field"),
        pytest.param(
            dataset("steps: {verdicts: {manifest: leave_out}}"),
            "config manifest: there is no such field; did you mean 'manifests'?",
            id="inner step field",
        ),
        pytest.param(dataset("policy: fine_web"), "fine_web: there is none; did you mean 'fineweb'?", id="policy"),
        pytest.param(dataset("policy: mine.yaml"), "faulty/mine.yaml: No such file or directory", id="policy file"),
        pytest.param(
            dataset("variants: {web: {rules: [{rule: few, signal: wrd_count, below: 3}]}}"),
            "rule few: there is no signal 'wrd_count'; did you mean 'word_count'?",
            id="signal",
        ),
        pytest.param(
            dataset("policy: {extends: [headrace], set: {too_few_words: 3}}"),
            "set: too_few_words is a rule for prose, code, markup, data; write prose.too_few_words",
            id="threshold of several rules",
        ),
        pytest.param(
            dataset("scorers: {heuristic: {}}"),
            "scorer 'heuristic' is not known; did you mean 'heuristics'",
            id="scorer",
        ),
        pytest.param(dataset("variants: {'': headrace}"), "variants: '' cannot be part of a table", id="variant"),
        pytest.param(
            dataset("steps: {verdicts_calm: {policy: x}}\n  variants: {calm: headrace}"),
            "a policy stands beside steps; write variants: {calm: ..} there",
            id="policy of a variant",
        ),
        pytest.param(dataset("scorers: {nowhere:f: {}}"), "No module named 'nowhere'", id="scorer module"),
        pytest.param(corpus("variants: {nots: strict}"), "no dataset 'nots'; did you mean 'notes'?", id="variants"),
        pytest.param(
            corpus("windw_tokens: [512]"),
            "windw_tokens: there is no such field; did you mean 'window_tokens'?",
            id="window_tokens",
        ),
        pytest.param(
            corpus("revisions: {notes: newest}"), "revisions.notes: 'newest' is not known; did", id="revisions"
        ),
        pytest.param(dataset("").replace("notes", "My-Notes"), "name: String should match pattern", id="bad name"),
        pytest.param(dataset("").replace("notes", "system"), "the namespace 'system' is reserved", id="reserved name"),
        pytest.param(
            corpus("select: {shape: {}}"),
            "(got {'shape': {}}); it is: selections in their order, each a name or {name: settings}",
            id="map of selections",
        ),
        pytest.param(corpus("window_tokens: [many]"), "window_tokens.0: Input should be a valid integer", id="window"),
        pytest.param(
            corpus("window_tokens: [0]"), "window_tokens: Input should be greater than or equal", id="window 0"
        ),
        pytest.param(corpus("deduplication: {levels: [near]}"), "levels ['near'] are not a beginning of", id="levels"),
        pytest.param(corpus("deduplication: {apply: 0.75}"), "apply 0.75 is not one of thresholds", id="apply"),
        pytest.param(
            corpus("deduplication: {thresholds: {cod: [0.5]}}"),
            "config thresholds.cod: there is no such field; did you mean 'code'?",
            id="kind of thresholds",
        ),
        pytest.param(
            corpus("deduplication: {thresholds: {code: [0.5, 0.4]}}"),
            "thresholds.code: thresholds [0.5, 0.4] are not in ascending order, each once; sort them",
            id="thresholds of a kind",
        ),
        pytest.param(
            corpus("deduplication: {thresholds: {code: [0.5]}}"),
            "apply 0.8 is not one of thresholds [0.5] of code; add it there, or apply one of them: apply: {code: 0.5}",
            id="apply by kind",
        ),
        pytest.param(
            corpus("deduplication: {apply: {code: many}}"),
            "apply.code: Input should be a valid number",
            id="apply text",
        ),
        pytest.param(
            corpus("deduplication: {level: [exact]}"),
            "config level: there is no such field; did you mean 'levels'?",
            id="level field",
        ),
        pytest.param(
            corpus("deduplication: {features: {prose: words_and_structure}}"),
            "features.prose: 'words_and_structure' is not known; did you mean 'word_runs'?",
            id="structure of prose",
        ),
        pytest.param(
            corpus("tokenizer: {train: {size: 3}}"), "config size: there is no such field", id="tokenizer field"
        ),
        pytest.param(corpus("tokenizer: {train: 3}"), "train is 3; write {vocabulary_size: ..}", id="tokenizer type"),
        pytest.param(
            corpus("steps: {tokns: {a: 1}}"), "no step 'tokns'; did you mean 'tokens'?", id="unknown corpus step"
        ),
        pytest.param(
            corpus("shape: {downsample: {0: 0.4}}\n  passages: {cut: true}\n  decontaminate: off"),
            "write instead: select: [shape: {downsample: {0: 0.4}}, passages: {cut: true}, decontaminate: off]",
            id="fields that are selections",
        ),
        pytest.param(
            corpus("deduplication: {levels: [exact, semantic], semantic: {vectors: mini, datasets: [notes]}}"),
            "write instead: select: [semantic: {vectors: mini, datasets: [notes]}], and levels: [exact]",
            id="a level that is a selection",
        ),
        pytest.param(corpus("select: [shap]"), "selection 'shap' is not known; did you mean 'shape'?", id="selection"),
        pytest.param(corpus("").replace("[notes]", "[]"), "datasets is empty; name at least one", id="no dataset"),
        pytest.param("attributes:\n  name: notes\n", "type is missing; write type: headrace", id="no type"),
        pytest.param("", "type is missing; write type: headrace", id="empty file"),
        pytest.param("type: headrace.Datset\n", "there is no such component", id="unknown type"),
        pytest.param("type: headrace.Dataset\n", "name is missing; write it", id="no attributes"),
        pytest.param("type: [a\nb: {\n", ", line 2: expected ',' or ']'", id="broken YAML"),
    ],
)
def test_a_mistake_is_one_line_that_names_file_and_field(
    declare: WriteDefs, lake_env: Path, capfd: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    """Through the command line: exit status 2, and nothing but the line."""
    declare("faulty", text)
    assert run_command(["run"]) == 2
    out, err = capfd.readouterr()
    assert out == "" and err.count("\n") == 1, err
    assert err.startswith("headrace: declared/defs/faulty/defs.yaml") and said in err


def test_a_dataset_that_nobody_declares_is_named(declare: WriteDefs) -> None:
    """A corpus over a misspelt dataset does not load: file, field and the nearest name."""
    declare("small", CORPUS)
    declare("near", dataset("").replace("notes", "nites"))
    said = r"^declared/defs/small/defs.yaml: datasets: there is no dataset 'notes'; did you mean 'nites'\?"
    with pytest.raises(DefinitionError, match=said):
        load_definitions()


def test_a_table_that_no_asset_defines_is_named_with_the_nearest(declare: WriteDefs) -> None:
    """Of a blend, and of any other asset that reads what is not there."""
    source = "{table: small.packed_notes_62, weight: 1}"
    text = f"type: headrace.Blend\nattributes: {{name: mix, sources: [{source}]}}\n"
    for name, content in (("small", CORPUS), ("notes", dataset("")), ("mix", text)):
        declare(name, content)
    said = r"^blends.mix reads small.packed_notes_62: no asset defines it; did you mean 'small.packed_notes_64'\?"
    with pytest.raises(DefinitionError, match=said):
        load_definitions()


@pytest.mark.parametrize("other", [dataset(""), corpus("").replace("small", "notes")], ids=["dataset", "corpus"])
def test_two_of_one_name_are_refused_with_both_files(declare: WriteDefs, other: str) -> None:
    """Datasets and corpora share one pool of names; Dagster sees the clash of two datasets alone, and names no file."""
    declare("first", dataset(""))
    declare("second", other)
    with pytest.raises(
        DefinitionError,
        match=r"^declared/defs/second/defs.yaml: name: notes is the name of declared/defs/first/defs.yaml",
    ):
        load_definitions()


def test_an_input_of_an_earlier_version_says_what_to_run(tmp_path: Path) -> None:
    """Its table lacks a column: one of a source grows when its dataset runs, another one is made anew."""
    made = dataset_assets(DatasetDeclaration("notes", {"kind": "files", "path": "/nowhere"}))
    graph = dg.Definitions(assets=made, resources={"lake": LakeResource()}).resolve_asset_graph()
    catalogue = open_catalogue(settings_at(tmp_path))

    def without(table: Table, name: str) -> Table:
        return replace(table, columns=tuple(column for column in table.columns if column.name != name))

    inputs = {"arrivals": (ARRIVALS, "doc_id"), "texts": (TEXTS, "language"), "documents": (DOCUMENTS, "")}
    for name, (table, column) in inputs.items():
        ensure_table(catalogue, f"notes.{name}", without(table, column), {})
    older = "of an earlier version of headrace, has no column"
    ledger = Ledger(catalogue)
    unresolved = StepRunError("a column with name `doc_id` cannot be resolved, nor one with name `a`.`language`")
    said = [older_input(graph, ledger, [f"notes.{name}", "notes.nothing"], unresolved) for name in inputs]
    assert said == [
        f"notes.arrivals, {older} doc_id; run first: headrace run notes",
        f"notes.texts, {older} language; run first: headrace table delete notes.texts, then headrace run notes",
        "",
    ]
    assert older_input(graph, ledger, [f"notes.{name}" for name in inputs], StepRunError("the disk is full")) == ""


def test_a_fault_in_a_users_component_is_named_with_its_file(
    declare: WriteDefs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code that does not load, and a field that a component which is no model of pydantic's does not have."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_component.py").write_text("value = undefined\n")
    (tmp_path / "plain_component.py").write_text(
        "from dataclasses import dataclass\n\nimport dagster as dg\n\n\n@dataclass\n"
        "class Plain(dg.Component, dg.Resolvable):\n    number: int\n\n"
        "    def build_defs(self, context):\n        return dg.Definitions()\n"
    )
    declare("own", "type: broken_component.Own\n")
    with pytest.raises(DefinitionError) as caught:
        load_definitions()
    said = "type broken_component.Own: NameError: name 'undefined' is not defined"
    assert str(caught.value) == f"declared/defs/own/defs.yaml: {said}"
    declare("own", "type: plain_component.Plain\nattributes: {nomber: 1}\n")
    with pytest.raises(DefinitionError, match=r"^declared/defs/own/defs.yaml: nomber: there is no such field$"):
        load_definitions()


def test_a_fault_in_a_users_module_is_named_with_its_line(defs: Path) -> None:
    """Python below defs fails as YAML does: file, line, reason."""
    (defs / "mine.py").write_text("import dagster as dg\n\nvalue = undefined\n")
    with pytest.raises(DefinitionError) as caught:
        load_definitions()
    assert str(caught.value) == "declared/defs/mine.py, line 3: NameError: name 'undefined' is not defined"

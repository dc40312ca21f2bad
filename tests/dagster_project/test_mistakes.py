"""Mistakes in declarations that only the lake shows: `plan`, `run` and `doctor` find the same, before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

from dagster_project.cli import run_command
from dagster_project.lake_asset import declared_asset
from dagster_project.metadata import Samples
from dagster_project.resources import LakeResource
from dagster_project.table_asset import Presentation, table_asset
from headrace.tables.catalogue import tables_in
from headrace.tables.settings import load_settings
from spark_jobs.filters.policy_registry import record_policy
from spark_jobs.filters.policy_resolution import resolve
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.selection.columns import selection
from spark_jobs.selection.verdicts import Failed
from spark_jobs.text.signals import SIGNALS
from tests.dagster_project.conftest import WriteDefs
from tests.dagster_project.inspect.test_lake_status import put
from tests.tiers import sampled

Said = pytest.CaptureFixture[str]
DATASET = """\
type: headrace.Dataset
attributes:
  name: notes
  source: {{kind: files, path: {path}}}
  {more}
"""
CORPUS = """\
type: headrace.Corpus
attributes:
  name: small
  datasets: [notes]
  tokenizer: {{file: {path}}}
"""
SELECTING = """\
type: headrace.Corpus
attributes:
  name: small
  datasets: [notes]
  select: ["{name}"]
"""
POLICY = "policy: {name: own, version: '1', rules: [{rule: few, signal: word_count, below: %d}]}"


@sampled()
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (POLICY % 20, "notes.verdicts: policy own@1 is in the registry with another content"),
        (
            "scorers: {model_scores: {models: {quality@1: [good]}}}",
            "model quality@1 is not in the registry",
        ),
        ("scorers: {contamination: {evals: [gsm8k@1]}}", "eval set gsm8k@1 is not in the registry"),
        ("samples: ids", "small.tokenizer: "),
    ],
    ids=["policy", "model", "benchmark", "tokenizer"],
)
def test_plan_run_and_doctor_find_the_same(
    declare: WriteDefs, lake_env: Path, tmp_path: Path, capfd: Said, more: str, said: str
) -> None:
    """With status 2 and one line that names the table, and nothing is computed."""
    (tmp_path / "a.md").write_text("a text")
    declare("notes", DATASET.format(path=tmp_path / "a.md", more=more))
    if said.startswith("small"):
        (tmp_path / "tokenizer.json").write_text("{}")
        declare("small", CORPUS.format(path=tmp_path / "tokenizer.json"))
    catalogue = open_catalogue(load_settings())
    rules = [{"rule": "few", "signal": "word_count", "below": 5}]
    record_policy(catalogue, resolve({"name": "own", "version": "1", "rules": rules}))
    for command in ("plan", "run"):
        assert run_command([command]) == 2
        err = capfd.readouterr().err
        assert said in err and err.count("\n") == 1, command
    assert tables_in(catalogue, "notes") == []
    if "policy" in more:
        assert run_command(["doctor"]) == 2
        assert said in next(line for line in capfd.readouterr().out.splitlines() if "declarations" in line)
        put(catalogue, "notes", SIGNALS, 0, [{"doc_id": "a"}])
        assert run_command(["policy", "preview", "notes", "."]) == 2
        assert "give it a new version" in capfd.readouterr().err


@selection(reads=("signals", "texts"), version="1")
def terse(word_cuont: pa.Array) -> Iterator[Failed]:
    """Read a column that there is not."""
    yield Failed("terse", pa.array([False] * len(word_cuont)))


@selection(reads=("signals", "survivors"), version="1")
def short(word_count: pa.Array) -> Iterator[Failed]:
    """Read one that there is."""
    yield Failed("short", pa.array([False] * len(word_count)))


@sampled()
@pytest.mark.parametrize("name", ["terse", "short"])
def test_a_selection_of_a_column_that_no_table_has_is_found_before_the_run(
    declare: WriteDefs, lake_env: Path, tmp_path: Path, capfd: Said, name: str
) -> None:
    """By what the declarations say, with the nearest column; one that is there is none."""
    (tmp_path / "a.md").write_text("a text")
    declare("notes", DATASET.format(path=tmp_path / "a.md", more="samples: ids"))
    declare("small", SELECTING.format(name=f"{__name__}:{name}"))
    found = run_command(["plan"])
    err = capfd.readouterr().err
    if name == "short":
        assert found == 0 and not err
    else:
        assert found == 2 and err.count("\n") == 1
        assert "none of signals, texts has a column 'word_cuont'; did you mean 'word_count'" in err
    assert tables_in(open_catalogue(load_settings()), "notes") == []


def test_a_key_that_is_there_twice_is_refused_by_all(
    declare: WriteDefs, lake_env: Path, tmp_path: Path, capfd: Said
) -> None:
    """File and line; Dagster's own reader would take the last in silence. In files of policies too."""
    declare("notes", DATASET.format(path=tmp_path, more="samples: ids\n  samples: text"))
    put(open_catalogue(load_settings()), "notes", SIGNALS, 0, [{}])
    for command in (["plan"], ["run"], ["dataset", "show"], ["table", "show", "notes.signals", "--rows", "1"]):
        assert run_command(command) == 2
        said = "declared/defs/notes/defs.yaml, line 6: samples is there twice; leave one of them"
        assert said in capfd.readouterr().err, command
    (tmp_path / "p.yaml").write_text("name: p\nversion: 1\nversion: 2\nrules: []\n")
    assert run_command(["policy", "show", str(tmp_path / "p.yaml")]) == 2
    assert "p.yaml, line 3: version is there twice" in capfd.readouterr().err


def test_a_table_of_ones_own_shows_what_its_inputs_show() -> None:
    """The most guarded of them decides, unless the table says otherwise; ids where one is not known."""
    columns = (Column("doc_id!", "string", "identity"), Column("content", "string", "text"))
    schema = Table(name="t", comment="c", columns=columns, key=("doc_id",), sampled=("content",))

    every: list[dg.AssetsDefinition] = []

    def shown(table: str, samples: Samples | None, *inputs: str) -> Samples:
        made = table_asset(
            table=table, schema=schema, inputs={"rows": inputs}, presentation=Presentation(samples=samples)
        )(lambda rows: rows)
        every.append(made)
        graph = dg.Definitions(assets=every, resources={"lake": LakeResource()}).resolve_asset_graph()
        found = declared_asset(graph, table)
        assert found is not None
        return found.samples(graph)

    assert shown("a_text.texts", Samples.TEXT, "elsewhere.rows") is Samples.TEXT
    assert shown("a_none.texts", Samples.NONE, "elsewhere.rows") is Samples.NONE
    assert shown("a_text.own", None, "a_text.texts") is Samples.TEXT
    assert shown("b.own", None, "a_text.own", "a_none.texts") is Samples.NONE
    assert shown("c.own", None, "a_text.own", "elsewhere.rows") is Samples.IDS
    assert shown("d.own", Samples.TEXT, "a_none.texts") is Samples.TEXT

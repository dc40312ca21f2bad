"""Parents order a run: a dataset that reads the lake is asked for after what it reads was computed, in one command."""

from __future__ import annotations

import json
from pathlib import Path

import dagster as dg
import pytest

from dagster_project.cli import run_command
from dagster_project.definitions import load_project
from dagster_project.lake_asset import assets_of
from dagster_project.run_plan import stages
from headrace.tables.settings import load_settings
from headrace_features.synthetic.stand_in import StandIn
from spark_jobs.lake.declare.step import Scope
from spark_jobs.lake.plan.binding import tables_of
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.conftest import WriteDefs
from tests.headrace_features.synthetic.test_generated import served

pytestmark = pytest.mark.usefixtures("spark")
WORDS = (
    "The mill stands at the river and its wheel turns while the miller counts the sacks of every farmer. "
    "In spring the water is high, so that the race has to be closed with boards that two men carry there. "
    "What the stones grind is weighed twice, since nobody believes the first weight that he is told."
)
CHOSEN = [
    *("twin.documents", "again.documents", "copy.texts", "copy.documents"),
    *("notes.verdicts", "notes.signals", "notes.texts", "notes.documents"),
]


@pytest.fixture
def notes(declare: WriteDefs, tmp_path: Path, lake_env: Path) -> Path:
    """A dataset of one file, a copy of its texts by an Iceberg source, and a copy of the copy."""
    file = tmp_path / "notes.jsonl"
    land(file, 2)
    source = f"{{kind: files, path: {file}, text_column: body, id_column: id}}"
    policy = "{extends: [headrace], set: {prose.too_few_words: 5}}"
    declare("notes", f"type: headrace.Dataset\nattributes: {{name: notes, source: {source}, policy: {policy}}}\n")
    for name, table in (("copy", "notes.texts"), ("again", "copy.texts")):
        source = f"{{kind: iceberg, table: {table}, text_column: content, id_column: doc_id}}"
        declare(name, f"type: headrace.Dataset\nattributes: {{name: {name}, source: {source}}}\n")
    return file


def land(file: Path, count: int) -> None:
    """Write so many notes."""
    rows = ({"id": f"n{number}", "body": f"Number {number}. {WORDS}"} for number in range(count))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_what_reads_the_lake_is_of_a_later_stage(notes: Path) -> None:
    """One stage more for each dataset between; only for parents that the same run computes."""
    graph = load_project(notes.parent / "declared").resolve_asset_graph()
    keys = [key for level in graph.toposorted_asset_keys_by_level for key in sorted(level)]

    def spaces(*names: str) -> list[set[str]]:
        chosen = [key for key in keys if key.path[0] in names]
        return [{key.path[0] for key in stage} for stage in stages(graph, chosen)]

    assert spaces("notes", "copy", "again") == [{"notes"}, {"copy"}, {"again"}]
    assert spaces("again", "copy") == [{"copy"}, {"again"}]
    assert spaces("notes", "again") == [{"notes", "again"}]
    assert spaces("again") == [{"again"}] and stages(graph, []) == []
    texts = [dg.AssetKey(["notes", "documents"]), *(key for key in keys if key.path[0] == "copy")]
    assert len(stages(graph, texts)) == 1  # what `copy` reads is not among them


def test_a_run_of_one_table_follows_what_all_definitions_say(notes: Path, declare: WriteDefs, lake_env: Path) -> None:
    """The graph of a run knows the tables that it runs; a step translates increments of its datasets all the same."""
    declare("small", "type: headrace.Corpus\nattributes: {name: small, datasets: [notes, copy]}\n")
    whole = load_project(notes.parent / "declared")
    alone = dg.Definitions().resolve_asset_graph()
    for asset in assets_of(whole):
        if asset.namespace != "small" or not asset.inputs:
            continue
        binding = asset.bound(asset.config or asset.step.config(), alone, open_catalogue(load_settings()), None)
        datasets = [table for table in tables_of(*asset.inputs.values()) if table.split(".")[0] in ("notes", "copy")]
        if asset.step.scope is not Scope.INTAKE:
            assert binding.translated == {table: table.split(".")[0] for table in datasets}, asset.tables


@pytest.mark.nightly  # 20 s of CPU; two stages of one command are tried with a partition below
def test_one_command_computes_parents_and_then_what_reads_them(
    notes: Path, declare: WriteDefs, capfd: pytest.CaptureFixture[str]
) -> None:
    """In an empty lake, in any order of names, and again after new notes: a generated twin and copies of copies."""
    with served(StandIn()) as url:
        more = "accepted: 10, asking: {backoff_seconds: 0.05}"
        source = f"kind: generated, parents: {{dataset: notes}}, templates: [questions], {more}"
        source += f", endpoint: {{url: '{url}', model: m}}"
        declare("twin", f"type: headrace.Dataset\nattributes: {{name: twin, source: {{{source}}}}}\n")
        for count in (2, 3):
            land(notes, count)
            assert run_command(["run", *CHOSEN]) == 0
            out = capfd.readouterr().out
            assert out.count("engine: ") == 1
            computed = {line.split()[0] for line in out.splitlines() if " computed " in line}
            assert set(CHOSEN) <= computed


@pytest.mark.nightly
def test_what_reads_a_table_that_failed_is_left(
    notes: Path, declare: WriteDefs, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its source is not asked, whatever older rows the lake has."""
    declare("bad", "type: headrace.Dataset\nattributes: {name: bad, source: {kind: files, path: /not/there}}\n")
    source = "{kind: iceberg, table: bad.texts, text_column: content, id_column: doc_id}"
    declare("behind", f"type: headrace.Dataset\nattributes: {{name: behind, source: {source}}}\n")
    tables = ("bad.documents", "bad.texts", "behind.documents", "notes.documents")
    assert run_command(["run", *tables]) != 0
    out = capfd.readouterr().out
    assert "behind.documents" in out.partition("left, because ")[2] and "notes.documents" in out


_DAYS = """
import dagster as dg
from headrace import Column, Table, table_asset

DAYS = Table(name="x", comment="A day.", columns=(Column("day!", "string", "the day"),), partition=("day",))


@table_asset(table="own.days", schema=DAYS, partitions_def=dg.StaticPartitionsDefinition(["a", "b"]), any_engine=True,
             inputs={"texts": "copy.texts"})
def days(spark, texts, context):
    "The partition's key."
    return spark.sql(f"SELECT '{context.partition_key}' AS day")
"""


@pytest.mark.nightly
def test_a_partition_is_of_the_whole_selection(notes: Path, defs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Only the last stage has partitions: one that is not there is refused before the first, one that is runs."""
    (defs / "tables").mkdir()
    (defs / "tables" / "__init__.py").touch()
    (defs / "tables" / "own.py").write_text(_DAYS)
    words = ["run", *CHOSEN[2:4], *CHOSEN[5:], "own.days"]
    assert run_command([*words, "--partition", "c"]) == 2
    said = capfd.readouterr()
    assert "partition 'c' is not there; the last ones are a, b" in said.err and " computed " not in said.out
    assert run_command(["run", "--dry-run", *words[1:], "--partition", "c"]) == 2
    assert run_command([*words, "--partition", "b"]) == 0
    assert "own.days[b]" in capfd.readouterr().out

"""`headrace table check`: rows computed once more, on either engine, without a trace in the table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dagster_project.cli import run_command
from dagster_project.cli.data import table_check
from headrace.tables.settings import load_settings
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.session.catalogue import open_catalogue

pytestmark = pytest.mark.usefixtures("spark")
Said = pytest.CaptureFixture[str]
_TABLES = """
import dagster as dg
from headrace import Check, Column, Table, table_asset

COLUMNS = (Column("n!", "long", "a number"), Column("written", "string", "a double as text"))
NUMBERS = Table(name="x", comment="Numbers.", columns=COLUMNS, key=("n",))
DAYS = Table(name="x", comment="A day.", columns=(Column("day!", "string", "the day"),), partition=("day",))


@table_asset(table="own.numbers", schema=NUMBERS, any_engine=True)
def numbers(spark):
    "Numbers, and how an engine writes them."
    return spark.sql("SELECT n, cast(n / 100000.0D AS string) AS written FROM VALUES (1L), (2L) AS t(n)")


@table_asset(table="own.days", schema=DAYS, partitions_def=dg.StaticPartitionsDefinition(["a", "b"]), any_engine=True)
def days(spark, context):
    "The partition's key."
    return spark.sql(f"SELECT '{context.partition_key}' AS day")


@table_asset(table="own.sums", schema=NUMBERS, any_engine=True)
def sums(numbers):
    "Equal on both."
    return numbers.selectExpr("n", "cast(n AS string) AS written")
"""

_LOUD = """
import os
from headrace import Column, Table, table_asset

print("a module prints")
NUMBERS = Table(name="x", comment="Numbers.", columns=(Column("n!", "long", "a number"),), key=("n",))


@table_asset(table="own.loud", schema=NUMBERS, any_engine=True)
def loud(spark):
    "Prints, and raises where it is told."
    print("a step prints")
    if os.environ.get("RAISES"):
        raise ValueError("no such number")
    return spark.sql("SELECT n FROM VALUES (1L), (2L) AS t(n)")
"""


@pytest.fixture
def project(defs: Path, lake_env: Path) -> None:
    """Three tables of a user's own."""
    (defs / "tables").mkdir()
    (defs / "tables" / "__init__.py").touch()
    (defs / "tables" / "own.py").write_text(_TABLES)


def branches(table: str) -> list[str]:
    """Names of the branches and tags of a table."""
    return sorted(open_catalogue(load_settings()).load_table(table).metadata.refs)


def test_rows_are_computed_once_more_and_the_table_stays(project: None, capfd: Said) -> None:
    """The same version as published, no branch, no row of the ledger, no new head; of a partition its rows alone."""
    assert run_command(["run", "own.numbers"]) == 0
    ledger = Ledger.fresh(open_catalogue(load_settings()))
    (row,) = ledger.places("own.numbers").values()
    capfd.readouterr()
    engine = row.engine
    assert run_command(["table", "check", "own.numbers", "--engine", engine, "--json"]) == 0
    (again,) = json.loads(capfd.readouterr().out)
    assert (again["version"], again["row_count"], again["place"]) == (str(row.data_version), 2, "")
    assert list(again["columns"]) == ["n", "written"]
    after = Ledger.fresh(open_catalogue(load_settings()))
    assert after.places("own.numbers") == ledger.places("own.numbers") and branches("own.numbers") == ["main"]


@pytest.mark.nightly
def test_what_cannot_be_computed_once_more_is_refused_in_a_line(project: None, capfd: Said) -> None:
    """An unknown table with the nearest, one that was not computed, partitions that are missing or too many."""
    assert run_command(["run", "own.days", "--partition", "a"]) == 0
    for words, said in {
        ("own.nmbers",): "table own.nmbers: no step of this project makes it; did you mean 'own.numbers'?",
        ("own.numbers",): "own.numbers: was not computed yet; run first: headrace run own.numbers",
        ("own.numbers", "--partition", "a"): "table own.numbers: it has no partitions; leave out --partition",
        ("own.days",): "table own.days: name one of its partitions with --partition",
        ("own.days", "--partition", "c"): "own.days: was not computed yet; run first: headrace run own.days",
    }.items():
        assert run_command(["table", "check", *words, "--engine", "sail"]) == 2
        assert capfd.readouterr().err.splitlines()[-1] == f"headrace: {said}"


def test_differences_are_named_by_column(monkeypatch: pytest.MonkeyPatch, capfd: Said) -> None:
    """A column that differs, rows that differ in no single column, and tables that are equal."""
    answers = {
        "sail": {"table": "a.b", "place": "3", "row_count": 2, "version": "1", "columns": {"n": "x", "m": "y"}},
        "spark": {"table": "a.b", "place": "3", "row_count": 2, "version": "2", "columns": {"n": "x", "m": "z"}},
    }
    monkeypatch.setattr(table_check, "_computed", lambda name, partition, engine: [answers[engine]])
    assert run_command(["table", "check", "a.b"]) == 3
    assert "a.b: Sail and Spark give other rows (m); leave out" in capfd.readouterr().err
    answers["spark"]["columns"] = answers["sail"]["columns"]
    assert run_command(["table", "check", "a.b", "--json"]) == 3
    assert json.loads(capfd.readouterr().out)[0]["differs"] == ["rows"]
    answers["spark"]["version"] = "1"
    assert run_command(["table", "check", "a.b"]) == 0
    assert "The rows are equal on both engines." in capfd.readouterr().out


@pytest.mark.nightly
def test_what_a_step_prints_or_raises_is_not_the_answer(
    project: None, defs: Path, capfd: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standard output is JSON alone; what the step raised is said, in one line."""
    (defs / "tables" / "own.py").write_text(_LOUD)
    assert run_command(["run", "own.loud"]) == 0
    capfd.readouterr()
    assert run_command(["table", "check", "own.loud", "--engine", "sail", "--json"]) == 0
    said = capfd.readouterr()
    assert json.loads(said.out)[0]["row_count"] == 2 and "a step prints" in said.err
    monkeypatch.setenv("RAISES", "1")
    assert run_command(["table", "check", "own.loud", "--engine", "sail", "--json"]) == 4
    said = capfd.readouterr()
    assert said.out == ""
    assert "headrace: own.loud: ValueError: no such number" in said.err.splitlines()


@pytest.mark.nightly
def test_both_engines_are_asked(project: None, capfd: Said) -> None:
    """A double as text differs and is named; a sum of integers is equal; a partition is compared alone."""
    assert run_command(["run"]) == 0
    assert run_command(["table", "check", "own.numbers"]) == 3
    assert "(written)" in capfd.readouterr().err
    assert run_command(["table", "check", "own.sums"]) == 0
    assert run_command(["table", "check", "own.days", "--partition", "b"]) == 0

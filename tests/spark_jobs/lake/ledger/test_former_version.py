"""A lake from before goes on: nothing is computed anew, sound tables are never called damaged, damaged ones are."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pyarrow as pa
import pytest

from dagster_project.inspect.lake.verification import TableVerdict, verified
from spark_jobs.lake.declare.step import Scope, Step, step
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.ledger.former_version import former_digests, is_of_engine
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.plan.forecast import forecast
from spark_jobs.lake.plan.reasons import changed_columns
from spark_jobs.lake.run.materialize import Lake, materialize
from tests.spark_jobs.lake.ledger.former_lake import age
from tests.spark_jobs.lake.steps import FactorConfig, FolderConfig, bind, doubles, first_seen, land, numbers, one, rows
from tests.tiers import on_spark, sampled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NESTED = Table(
    name="nested",
    comment="one row per number",
    columns=(Column("n!", "long", "the number"), Column("scores", "list<double>", "of it")),
    key=("n",),
    partition=("increment",),
)
OTHER = {"spark": "sail", "sail": "spark"}


@step(version="1", scope=Scope.INCREMENT, tables=(NESTED,))
def nested(numbers):  # type: ignore[no-untyped-def]
    """Nested values that engines write differently as JSON."""
    return numbers.selectExpr("n", "array(n / 100000.0D, null) AS scores")


def verify(lake: Lake, name: str) -> TableVerdict:
    """What `dataset verify` says of a table of `demo`."""
    return verified(lake.session(), Ledger.fresh(lake.catalogue), f"demo.{name}")


@on_spark
def test_former_versions_are_made_as_they_were(spark: SparkSession) -> None:
    """Golden values of the code before `v2`: flat columns, and maps and lists of whole numbers."""
    frame = spark.range(5).selectExpr(
        "id",
        "if(id = 1, null, cast(id AS string)) AS s",
        "id / 4.0D AS x",
        "array(id, null) AS l",
        "map('b', id, 'a', null) AS m",
        "cast(id % 2 AS int) AS increment",
    )
    flat = frame.select("id", "s", "x")
    assert str(former_digests(flat, False)[""]) == "v1:5:16837272368626625465:752b122e18898c9d"
    assert {place: str(version) for place, version in former_digests(frame, True).items()} == {
        "0": "v1:3:16610900192387713270:3f983a48888376c4",
        "1": "v1:2:-4287703933744863819:3b7ce3faaf17a5b5",
    }
    assert is_of_engine(frame) and not is_of_engine(flat)


@pytest.mark.nightly
def test_nothing_is_computed_anew_and_what_is_new_adds_up(lake: Lake, folder: Path) -> None:
    """Steps over tables from before find their keys; an increment that comes is the only work, in every scope."""
    age(lake, "demo.numbers")
    for what in (doubles, first_seen):
        materialize(lake, bind(what))
        age(lake, f"demo.{what.name}")
        assert one(materialize(lake, bind(what))).computed == ()
    land(folder, "b.txt", [30, 31])
    source = FolderConfig(folder=str(folder))
    for binding in (bind(numbers, source), bind(doubles), bind(first_seen)):
        outcome = one(materialize(lake, binding))
        assert outcome.computed == ("1",) and str(outcome.version).startswith("v1+v2:")
        assert one(materialize(lake, binding)).computed == ()


def test_equal_rows_keep_their_former_version(lake: Lake) -> None:
    """Computed by other code, they are the same rows, so nothing that reads them has a new key; others are `v2`."""
    materialize(lake, bind(doubles))
    age(lake, "demo.doubles", off=1)
    before = lake.ledger.places("demo.doubles")["0"]
    again = dataclasses.replace(doubles, version="2")
    assert one(materialize(lake, bind(again))).computed == ("0",)
    after = lake.ledger.places("demo.doubles")["0"]
    assert (after.data_version, after.snapshot_id) == (before.data_version, before.snapshot_id)
    assert after.step_key != before.step_key
    assert str(one(materialize(lake, bind(again, FactorConfig(factor=3)))).version).startswith("v2:4:")


def nested_with(*columns: Column, select: str, version: str = "1") -> Step:
    """The step with other columns."""
    table = dataclasses.replace(NESTED, columns=(Column("n!", "long", "the number"), *columns))

    def function(numbers):  # type: ignore[no-untyped-def]
        return numbers.selectExpr("n", *select.split(";"))

    return dataclasses.replace(nested, tables=(table,), function=function, version=version)


@sampled()
@pytest.mark.parametrize("version", ["1", "2"])
def test_tables_get_the_columns_that_their_steps_declare_now(lake: Lake, folder: Path, version: str) -> None:
    """New ones, of another type, taken out: all increments are computed anew, and it is told before."""
    materialize(lake, bind(nested))
    land(folder, "b.txt", [30, 31])
    materialize(lake, bind(numbers, FolderConfig(folder=str(folder))))
    materialize(lake, bind(nested))
    scores, half = Column("scores", "list<double>", "of it"), Column("half!", "double", "half of it")
    halved, text = "n / 2.0D AS half", Column("half", "string", "half of it")
    for step_now, said, last in (
        (nested_with(scores, half, select=f"array(n / 100000.0D, null) AS scores;{halved}"), "half is declared", 15.5),
        (nested_with(half, select=halved), "scores is in the table", 15.5),
        (nested_with(text, select="string(n / 2.0D) AS half"), "half is double, declared is string", "15.5"),
        (nested_with(Column("half!", "long", "half of it"), select="bigint(n / 2) AS half"), "half is string", 15),
    ):
        binding = bind(dataclasses.replace(step_now, version=version))
        lake.ledger.refresh()
        (foreseen,) = forecast(lake.ledger, [binding])
        assert not foreseen.problem
        assert all(said in place.reason and place.reason.startswith("its columns changed") for place in foreseen.places)
        assert one(materialize(lake, binding)).computed == ("0", "1")
        assert rows(lake, "demo.nested", "n", "half")[-1] == (31, last)
        assert not changed_columns(lake.ledger, binding)
        assert one(materialize(lake, binding)).computed == ()


def test_a_kill_after_the_columns_changed_leaves_what_the_next_run_computes(
    lake: Lake, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All places, though the table has the new columns already."""
    materialize(lake, bind(nested))
    other = bind(nested_with(Column("half!", "double", "half of it"), select="n / 2.0D AS half"))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("spark_jobs.lake.run.materialize.write_to_branch", Mock(side_effect=KeyboardInterrupt))
        materialize(lake, other)
    fresh = dataclasses.replace(lake, ledger=Ledger.fresh(lake.catalogue))
    assert not changed_columns(fresh.ledger, other)
    assert one(materialize(fresh, other)).computed == ("0",)
    assert rows(fresh, "demo.nested", "half")[-1] == (rows(fresh, "demo.nested", "n")[-1][0] / 2,)


@sampled(2)
@pytest.mark.parametrize(
    ("name", "other_engine", "off", "said"),
    [
        ("nested", False, 0, "as recorded"),
        ("nested", True, 0, "as recorded"),
        ("nested", True, 1, "increment 0: not judged, written by {other} before v2; its v2 is on record now"),
        ("nested", False, 1, "increment 0: 4 rows of another version"),
        ("numbers", True, 1, "increment 0: 4 rows of another version"),
        ("numbers", True, 0, "as recorded"),
    ],
)
def test_a_former_version_is_judged_by_who_can(lake: Lake, name: str, other_engine: bool, off: int, said: str) -> None:
    """Nested values by the engine that wrote them, flat ones by either; what is not damaged is `v2` from then on."""
    materialize(lake, bind(nested))
    writer = str(lake.ledger.places(f"demo.{name}")["0"].engine)
    engine = OTHER[writer] if other_engine else writer
    age(lake, f"demo.{name}", engine, off)
    verdict = verify(lake, name)
    assert verdict == TableVerdict(4, said.format(other=engine.capitalize()), "another" not in said)
    if verdict.is_sound:
        assert verify(lake, name) == TableVerdict(4, "as recorded", True)
        table = lake.catalogue.load_table(f"demo.{name}")
        rows = table.scan().to_arrow()
        other = pa.array([99, *rows["n"].to_pylist()[1:]], pa.int64())
        table.overwrite(rows.set_column(rows.schema.get_field_index("n"), rows.schema.field("n"), other))
        assert not verify(lake, name).is_sound


def test_rows_that_are_missing_are_damage_whoever_wrote_them(lake: Lake) -> None:
    """A number of rows is the same for every engine."""
    materialize(lake, bind(nested))
    writer = str(lake.ledger.places("demo.nested")["0"].engine)
    age(lake, "demo.nested", OTHER[writer], off=1)
    rows = lake.ledger.places("demo.nested")["0"]
    more = dataclasses.replace(rows.data_version, count=5)
    lake.ledger.record([dataclasses.replace(rows, data_version=more)])
    assert verify(lake, "nested") == TableVerdict(4, "increment 0: 4 rows of another version", False)

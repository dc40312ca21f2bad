"""Write, audit, publish: what lands is what was counted, of every type and in every kind of partition."""

from __future__ import annotations

import dataclasses

import pytest
from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, LessThan

from spark_jobs.exceptions import AuditError, StepRunError, TableMismatchError
from spark_jobs.lake.declare.step import Scope, Step, step
from spark_jobs.lake.declare.tables import Column, Table, spark_schema
from spark_jobs.lake.files.audit import check_names
from spark_jobs.lake.ledger.digests import digest
from spark_jobs.lake.ledger.materialization import TableSlice
from spark_jobs.lake.run.materialize import Lake, materialize
from tests.spark_jobs.lake.steps import DOUBLES, NUMBERS, FactorConfig, bind, doubles, one, rows
from tests.tiers import needs_spark, on_spark

pytestmark = on_spark

EVERYTHING = Table(
    name="everything",
    comment="one row with every type",
    columns=(
        Column("a!", "string", "text"),
        Column("b", "boolean", "flag"),
        Column("c", "float", "number"),
        Column("d", "date", "day"),
        Column("e", "timestamp", "local time"),
        Column("f", "timestamptz", "moment"),
        Column("g", "binary", "bytes"),
        Column("h", "map<string, long!>", "counts"),
        Column("i", "list<struct<k!: string, v: double>!>", "pairs"),
        Column("j!", "list<int!>", "ids"),
    ),
    key=("a",),
)


@step(version="1", scope=Scope.WHOLE, tables=(EVERYTHING,))
def everything(numbers):  # type: ignore[no-untyped-def]
    """A row for each number, every type in it."""
    return numbers.selectExpr(
        "text AS a",
        "n > 2 AS b",
        "cast(n AS float) AS c",
        "date'2026-01-02' AS d",
        "timestamp_ntz'2026-01-02 03:04:05.000006' AS e",
        "timestamp_seconds(n) AS f",
        "cast(text AS binary) AS g",
        "map('b', n, 'a', n) AS h",
        "array(named_struct('k', text, 'v', cast(null AS double))) AS i",
        "array(cast(n AS int)) AS j",
    )


@needs_spark
def test_rows_out_of_their_partition_are_refused(lake: Lake) -> None:
    """An overwrite appends such rows without a word; the audit counts them."""
    table = Table(
        "parted", "rows by name", (Column("n!", "long", "n"), Column("name!", "string", "x")), partition=("name",)
    )

    @step(version="1", scope=Scope.WHOLE, tables=(table,))
    def parted(numbers):  # type: ignore[no-untyped-def]
        return numbers.selectExpr("n", "if(n = 2, 'other', 'mine') AS name")

    place = TableSlice("mine", "name = 'mine'", EqualTo("name", "mine"))
    others = dataclasses.replace(parted, function=lambda numbers: numbers.selectExpr("n", "'other' AS name"))
    theirs = TableSlice("other", "name = 'other'", EqualTo("name", "other"))
    materialize(lake, dataclasses.replace(bind(others), partition=theirs))  # rows in their place are not told of
    binding = dataclasses.replace(bind(parted), partition=place)
    with pytest.raises(AuditError, match=r"rows_in_place: 1 rows .*, such as n 2, name other$"):
        materialize(lake, binding)


def test_nulls_in_required_columns_are_refused(lake: Lake) -> None:
    """The audit counts them; the message names the column alone."""

    def compute(numbers, config: FactorConfig):  # type: ignore[no-untyped-def]
        return numbers.selectExpr("nullif(n, 3) AS n")

    with pytest.raises(AuditError, match=r"^demo\.doubles: .*required_columns: 1 rows .*, n\)"):
        materialize(lake, bind(dataclasses.replace(doubles, function=compute)))


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("list<int!>", "array({})"),
        pytest.param("struct<x!: int>", "named_struct('x', {})", marks=pytest.mark.nightly),
        pytest.param("map<string, int!>", "map('k', {})", marks=pytest.mark.nightly),
        ("list<struct<x!: int>>", "array(null, named_struct('x', {}))"),
    ],
)
def test_a_null_inside_of_a_required_value_is_refused(lake: Lake, kind: str, shape: str) -> None:
    """Arrow would write a file that nothing can read. The whole value may be null where it is not required."""
    table = Table("parts", "one row per number", (Column("n!", "long", "n"), Column("value", kind, "x")))

    def parts(lost: int) -> Step:
        @step(version=str(lost), scope=Scope.WHOLE, tables=(table,))
        def made(numbers):  # type: ignore[no-untyped-def]
            value = shape.format(f"cast(nullif(n, {lost}) AS int)")
            return numbers.selectExpr("n", f"CASE WHEN n <> 3 THEN {value} END AS value")

        return made

    with pytest.raises(StepRunError, match=r"^demo\.parts: .*column value: a value inside is null"):
        materialize(lake, bind(parts(lost=2)))
    assert one(materialize(lake, bind(parts(lost=99)))).version.count == 4


def test_a_file_with_rows_of_two_partitions_is_not_replaced(lake: Lake) -> None:
    """Days of a table are those of UTC: a partition from noon to noon would take rows of others along."""
    table = Table(
        "noons", "rows by day", (Column("n!", "long", "n"), Column("at!", "timestamp", "when")), partition=("days(at)",)
    )

    @step(version="1", scope=Scope.WHOLE, tables=(table,))
    def noons(numbers):  # type: ignore[no-untyped-def]
        return numbers.selectExpr("n", "timestamp_ntz'2026-01-02 10:00:00' + make_dt_interval(0, n) AS at")

    def between(start: str, end: str) -> TableSlice:
        predicate = f"at >= timestamp_ntz'{start}' AND at < timestamp_ntz'{end}'"
        return TableSlice(start, predicate, And(GreaterThanOrEqual("at", start), LessThan("at", end)))

    day = between("2026-01-02T00:00:00", "2026-01-03T00:00:00")
    assert one(materialize(lake, dataclasses.replace(bind(noons), partition=day))).version.count == 4
    noon = between("2026-01-02T12:00:00", "2026-01-03T12:00:00")
    with pytest.raises(TableMismatchError, match=r"^demo\.noons: .* holds rows that are replaced, and others"):
        materialize(lake, dataclasses.replace(bind(noons), partition=noon))
    assert len(rows(lake, "demo.noons", "n")) == 4


def test_no_rows_are_a_materialization_too(lake: Lake) -> None:
    """An empty increment is written once and then unchanged; emptied later, its rows go."""

    def nothing(numbers, config: FactorConfig):  # type: ignore[no-untyped-def]
        return numbers.where("false").select("n")

    empty = dataclasses.replace(doubles, function=nothing)
    assert one(materialize(lake, bind(empty))).computed == ("0",)
    assert one(materialize(lake, bind(empty))).computed == ()
    assert one(materialize(lake, bind(dataclasses.replace(doubles, version="2")))).version.count == 4
    assert one(materialize(lake, bind(dataclasses.replace(empty, version="3")))).version.count == 0
    assert rows(lake, "demo.doubles", "n") == []


def test_every_type_lands_as_declared(lake: Lake) -> None:
    """What the declaration says to Spark is what Spark sees of the table, and so is the version."""
    outcome = one(materialize(lake, bind(everything)))
    landed = lake.session().table("lake.demo.everything")
    assert [(f.name, f.dataType) for f in landed.schema] == [(f.name, f.dataType) for f in spark_schema(EVERYTHING)]
    assert outcome.version == digest(landed)


def test_names_of_checks_are_those_that_are_run(lake: Lake) -> None:
    """What Dagster shows beforehand is what the audit answers."""
    outcome = one(materialize(lake, bind(doubles)))
    assert {check.name: check.description for check in outcome.checks} == check_names(DOUBLES, placed=True)
    assert list(check_names(NUMBERS, placed=True)) == [
        "required_columns",
        "rows_in_place",
        "not_negative",
        "unique_key",
    ]

"""Small steps for the lake's tests: a source of numbers, and steps of every scope that follow it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from spark_jobs.lake.declare.step import NoConfig, Output, Scope, Step, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.run.materialize import Lake
from spark_jobs.lake.run.outcomes import TableOutcome

NUMBERS = Table(
    name="numbers",
    comment="one row per number",
    columns=(Column("n!", "long", "the number"), Column("text", "string", "its name")),
    key=("n",),
    sort=("n",),
    partition=("increment",),
    checks=(Check("not_negative", "n >= 0", "numbers count from 0"),),
)
ARRIVALS = Table(
    name="arrivals",
    comment="one row per file of numbers",
    columns=(Column("location!", "string", "file"), Column("byte_count!", "long", "its size")),
    partition=("increment",),
)
DOUBLES = Table(
    name="doubles",
    comment="one row per number, doubled",
    columns=(Column("n!", "long", "twice the number"),),
    key=("n",),
    partition=("increment",),
)
FIRST_SEEN = Table(
    name="first_seen",
    comment="one row per remainder that no earlier increment had",
    columns=(Column("remainder!", "long", "n modulo the config's divisor"),),
    key=("remainder",),
    partition=("increment",),
)
TOTAL = Table(name="total", comment="one row: the sum", columns=(Column("sum", "long", "sum of all numbers"),))
FROZEN = Table(
    name="frozen",
    comment="one row: the count of increment 0",
    columns=(Column("n!", "long", "count"),),
    partition=("increment",),
)
RANKED = Table(
    name="ranked",
    comment="one row per number with a dense ordinal",
    columns=(Column("ordinal!", "long", "dense over all increments"), Column("n!", "long", "the number")),
    key=("ordinal",),
    sort=("ordinal",),
    partition=("increment",),
)


class FolderConfig(BaseModel):
    """Where numbers come from: files of lines."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    folder: str = Field(description="folder of text files, a number a line")
    speed: int = Field(1, description="decides no row", json_schema_extra={"affects_rows": False})


class FactorConfig(BaseModel):
    """What numbers are multiplied with."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    factor: int = Field(2, description="factor")


def _discover(config: FolderConfig, known: pa.Table, reread: bool, catalogue: object = None) -> pa.Table | None:
    """New files of the folder."""
    seen = set() if reread else set(known["location"].to_pylist())
    files = sorted(str(file) for file in Path(config.folder).glob("*.txt"))
    fresh = [file for file in files if file not in seen]
    if not fresh:
        return None
    return pa.table({"location": fresh, "byte_count": [Path(file).stat().st_size for file in fresh]})


@step(version="1", scope=Scope.HISTORY, tables=(NUMBERS, ARRIVALS), discover=_discover)
def numbers(files, numbers, config: FolderConfig) -> Output:  # type: ignore[no-untyped-def]
    """Land the numbers of new files, each number once."""
    from pyspark.sql import functions as F

    spark = files.sparkSession
    paths = [row.location for row in files.collect()]
    lines = spark.read.text(paths).select(F.col("value").cast("long").alias("n"), F.col("value").alias("text"))
    fresh = lines.dropDuplicates(["n"]).join(numbers.select("n"), "n", "left_anti")
    return Output({"numbers": fresh, "arrivals": files.select("location", "byte_count")})


@step(version="1", scope=Scope.INCREMENT, tables=(DOUBLES,))
def doubles(numbers, config: FactorConfig):  # type: ignore[no-untyped-def]
    """Multiply each number."""
    return numbers.selectExpr(f"n * {config.factor} AS n")


@step(version="1", scope=Scope.HISTORY, tables=(FIRST_SEEN,))
def first_seen(numbers, first_seen, increment: int, config: NoConfig):  # type: ignore[no-untyped-def]
    """Remainders modulo 10 that are new in this increment."""
    fresh = numbers.where(f"increment = {increment}").selectExpr("n % 10 AS remainder").distinct()
    return fresh.join(first_seen.select("remainder"), "remainder", "left_anti")


@step(version="1", scope=Scope.WHOLE, tables=(TOTAL,))
def total(numbers):  # type: ignore[no-untyped-def]
    """Sum of everything."""
    return numbers.selectExpr("sum(n) AS sum")


@step(version="1", scope=Scope.FROZEN, tables=(FROZEN,))
def frozen(numbers, config: FactorConfig):  # type: ignore[no-untyped-def]
    """Count of increment 0, times a factor."""
    return numbers.selectExpr(f"count(*) * {config.factor} AS n")


@step(version="1", scope=Scope.INCREMENT, tables=(RANKED,), numbered=True)
def ranked(numbers, base: int, config: FactorConfig) -> Output:  # type: ignore[no-untyped-def]
    """Number the rows from `base` on, descending where the factor is negative."""
    order = "n" if config.factor > 0 else "n DESC"
    rows = numbers.selectExpr(f"{base} + row_number() OVER (ORDER BY {order}) - 1 AS ordinal", "n")
    return Output(
        {"ranked": rows.selectExpr("cast(ordinal AS bigint) AS ordinal", "n")}, {"demo.factor": str(config.factor)}
    )


def bind(what: Step, config: BaseModel | None = None, **inputs: str) -> Binding:
    """A binding in the namespace `demo`, inputs from there, following its arrivals."""
    bound = {name: inputs.get(name, f"demo.{name}") for name in what.inputs}
    if what.discover is not None:
        bound.pop(what.inputs[0])
    return Binding(what, "demo", bound, config or what.config(), driving_table="demo.arrivals")


def land(folder: Path, name: str, values: list[int]) -> None:
    """Write a file of numbers."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("\n".join(str(value) for value in values))


def one(outcomes: tuple[TableOutcome, ...]) -> TableOutcome:
    """The main table's outcome."""
    return outcomes[0]


def rows(lake: Lake, table: str, *columns: str) -> list[tuple[object, ...]]:
    """What readers see, sorted."""
    frame = lake.session().table(f"lake.{table}").select(*columns)
    return sorted(tuple(row) for row in frame.collect())

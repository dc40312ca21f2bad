"""Tables of every type that a declaration allows: `python -m tests.spark_jobs.lake.files.typed_tables ROOT NAME SEED`.

The command writes them in a lake under a namespace, then reads those of the other namespaces there, and prints what is
not as it should be.
"""

from __future__ import annotations

import datetime
import decimal
import itertools
import json
import math
import random
import sys
import uuid
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.expressions import EqualTo, IsNaN, IsNull
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table as IcebergTable

from headrace.tables.settings import settings_at
from spark_jobs.lake.declare.step import Scope, Step, step
from spark_jobs.lake.declare.tables import Column, Table, spark_schema
from spark_jobs.lake.files.data_files import file_schema
from spark_jobs.lake.files.verification import recount
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.row_hashes import version_of_batch
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.lake.session.session import start_session

_EXACT = decimal.Context(prec=60)
_AT = datetime.datetime(2026, 11, 1, 10, 0, 0, 1)
_MOMENTS = [_AT, datetime.datetime(1969, 12, 31, 23, 59, 59, 999999), datetime.datetime(2400, 2, 29)]
_DOUBLES = [float("nan"), -0.0, 0.0, 1e-7, 1e-4, 0.001, 1e7, 2e23, 1 / 3, 5e-324, float("inf"), -1.5]
VALUES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "int": [0, -1, 2**31 - 1, -(2**31)],
    "long": [0, -1, 2**63 - 1, -(2**63)],
    "float": [float(np.float32(x)) for x in (float("nan"), -0.0, 0.1, 1e-7, 1e-4, 1e7, 2e23, -1.5)],
    "double": _DOUBLES,
    "date": [datetime.date(2026, 11, 1), datetime.date(1969, 12, 31), datetime.date(2400, 2, 29)],
    "timestamp": _MOMENTS,
    "timestamptz": [moment.replace(tzinfo=datetime.UTC) for moment in _MOMENTS],
    "string": ["", "null", "a/b c=?", "é漢🙂", 'quote " and \\', "line\nend\x01", "x" * 300],
    "binary": [b"", b"\x00\xff", b"/", b"y" * 200],
    "decimal(38, 10)": [Decimal(n).scaleb(-10, _EXACT) for n in (10**38 - 1, 1 - 10**38, 10**37 + 1, 10**37 + 2, 0)],
    "decimal(18, 3)": [Decimal("1.500"), Decimal("-999999999999999.999")],
}
_SHAPES = {
    "flat": "{}",
    "list": "list<{}>",
    "required": "list<{}!>",
    "map": "map<string, {}>",
    "key": "map<{}, int>",
    "struct": "struct<x: {}, y!: int>",
    "deep": "list<struct<m: map<string, list<{}>>>>",
}


def _shaped(shape: str, kind: str, draw: random.Random) -> Any:
    """A value of a shape, with nulls at every level that allows them."""

    def maybe() -> Any:
        return draw.choice([None, *VALUES[kind]])

    if draw.random() < 0.15:
        return None
    if shape == "required":
        return draw.choices(VALUES[kind], k=draw.randrange(4))
    if shape == "key":
        return [(key, draw.choice([None, 0, 1])) for key in draw.sample(VALUES[kind][:2], draw.randrange(3))]
    if shape == "struct":
        return {"x": maybe(), "y": draw.choice([0, 1])}
    if shape == "flat":
        return maybe()
    inner = [maybe() for _ in range(draw.randrange(4))]
    if shape == "list":
        return inner
    if shape == "map":
        return [(f"k{number}", value) for number, value in enumerate(inner)]
    return [draw.choice([None, {"m": None}, {"m": [("k", inner), ("l", None)]}]) for _ in range(draw.randrange(3))]


def everything() -> Table:
    """A table with every type in every shape."""
    columns = [
        Column(f"{shape}_{number}", form.format(kind), "a value")
        for number, kind in enumerate(VALUES)
        for shape, form in _SHAPES.items()
    ]
    return Table("everything", "One row a trial.", (Column("n!", "long", "number of the row"), *columns))


def partitioned() -> Table:
    """A table that is partitioned by a column of each type, and by the days of those that have them."""
    by_value = [Column(f"part_{number}", kind, "a value") for number, kind in enumerate(VALUES)]
    by_day = [Column(f"on_{number}", kind, "a day") for number, kind in enumerate(("date", "timestamp", "timestamptz"))]
    parts = (*(column.name for column in by_value), *(f"days({column.name})" for column in by_day))
    return Table(
        "partitioned", "One row a trial.", (Column("n!", "long", "number"), *by_value, *by_day), partition=parts
    )


def rows_of(table: Table, seed: int) -> pa.RecordBatch:
    """Random rows of a table, the same for a seed."""
    draw = random.Random(f"{table.name} {seed}")
    rows: list[dict[str, Any]] = []
    for n in range(20):
        row: dict[str, Any] = {"n": n}
        for column in table.columns[1:]:
            shape, _, number = column.name.partition("_")
            values = VALUES.get(column.type) or []
            if shape in _SHAPES:
                row[column.name] = _shaped(shape, list(VALUES)[int(number)], draw)
            else:
                row[column.name] = values[n] if n < len(values) else draw.choice([None, *values])
        rows.append(row)
    return pa.RecordBatch.from_pylist(rows, file_schema(schema_to_pyarrow(table.schema(), include_field_ids=False)))


def _step(table: Table, seed: int) -> Step:
    schema = spark_schema(table)

    def make(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield rows_of(table, seed)

    @step(version=str(seed), scope=Scope.WHOLE, tables=(table,))
    def typed(spark):  # type: ignore[no-untyped-def]
        """Make the rows."""
        return spark.range(1).repartition(1).mapInArrow(make, schema)

    return typed


def write(lake: Lake, name: str, seed: int) -> list[str]:
    """Write the tables into a namespace, in place of others; gives those whose version is not that of their rows."""
    wrong = []
    for table, of_rows in itertools.product((everything(), partitioned()), (seed + 1000, seed)):
        typed = _step(table, of_rows)
        (outcome,) = materialize(lake, Binding(typed, name, {}, typed.config()))
        if outcome.version != version_of_batch(rows_of(table, of_rows)):
            wrong.append(f"{name}.{table.name}: written as {outcome.version}")
    return wrong


def read(lake: Lake, name: str, seed: int) -> list[str]:
    """Read the tables of a namespace by this engine and by PyIceberg; gives those that are not as they were made."""
    ledger, wrong = Ledger.fresh(lake.catalogue), []
    for declared in (everything(), partitioned()):
        identifier, rows = f"{name}.{declared.name}", rows_of(declared, seed)
        table = lake.catalogue.load_table(identifier)
        counts = recount(lake.session(), identifier, table, ledger.places(identifier))
        wrong += [f"{identifier}: {counts}"] if counts.changed or counts.unjudged or counts.restated else []
        # PyIceberg 0.12.0 reads a null list of structs as an empty one.
        read_right = [name for name in rows.schema.names if not name.startswith("deep")]
        versions = map(version_of_batch, table.scan(selected_fields=tuple(read_right)).to_arrow().to_batches())
        if sum(versions, DataVersion()) != version_of_batch(rows.select(read_right)):
            wrong.append(f"{identifier}: PyIceberg reads other rows")
        if declared.partition:
            wrong += [f"{identifier}: {line}" for line in _pruned(table, rows)]
    return wrong


def _pruned(table: IcebergTable, rows: pa.RecordBatch) -> Iterator[str]:
    """Values that a filter over the partition does not find all rows of."""
    for name in rows.schema.names[1:]:
        parts = rows.column(name).to_pylist()
        for value in {str(part): part for part in parts}.values():
            is_nan = isinstance(value, float) and math.isnan(value)
            chosen = IsNull(name) if value is None else IsNaN(name) if is_nan else EqualTo(name, value)
            wanted = sum(part == value or str(part) == str(value) for part in parts)
            if (count := table.scan(chosen, ("n",)).to_arrow().num_rows) != wanted:
                yield f"{count} of {wanted} rows where {name} is {value!r}"


if __name__ == "__main__":
    root, name, seeds = Path(sys.argv[1]), sys.argv[2], sys.argv[3].split(",")
    settings = settings_at(root)
    catalogue = open_catalogue(settings)
    session = start_session(settings)
    lake = Lake(catalogue, Ledger(catalogue), lambda: session, uuid.uuid4().hex)
    wrong = []
    for seed in map(int, seeds):
        for (other,) in catalogue.list_namespaces():
            if other.endswith(f"_{seed}"):
                wrong += read(lake, other, seed)
        wrong += write(lake, f"{name}_{seed}", seed)
    sys.stdout.write(json.dumps(wrong))

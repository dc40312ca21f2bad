"""A table gets the columns of its declaration: with its rows where they stay, without a trace where they do not."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow

from headrace.tables.settings import settings_at
from spark_jobs.exceptions import TableMismatchError
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.session.catalogue import ensure_table, open_catalogue
from spark_jobs.lake.session.table_columns import column_difference
from tests.tiers import sampled

NOTES = Table(
    name="notes",
    comment="one row per note",
    columns=(Column("day!", "date", "when"), Column("body", "string", "text"), Column("scores", "list<int!>", "marks")),
    key=("body",),
    partition=("increment", "days(day)"),
)
_VALUES: dict[str, Any] = {
    "int": 7,
    "long": 7,
    "float": 0.5,
    "double": 0.5,
    "string": "mill",
    "binary": b"mill",
    "decimal(10, 2)": Decimal("1.25"),
    "decimal(12, 2)": Decimal("1.25"),
    "decimal(12, 3)": Decimal("1.250"),
    "boolean": True,
    "date": date(2026, 1, 2),
    "list<int>": [1, None],
    "list<long>": [1, None],
    "struct<a: int>": {"a": 1},
    "struct<a: long, b: string>": {"a": 1, "b": None},
    "map<string, int>": [("a", 1)],
}
_VALUES_AT = {kind: at for at, kind in enumerate(_VALUES)}
_WIDER = {
    ("int", "long"),
    ("float", "double"),
    ("decimal(10, 2)", "decimal(12, 2)"),
    ("list<int>", "list<long>"),
    ("struct<a: int>", "struct<a: long, b: string>"),
}


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalog:
    """A catalogue in a file."""
    return open_catalogue(settings_at(tmp_path))


def changed(columns: tuple[Column, ...], partition: tuple[str, ...] = NOTES.partition) -> Table:
    """The table with other columns."""
    return replace(NOTES, columns=columns, partition=partition)


@pytest.mark.parametrize(
    ("columns", "partition", "message"),
    [
        ((*NOTES.columns, Column("must!", "int", "must")), NOTES.partition, "column must is declared, the table has"),
        (
            (*NOTES.columns[:2], Column("scores", "list<string>", "marks")),
            NOTES.partition,
            "column scores is list<int!>, declared is list<string>",
        ),
        (NOTES.columns, ("increment",), "it is partitioned by"),
        (
            NOTES.columns,
            ("increment", "day"),
            r"partitioned by \['increment', 'day\(day\)'\], declared is \['increment', 'day'\]",
        ),
    ],
)
def test_what_rows_that_stay_cannot_be_given_is_named(
    catalogue: Catalog, columns: tuple[Column, ...], partition: tuple[str, ...], message: str
) -> None:
    """In one line, before any row is written; where the rows are computed anew the table becomes that."""
    ensure_table(catalogue, "demo.notes", NOTES, {})
    with pytest.raises(TableMismatchError, match=message) as caught:
        ensure_table(catalogue, "demo.notes", changed(columns, partition), {})
    assert "\n" not in str(caught.value)
    anew = ensure_table(catalogue, "demo.notes", changed(columns, partition), {}, keeps_rows=False)
    assert column_difference(anew, changed(columns, partition)) is None


def test_a_new_column_stands_where_the_declaration_has_it(catalogue: Catalog) -> None:
    """Among the others, first and last, in one commit; the second look makes nothing."""
    made = ensure_table(catalogue, "demo.notes", NOTES, {})
    first, *others = NOTES.columns
    declared = changed(
        (Column("a", "int", "a"), first, Column("b", "list<string!>", "b"), *others, Column("c", "int", ""))
    )
    grown = ensure_table(catalogue, "demo.notes", declared, {})
    assert grown.metadata.table_uuid == made.metadata.table_uuid
    names = [(field.name, field.required, field.doc or "") for field in grown.schema().fields]
    assert names == [(field.name, field.required, field.doc or "") for field in declared.schema().fields]
    assert ensure_table(catalogue, "demo.notes", declared, {}).metadata_location == grown.metadata_location


def _declared(generator: random.Random, of: dict[str, Column] | None = None) -> dict[str, Column]:
    """Columns by chance; of those of before some are taken out, some have another type or may be null."""
    columns = {}
    for name in "abcdef":
        before = (of or {}).get(name)
        if generator.random() < 0.25:
            continue
        kind = before.type if before is not None and generator.random() < 0.6 else generator.choice(sorted(_VALUES))
        wider = [to for former, to in sorted(_WIDER) if before is not None and former == before.type]
        kind = generator.choice(wider) if wider and generator.random() < 0.4 else kind
        required = "!" if generator.random() < 0.3 else ""
        columns[name] = Column(f"{name}{required}", kind, "")
    return columns or {"a": Column("a", "int", "")}


def _table(columns: dict[str, Column]) -> Table:
    return Table("notes", "rows", tuple(columns.values()), key=(next(iter(columns)),), partition=("increment",))


@sampled(10)
@pytest.mark.parametrize("seed", range(40))
def test_any_columns_become_any_others(catalogue: Catalog, seed: int) -> None:
    """Rows that stay keep every value of a column that stays, or are refused; a table made anew takes declared rows."""
    generator = random.Random(seed)
    before = _declared(generator)
    after = _declared(generator, before)
    former, declared = _table(before), _table(after)
    for keeps_rows in (True, False):
        name = f"demo.notes_{keeps_rows}".lower()
        table = ensure_table(catalogue, name, former, {})
        row = {"increment": 0, **{column: _VALUES[kind.type] for column, kind in before.items()}}
        table.append(pa.Table.from_pylist([row], schema=schema_to_pyarrow(table.schema(), include_field_ids=False)))
        impossible = [
            column
            for column, kind in after.items()
            if (column not in before and kind.required)
            or (
                column in before and before[column].type != kind.type and (before[column].type, kind.type) not in _WIDER
            )
        ]
        assert (column_difference(table, declared, keeps_rows) is not None) >= bool(impossible)
        if keeps_rows and impossible:
            with pytest.raises(TableMismatchError):
                ensure_table(catalogue, name, declared, {})
            continue
        table = ensure_table(catalogue, name, declared, {}, keeps_rows=keeps_rows)
        assert column_difference(table, declared, keeps_rows) is None
        if keeps_rows:
            (there,) = table.scan().to_arrow().to_pylist()
            assert {
                column: there[column]
                for column in before
                if before[column].type == after.get(column, before[column]).type
            } == {
                column: _VALUES[kind.type]
                for column, kind in before.items()
                if kind.type == after.get(column, kind).type
            }
        row = {"increment": 1, **{column: _VALUES[kind.type] for column, kind in after.items()}}
        arrow = schema_to_pyarrow(table.schema(), include_field_ids=False)
        table.overwrite(pa.Table.from_pylist([row], schema=arrow))
        (there,) = table.scan().to_arrow().to_pylist()
        assert {column: there[column] for column in after} == {
            column: _VALUES[kind.type] for column, kind in after.items()
        }


@sampled(5)
@pytest.mark.parametrize("former", _VALUES)
def test_a_type_takes_the_place_of_another_if_it_holds_its_values(catalogue: Catalog, former: str) -> None:
    """By the rules of the format, whatever a library reads besides: of each pair of types."""
    table = ensure_table(catalogue, "demo.notes", _table({"a": Column("a", former, "")}), {})
    held = [kind for kind in _VALUES if column_difference(table, _table({"a": Column("a", kind, "")}), True) is None]
    assert set(held) == {former, *(wider for before, wider in _WIDER if before == former)}
    for kind in held:
        table = ensure_table(catalogue, f"demo.notes_{_VALUES_AT[kind]}", _table({"a": Column("a", former, "")}), {})
        widened = ensure_table(catalogue, f"demo.notes_{_VALUES_AT[kind]}", _table({"a": Column("a", kind, "")}), {})
        assert column_difference(widened, _table({"a": Column("a", kind, "")})) is None

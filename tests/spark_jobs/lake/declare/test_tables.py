"""Tables declared in code: what is refused, how types are read, which difference from a table is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, ListType, LongType, MapType, NestedField, StringType, StructType

from headrace.tables.settings import settings_at
from spark_jobs.exceptions import TableDeclarationError
from spark_jobs.lake.declare.column_types import parse_type, type_text
from spark_jobs.lake.declare.tables import Column, Table, check_identifier, partition_column
from spark_jobs.lake.session.catalogue import ensure_table, open_catalogue

NOTES = Table(
    name="notes",
    comment="one row per note",
    columns=(Column("day!", "date", "when"), Column("body", "string", "text"), Column("scores", "list<int!>", "marks")),
    key=("body",),
    sort=("body",),
    partition=("increment", "days(day)"),
)


_TYPES = st.recursive(
    st.sampled_from(["int", "string", "timestamptz", "double"]),
    lambda inner: st.one_of(
        st.builds("list<{}{}>".format, inner, st.sampled_from(["", "!"])),
        st.builds("map<string, {}{}>".format, inner, st.sampled_from(["", "!"])),
        st.builds("struct<a!: {}, b: {}>".format, inner, inner),
    ),
    max_leaves=5,
)


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalog:
    """An empty catalogue."""
    return open_catalogue(settings_at(tmp_path))


def test_the_increment_comes_first_where_the_partition_names_it() -> None:
    """Steps do not declare it; tables without increments do not have it."""
    assert [field.name for field in NOTES.schema().fields] == ["increment", "day", "body", "scores"]
    assert NOTES.schema().find_field("increment").required
    assert NOTES.has_increments
    assert not Table("plain", "rows", (Column("a", "int", "a"),)).has_increments


def test_comments_come_into_the_schema() -> None:
    """What a column means is written into the table."""
    assert NOTES.schema().find_field("body").doc == "text"


def test_partition_and_sort_order_follow_the_declaration() -> None:
    """Identity columns and days(..) in order; files ascending, nulls first."""
    schema = NOTES.schema()
    spec = [
        (f.name, str(f.transform), schema.find_column_name(f.source_id)) for f in NOTES.partition_spec(schema).fields
    ]
    assert spec == [("increment", "identity", "increment"), ("day_day", "day", "day")]
    assert [schema.find_column_name(f.source_id) for f in NOTES.sort_order(schema).fields] == ["body"]


def test_types_are_read_as_iceberg_writes_them() -> None:
    """Nested types, with `!` at every level; ids count through."""
    found = parse_type("list<struct<rule!: string, scores: map<string, list<int!>!>>!>")
    expected = ListType(
        1,
        StructType(
            NestedField(2, "rule", StringType(), required=True),
            NestedField(
                3,
                "scores",
                MapType(4, StringType(), 5, ListType(6, IntegerType(), element_required=True), value_required=True),
                required=False,
            ),
        ),
        element_required=True,
    )
    assert found == expected
    assert parse_type(" long ") == LongType()


@given(_TYPES)
def test_types_are_written_as_they_are_read(text: str) -> None:
    """`type_text` and `parse_type` undo each other, for every nesting."""
    assert type_text(parse_type(text)) == text


@pytest.mark.parametrize(
    "text", ["text", "list", "list<>", "list<int, int>", "map<string>", "struct<int>", "array<int>", "list<int", ""]
)
def test_what_is_no_type_is_refused(text: str) -> None:
    """The message quotes what was written."""
    with pytest.raises(TableDeclarationError):
        parse_type(text)


@pytest.mark.parametrize("name", ["Notes", "1notes", "no-tes", "files", "snapshots", "a" * 42, ""])
def test_names_that_iceberg_or_spark_would_misread_are_refused(name: str) -> None:
    """Upper case, other characters, metadata tables, names too long."""
    with pytest.raises(TableDeclarationError, match="not a table name"):
        Table(name, "rows", (Column("a", "int", "a"),))


def test_columns_that_do_not_exist_are_named() -> None:
    """Key, sort, partition and sampled must name columns of the table, once each."""
    for part in ("key", "sort", "partition", "sampled"):
        with pytest.raises(TableDeclarationError, match="names 'b'"):
            Table("notes", "rows", (Column("a", "int", "a"),), **{part: ("b",)})  # type: ignore[arg-type]
    with pytest.raises(TableDeclarationError, match="declared twice"):
        Table("notes", "rows", (Column("a", "int", "a"), Column("a!", "long", "a")))


def test_partition_fields_are_columns_or_days() -> None:
    """Other transforms are refused."""
    assert partition_column("days(day)") == "day"
    assert partition_column("shard") == "shard"
    with pytest.raises(TableDeclarationError, match="write a column name or days"):
        partition_column("bucket(16, a)")


@pytest.mark.parametrize(
    ("identifier", "reason"),
    [
        ("notes", "write namespace"),
        ("a.b.c", "write namespace"),
        ("a.Files", "write namespace"),
        ("a.files", "metadata"),
        ("system.notes", "reserved"),
        ("blends.notes", "reserved"),
        ("default.notes", "reserved"),
    ],
)
def test_identifiers_are_two_names(identifier: str, reason: str) -> None:
    """A namespace that is free and a table."""
    assert check_identifier("notes.texts") == ("notes", "texts")
    with pytest.raises(TableDeclarationError, match=reason):
        check_identifier(identifier)


def test_a_table_is_made_as_declared_and_found_again(catalogue: Catalog) -> None:
    """The second look makes nothing, and finds no difference: field ids of the catalogue do not count."""
    made = ensure_table(catalogue, "demo.notes", NOTES, {"headrace.scope": "increment"})
    assert made.properties["comment"] == "one row per note"
    assert made.properties["headrace.scope"] == "increment"
    assert made.metadata.format_version == 2
    assert ensure_table(catalogue, "demo.notes", NOTES, {}).metadata.table_uuid == made.metadata.table_uuid


def test_schema_equals_the_one_that_the_catalogue_gives_back(catalogue: Catalog) -> None:
    """Names, types, requirements and comments survive the catalogue."""

    def shape(schema: Schema) -> list[tuple[str, bool, str | None]]:
        return [(field.name, field.required, field.doc) for field in schema.fields]

    assert shape(ensure_table(catalogue, "demo.notes", NOTES, {}).schema()) == shape(NOTES.schema())

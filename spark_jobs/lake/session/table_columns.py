"""How the columns of a table differ from its declaration, and how a table gets the declared ones.

    what is declared                     a table that keeps its rows      a table whose rows are computed anew
    -----------------------------------  -------------------------------  ------------------------------------
    a new column that may be null        is added, null in rows there     is added
    a new column that may not            is refused                       is added
    a type that holds the former one     is widened                       is replaced
    any other type                       is refused                       is replaced
    a column is no longer declared       stays, and may be null           is taken out
    null is allowed                      is allowed                       is allowed
    another partitioning                 is refused                       is the new one

Old snapshots keep the columns that they were written with, so what is pinned to them goes on.
"""

from __future__ import annotations

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table import Transaction
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
)

from spark_jobs.lake.declare.column_types import type_text
from spark_jobs.lake.declare.tables import Table

# Of format version 2, with decimals of more digits; PyIceberg's `promote` has pairs that only a reader may use.
_WIDER = ((LongType(), IntegerType()), (DoubleType(), FloatType()))


def column_difference(existing: IcebergTable, declared: Table, keeps_rows: bool = False) -> str | None:
    """The first column or partition in which a table differs from its declaration, in words.

    Args:
        existing: the table.
        declared: its declaration.
        keeps_rows: whether what the table can be given while it keeps its rows is no difference.

    A column that may be null in the table and not in the declaration is none: the audit of new rows refuses nulls.
    """
    there = {field.name: field for field in existing.schema().fields}
    schema = declared.schema()
    for field in schema.fields:
        have = there.pop(field.name, None)
        if have is None:
            if not (keeps_rows and not field.required):
                return f"column {field.name} is declared, the table has none"
        elif type_text(have.field_type) != type_text(field.field_type):
            if not (keeps_rows and _holds(field.field_type, have.field_type)):
                return f"column {field.name} is {_shape(have)}, declared is {_shape(field)}"
        elif have.required and not field.required and not keeps_rows:
            return f"column {field.name} is {_shape(have)}, declared is {_shape(field)}"
    if there and not keeps_rows:
        return f"column {next(iter(there))} is in the table, not in the declaration"
    has = _partitions(existing.schema(), existing.spec())
    wanted = _partitions(schema, declared.partition_spec(schema))
    return None if has == wanted else f"it is partitioned by {has}, declared is {wanted}"


def with_declared_columns(existing: IcebergTable, declared: Table, keeps_rows: bool) -> IcebergTable:
    """The table with the columns and partitions of its declaration, in one commit; unchanged where it has them.

    Args:
        existing: the table, which differs in nothing that cannot be mended (`column_difference`).
        declared: its declaration.
        keeps_rows: whether its rows stay; else all of them are computed anew after this.
    """
    there = {field.name: field for field in existing.schema().fields}
    fields = declared.schema().fields
    named = {field.name: field for field in fields}
    other_type = {
        field.name
        for field in fields
        if field.name in there and type_text(there[field.name].field_type) != type_text(field.field_type)
    }
    surplus = [name for name in there if name not in named]
    replaced = [] if keeps_rows else [*surplus, *sorted(other_type)]
    nullable = [
        name
        for name, field in there.items()
        if field.required and name not in replaced and (name in surplus or not named[name].required)
    ]
    missing = [at for at, field in enumerate(fields) if field.name not in there or field.name in replaced]
    widened = sorted(other_type.difference(replaced))
    if not (replaced or nullable or missing or widened or column_difference(existing, declared, keeps_rows)):
        return existing
    layout = {name: value for name, value in declared.properties.items() if name.startswith("write.parquet.")}
    with existing.transaction() as transaction:
        if layout.items() - existing.properties.items():  # windows with cells lie in smaller row groups
            transaction.set_properties(layout)
        if not keeps_rows:
            _partition_anew(transaction, existing, declared, replaced)
        if replaced or nullable:
            with transaction.update_schema() as update:
                for name in replaced:
                    update.delete_column(name)
                for name in nullable:
                    update.make_column_optional(name)
        if widened:
            with transaction.update_schema() as update:
                update.union_by_name(Schema(*(named[name] for name in widened)))
        if missing:
            with transaction.update_schema() as update:
                for at in missing:
                    # Rows that are there have none until they are computed anew, so it may be null.
                    update.add_column(fields[at].name, fields[at].field_type, fields[at].doc)
                    if at:
                        update.move_after(fields[at].name, fields[at - 1].name)
                    else:
                        update.move_first(fields[at].name)
        if not keeps_rows:
            _add_partitions(transaction, declared)
    return existing.catalog.load_table(existing.name())


def _partition_anew(transaction: Transaction, existing: IcebergTable, declared: Table, replaced: list[str]) -> None:
    """Take out the partitions that are not declared, and those by columns that are replaced."""
    schema, wanted = existing.schema(), _partitions(declared.schema(), declared.partition_spec(declared.schema()))
    with transaction.update_spec() as update:
        for field in existing.spec().fields:
            column = schema.find_column_name(field.source_id)
            if column in replaced or _partition(schema, field.source_id, str(field.transform)) not in wanted:
                update.remove_field(field.name)


def _add_partitions(transaction: Transaction, declared: Table) -> None:
    """Add the declared partitions that are not there."""
    schema = declared.schema()
    metadata = transaction.table_metadata
    there = _partitions(metadata.schema(), metadata.spec())
    with transaction.update_spec() as update:
        for field in declared.partition_spec(schema).fields:
            column = schema.find_column_name(field.source_id) or ""
            if _partition(schema, field.source_id, str(field.transform)) not in there:
                update.add_field(column, field.transform, field.name)


def _holds(declared: IcebergType, former: IcebergType) -> bool:
    """Whether a declared type holds all values of the former: wider numbers, or groups with more parts at the end."""
    match declared, former:
        case StructType(), StructType():
            more = declared.fields[len(former.fields) :]
            return (
                len(declared.fields) >= len(former.fields)
                and not any(field.required for field in more)
                and all(
                    field.name == part.name
                    and _part_holds(field.field_type, field.required, part.field_type, part.required)
                    for field, part in zip(declared.fields, former.fields, strict=False)
                )
            )
        case ListType(), ListType():
            return _part_holds(
                declared.element_type, declared.element_required, former.element_type, former.element_required
            )
        case MapType(), MapType():
            return type_text(declared.key_type) == type_text(former.key_type) and _part_holds(
                declared.value_type, declared.value_required, former.value_type, former.value_required
            )
        case DecimalType(), DecimalType():
            return declared.scale == former.scale and declared.precision >= former.precision
    return declared == former or (declared, former) in _WIDER


def _part_holds(declared: IcebergType, is_required: bool, former: IcebergType, was_required: bool) -> bool:
    return is_required <= was_required and _holds(declared, former)


def _shape(field: NestedField) -> str:
    return f"{type_text(field.field_type)}{' not null' if field.required else ''}"


def _partitions(schema: Schema, spec: PartitionSpec) -> list[str]:
    """Columns and transforms of a spec, as `day(moment)` or the column's name."""
    return [
        _partition(schema, field.source_id, str(field.transform))
        for field in spec.fields
        if str(field.transform) != "void"
    ]


def _partition(schema: Schema, source_id: int, transform: str) -> str:
    column = schema.find_column_name(source_id) or ""
    return column if transform == "identity" else f"{transform}({column})"

"""Schemas of Spark: of a declared table, and the names in one that is written as DDL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from spark_jobs.lake.declare.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import types as spark_types


def spark_schema(table: Table) -> spark_types.StructType:
    """Spark's schema of a declared table, `increment` included where it has one."""
    from pyspark.sql import types as T

    fields = table.schema().fields
    return T.StructType([T.StructField(field.name, _type(field.field_type), not field.required) for field in fields])


def ddl_names(ddl: str) -> list[str]:
    """Names of the columns of a schema in DDL, `place long, doc_id string`, whose types have no fields of their own."""
    return [column.split()[0] for column in ddl.split(", ")]


def _type(kind: IcebergType) -> spark_types.DataType:
    from pyspark.sql import types as T

    simple: dict[type[IcebergType], spark_types.DataType] = {
        BooleanType: T.BooleanType(),
        IntegerType: T.IntegerType(),
        LongType: T.LongType(),
        FloatType: T.FloatType(),
        DoubleType: T.DoubleType(),
        DateType: T.DateType(),
        TimestampType: T.TimestampNTZType(),
        TimestamptzType: T.TimestampType(),
        StringType: T.StringType(),
        BinaryType: T.BinaryType(),
    }
    if isinstance(kind, ListType):
        return T.ArrayType(_type(kind.element_type), not kind.element_required)
    if isinstance(kind, MapType):
        return T.MapType(_type(kind.key_type), _type(kind.value_type), not kind.value_required)
    if isinstance(kind, StructType):
        return T.StructType([T.StructField(f.name, _type(f.field_type), not f.required) for f in kind.fields])
    return simple[type(kind)]

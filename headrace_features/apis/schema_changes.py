"""The step `schema_changes`: which fields of an API's records came, went, or changed their type, and on which page.

    page   fields of its records           rows
    0      id: integer, stars: integer     id, null -> integer; stars, null -> integer
    1      id: integer, stars: string      stars, integer -> string
    2      id: integer                     stars, integer|string -> null   where no page of the increment has it

An earlier type of a field makes no row again while the field is there. A field absent from some records of the
page of its last row does not count as gone, because an increment has only the new pages.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_jobs.exceptions import StepDeclarationError
from spark_jobs.lake.declare.step import Output, Scope, step
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.sources.config.paged_source import PAGE_MARK, PagedSource
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.paged.page_records import records_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA_CHANGES = Table(
    name="schema_changes",
    comment="One row for each field of an API's records that is new, has a new type, or went.",
    columns=(
        Column("endpoint!", "string", "endpoint of the source"),
        Column("field!", "string", "name of the field, outermost ones only"),
        Column("old_type", "string", "types that it had, joined by |; null where it was not there"),
        Column("new_type", "string", "type that is new; null where the field is not there any more"),
        Column("in_every!", "boolean", "whether every record of that page has the field"),
        Column("location!", "string", "first page with the new type; of a field that went, last page of the increment"),
    ),
    key=(),
    sort=("endpoint", "field", "new_type"),
    partition=("increment",),
)
_TEXTS = dict.fromkeys(("endpoint", "field", "type", "location"), pa.string())
_FIELDS = pa.schema({**_TEXTS, "in_every": pa.bool_(), "page": pa.int64()})
_MAX_NAME = 200
_MAX_FIELDS = 1000  # of a page: an API that uses ids for names has no schema that could be compared
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


@step(version="1", scope=Scope.HISTORY, tables=(SCHEMA_CHANGES,))
def schema_changes(
    arrivals: DataFrame,
    schema_changes: DataFrame,
    increment: int,
    config: DocumentsConfig,
    objects: ObjectFolder | None = None,
) -> Output:
    """Compare the fields of an increment's pages with those of all pages before.

    Args:
        arrivals: of the dataset, with `increment`; pages are read from their objects.
        schema_changes: rows of the increments before.
        increment: the examined one.
        config: the dataset's, for where records stand in a page.
        objects: where pages are kept.
    """
    source = config.source
    if not isinstance(source, PagedSource) or objects is None:
        raise StepDeclarationError(f"dataset {config.dataset}: schema_changes is of sources of kind api alone")
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    spark = arrivals.sparkSession
    pages = arrivals.where((F.col("increment") == increment) & F.col("object").isNotNull())
    read = partial(read_fields, source=source, objects=objects)
    fields = pages.select("location", "path", "object").mapInArrow(read, from_arrow_schema(_FIELDS))
    first = fields.groupBy("endpoint", "field", "type").agg(
        F.min(F.struct("page", "location", "in_every")).alias("first")
    )
    numbered = F.struct(F.substring_index("location", PAGE_MARK, -1).cast("long").alias("page"), "location")
    last = pages.groupBy("path").agg(F.max(numbered).alias("last"))
    first_fields = [(row["endpoint"], row["field"], row["type"], *row["first"]) for row in first.collect()]
    before = [
        tuple(row) for row in schema_changes.select("increment", "endpoint", "field", "new_type", "in_every").collect()
    ]
    ends = {row["path"]: row["last"]["location"] for row in last.collect()}
    rows = list(changes(before, first_fields, ends))
    ddl = "endpoint string, field string, old_type string, new_type string, in_every boolean, location string"
    return Output({SCHEMA_CHANGES.name: spark.createDataFrame(rows, ddl)})


def changes(
    before: Iterable[tuple[Any, ...]], fields: Iterable[tuple[Any, ...]], ends: dict[str, str]
) -> Iterator[tuple[str, str, str | None, str | None, bool, str]]:
    """Rows (endpoint, field, old type, new type, in every record, location), in the order of pages.

    Args:
        before: (increment, endpoint, field, new type, in every record) of earlier rows.
        fields: (endpoint, field, type, page, location, in every record), each type of a field once, at its first page.
        ends: the last page of each read endpoint.
    """
    types_so_far: dict[tuple[str, str], list[str]] = {}
    steady: dict[tuple[str, str], bool] = {}
    for _, endpoint, field, new, in_every in sorted(before, key=lambda row: (row[0], row[3] is not None)):
        types_so_far[endpoint, field] = [*types_so_far.get((endpoint, field), ()), new] if new is not None else []
        steady[endpoint, field] = in_every
    there = set()
    for endpoint, field, kind, _, location, in_every in sorted(
        fields, key=lambda row: (row[0], row[3], row[1], row[2])
    ):
        types = types_so_far.setdefault((endpoint, field), [])
        there.add((endpoint, field))
        if kind not in types and kind != "null":
            yield endpoint, field, "|".join(sorted(types)) or None, kind, in_every, location
            types.append(kind)
    for (endpoint, field), types in sorted(types_so_far.items()):
        if types and endpoint in ends and (endpoint, field) not in there and steady.get((endpoint, field)):
            yield endpoint, field, "|".join(sorted(types)), None, False, ends[endpoint]


def read_fields(
    batches: Iterator[pa.RecordBatch], source: PagedSource, objects: ObjectFolder
) -> Iterator[pa.RecordBatch]:
    """Fields and types of each page, each once."""
    for batch in batches:
        for page in batch.to_pylist():
            with objects.open(page["object"]) as file:
                records = records_in(bytes(file.read()), source.records_path(page["path"]))
            types = field_types(records) if isinstance(records, list) else []
            number = int(page["location"].rpartition(PAGE_MARK)[2])
            where = {"endpoint": page["path"], "location": page["location"], "page": number}
            rows = [where | {"field": field, "type": kind, "in_every": every} for field, kind, every in types]
            yield pa.RecordBatch.from_pylist(rows, _FIELDS)


def field_types(records: Sequence[Any]) -> list[tuple[str, str, bool]]:
    """The fields of some records with their types in JSON, and whether every record has the field, by their names."""
    types: dict[str, set[str]] = {}
    counts: Counter[str] = Counter()
    for record in records:
        for name, value in record.items() if isinstance(record, dict) else ():
            if name in types or len(types) < _MAX_FIELDS:
                types.setdefault(name, set()).add(_TYPES.get(type(value), "null"))
                counts[name] += 1
    every = {name: counts[name] == len(records) for name in types}
    return sorted((_written(name), kind, every[name]) for name, kinds in types.items() for kind in kinds)


def _written(name: str) -> str:
    """A name of a field, valid in a table."""
    return json.dumps(name)[1:-1][:_MAX_NAME] if not name.isprintable() else name[:_MAX_NAME]

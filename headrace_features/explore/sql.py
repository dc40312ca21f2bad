"""SELECT over the tables of a lake by DuckDB, which reads nothing else: no file, no network, no other extension.

A query is parsed first. What it may name are tables that the reader may see, as DATASET.TABLE, and functions that
make rows of their arguments alone. Each table is a scan of its Parquet files by Arrow, so only the columns and row
groups that the query needs are read. Texts that are not shown, and excised documents, are not there. The query runs in
a process of its own (`sql_child`).
"""

from __future__ import annotations

import functools
import json
import operator
import os
import secrets
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
from pyiceberg.io.pyarrow import PyArrowFileIO, schema_to_pyarrow
from pyiceberg.schema import Schema

from dagster_project.exceptions import CommandError
from headrace_features.explore.index_files import quoted
from headrace_features.explore.sql_child import SETTINGS, answered
from spark_jobs.exceptions import did_you_mean
from spark_jobs.lake.files.scans import scan_of
from spark_jobs.sources.opening.parser_process import run_apart
from spark_jobs.sources.refusals import Refusal

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable

SECONDS: Final = 10.0
MOST_ROWS: Final = 1000
_MEMORY_BYTES: Final = 3 << 30  # addresses of the process; DuckDB has 1 GB of them for its own rows
_NUMBER: Final = b"PARQUET:field_id"
_ROW_MAKERS: Final = ("range", "generate_series", "unnest")  # table functions that read nothing
_AT_ONCE: Final = threading.BoundedSemaphore(2)  # queries; each has a process and its memory


Seen = tuple["IcebergTable", Collection[str]]
"""A table, and its columns that are not there for a reader."""


def run_sql(
    query: str, tables: Callable[[str], Seen | None], names: Collection[str], excised: Collection[str]
) -> dict[str, Any]:
    """Answer a query: columns (name, type), at most MOST_ROWS rows, whether there are more, and the seconds it took.

    Args:
        query: one SELECT.
        tables: gives a table that the reader may see by its name; None for others.
        names: of those tables, for suggestions.
        excised: documents that are not there.

    Raises:
        CommandError: it is no SELECT, names something else, fails, or takes too much time or memory.
    """
    plain, read = checked(query)
    views: list[tuple[str, dict[str, Any]]] = []
    for name in read:
        if (shown := tables(name)) is None:
            raise CommandError(f"there is no table {name[:100]}{did_you_mean(name, names)}")
        views += _views(name, shown, excised)
    sources = {name: source for _, read_by in views for name, source in read_by.items()}
    store = {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "GOOGLE_", "AZURE_"))}
    if not _AT_ONCE.acquire(timeout=SECONDS):
        raise CommandError("other queries are still running; ask again in a moment")
    try:
        given = [view for view, _ in views], sources, (SECONDS, MOST_ROWS), store
        answer = run_apart(answered, round(2 * SECONDS) + 1, plain, *given, memory_bytes=_MEMORY_BYTES)
    finally:
        _AT_ONCE.release()
    if isinstance(answer, Refusal):
        raise CommandError(f"it takes more than {SECONDS:g} s or {_MEMORY_BYTES >> 30} GB; ask for less")
    if "error" in answer:
        raise CommandError(answer["error"])
    return dict(answer)


def checked(query: str) -> tuple[str, list[str]]:
    """The query as DuckDB's parser writes it, without comments, and the tables that it names.

    Raises:
        CommandError: it is no single SELECT, or reads something else than tables of the lake.
    """
    try:
        import duckdb
    except ImportError as error:
        raise CommandError("duckdb is not installed; run: pip install 'headrace[explore]'") from error
    try:
        with duckdb.connect(":memory:", config=dict(SETTINGS)) as opened:
            ((text,),) = opened.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
            parsed = json.loads(text)
            if parsed.get("error"):
                raise CommandError(f"{parsed.get('error_message', 'it cannot be parsed')[:500]}; write one SELECT")
            if len(parsed["statements"]) != 1:
                raise CommandError(f"these are {len(parsed['statements'])} statements; write one SELECT")
            ((plain,),) = opened.execute("SELECT json_deserialize_sql(?)", [text]).fetchall()
    except RecursionError as error:
        raise CommandError("it is nested too deeply; write it flat") from error
    except duckdb.Error as error:
        raise CommandError(str(error).strip()[:500]) from error
    nodes = list(_nodes(parsed))
    within = {entry["key"] for node in nodes for entry in _listed(node.get("cte_map"))}
    read: dict[str, None] = {}
    for node in nodes:
        kind = node.get("type")
        if kind == "TABLE_FUNCTION" and (name := node["function"].get("function_name")) not in _ROW_MAKERS:
            raise CommandError(f"{str(name)[:100]}() is not allowed here; read a table as DATASET.TABLE")
        if kind == "SHOW_REF":
            raise CommandError("SHOW and DESCRIBE are not allowed here; SELECT with LIMIT 0 says columns and types")
        if kind == "BASE_TABLE":
            place = [part for part in (node["catalog_name"], node["schema_name"], node["table_name"]) if part]
            if not (len(place) == 1 and place[0] in within):
                read[".".join(place)] = None
    return plain, list(read)


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """All objects of a tree of JSON; without recursion, for a query may be nested deeply."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
        waiting += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()


def _listed(ctes: Any) -> Sequence[dict[str, Any]]:
    return ctes.get("map") or () if isinstance(ctes, dict) else ()


def _views(name: str, shown: Seen, excised: Collection[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Statements that make a table of the lake readable under its name, each with what it reads."""
    namespace, _, table = name.partition(".")
    behind, read, parts = f"_{secrets.token_hex(16)}", dict[str, Any](), list[str]()
    columns = [field for field in shown[0].schema().fields if field.name not in shown[1]]
    goes = excised and "doc_id" in [field.name for field in columns]
    if goes:
        read[f"{behind}_out"] = pa.table({"doc_id": sorted(excised)})
    for at, (source, stored) in enumerate(_sources(name, shown[0])):
        read[f"{behind}_{at}"] = source
        marks = {stored_name: f"c{place}" for place, stored_name in enumerate(source.schema.names)}
        values = [f"{marks.get(stored.get(field.field_id, ''), 'NULL')} AS {quoted(field.name)}" for field in columns]
        part = f"SELECT {', '.join(values)} FROM {behind}_{at} AS t({', '.join(marks.values())})"
        if goes and (doc_id := marks.get(stored.get(shown[0].schema().find_field("doc_id").field_id, ""))):
            # a row without a document, such as a refused file, is of no excised one; NOT IN would drop it
            part += f" WHERE {doc_id} IS NULL OR {doc_id} NOT IN (SELECT doc_id FROM {behind}_out)"
        parts.append(part)
    yield f"CREATE SCHEMA IF NOT EXISTS {quoted(namespace)}", {}
    yield f"CREATE VIEW {quoted(namespace)}.{quoted(table)} AS {' UNION ALL '.join(parts)}", read


def _sources(name: str, table: IcebergTable) -> list[tuple[Any, dict[int, str]]]:
    """The newest rows of a table, as things that DuckDB reads some columns and row groups of; each with stored names.

    A column is stored under the name that it had, as far as Parquet's writers allow it, so it is known by its number.
    Files of one layout are one source.

    Raises:
        CommandError: rows of its files are deleted by other files, which headrace does not write.
    """
    schema, tasks, io = table.schema(), [*scan_of(table).plan_files()], table.io
    if not tasks:
        arrow = schema_to_pyarrow(schema, include_field_ids=False)
        return [(arrow.empty_table(), {field.field_id: field.name for field in schema.fields})]
    if any(task.delete_files for task in tasks) or not isinstance(io, PyArrowFileIO):
        raise CommandError(f"{name}: it has rows that other files delete, so it cannot be read here")
    names = [field.name for field in table.spec().fields]
    form, fragments = ds.ParquetFileFormat(), []
    systems: dict[tuple[str, str], Any] = {}
    for task in tasks:
        scheme, netloc, path = io.parse_location(task.file.file_path, io.properties)
        system = systems.setdefault((scheme, netloc), io.fs_by_scheme(scheme, netloc))
        values = {name: task.file.partition[at] for at, name in enumerate(names)}
        place = [ds.field(name) == value for name, value in values.items() if value is not None]
        holds = functools.reduce(operator.and_, place) if place else None
        fragments.append(form.make_fragment(path, system, partition_expression=holds))
    # of a table whose columns never changed one file tells the layout of all
    alike = fragments[-1].physical_schema if len(table.metadata.schemas) == 1 else None
    layouts: dict[str, tuple[pa.Schema, list[Any]]] = {}
    for fragment in fragments:
        there = alike or fragment.physical_schema
        layouts.setdefault(there.to_string(show_schema_metadata=False), (there, []))[1].append(fragment)
    system = next(iter(systems.values()))
    return [
        (ds.FileSystemDataset(some, there.remove_metadata(), form, system), _stored(schema, there))
        for there, some in layouts.values()
    ]


def _stored(schema: Schema, there: pa.Schema) -> dict[int, str]:
    """The name in a file of each column, by its number in the table."""
    numbers = {int(field.metadata[_NUMBER]): field.name for field in there if _NUMBER in (field.metadata or {})}
    return numbers or {field.field_id: field.name for field in schema.fields}

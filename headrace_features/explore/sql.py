"""SELECT over the tables of a lake by DuckDB, which reads nothing else: no file, no network, no other extension.

A query is parsed first. What it may name are tables that the reader may see, as DATASET.TABLE, and functions that
make rows of their arguments alone. Each table is a scan of its Parquet files by Arrow, so only the columns and row
groups that the query needs are read. Texts that are not shown, and excised documents, are not there.
"""

from __future__ import annotations

import functools
import json
import operator
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
from pyiceberg.io.pyarrow import PyArrowFileIO, schema_to_pyarrow

from dagster_project.exceptions import CommandError
from headrace_features.explore.index_files import quoted
from spark_jobs.exceptions import did_you_mean
from spark_jobs.lake.files.scans import scan_of

if TYPE_CHECKING:
    import duckdb
    from pyiceberg.table import Table as IcebergTable

SECONDS: Final = 10.0
MOST_ROWS: Final = 1000
_MOST_CHARACTERS: Final = 2000  # of a value that is shown
_ROW_MAKERS: Final = ("range", "generate_series", "unnest")  # table functions that read nothing
_AT_ONCE: Final = threading.BoundedSemaphore(2)  # queries; each has a thread of its own and its memory
_SETTINGS: Final[Mapping[str, str | bool | int | float | list[str]]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "memory_limit": "1GB",
    "threads": "2",
}


@dataclass(frozen=True)
class SqlTable:
    """A table as a reader may see it.

    Attributes:
        table: of the lake.
        hidden: columns that are not there for this reader.
    """

    table: IcebergTable
    hidden: Collection[str] = ()


@dataclass(frozen=True)
class SqlAnswer:
    """What a query gave.

    Attributes:
        columns: name and type of each.
        rows: at most MOST_ROWS.
        more: whether there are further rows.
        seconds: that it took.
    """

    columns: list[tuple[str, str]]
    rows: list[tuple[Any, ...]]
    more: bool
    seconds: float


def run_sql(
    query: str, tables: Callable[[str], SqlTable | None], names: Collection[str], excised: Collection[str]
) -> SqlAnswer:
    """Answer a query.

    Args:
        query: one SELECT.
        tables: gives a table that the reader may see by its name; None for others.
        names: of those tables, for suggestions.
        excised: documents that are not there.

    Raises:
        CommandError: it is no SELECT, names something else, fails, or takes too long.
    """
    import duckdb

    began = time.monotonic()
    if not _AT_ONCE.acquire(timeout=SECONDS):
        raise CommandError("other queries are still running; ask again in a moment")
    opened = duckdb.connect(":memory:", config=dict(_SETTINGS))
    stop = threading.Timer(SECONDS, opened.interrupt)
    try:
        stop.start()
        plain, read = _checked(opened, query)
        for name in read:
            if (shown := tables(name)) is None:
                raise CommandError(f"there is no table {name[:100]}{did_you_mean(name, names)}")
            _add(opened, name, shown, excised)
        opened.execute("SET lock_configuration = true")
        return _answered(opened, plain, began)
    except RecursionError as error:
        raise CommandError("it is nested too deeply; write it flat") from error
    except duckdb.InterruptException as error:
        raise CommandError(f"it takes longer than {SECONDS:g} s; ask for less") from error
    except duckdb.Error as error:
        raise CommandError(str(error).strip()[:2000]) from error
    finally:
        stop.cancel()
        opened.close()
        _AT_ONCE.release()


def _checked(opened: duckdb.DuckDBPyConnection, query: str) -> tuple[str, list[str]]:
    """The query as DuckDB's parser writes it, without comments, and the tables that it names.

    Raises:
        CommandError: it is no single SELECT, or reads something else than tables of the lake.
    """
    ((text,),) = opened.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
    parsed = json.loads(text)
    if parsed.get("error"):
        raise CommandError(f"{parsed.get('error_message', 'it cannot be parsed')[:500]}; write one SELECT")
    if len(parsed["statements"]) != 1:
        raise CommandError(f"these are {len(parsed['statements'])} statements; write one SELECT")
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
    ((plain,),) = opened.execute("SELECT json_deserialize_sql(?)", [text]).fetchall()
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


def _add(opened: duckdb.DuckDBPyConnection, name: str, shown: SqlTable, excised: Collection[str]) -> None:
    """Make a table of the lake readable under its name; what lies behind has a name that nobody can guess."""
    namespace, _, table = name.partition(".")
    behind, source = f"_{secrets.token_hex(16)}", _source(shown.table)
    opened.register(behind, source)
    columns = [column for column in source.schema.names if column not in shown.hidden]
    view = f"SELECT {', '.join(map(quoted, columns))} FROM {behind}"
    if excised and "doc_id" in columns:
        opened.register(f"{behind}_out", pa.table({"doc_id": sorted(excised)}))
        view += f" WHERE doc_id NOT IN (SELECT doc_id FROM {behind}_out)"
    opened.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(namespace)}")
    opened.execute(f"CREATE VIEW {quoted(namespace)}.{quoted(table)} AS {view}")


def _source(table: IcebergTable) -> Any:
    """The newest rows of a table, as something that DuckDB reads some columns and row groups of."""
    scan, schema = scan_of(table), schema_to_pyarrow(table.schema(), include_field_ids=False)
    tasks, io = list(scan.plan_files()), table.io
    if not tasks:
        return schema.empty_table()
    if any(task.delete_files for task in tasks) or not isinstance(io, PyArrowFileIO):
        return scan.to_arrow_batch_reader()
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
    there = fragments[-1].physical_schema  # what it has not, a column was added after it was written
    fields = [there.field(field.name) if field.name in there.names else field for field in schema]
    return ds.FileSystemDataset(fragments, pa.schema(fields), form, next(iter(systems.values())))


def _answered(opened: duckdb.DuckDBPyConnection, query: str, began: float) -> SqlAnswer:
    """Columns and first rows of a query; long texts are cut before they come here."""
    described = opened.execute(f"DESCRIBE SELECT * FROM ({query})").fetchall()
    columns = [(str(row[0]), str(row[1])) for row in described]
    names = [f"c{at}" for at in range(len(columns))]
    cut = {"VARCHAR": "left({0}, {1})", "BLOB": "left(hex({0}), {1})"}
    shown = [
        cut.get(kind, "{0}").format(name, _MOST_CHARACTERS) for name, (_, kind) in zip(names, columns, strict=True)
    ]
    whole = f"SELECT {', '.join(shown)} FROM ({query}) AS t({', '.join(names)}) LIMIT {MOST_ROWS + 1}"
    rows = opened.execute(whole).fetchall()
    return SqlAnswer(columns, rows[:MOST_ROWS], len(rows) > MOST_ROWS, time.monotonic() - began)

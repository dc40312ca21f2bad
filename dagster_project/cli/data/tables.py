"""`headrace table`: show, check and delete the tables of the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dagster_project.cli.data.table_check import check_table
from dagster_project.cli.output import JSON, lists_all, print_json, print_rows, print_tables, say
from dagster_project.exceptions import CommandError
from dagster_project.inspect.conditions import parse_condition
from dagster_project.inspect.lake.found_table import require_table
from dagster_project.project.declared import hidden_columns
from dagster_project.project.loading import lake_catalogue
from dagster_project.restrictions import note_read
from headrace.tables.catalogue import tables_in
from headrace.tables.quarantine import quarantine_that_holds
from spark_jobs.exceptions import nearest
from spark_jobs.lake.files.lookups import EVERYTHING, first_rows
from spark_jobs.lake.ledger.ledger import Ledger

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_SHOWN_ROWS = 20


@click.group()
def table() -> None:
    """Show, check and delete tables."""


table.add_command(check_table)


@table.command("show")
@click.argument("name", metavar="[TABLE|NAMESPACE]", required=False)
@click.option("--rows", "row_count", type=click.IntRange(min=1), help="show some rows instead, at most this many")
@click.option("--where", help="show rows (20) that meet a condition, e.g. \"status = 'rejected' and byte_count > 100\"")
@click.option(
    "--failed", metavar="RULE", help="of verdicts: show documents (20) that failed RULE, borderline ones first"
)
@click.option("--window", type=click.IntRange(min=0), help="of a packed table: show this window's documents, decoded")
@click.option("--quarantined", is_flag=True, help="show rows that wait in quarantine; it leaves a row of system.audit")
@JSON
def show_table(name: str | None, as_json: bool, quarantined: bool, **chosen: Any) -> None:
    """List the tables of the lake or of a NAMESPACE; of a TABLE show columns, properties, increments, or some rows.

    Without a TABLE, --json alone may be given. A condition compares columns with values: = != < <= > >=, in ('a', 'b'),
    like '%a_', contains 'a' (in any case of letters), is null, and, or, not. A boolean column stands alone (not kept);
    of a list it is enough that one element meets it (failed.rule = 'too_short').

    Columns that hold texts of documents are shown where the declaration says `samples: text`, and of what is in
    quarantine with --quarantined.
    """
    catalogue = lake_catalogue()
    if lists_all(name is not None and "." in name, "name") or name is None:
        _list_tables(catalogue, name, as_json)
    elif any(value is not None for value in chosen.values()):
        _show_rows(catalogue, name, quarantined, as_json, **chosen)
    else:
        _show_facts(catalogue, name, as_json)


def _list_tables(catalogue: Catalog, namespace: str | None, as_json: bool) -> None:
    """Print the tables of the lake, or of one namespace."""
    ledger = Ledger.fresh(catalogue)
    spaces = [space[0] for space in sorted(catalogue.list_namespaces())]
    if namespace is not None and namespace not in spaces:
        there = ", ".join(spaces) or "none yet"
        raise CommandError(
            f"namespace {namespace} is not in the lake{nearest(namespace, spaces)}; there are {there}; a table is "
            "NAMESPACE.TABLE"
        )
    rows = []
    for identifier in (
        table for space in spaces if namespace in (None, space) for table in tables_in(catalogue, space)
    ):
        places = ledger.places(identifier) if not _is_system(identifier) else {}
        row_count = sum(row.row_count for row in places.values())
        byte_count = sum(row.byte_count for row in places.values())
        if _is_system(identifier):
            row_count, byte_count = _size(catalogue.load_table(identifier))
        rows.append({"table": identifier, "increments": len(places), "rows": row_count, "stored bytes": byte_count})
    print_rows(rows, as_json, "The lake has no table yet. Fill it: headrace run")


def _is_system(identifier: str) -> bool:
    """Whether no step computes a table, so that the ledger has no rows of it."""
    return identifier.startswith("system.")


def _show_facts(catalogue: Catalog, identifier: str, as_json: bool) -> None:
    """Print columns, properties and the facts of each increment of a table."""
    iceberg = require_table(catalogue, identifier)
    ledger = Ledger.fresh(catalogue)
    columns = [
        {"column": field.name, "type": str(field.field_type), "required": field.required, "meaning": field.doc or ""}
        for field in iceberg.schema().fields
    ]
    places = [
        {
            "increment": row.place,
            "rows": row.row_count,
            "stored bytes": row.byte_count,
            "seconds": row.seconds,
            "data_version": str(row.data_version),
            "step_key": row.step_key[:12],
            "snapshot": str(row.snapshot_id),
        }
        for row in (ledger.places(identifier) if not _is_system(identifier) else {}).values()
    ]
    properties = {
        key: value
        for key, value in iceberg.properties.items()
        if key.startswith("headrace.") and key != "headrace.last-materialization"
    }
    if as_json:
        facts = {"table": identifier, "columns": columns, "properties": properties, "increments": places}
        return print_json(facts)
    say(f"{identifier}: {iceberg.properties.get('comment', '')}\nat {iceberg.location()}\n")
    print_tables(columns, [{"property": key, "value": value} for key, value in sorted(properties.items())], places)


def _show_rows(
    catalogue: Catalog, identifier: str, quarantined: bool, as_json: bool, *, row_count: int | None, where: str | None,
    failed: str | None, window: int | None,
) -> None:  # fmt: skip
    """Print some rows of a table: any, those that meet a condition, documents that failed a rule, or a window."""
    iceberg = require_table(catalogue, identifier)
    columns = [field.name for field in iceberg.schema().fields]
    if failed is not None and (where is not None or "failed" not in columns):
        raise CommandError(f"table show {identifier} --failed {failed}: give it with NAME.verdicts, without --where")
    quarantine = window is None and quarantine_that_holds(identifier, iceberg.properties)
    hidden = [] if quarantine else hidden_columns(identifier)
    if window is not None and hidden:
        raise CommandError(f"{identifier}: its corpus does not say `samples: text`, so no window is decoded")
    note_read(catalogue, [identifier], quarantined)
    if window is not None:
        _print_window(catalogue, identifier, window, as_json)
    elif failed is not None:
        _print_failed(catalogue, identifier, failed, row_count or _SHOWN_ROWS, as_json)
    else:
        _print_rows(identifier, iceberg, hidden, row_count or _SHOWN_ROWS, where, as_json)


@table.command("delete")
@click.argument("identifiers", nargs=-1, required=True)
@click.confirmation_option(prompt="They go from the catalogue; the next run computes them anew. Go on?")
def delete_table(identifiers: tuple[str, ...]) -> None:
    """Remove tables from the catalogue; their files stay."""
    catalogue = lake_catalogue()
    for identifier in identifiers:
        require_table(catalogue, identifier)
    for identifier in identifiers:
        catalogue.drop_table(identifier)
        say(f"dropped {identifier}. Next: headrace run {identifier}")


def _size(iceberg: Table) -> tuple[int, int]:
    """Rows and bytes of a table without a step."""
    snapshot = iceberg.current_snapshot()
    facts = snapshot.summary.additional_properties if snapshot is not None and snapshot.summary is not None else {}
    return int(facts.get("total-records", 0)), int(facts.get("total-files-size", 0))


def _print_rows(
    identifier: str, iceberg: Table, hidden: list[str], row_count: int, where: str | None, as_json: bool
) -> None:
    """Print some rows, without the hidden columns."""
    names = [field.name for field in iceberg.schema().fields if field.name not in hidden]
    condition, elements = parse_condition(iceberg.schema(), where, hidden) if where else (EVERYTHING, {})
    rows = first_rows(iceberg, names, row_count, condition, elements).to_pylist()
    if as_json:
        return print_json(rows)
    width = max(map(len, names))
    for row in rows:
        lines = (f"{name:<{width}}  {' '.join(str(row[name]).split())}" for name in names if row[name] is not None)
        say("\n".join(lines) + "\n")
    if not rows:
        say(f"{identifier} has no {'such ' if where else ''}row")
    if hidden:
        say(f"{', '.join(hidden)}: texts, shown where the declaration of {identifier} says `samples: text`")


def _print_window(catalogue: Catalog, identifier: str, ordinal: int, as_json: bool) -> None:
    """Print the documents of a window with their text."""
    from dagster_project.inspect.documents.document_windows import decoded_window

    parts = decoded_window(catalogue, identifier, ordinal)
    if as_json:
        return print_json([vars(part) for part in parts])
    for part in parts:
        first, last = part.document_start, part.document_start + part.token_count
        say(f"-- {part.doc_id[:12]} {part.path}, tokens {first:,} to {last:,}")
        say("\n".join(part.text.splitlines()))
    say(f"-- {sum(part.token_count for part in parts):,} tokens of {len(parts)} documents; padding follows")


def _print_failed(catalogue: Catalog, identifier: str, rule: str, count: int, as_json: bool) -> None:
    """Print documents failing a rule, with the value seen and its bound."""
    from dagster_project.inspect.documents.failed_documents import failed_documents

    rows = failed_documents(catalogue, identifier, rule, count)
    shown = [{key: "" if value is None else value for key, value in row.items()} for row in rows]
    shown = [{**row, "doc_id": row["doc_id"][:12]} for row in shown]
    print_rows(rows if as_json else shown, as_json, "")
    if not as_json:
        say(f"One of them: headrace doc show {rows[0]['doc_id'][:12]}")

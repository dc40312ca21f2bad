"""`headrace table`: what the lake holds, and its upkeep."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from dagster_project.cli.output import print_table
from dagster_project.exceptions import CommandError
from spark_jobs.lake.catalogue import load_table, open_catalogue
from spark_jobs.lake.ledger import Ledger
from spark_jobs.lake.settings import load_settings


@click.group()
def table() -> None:
    """List, show and maintain tables."""


@table.command("list")
@click.argument("namespace", required=False)
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def list_tables(namespace: str | None, as_json: bool) -> None:
    """List the tables of the lake, or of one NAMESPACE."""
    catalogue = open_catalogue(load_settings())
    ledger = Ledger(catalogue)
    ledger.refresh()
    rows = []
    spaces = sorted(catalogue.list_namespaces())
    if namespace is not None and (namespace,) not in spaces:
        there = ", ".join(space[0] for space in spaces) or "none yet"
        raise CommandError(f"namespace {namespace} is not in the lake; there are {there}")
    for space in spaces:
        if namespace is not None and space[0] != namespace:
            continue
        for identifier in sorted(".".join(name) for name in catalogue.list_tables(space)):
            places = ledger.places(identifier) if space[0] != "system" else {}
            rows.append(
                {
                    "table": identifier,
                    "increments": len(places),
                    "rows": sum(row.row_count for row in places.values()),
                    "bytes": sum(row.byte_count for row in places.values()),
                }
            )
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    elif rows:
        print_table(rows)
    else:
        click.echo("The lake has no table yet. Fill it: headrace run")


@table.command("show")
@click.argument("identifier")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def show_table(identifier: str, as_json: bool) -> None:
    """Show one table: columns, properties, and how each increment was computed."""
    catalogue = open_catalogue(load_settings())
    iceberg = _require(catalogue, identifier)
    ledger = Ledger(catalogue)
    ledger.refresh()
    columns = [
        {"column": field.name, "type": str(field.field_type), "required": field.required, "meaning": field.doc or ""}
        for field in iceberg.schema().fields
    ]
    places = [
        {
            "increment": row.place,
            "rows": row.row_count,
            "bytes": row.byte_count,
            "seconds": row.seconds,
            "data_version": str(row.data_version),
            "step_key": row.step_key[:12],
            "snapshot": str(row.snapshot_id),
        }
        for row in ledger.places(identifier).values()
    ]
    properties = {
        key: value
        for key, value in iceberg.properties.items()
        if key.startswith("headrace.") and key != "headrace.last-materialization"
    }
    if as_json:
        said = {"table": identifier, "columns": columns, "properties": properties, "increments": places}
        click.echo(json.dumps(said, indent=2))
        return
    click.echo(f"{identifier}: {iceberg.properties.get('comment', '')}\nat {iceberg.location()}\n")
    print_table(columns)
    if properties:
        click.echo("")
        print_table([{"property": key, "value": value} for key, value in sorted(properties.items())])
    if places:
        click.echo("")
        print_table(places)


@table.command("compact")
@click.argument("identifiers", nargs=-1, required=True)
def compact_tables(identifiers: tuple[str, ...]) -> None:
    """Merge small data files; rows, digests and ordinals stay as they are."""
    from spark_jobs.lake.maintenance import compact
    from spark_jobs.lake.session import start_session

    settings = load_settings()
    catalogue = open_catalogue(settings)
    for identifier in identifiers:
        _require(catalogue, identifier)
    spark = start_session(settings)
    for identifier in identifiers:
        before, after = compact(spark, catalogue, identifier)
        click.echo(f"{identifier}: {before} files are now {after}")


@table.command("expire")
@click.argument("identifiers", nargs=-1, required=True)
@click.option("--days", default=7.0, show_default=True, type=click.FloatRange(min=0), help="keep younger snapshots")
def expire_tables(identifiers: tuple[str, ...], days: float) -> None:
    """Remove old snapshots and the files that only they used; what blends have pinned stays."""
    from spark_jobs.lake.maintenance import expire
    from spark_jobs.lake.session import start_session

    settings = load_settings()
    catalogue = open_catalogue(settings)
    for identifier in identifiers:
        _require(catalogue, identifier)
    spark = start_session(settings)
    for identifier in identifiers:
        gone = expire(spark, catalogue, identifier, datetime.now(UTC) - timedelta(days=days))
        click.echo(f"{identifier}: {gone} snapshots removed")


@table.command("drop")
@click.argument("identifiers", nargs=-1, required=True)
@click.confirmation_option(prompt="They go from the catalogue; the next run computes them anew. Go on?")
def drop_table(identifiers: tuple[str, ...]) -> None:
    """Take tables out of the catalogue; their files stay where they are."""
    catalogue = open_catalogue(load_settings())
    for identifier in identifiers:
        _require(catalogue, identifier)
    for identifier in identifiers:
        catalogue.drop_table(identifier)
        click.echo(f"dropped {identifier}. Next: headrace run {identifier}")


def _require(catalogue: Any, identifier: str) -> Any:
    """The table.

    Raises:
        CommandError: there is none of this name.
    """
    found = load_table(catalogue, identifier) if identifier.count(".") == 1 else None
    if found is None:
        raise CommandError(f"table {identifier} is not in the lake; `headrace table list` shows those that are")
    return found

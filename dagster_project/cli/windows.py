"""`headrace trace`, `excise` and `export`: from windows back to files, out of windows, and windows as plain files."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dagster_project.cli.output import print_table
from dagster_project.exceptions import CommandError
from spark_jobs.lake.catalogue import open_catalogue
from spark_jobs.lake.settings import load_settings

_TEXT_BYTES = 60


@click.command()
@click.argument("table")
@click.argument("ordinal", type=click.IntRange(min=0))
@click.argument("position", type=click.IntRange(min=0))
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def trace(table: str, ordinal: int, position: int, as_json: bool) -> None:
    """Trace the token at POSITION of row ORDINAL of a packed TABLE back to the file it came from."""
    from dagster_project.trace import Tracer

    found = Tracer(open_catalogue(load_settings()), table).trace(ordinal, position)
    if as_json:
        click.echo(json.dumps(found.facts(), indent=2))
        return
    if found.doc_id is None:
        click.echo(f"{table} {ordinal}:{position} is padding")
        return
    shelf = f"{found.repository}: " if found.repository else ""
    at = f"token {found.document_token:,}" if found.what == "token" else found.what.replace("_", " ")
    rows = [
        ("document", f"{found.doc_id}  {found.dataset} {shelf}{found.path}"),
        ("revision", found.revision or "not known"),
        ("licence", found.licence or "not known"),
        ("place", at + (f", id {found.token_id}" if found.token_id is not None else "")),
    ]
    if found.source_start is not None:
        rows.append(("file", f"bytes {found.source_start:,} to {found.source_end:,} ({found.encoding})"))
        rows.append(("text", f"bytes {found.text_start:,} to {found.text_end:,} of {found.dataset}.texts"))
    print_table([{"": name, table: value} for name, value in rows])


@click.command()
@click.argument("doc_ids", nargs=-1, metavar="DOC_ID...")
@click.option("--from-file", "listed", type=click.Path(exists=True, dir_okay=False), help="file of doc_ids, one a line")
@click.option("--table", "tables", multiple=True, help="packed table; by default all of the lake that hold any of them")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
@click.confirmation_option(prompt="The documents go from packed tables for good. Go on?")
def excise(doc_ids: tuple[str, ...], listed: str | None, tables: tuple[str, ...], as_json: bool) -> None:
    """Take documents out of packed tables for good; every row keeps its ordinal, padding takes their places.

    Without --table they are kept out of packed tables to come as well.
    """
    from dagster_project.document_windows import packed_tables
    from spark_jobs.lake.excisions import record_excisions
    from spark_jobs.lake.ledger import Ledger
    from spark_jobs.lake.materialize import Lake
    from spark_jobs.lake.session import start_session
    from spark_jobs.packing.excise import excise as excise_table

    wanted = {*doc_ids, *(Path(listed).read_text().split() if listed else ())}
    wrong = sorted(one for one in wanted if len(one) != 32 or not set(one) <= set("0123456789abcdef"))
    if wrong or not wanted:
        raise CommandError(f"excise: {wrong[0] if wrong else 'nothing'} is given; give whole doc_ids of 32 hex digits")
    settings = load_settings()
    catalogue = open_catalogue(settings)
    lake = Lake(catalogue, Ledger(catalogue), lambda: start_session(settings))
    if not tables:
        record_excisions(catalogue, None, wanted, lake.run_id)
    done = [excise_table(lake, table, wanted) for table in tables or packed_tables(catalogue)]
    if as_json:
        click.echo(json.dumps([vars(one) for one in done], indent=2))
        return
    for one in done:
        if not one.doc_ids:
            click.echo(f"{one.identifier}: holds none of them")
            continue
        click.echo(
            f"{one.identifier}: {len(one.doc_ids)} documents, {one.tokens_removed:,} tokens out of "
            f"{len(one.ordinals):,} windows; {one.files_rewritten} files rewritten, {one.rows_rewritten:,} rows"
        )
        click.echo(
            f"  snapshot {one.new_snapshot_id} succeeds {one.old_snapshot_id}; tags moved: {len(one.tags_moved)}"
        )
    changed = [one.identifier for one in done if one.doc_ids]
    if changed:
        click.echo(f"Next: headrace table expire {' '.join(changed)} --days 0, which deletes the old files")
    missing = wanted - {doc_id for one in done for doc_id in one.doc_ids}
    if missing:
        click.echo(f"{len(missing)} of the documents are in no packed table, first {min(missing)}")


@click.command()
@click.argument("table")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--format", "kind", type=click.Choice(["parquet", "webdataset", "pt"]), default="parquet", show_default=True
)
@click.option("--shard-rows", type=click.IntRange(min=1), help="windows in a shard; by default 2^26 tokens' worth")
def export(table: str, folder: Path, kind: str, shard_rows: int | None) -> None:
    """Write a packed TABLE as shards of plain files into DIR, with a manifest of their checksums."""
    from dagster_project.exports import export_table

    manifest = export_table(open_catalogue(load_settings()), table, folder, kind, shard_rows)
    click.echo(f"{table}: {manifest['rows']:,} windows in {len(manifest['shards'])} shards and {folder}/manifest.json")

"""`headrace doc trace`, `doc excise`, `export`: tokens to files, documents out of windows, windows as files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dagster_project.cli.output import JSON, print_json, print_table, say
from dagster_project.cli.tree import refuse_repetition
from dagster_project.exceptions import CommandError
from dagster_project.project.loading import lake_catalogue, open_lake, run_id_of
from spark_jobs.features import missing
from spark_jobs.plugins import added, load

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from dagster_project.inspect.documents.trace import Traced


@click.command()
@click.argument("table")
@click.argument("ordinal", type=click.IntRange(min=0))
@click.argument("position", type=click.IntRange(min=0))
@JSON
def trace(table: str, ordinal: int, position: int, as_json: bool) -> None:
    """Trace the token at POSITION of row ORDINAL of a packed TABLE back to the file it came from."""
    from dagster_project.inspect.opened_lake import connect

    traced = connect().trace(table, ordinal, position)
    if as_json:
        return print_json(traced.facts())
    if traced.doc_id is None:
        say(f"{table} {ordinal}:{position} is padding")
        return
    shelf = f"{traced.repository}: " if traced.repository else ""
    at = f"token {traced.document_token:,}" if traced.what == "token" else traced.what.replace("_", " ")
    rows = [
        ("document", f"{traced.doc_id}  {traced.dataset} {shelf}{traced.path}"),
        ("revision", traced.revision or "not known"),
        ("licence", traced.licence or "not known"),
        ("place", at + (f", id {traced.token_id}" if traced.token_id is not None else "")),
    ]
    if traced.trained is not None:
        rows.append(("trained", "yes" if traced.trained else f"no, by {traced.rule}" if traced.rule else "no"))
    if traced.source_start is not None:
        rows.append(_source_place(traced))
        rows.append(("text", f"bytes {traced.text_start:,} to {traced.text_end:,} of {traced.dataset}.texts"))
    if traced.location is not None:
        kept = f", kept as {traced.object}" if traced.object else ""
        rows.append(("landed", f"{traced.location}{kept}; headrace doc show {traced.doc_id[:12]} --source"))
    print_table([{"": name, table: value} for name, value in rows])


def _source_place(traced: Traced) -> tuple[str, str]:
    """A label (file, record or source) and the bytes of a token in that."""
    span = f"bytes {traced.source_start:,} to {traced.source_end:,}"
    if traced.extracted is not None:
        return "source", f"{span} of {traced.extracted}"
    if "#" in (traced.path or ""):
        return "record", f"{span} of its text"
    return "file", f"{span} ({traced.encoding})"


@click.command()
@click.argument("named", nargs=-1, metavar="[DOC_ID|CORPUS]...")
@click.option("--from-file", "listed", type=click.Path(exists=True, dir_okay=False), help="file of doc_ids, one a line")
@click.option("--increment", "increments", multiple=True, metavar="DATASET:N", help="all documents of an increment")
@click.option("--table", "tables", multiple=True, help="packed table; by default all; may be repeated")
@click.option("--with-duplicates", is_flag=True, help="also remove their duplicates, as corpora found them")
@click.option("--with-derived", is_flag=True, help="also remove what models wrote from them, to any depth")
@click.option(
    "--superseded", is_flag=True, help="excise what newer revisions replaced in CORPUS.., whatever these declare"
)
@click.option("--deleted", is_flag=True, help="with --superseded: also those whose file is gone")
@JSON
@click.option("--reason", help="why; it is kept in system.audit")
@click.option("--yes", is_flag=True, help="do not ask")
def excise(superseded: bool, deleted: bool, as_json: bool, yes: bool, **chosen: Any) -> None:
    """Remove documents from packed tables for good; every row keeps its ordinal, padding replaces their tokens.

    Every snapshot that blends or tags pin is rewritten, in every generation. Without --table the documents are left out
    of all later packing as well. Their duplicates are listed; --with-duplicates removes them too.
    """
    if not superseded and not deleted:
        _excise_documents(as_json, yes, **chosen)
        return
    corpora = chosen.pop("named")
    if not superseded or not corpora or any(chosen.values()):
        raise CommandError("doc excise: --superseded takes corpora, --deleted, --json and --yes, and nothing else")
    _excise_superseded(corpora, ("superseded", "gone") if deleted else ("superseded",), as_json, yes)


def _excise_documents(
    as_json: bool,
    yes: bool,
    named: tuple[str, ...],
    listed: str | None,
    increments: tuple[str, ...],
    tables: tuple[str, ...],
    with_duplicates: bool,
    with_derived: bool,
    reason: str | None,
) -> None:
    """Remove given documents, or those of increments, from packed tables."""
    from dagster_project.deletion.excised_tables import (
        duplicate_lines,
        excise_documents,
        excision_lines,
        known_duplicates,
    )
    from spark_jobs.lake.ledger.acts import EXCISE, note_act
    from spark_jobs.lake.plan.excisions import record_excisions
    from spark_jobs.sources.landing.derivations import descendants, forget_derived, staying

    run_id = run_id_of("doc excise")
    lake = open_lake(run_id)
    catalogue = lake.catalogue
    wanted = {doc_id for increment in increments for doc_id in _documents_of(catalogue, increment)}
    wanted |= {*named, *(Path(listed).read_text().split() if listed else ())}
    wrong = sorted(doc_id for doc_id in wanted if len(doc_id) != 32 or not set(doc_id) <= set("0123456789abcdef"))
    if wrong or not wanted:
        raise CommandError(f"excise: {wrong[0] if wrong else 'nothing'} is given; give whole doc_ids of 32 hex digits")
    duplicates = known_duplicates(catalogue, wanted)
    for line in duplicate_lines(duplicates, with_duplicates):
        say(line, err=as_json)
    if with_duplicates:
        wanted |= duplicates.keys()
    derived = descendants(catalogue, wanted) - wanted
    if derived:
        fate = "go too" if with_derived else "stay; --with-derived removes them too"
        say(f"{len(derived):,} documents that models wrote from these {fate}", err=as_json)
    for line in staying("wrote from these"):
        say(line, err=as_json)
    wanted |= derived if with_derived else set()
    if not yes:
        click.confirm(f"{len(wanted)} documents go from packed tables for good. Go on?", abort=True, err=as_json)
    # The ids themselves are in `system.excisions`, under this run.
    why = f"{reason or 'no reason given'}; {len(wanted):,} documents, run {run_id}"
    note_act(catalogue, EXCISE, ",".join(sorted(tables)) or "all packed tables", why=why)
    if not tables:
        record_excisions(catalogue, None, wanted, run_id)
        for line in forget_derived(catalogue, wanted, lake.wait_seconds):
            say(line, err=as_json)
    done = excise_documents(lake, tables, wanted)
    missing = wanted - {doc_id for excision in done for doc_id in excision.excised.doc_ids}
    if as_json:
        facts = {
            "run_id": run_id,
            "documents": sorted(wanted),
            "in_no_table": sorted(missing),
            "duplicates": duplicates,
        }
        print_json({**facts, "tables": [asdict(excision) for excision in done]})
    else:
        for excision in done:
            for line in excision_lines(excision):
                say(line)
        changed = [excision.excised.identifier for excision in done if excision.excised.doc_ids]
        if changed:
            _print_next(changed)
        if missing:
            say(f"{len(missing)} of the documents are in no packed table, first {min(missing)}")
    failed = [excision for excision in done if excision.failure]
    if failed:
        raise CommandError(
            f"excise: {len(failed)} of {len(done)} tables could not be changed, so they may hold the documents still; "
            f"first {failed[0].failure}"
        )


def _excise_superseded(corpora: Sequence[str], standing: Sequence[str], as_json: bool, yes: bool) -> None:
    """Remove packed documents that are superseded (or whose file is gone), whatever their corpora declare."""
    from dagster_project.inspect.documents.document_windows import packed_tables
    from dagster_project.inspect.lake.corpus_facts import find_corpus
    from spark_jobs.packing.supersede import excise_superseded

    if not yes:
        click.confirm("Superseded documents go from packed tables for good. Go on?", abort=True, err=as_json)
    lake = open_lake()
    thresholds = {name: find_corpus(lake.catalogue, name).applied for name in corpora}
    tables = [table for table in packed_tables(lake.catalogue) if table.split(".")[0] in thresholds]
    done = [excise_superseded(lake, table, thresholds[table.split(".")[0]], standing) for table in tables]
    if as_json:
        return print_json([{**vars(excision.excised), "staying": excision.staying} for excision in done])
    for excision in done:
        gone = excision.excised
        say(
            f"{gone.identifier}: {len(gone.doc_ids):,} documents, {gone.tokens_removed:,} tokens out of "
            f"{len(gone.ordinals):,} windows"
        )
        if excision.staying:
            say(
                f"  {len(excision.staying):,} stay, first {excision.staying[0]}: a document that is still there was "
                "removed as a duplicate of it, or what replaced it is out of the table"
            )
    changed = [excision.excised.identifier for excision in done if excision.excised.doc_ids]
    if changed:
        _print_next(changed)


def _print_next(changed: Sequence[str]) -> None:
    """Print how the old files of changed tables are deleted."""
    say(f"Next: headrace maintain {' '.join(changed)} --only expiry --days 0, which deletes the old files")


def _documents_of(catalogue: Catalog, increment: str) -> set[str]:
    """The documents of an increment of a dataset, given as `DATASET:N`.

    Raises:
        CommandError: there is none, or the text has another form.
    """
    from pyiceberg.expressions import EqualTo

    from spark_jobs.lake.files.lookups import read_rows

    dataset, _, number = increment.partition(":")
    condition = EqualTo("increment", int(number) if number.isdecimal() else -1)
    doc_ids = {row["doc_id"] for row in read_rows(catalogue, f"{dataset}.documents", ("doc_id",), condition)}
    if not doc_ids:
        raise CommandError(f"excise --increment {increment}: no document is in it; give DATASET:N, such as web:3")
    return doc_ids


class _Export(click.Command):
    """The command `export`, where the name of a feature's or package's export may come first."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """The context of this command, or of the one of `headrace.exports` under the first word."""
        if args and (args[0] in added("exports") or args[0] in missing("exports")):
            command = load("exports", args[0], click.Command)
            refuse_repetition(command)
            return command.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The other exports, then the example."""
        if names := added("exports"):
            formatter.write_paragraph()
            formatter.write_text(f"Other exports: {', '.join(f'headrace export {name} --help' for name in names)}")
        super().format_epilog(ctx, formatter)


@click.command(cls=_Export)
@click.argument("table")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--format", "kind", type=click.Choice(["parquet", "webdataset", "pt"]), default="parquet", show_default=True
)
@click.option("--shard-rows", type=click.IntRange(min=1), help="windows in a shard; default: 2^26 tokens of them")
def export(table: str, folder: Path, kind: str, shard_rows: int | None) -> None:
    """Write a packed TABLE as shards of plain files into DIR, with a manifest of their checksums."""
    from dagster_project.inspect.lake.exports import export_table
    from dagster_project.restrictions import note_read

    catalogue = lake_catalogue()
    note_read(catalogue, [table])
    manifest = export_table(catalogue, table, folder, kind, shard_rows)
    say(f"{table}: {manifest['rows']:,} windows in {len(manifest['shards'])} shards and {folder}/manifest.json")

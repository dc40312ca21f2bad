"""`headrace corpus`: list corpora, show their funnel, compute them anew, excise what was superseded."""

from __future__ import annotations

import dataclasses
import json

import click

from dagster_project.cli.data.versions import diff_command
from dagster_project.cli.declared import CORPUS, declarations
from dagster_project.cli.output import print_rows
from dagster_project.cli.project import open_lake
from dagster_project.exceptions import CommandError
from spark_jobs.exceptions import nearest
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.session.catalogue import open_catalogue, tables_in
from spark_jobs.lake.session.settings import load_settings


@click.group()
def corpus() -> None:
    """List corpora, show their funnel, refreeze them, excise superseded documents."""


@corpus.command("list")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def list_corpora(as_json: bool) -> None:
    """List the declared corpora, with counts of increments, documents and windows."""
    ledger = Ledger.fresh(open_catalogue(load_settings()))
    rows = []
    for _, declared in declarations(CORPUS):
        name = declared["name"]
        going_on = "survivors" if declared.get("shape") is None else "shaped"
        rows.append(
            {
                "corpus": name,
                "datasets": ", ".join(declared["datasets"]),
                "increments": len(ledger.increments(f"{name}.increments")),
                "documents": sum(row.row_count for row in ledger.increments(f"{name}.{going_on}").values()),
                "windows": {
                    length: sum(
                        row.row_count
                        for part in declared["datasets"]
                        for row in ledger.increments(f"{name}.packed_{part}_{length}").values()
                    )
                    for length in declared.get("window_tokens", [2048])
                },
            }
        )
    print_rows(
        rows, as_json, "No corpus is declared. Declare one: headrace dataset add NAME --from PATH --corpus CORPUS"
    )


@corpus.command("funnel")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def corpus_funnel(name: str, as_json: bool) -> None:
    """Print how many documents, bytes and tokens are left after each step of a corpus."""
    from dagster_project.inspect.corpora.funnel import funnel
    from dagster_project.inspect.lake.corpus_facts import find_corpus

    catalogue = open_catalogue(load_settings())
    stages = funnel(catalogue, find_corpus(catalogue, name))
    if as_json:
        print_rows([dataclasses.asdict(stage) for stage in stages], as_json, "")
        return
    rows = []
    for stage in stages:
        share = stage.tokens / max(stages[0].tokens, 1)
        counts = {"documents": stage.documents, "bytes": stage.byte_count, "tokens": stage.tokens}
        rows.append({"step": stage.step, **counts, "of tokens": f"{share:6.1%} {'#' * round(12 * share)}"})
    print_rows(rows, as_json, "")
    if any(stage.estimated_tokens for stage in stages):
        click.echo("Tokens of documents that were not tokenized are estimated from their bytes.")


@corpus.command("refreeze")
@click.argument("name")
@click.option("--yes", is_flag=True, help="do not ask")
def refreeze(name: str, yes: bool) -> None:
    """Begin a new generation, whose vocabulary, tokenizer and other frozen tables see all increments there are.

    The next run takes in all increments again, as one. Snapshots that blends have pinned are served as before.
    """
    from dagster_project.inspect.documents.document_windows import packed_tables
    from dagster_project.inspect.lake.dependent_blends import dependent_blends, effect_of_repacking
    from spark_jobs.lake.run.refreeze import refreeze as forget
    from spark_jobs.lake.run.refreeze import refrozen_tables

    if name not in (known := [declared["name"] for _, declared in declarations(CORPUS)]):
        near = nearest(name, known)
        raise CommandError(f"corpus {name} is not declared{near}; `headrace corpus list` shows those that are")
    lake = open_lake()
    catalogue = lake.catalogue
    lake.ledger.refresh()
    refrozen_tables(lake.ledger, name, tables_in(catalogue, name))
    packed = [table for table in packed_tables(catalogue) if table.startswith(f"{name}.")]
    for table, blends in dependent_blends(catalogue, packed).items():
        if blends:
            click.echo(f"{table}: {effect_of_repacking(blends)}")
    if not yes:
        click.confirm("The next run computes the corpus anew, of all increments there are. Go on?", abort=True)
    chosen = forget(lake, name)
    click.echo(f"{len(chosen)} tables of {name} are to be computed anew. Next: headrace run {name}")


corpus.add_command(diff_command("corpus"))


@corpus.command("supersede")
@click.argument("name")
@click.option("--deleted", is_flag=True, help="also excise documents whose file is gone")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
@click.confirmation_option(prompt="Superseded documents go from packed tables for good. Go on?")
def supersede(name: str, deleted: bool, as_json: bool) -> None:
    """Excise packed documents that a newer revision has replaced, whatever policy the corpus declares."""
    from dagster_project.inspect.documents.document_windows import packed_tables
    from dagster_project.inspect.lake.corpus_facts import find_corpus
    from spark_jobs.packing.supersede import excise_superseded

    lake = open_lake()
    catalogue = lake.catalogue
    facts = find_corpus(catalogue, name)
    standing = ("superseded", "gone") if deleted else ("superseded",)
    tables = [table for table in packed_tables(catalogue) if table.split(".")[0] == name]
    done = [excise_superseded(lake, table, facts.applied, standing) for table in tables]
    if as_json:
        click.echo(json.dumps([{**vars(one.excised), "staying": one.staying} for one in done], indent=2))
        return
    for one in done:
        gone = one.excised
        click.echo(
            f"{gone.identifier}: {len(gone.doc_ids):,} documents, {gone.tokens_removed:,} tokens out of "
            f"{len(gone.ordinals):,} windows"
        )
        if one.staying:
            click.echo(
                f"  {len(one.staying):,} stay, first {one.staying[0]}: a document that is still there was removed as a "
                "duplicate of it, or what replaced it is out of the table"
            )
    changed = [one.excised.identifier for one in done if one.excised.doc_ids]
    if changed:
        click.echo(f"Next: headrace table expire {' '.join(changed)} --days 0, which deletes the old files")

"""`headrace corpus`: show corpora, compare them with known duplicates, compute them anew."""

from __future__ import annotations

from typing import Any

import click

from dagster_project.cli.completion import complete_names
from dagster_project.cli.data.thresholds import print_thresholds
from dagster_project.cli.data.versions import card_options, write_card
from dagster_project.cli.output import JSON, lists_all, print_json, print_rows, say
from dagster_project.cli.tree import ExtendedGroup
from dagster_project.inspect.measured import share_of, share_text
from dagster_project.project.declared import CORPUS, declaration, declarations
from dagster_project.project.loading import lake_catalogue, open_lake
from headrace.tables.catalogue import tables_in
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.selection.stages import SURVIVORS


@click.group(cls=ExtendedGroup)
def corpus() -> None:
    """Show corpora, begin a new generation."""


@corpus.command("show")
@click.argument("name", required=False, shell_complete=complete_names)
@click.option("--thresholds", is_flag=True, help="show what each threshold of similarity keeps, over all increments")
@card_options
@JSON
def show_corpus(name: str | None, thresholds: bool, card: bool, as_json: bool, **of_card: Any) -> None:
    """List the declared corpora; of NAME show how many documents, bytes and tokens are left after each step.

    Without a NAME, --json alone may be given.
    """
    if lists_all(name) or name is None:
        _list_corpora(as_json)
    elif card:
        write_card(name, **of_card)
    elif thresholds:
        print_thresholds(name, as_json)
    else:
        _print_funnel(name, as_json)


def _list_corpora(as_json: bool) -> None:
    """Print the declared corpora, with counts of increments, documents, those that are kept and windows."""
    from dagster_project.inspect.documents.counted import members_that_count
    from dagster_project.inspect.lake.corpus_facts import facts_of, namespaces_with

    catalogue = lake_catalogue()
    ledger = Ledger.fresh(catalogue)

    def row_count(table: str) -> int:
        return sum(row.row_count for row in ledger.increments(table).values())

    rows, computed = [], namespaces_with(catalogue, "members")
    for _, declared in declarations(CORPUS):
        name, datasets = declared["name"], declared["datasets"]
        going_on = facts_of(ledger, name).going_on if name in computed else SURVIVORS
        rows.append(
            {
                "corpus": name,
                "datasets": ", ".join(datasets),
                "increments": len(ledger.increments(f"{name}.increments")),
                "documents": members_that_count(catalogue, name).num_rows,
                "kept": members_that_count(catalogue, name, going_on).num_rows,
                "windows": {
                    length: sum(row_count(f"{name}.packed_{part}_{length}") for part in datasets)
                    for length in declared.get("window_tokens", [2048])
                },
            }
        )
    nothing = "No corpus is declared. Declare one: headrace dataset add NAME --from PATH --corpus CORPUS"
    print_rows(rows, as_json, nothing)


def _print_funnel(name: str, as_json: bool) -> None:
    """Print the documents, bytes and tokens after each step of a corpus."""
    from dagster_project.inspect.corpora.funnel import funnel
    from dagster_project.inspect.lake.corpus_facts import find_corpus

    catalogue = lake_catalogue()
    stages = funnel(catalogue, find_corpus(catalogue, name))
    if as_json:
        return print_json(stages)
    rows = []
    for stage in stages:
        share = share_of(stage.tokens, stages[0].tokens)
        counts = {"documents": stage.documents, "bytes": stage.byte_count, "tokens": stage.tokens}
        rows.append(
            {"step": stage.step, **counts, "of tokens": f"{share_text(share, '6.1%')} {'#' * round(12 * (share or 0))}"}
        )
    print_rows(rows, as_json, "")
    if any(stage.estimated_tokens for stage in stages):
        say("Tokens of documents that were not tokenized are estimated from their bytes.")


@corpus.command("refresh")
@click.argument("name", shell_complete=complete_names)
@click.option("--yes", is_flag=True, help="do not ask")
def refresh(name: str, yes: bool) -> None:
    """Begin a new generation, whose vocabulary, tokenizer and other frozen tables see all increments there are.

    The next run takes in all increments again, as one. Snapshots that blends have pinned are served as before.
    """
    from dagster_project.inspect.documents.document_windows import packed_tables
    from dagster_project.inspect.lake.dependent_blends import dependent_blends, effect_of_repacking
    from spark_jobs.lake.run.refreeze import refreeze as forget
    from spark_jobs.lake.run.refreeze import refrozen_tables

    declaration(CORPUS, name)
    lake = open_lake()
    catalogue = lake.catalogue
    lake.ledger.refresh()
    refrozen_tables(lake.ledger, name, tables_in(catalogue, name))
    packed = [table for table in packed_tables(catalogue) if table.startswith(f"{name}.")]
    for table, blends in dependent_blends(catalogue, packed).items():
        if blends:
            say(f"{table}: {effect_of_repacking(blends)}")
    if not yes:
        click.confirm("The next run computes the corpus anew, of all increments there are. Go on?", abort=True)
    chosen = forget(lake, name)
    say(f"{len(chosen)} tables of {name} are to be computed anew. Next: headrace run {name}")

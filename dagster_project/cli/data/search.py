"""`headrace search`: documents with some words in their text."""

from __future__ import annotations

import time

import click

from dagster_project.addresses import document_page
from dagster_project.cli.completion import complete_names
from dagster_project.cli.output import JSON, print_hit, print_json, say
from dagster_project.exceptions import CommandError
from dagster_project.project.declared import texts_are_shown
from dagster_project.project.loading import lake_catalogue
from spark_jobs.exceptions import nearest


@click.command()
@click.argument("text")
@click.option("--dataset", shell_complete=complete_names, help="this dataset alone; by default all")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(min=1), help="most documents shown")
@click.option("--regex", is_flag=True, help="TEXT is a regular expression (RE2)")
@JSON
def search(text: str, dataset: str | None, limit: int, regex: bool, as_json: bool) -> None:
    """Find documents whose text has TEXT, in upper or lower case, with the words around it.

    Texts are read one after the other until --limit documents are found; there is no index. Only datasets whose
    declaration says `samples: text` are searched.
    """
    from dagster_project.inspect.documents.search import Searched
    from dagster_project.inspect.documents.search import search as search_dataset
    from dagster_project.inspect.lake.corpus_facts import namespaces_with
    from dagster_project.restrictions import note_read

    if not text:
        raise CommandError("search: TEXT is empty; give some words")
    catalogue = lake_catalogue()
    there = namespaces_with(catalogue, "texts")
    if dataset is not None and dataset not in there:
        raise CommandError(f"dataset {dataset} has no texts{nearest(dataset, there)}; fill it: headrace run {dataset}")
    allowed = [
        name for name in ([dataset] if dataset else there) if _may_be_searched(name, is_asked=dataset is not None)
    ]
    note_read(catalogue, allowed)
    started = time.monotonic()
    results: dict[str, Searched] = {}
    left = limit
    for name in allowed:
        results[name] = search_dataset(catalogue, name, text, left, regex)
        left -= len(results[name].hits)
        for hit in () if as_json else results[name].hits:
            where = f"{hit.dataset}  {document_page(hit.doc_id) or hit.doc_id[:12]}  {hit.path}"
            say(where)
            print_hit(f"    {hit.before}", hit.words, hit.behind)
        if not left:
            break
    if as_json:
        return print_json(results)
    read, total = (sum(getattr(result, of) for result in results.values()) for of in ("searched", "total"))
    names = ", ".join(results) or "no dataset"
    stopped = "" if left else f"; stopped at {limit} documents, --limit shows more"
    seconds = time.monotonic() - started
    say(f"searched {read:,} of {total:,} documents of {names} in {seconds:.1f} s{stopped}")


def _may_be_searched(name: str, is_asked: bool) -> bool:
    """Whether the texts of a dataset may be shown; where not, a line says so.

    Raises:
        CommandError: they may not, and the user asked for this dataset.
    """
    try:
        if texts_are_shown(name):
            return True
        why = f"{name}.texts: its declaration does not say `samples: text`, so it is not searched"
    except CommandError as error:
        why = str(error)
    if is_asked:
        raise CommandError(why)
    say(f"left out: {why}", err=True)
    return False

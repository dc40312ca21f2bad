"""`headrace rights plan` and `apply`: what entries hit, and taking it out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from dagster_project.cli.output import JSON, print_json, print_table, say
from dagster_project.project.loading import lake_catalogue, open_lake, run_id_of

if TYPE_CHECKING:
    from headrace_features.rights.hits.plan import Plan

_SHOWN = 20


@click.command(epilog="\b\nExample: headrace rights plan 5f1c02ab9d3e7710")
@click.argument("entry_ids", nargs=-1, metavar="[ENTRY|REQUEST]...")
@click.option("--all", "every", is_flag=True, help="also those that were applied: more may have landed since")
@JSON
def plan(entry_ids: tuple[str, ...], every: bool, as_json: bool) -> None:
    """Say what opt-outs hit: documents, copies and derived ones, windows, blends, runs, models.

    By default all entries that wait. Nothing is changed.
    """
    from headrace_features.rights.hits.plan import make_plan

    planned = make_plan(lake_catalogue(), entry_ids, every)
    if as_json:
        lines = [{"entry": entry.entry, **planned.of(entry.entry)} for entry in planned.entries]
        return print_json({"entries": lines, "not_asked": planned.hits.not_asked})
    _print(planned, bool(entry_ids))
    say("Next: headrace rights apply, which takes it out" if planned.hits.doc_ids else "No document is hit")


@click.command(epilog="\b\nExample: headrace rights apply --yes")
@click.argument("entry_ids", nargs=-1, metavar="[ENTRY|REQUEST]...")
@click.option("--all", "every", is_flag=True, help="also those that were applied: more may have landed since")
@click.option("--yes", is_flag=True, help="do not ask")
def apply(entry_ids: tuple[str, ...], every: bool, yes: bool) -> None:
    """Take what opt-outs hit out of all packed tables, in every generation, and of all later packing.

    By default all entries that wait. A command that was killed is finished by the same one.
    """
    from headrace_features.rights.hits.applying import apply_plan
    from headrace_features.rights.hits.plan import make_plan

    lake = open_lake(run_id_of("rights apply"))
    planned = make_plan(lake.catalogue, entry_ids, every)
    _print(planned, False)
    if not yes:
        doc_ids = len(planned.hits.doc_ids)
        click.confirm(f"{doc_ids:,} documents go from packed tables for good. Go on?", abort=True)
    for line in apply_plan(lake, planned):
        say(line)
    say("Next: headrace rights statement ENTRY, which proves it")


def _print(planned: Plan, documents: bool) -> None:
    """A line for each entry that hits something, and with `documents` one for each of the first."""
    hits = {entry.entry: planned.of(entry.entry) for entry in planned.entries if entry.entry in planned.hits.documents}
    if hits:
        print_table([_line(name, hit) for name, hit in hits.items()])
    if nothing := len(planned.entries) - len(hits):
        say(f"{nothing:,} entries hit nothing")
    for hit in hits.values() if documents else ():
        for line in _documents(hit):
            say(line)
    for line in planned.hits.not_asked:
        say(f"not asked: {line}")


def _line(name: str, hit: dict[str, Any]) -> dict[str, Any]:
    reads = ", ".join(sorted({f"{read['run']} to row {read['before']:,}" for read in hit["runs"]}))
    models = ", ".join(f"{model['model']} ({model['trained']})" for model in hit["models"])
    return {
        "entry": name, "documents": ", ".join(f"{count:,} {how}" for how, count in hit["by_how"].items()),
        "windows": sum(part["windows"] for part in hit["windows"]), "blends": len(hit["blends"]),
        "runs": reads or "none", "models trained on it": models or "none there",
    }  # fmt: skip


def _documents(hit: dict[str, Any]) -> Iterator[str]:
    for document in hit["documents"][:_SHOWN]:
        place = ": ".join(part for part in (document.get("repository"), document.get("path")) if part)
        yield f"  {document['doc_id']}  {document.get('dataset', 'deleted')} {place}  {document['how']}"
    if len(hit["documents"]) > _SHOWN:
        yield f"  and {len(hit['documents']) - _SHOWN:,} more; --json names all"

"""`headrace rights plan` and `apply`: what opt-outs hit, and taking it out."""

from __future__ import annotations

import click

from dagster_project.cli.output import JSON, print_json, print_table, say
from dagster_project.project.loading import lake_catalogue, open_lake, run_id_of

_SHOWN = 20


@click.command("plan", epilog="\b\nExample: headrace rights plan --documents")
@click.argument("named", nargs=-1, metavar="[ENTRY|REQUEST]...")
@click.option("--all", "every", is_flag=True, help="entries that were applied, too: what has come since")
@click.option("--documents", is_flag=True, help="list each document with how it was reached")
@JSON
def plan(named: tuple[str, ...], every: bool, documents: bool, as_json: bool) -> None:
    """Say what opt-outs hit: documents, their copies and what was made of them, windows, blends, runs, models."""
    from headrace_features.rights.plan import chosen_entries, make_plan, moment

    catalogue = lake_catalogue()
    made = make_plan(catalogue, chosen_entries(catalogue, named, every, moment()))
    details = {entry.entry: made.detail(entry.entry) for entry in made.entries}
    if as_json:
        return print_json({"entries": details, "excised_before": sorted(made.excised)})
    if not details:
        return say("no entry waits; headrace rights list shows all, --all plans those that were applied")
    rows = []
    for entry in made.entries:
        detail = details[entry.entry]
        hows = [document["how"] for document in detail["documents"]]
        copies = sum(" of " in how and not how.startswith(("fork of", "author of")) for how in hows)
        rows.append(
            {
                "entry": entry.entry, "about": f"{entry.opt_out.kind} {', '.join(entry.opt_out.values)}"[:60],
                "named": len(hows) - copies, "copies, derived": copies,
                "windows": sum(part["windows"] for part in detail["tables"]), "blends": len(detail["blends"]),
                "runs": len({run["run"] for run in detail["runs"]}), "state": entry.state,
            }
        )  # fmt: skip
    print_table(rows)
    for detail in details.values() if documents else ():
        for document in detail["documents"]:
            say(f"{document['doc_id']}  {document['dataset']} {document['path']}: {document['how']}")
    for line in _read_by(details):
        say(line)
    for part in dict.fromkeys(made.reached.not_asked):
        say(f"not asked: {part.dataset} {part.what}".replace("  ", " "))
    say("Next: headrace rights apply, which takes all of it out of what is served")


def _read_by(details: dict[str, dict[str, object]]) -> list[str]:
    """Lines on runs that have read windows of the documents."""
    lines = {}
    for entry, detail in details.items():
        for run in detail["runs"]:  # type: ignore[attr-defined]
            told = f"run {run['run']} has read {run['windows']:,} of the windows of {entry}, up to row {run['until']:,}"
            lines[told] = f"{told} of blend {run['blend'][:12]}"
    return [*lines.values()][:_SHOWN]


@click.command("apply", epilog="\b\nExample: headrace rights apply --yes")
@click.argument("named", nargs=-1, metavar="[ENTRY|REQUEST]...")
@click.option("--all", "every", is_flag=True, help="entries that were applied, too: what has come since")
@click.option("--yes", is_flag=True, help="do not ask")
@JSON
def apply(named: tuple[str, ...], every: bool, yes: bool, as_json: bool) -> None:
    """Take what opt-outs hit out of all packed tables, for good; killed anywhere, run it again."""
    from headrace_features.rights.apply import apply as take_out
    from headrace_features.rights.apply import remaining
    from headrace_features.rights.plan import chosen_entries, make_plan, moment

    lake = open_lake(run_id_of("rights apply"))
    made = make_plan(lake.catalogue, chosen_entries(lake.catalogue, named, every, moment()))
    if not made.entries:
        return print_json({"entries": []}) if as_json else say("no entry waits; headrace rights list shows all")
    count = len(made.documents)
    if not yes:
        told = f"{count:,} documents of {len(made.entries):,} entries go from packed tables for good. Go on?"
        click.confirm(told, abort=True, err=as_json)
    for line in take_out(lake, made):
        say(line, err=as_json)
    ids = [entry.entry for entry in made.entries]
    for line in remaining(made, ids):
        say(line, err=as_json)
    if as_json:
        return print_json({"entries": ids, "documents": sorted(made.documents)})
    say(f"{len(ids):,} entries are applied, {count:,} documents are out; headrace rights statement ENTRY states it")

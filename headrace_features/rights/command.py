"""`headrace rights`: the commands about opt-outs, from an entry to the proof, and about the data of a training."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from dagster_project.cli.output import JSON, print_json, print_table, say
from dagster_project.exceptions import CommandError
from dagster_project.project.loading import lake_catalogue
from headrace_features.rights.hits.plan_command import apply, plan
from headrace_features.rights.proof.statement_command import lineage, statement, verify
from headrace_features.rights.register.read_command import read
from headrace_features.rights.standards.standards_command import croissant, spdx
from headrace_features.rights.summary.summary_command import summary

if TYPE_CHECKING:
    from headrace_features.rights.register.register import OptOut

# As `register.KINDS`, which --help does not wait for.
_KINDS = ("repository", "author", "domain", "url_prefix", "path", "sha256", "dataset", "record")


@click.group(short_help="Keep opt-outs, take out what they name, prove it, and say what was trained on.")
def rights() -> None:
    """Keep opt-outs, take out what they name, prove it, and say what was trained on."""


@rights.command("add", epilog="\b\nExample: headrace rights add author 'Ann Lee' ann@example.org --asker 'Ann Lee'")
@click.argument("kind", type=click.Choice(_KINDS))
@click.argument("values", nargs=-1, required=True, metavar="VALUE...")
@click.option("--asker", required=True, help="who asks, as the request names itself; of an author a hash is kept")
@click.option("--scope", type=click.Choice(["all", "training"]), default="all", show_default=True)
@click.option("--since", type=click.DateTime(["%Y-%m-%d"]), help="from when on (UTC day); by default always")
@click.option("--evidence", default="", help="a reference: an address, a ticket")
@click.option("--request", default="", help="name of the request that this is a part of")
@JSON
def add(
    kind: Any, values: tuple[str, ...], asker: str, scope: Any, since: datetime | None, evidence: str, request: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Enter an opt-out: of an author all VALUEs are aliases of one entry, of all else each is an entry."""
    from headrace_features.rights.register.register import add_entries
    from headrace_features.rights.register.subjects import opt_outs_of

    catalogue = lake_catalogue(make=True)
    since = since.replace(tzinfo=UTC) if since else None
    opt_outs = opt_outs_of(catalogue, kind, values, asker, scope=scope, since=since, evidence=evidence, request=request)
    new = add_entries(catalogue, opt_outs)
    if as_json:
        return print_json({"entries": [opt_out.entry for opt_out in opt_outs], "new": [entry.entry for entry in new]})
    say(f"{len(new):,} of {len(opt_outs):,} entries are new: {', '.join(entry.entry for entry in new) or 'none'}")
    say("Next: headrace rights plan, which says what they hit")


@rights.command("show", epilog="\b\nExample: headrace rights show --state waiting")
@click.option("--state", type=click.Choice(["waiting", "applied", "refused", "withdrawn"]), help="only these")
@JSON
def show_entries(state: str | None, as_json: bool) -> None:
    """List the entries of the opt-out register with their states."""
    from headrace_features.rights.register.register import entries

    chosen = [entry for entry in entries(lake_catalogue()) if state in (None, entry.state)]
    rows = [
        {
            "entry": entry.entry, "kind": entry.opt_out.kind, "values": _shown(entry.opt_out),
            "asker": entry.opt_out.asker, "scope": entry.opt_out.scope, "at": f"{entry.at:%Y-%m-%d}",
            "state": entry.state,
        }
        for entry in chosen
    ]  # fmt: skip
    if as_json:
        return print_json(rows)
    if not rows:
        return say("no such entry; headrace rights add enters one")
    print_table(rows)


def _shown(opt_out: OptOut) -> str:
    """What an opt-out is about, of a hash its beginning."""
    cut = 12 if opt_out.kind in ("author", "sha256") else None
    return ", ".join(value[:cut] for value in opt_out.values)


@rights.command("decide", epilog="\b\nExample: headrace rights decide 5f1c02ab9d3e7710 refused --reason 'not theirs'")
@click.argument("entry_ids", nargs=-1, required=True, metavar="ENTRY...")
@click.argument("decision", type=click.Choice(["accepted", "refused", "withdrawn"]))
@click.option("--reason", required=True, help="why; it is kept in the register")
def decide(entry_ids: tuple[str, ...], decision: Any, reason: str) -> None:
    """Decide about entries; refused and withdrawn ones hit nothing any more, and what is out stays out."""
    from headrace_features.rights.register.register import decide as write_decision
    from headrace_features.rights.register.register import entries
    from spark_jobs.exceptions import nearest

    catalogue = lake_catalogue()
    there = {entry.entry for entry in entries(catalogue)}
    for entry in entry_ids:
        if entry not in there:
            raise CommandError(
                f"rights decide: no entry {entry}{nearest(entry, there)}; headrace rights show names them"
            )
    write_decision(catalogue, entry_ids, decision, reason)
    say(f"{len(entry_ids):,} entries are {decision}")


rights.add_command(plan)
rights.add_command(apply)
rights.add_command(verify)
rights.add_command(statement)
rights.add_command(lineage)
rights.add_command(summary)
rights.add_command(read)
rights.add_command(croissant)
rights.add_command(spdx)

"""`headrace rights read`: enter the opt-outs of a list, or of a file of a site."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dagster_project.cli.output import JSON, print_json, say
from dagster_project.exceptions import CommandError
from dagster_project.project.loading import lake_catalogue
from spark_jobs.exceptions import InputError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from headrace_features.rights.register.lists import Row
    from headrace_features.rights.register.register import OptOut

FORMATS = ("auto", "csv", "bigcode", "robots", "rsl", "tdmrep", "ai_txt")
_SHOWN = 20


@click.command("read", epilog="\b\nExample: headrace rights read optouts.jsonl --format bigcode")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--format", "form", type=click.Choice(FORMATS), default="auto", show_default=True)
@click.option("--site", metavar="URL", help="of a site's file: whose it is, such as https://example.org")
@click.option("--agent", default="*", show_default=True, help="of a site's file: what it says to this crawler")
@click.option("--asker", help="who asks, where a row does not say it; by default the list")
@click.option("--scope", type=click.Choice(["all", "training"]), help="of rows that name none; by default all")
@click.option("--request", help="name of the list; by default that of the file. Its SHA-256 is added")
@JSON
def read(
    file: Path, form: str, site: str | None, agent: str, asker: str | None, scope: Any, request: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Enter the opt-outs of FILE; a bad row is named with its line and stops no other. Status 2 if none is good."""
    from headrace_features.rights.register import lists
    from headrace_features.rights.register.register import add_entries
    from headrace_features.rights.register.subjects import canonical_url

    data = file.read_bytes()
    form = lists.detect(file.name, data) if form == "auto" else form
    rows: Iterable[Row]
    if form in ("csv", "bigcode"):
        rows = lists.read_csv(data) if form == "csv" else lists.read_bigcode(data)
    elif site is None:
        raise CommandError(f"rights read: {file} is a site's file ({form}); say whose by --site https://example.org")
    else:
        origin = "/".join(canonical_url(site).split("/")[:3])
        rows = lists.read_site(form, data, origin, agent)
    catalogue = lake_catalogue(make=True)
    name = f"{request or file.name} sha256:{hashlib.sha256(data).hexdigest()}"
    opt_outs, faults = _opt_outs(catalogue, rows, asker or request or file.name, scope or "all", name)
    new = add_entries(catalogue, opt_outs)
    if as_json:
        bad = [{"line": line, "reason": reason} for line, reason in faults]
        print_json({"entries": [entry.entry for entry in new], "read": len(opt_outs), "bad": bad})
    else:
        counts = f"{len(opt_outs):,} entries, {len(new):,} of them new"
        say(f"{file} ({form}): {counts}; {len(faults):,} values could not be entered")
        for line, reason in faults[:_SHOWN]:
            say(f"  line {line}: {reason}", err=True)
        if len(faults) > _SHOWN:
            say(f"  .. and {len(faults) - _SHOWN:,} more; --json names all", err=True)
    if not opt_outs:
        raise CommandError(f"rights read: no row of {file} is an opt-out, read as {form}; --format names another")
    if not as_json:
        say("Next: headrace rights plan, which says what they hit")


def _opt_outs(
    catalogue: Catalog, rows: Iterable[Row], asker: str, scope: str, request: str
) -> tuple[list[OptOut], list[tuple[int, str]]]:
    """The opt-outs of rows, and what is wrong with the others by line."""
    from headrace_features.rights.register.register import register_salt
    from headrace_features.rights.register.subjects import opt_outs_of

    opt_outs: dict[str, OptOut] = {}
    faults = []
    salt = register_salt(catalogue)
    for row in rows:
        for kind, values, fault in row.opt_outs():
            try:
                if fault:
                    raise InputError(fault)
                facts: dict[str, Any] = {
                    "scope": row.stated.get("scope", scope),
                    "since": _day(row.stated.get("since")),
                }
                if facts["scope"] not in ("all", "training"):
                    raise InputError(f"scope {facts['scope'][:40]!r}: give all or training")
                evidence = ": ".join(filter(None, [f"line {row.line}" if row.line else "", row.stated.get("evidence")]))
                by = row.stated.get("asker", asker)
                facts |= {"evidence": evidence, "request": request, "salt": salt}
                opt_outs |= {opt_out.entry: opt_out for opt_out in opt_outs_of(catalogue, kind, values, by, **facts)}  # type: ignore[arg-type] # `Row` checks kinds
            except InputError as error:
                faults.append((row.line, str(error)))
    return list(opt_outs.values()), faults


def _day(text: str | None) -> datetime | None:
    try:
        moment = None if text is None else datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"since {str(text)[:40]!r}: give a day such as 2026-11-30") from error
    return moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC)

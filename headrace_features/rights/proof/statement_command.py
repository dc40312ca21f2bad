"""`headrace rights verify | statement | lineage`: is the register as it was written, what is out, events of runs."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dagster_project.cli.output import JSON, print_json, say
from dagster_project.exceptions import CheckFailedError, CommandError
from dagster_project.project.loading import lake_catalogue


@click.command("verify", epilog="\b\nExample: headrace rights verify")
@JSON
def verify(as_json: bool) -> None:
    """Check that no row of the register was changed, removed or inserted late: rows, their root, its copies."""
    from headrace_features.rights.proof.verify import Log

    log = Log.read(lake_catalogue())
    faults = list(log.faults())
    if as_json:
        print_json(
            {
                "leaves": len(log.rows), "root": log.prefixes[-1], "roots": len(log.days),
                "snapshots": len(log.snapshots), "faults": faults,
            }
        )  # fmt: skip
    else:
        for fault in faults:
            say(fault)
    if faults:
        raise CheckFailedError(
            f"rights verify: {len(faults):,} faults in the register, the first: {faults[0]}; compare with a "
            "backup, and with statements that were given out"
        )
    if not as_json:
        say(f"{len(log.rows):,} rows are as they were written; root {log.prefixes[-1]}")
        say(f"The same root is in {len(log.days):,} appends and in the summaries of {len(log.snapshots):,} snapshots")


@click.command("statement", epilog="\b\nExample: headrace rights statement 5f1c02ab9d3e7710 --output statement.html")
@click.argument("name", metavar="ENTRY|REQUEST")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="a .json or .html file")
@JSON
def statement(name: str, output: Path | None, as_json: bool) -> None:
    """State that what an entry reached is out of all that is served, with the proof; ends with status 3 if it is not.

    Windows are looked through now. A .json is checked by examples/verify_statement.py, a .html is for people.
    """
    from headrace_features.rights.proof.statement import statement_of
    from headrace_features.rights.proof.statement_page import page_of

    if output is not None and output.suffix not in (".json", ".html"):
        raise CommandError(f"rights statement: {output} is neither .json nor .html; name such a file")
    stated = statement_of(lake_catalogue(), name)
    if output is not None:
        text = page_of(stated) if output.suffix == ".html" else json.dumps(stated, indent=1, ensure_ascii=False)
        output.write_text(text + "\n", encoding="utf-8")
    if as_json:
        print_json(stated)
    else:
        say(stated["claim"])
        for part in stated["kept"]:
            if part["holding"]:
                say(f"{part['table']} at {part['snapshot_id']}, which no blend serves, has them until it expires")
        say(f"{stated['register']['leaves']:,} rows of the register, root {stated['register']['root']}")
    if stated["verdict"] != "absent":
        mend = "headrace rights apply --all takes out what is left"
        raise CheckFailedError(f"rights statement {name}: {stated['verdict']}, not absent; {mend}")


@click.command("lineage", epilog="\b\nExample: headrace rights lineage --run 5f1c02ab --output events.ndjson")
@click.option("--run", "run_id", required=True, help="id of a run, or its last digits (headrace runs)")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="a file; by default printed")
def lineage(run_id: str, output: Path | None) -> None:
    """Write the OpenLineage events of a run, a line each; after `headrace run` they are sent where that is set."""
    from headrace_features.rights.standards.lineage import find_past

    try:
        from openlineage.client.serde import Serde

        from headrace_features.rights.standards.lineage_events import events_of
    except ImportError as error:
        raise CommandError("rights lineage: pip install 'headrace[lineage]', which brings OpenLineage") from error
    catalogue = lake_catalogue()
    lines = [Serde.to_json(event) for event in events_of(catalogue, find_past(catalogue, run_id))]
    if output is None:
        return say("\n".join(lines))
    output.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    say(f"{output}: {len(lines):,} events")

"""`headrace rights verify` and `headrace rights statement`: the register as it was written, and what is out for it."""

from __future__ import annotations

import click

from dagster_project.cli.output import JSON, print_json, say
from dagster_project.exceptions import CheckFailedError
from dagster_project.project.loading import lake_catalogue


@click.command("verify", epilog="\b\nExample: headrace rights verify")
@JSON
def verify(as_json: bool) -> None:
    """Check that no row of the register was changed, removed or inserted late: rows, their root, its copies."""
    from headrace_features.rights.verify import Log

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

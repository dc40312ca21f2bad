"""`headrace relocate`: have a copied, moved or restored lake name its files where they are."""

from __future__ import annotations

import click

from dagster_project.cli.output import say
from dagster_project.exceptions import CommandError
from headrace.tables.settings import load_settings


@click.command()
@click.option("--from", "former", required=True, help="the warehouse in which the lake was made; it need not exist")
@click.option("--to", "now", required=True, help="the warehouse with the files now: that of the settings")
@click.option("--dry-run", is_flag=True, help="say what would be done, and whether all files are there")
def relocate(former: str, now: str, dry_run: bool) -> None:
    """Make the tables of a copied, moved or restored lake name its files where they are now.

    The open catalogue is changed, and files are added below --to; no row, snapshot or data version changes. The lake
    gets a new identity. If it was interrupted, run the same command again. With one warehouse for both --from and
    --to, the open catalogue replaces one that was lost.
    """
    import os

    from spark_jobs.lake.files.relocation import relocate as relocated
    from spark_jobs.lake.session.catalogue import catalogue_errors, connect

    former, now = (place if "://" in place else os.path.abspath(place) for place in (former, now))
    settings = load_settings()
    if not settings.is_there:
        raise CommandError(f"relocate: {settings.database} is not there, so no lake is open; go to its folder")
    with catalogue_errors():
        for line in relocated(connect(settings), former, now, dry_run):
            say(line)

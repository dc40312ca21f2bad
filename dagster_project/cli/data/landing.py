"""`headrace dataset freeze`: old bytes that landed move to a cold folder."""

from __future__ import annotations

import time

import click

from dagster_project.cli.declared import complete_names, dataset_file
from dagster_project.exceptions import CommandError
from spark_jobs.lake.declare.quarantined import quarantine_of
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.lake.session.settings import load_settings

_DAY_SECONDS = 86_400


@click.command()
@click.argument("name", shell_complete=complete_names)
@click.option("--to", "cold", required=True, help="folder, or a URI such as s3://bucket/cold; best on a cheap store")
@click.option("--days", required=True, type=click.FloatRange(min=0), help="age from which kept bytes move")
def freeze(name: str, cold: str, days: float) -> None:
    """Move the kept bytes of NAME that landed so many days ago to a cold folder; they are read from there as before.

    For datasets with `landing: copy`. Each copy is compared with its hash before the first one is removed.
    """
    dataset_file(name)
    catalogue = open_catalogue(load_settings())
    try:
        moved = sum(
            ObjectFolder.of(catalogue, space).freeze(cold, time.time() - days * _DAY_SECONDS)
            for space in (name, quarantine_of(name))
        )
    except OSError as error:
        raise CommandError(f"dataset freeze {name}: {error}") from error
    click.echo(f"moved {moved:,} objects to {cold.rstrip('/')}/{name}")

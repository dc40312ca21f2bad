"""`headrace dataset archive`: move the oldest kept bytes of a dataset to a cold folder, and back."""

from __future__ import annotations

import time

import click

from dagster_project.cli.declared import complete_names, dataset_file
from dagster_project.cli.project import lake_catalogue, load_definitions
from dagster_project.exceptions import CommandError
from spark_jobs.lake.declare.quarantined import quarantine_of
from spark_jobs.lake.files.objects import ObjectFolder

_DAY_SECONDS = 86_400


@click.command("archive")
@click.argument("name", shell_complete=complete_names)
@click.option("--to", "cold", help="folder, or a URI such as s3://bucket/cold; by default that of freeze_after")
@click.option("--days", type=click.FloatRange(min=0), help="least age of what moves; by default that of freeze_after")
@click.option("--thaw", is_flag=True, help="move all cold bytes back instead")
def archive(name: str, cold: str | None, days: float | None, thaw: bool) -> None:
    """Move bytes of NAME that landed at least --days ago to a cold folder, and read them there.

    For datasets with `landing: copy`. Each copy is compared with its hash before the first one is removed. What
    `freeze_after` declares is done by headrace maintain, too.
    """
    dataset_file(name)
    from dagster_project.lake_asset import assets_of, keeping_by_dataset

    # Loaded, since a path in YAML may be {{ project_root }}/cold.
    declared = keeping_by_dataset(assets_of(load_definitions()))[name].freezing
    if declared is not None:
        cold, days = cold or declared.to, declared.days if days is None else days
    catalogue = lake_catalogue()
    folders = [ObjectFolder.of(catalogue, space) for space in (name, quarantine_of(name))]
    try:
        if thaw:
            click.echo(f"moved {sum(folder.thaw() for folder in folders):,} objects back to the warehouse")
            return
        if cold is None or days is None:
            raise CommandError(
                f"dataset archive {name}: give --to and --days, or declare `freeze_after: {{days: .., to: ..}}`"
            )
        moved = sum(folder.freeze(cold, time.time() - days * _DAY_SECONDS) for folder in folders)
    except OSError as error:
        raise CommandError(f"dataset archive {name}: {error}") from error
    click.echo(f"moved {moved:,} objects to {cold.rstrip('/')}/{name}")

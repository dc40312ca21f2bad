"""`headrace maintain`: keep the lake tidy, with a line for each table that was changed."""

from __future__ import annotations

import click

from dagster_project.cli.output import print_styled
from dagster_project.cli.project import load_definitions, open_lake, project_folder
from dagster_project.deletion.retention import DECLARED_TASKS, TASKS
from dagster_project.exceptions import CommandError
from spark_jobs.lake.session.catalogue import catalogue_errors


@click.command()
@click.option(
    "--only", "tasks", multiple=True, type=click.Choice(tuple(TASKS)), help="this task alone; may be repeated"
)
@click.option("--days", default=7.0, show_default=True, type=click.FloatRange(min=0), help="age of what is removed")
@click.option("--dry-run", is_flag=True, help="only say what would be done")
def maintain(tasks: tuple[str, ...], days: float, dry_run: bool) -> None:
    """Merge small files, expire old snapshots, remove orphan files; see to freeze_after and retention of datasets.

    Snapshots that blends, tags and releases pin stay. A table that another run is writing is left to the next time.
    No row, digest or ordinal changes, but where a dataset declares `retention: {then: delete}`.
    """
    lake = open_lake()
    for name in tasks or TASKS:
        if name in DECLARED_TASKS and not _load_declarations():
            continue
        looked = changed = 0
        with catalogue_errors():
            for done in TASKS[name](lake, days, dry_run):
                looked, changed = looked + 1, changed + bool(done.count)
                if done.count:
                    print_styled(f"{name:<11} {done.table:<36} {done.text}", "green")
        click.echo(f"{name:<11} {looked} tables looked at, {changed} {'to change' if dry_run else 'changed'}")


def _load_declarations() -> bool:
    """Load the project for what its datasets declare; False where there is none, so that nothing is declared."""
    try:
        project_folder()
    except CommandError:
        return False
    load_definitions()
    return True

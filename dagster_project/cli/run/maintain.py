"""`headrace maintain`: keep the lake tidy, with a line for each changed table."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click

from dagster_project.cli.output import print_styled, say
from dagster_project.cli.run.status import instance_with_runs
from dagster_project.deletion.history import HISTORY, KeptHistory, read_kept_history
from dagster_project.deletion.retention import TASKS, task_of
from dagster_project.exceptions import CommandError, DefinitionError, RunFailedError
from dagster_project.inspect.lake.found_table import require_table
from dagster_project.project.loading import load_definitions, open_lake, project_folder
from spark_jobs.lake.run.maintenance import TASKS as OF_TABLES
from spark_jobs.lake.run.maintenance import MaintenanceResult, Task, run_task
from spark_jobs.lake.run.materialize import Lake


@click.command()
@click.argument("tables", nargs=-1)
@click.option(
    "--only", "tasks", multiple=True, type=click.Choice(tuple(TASKS)), help="this task alone; may be repeated"
)
@click.option("--days", default=7.0, show_default=True, type=click.FloatRange(min=0), help="age of what is removed")
@click.option("--dry-run", is_flag=True, help="only say what would be done")
def maintain(tables: tuple[str, ...], tasks: tuple[str, ...], days: float, dry_run: bool) -> None:
    """Merge small files, remove old snapshots, orphan files and Dagster's old runs; apply what datasets declare.

    All tables, or TABLES alone, of which two small files in a partition are enough to be merged.

    Snapshots that blends, tags and releases pin stay. A table that another run is writing is left to the next time.
    No row, digest or ordinal changes, but where a dataset declares `retention: {then: delete}`. A failure
    of one table or task is a line and stops no other; the exit status is then 4 (2 for a faulty declaration).
    """
    lake = open_lake()
    for table in tables:
        require_table(lake.catalogue, table)
    if tables and (others := [name for name in tasks if name not in OF_TABLES]):
        raise CommandError(f"maintain --only {others[0]}: it is of datasets or runs, not of tables; name no table")
    failed: dict[str, list[MaintenanceResult]] = {}
    for name in tasks or (OF_TABLES if tables else TASKS):
        task = partial(TASKS[name], tables=tables) if name in OF_TABLES else _of_project(name)
        looked = changed = 0
        for done in run_task(name, task, lake, days, dry_run):
            looked, changed = looked + 1, changed + bool(done.count)
            if done.count:
                print_styled(f"{name:<11} {done.table:<36} {done.text}", "green")
            elif done.error is not None:
                failed.setdefault(name, []).append(done)
                say(f"{name:<11} {done.table:<36} failed: {done.text}", err=True)
            elif done.is_left:
                say(f"{name:<11} {done.table:<36} left: {done.text}")
        say(f"{name:<11} {looked} tables looked at, {changed} {'to change' if dry_run else 'changed'}")
    errors = [done.error for some in failed.values() for done in some]
    if errors and isinstance(errors[0], DefinitionError):
        raise errors[0]
    if errors:
        again = " ".join((*tables, *(f"--only {name}" for name in failed)))
        raise RunFailedError(
            f"{len(errors)} failed, as said above, all else was done; mend it, then: headrace maintain {again}"
        ) from errors[0]


def _of_project(name: str) -> Task:
    """A task applying what the project declares; outside of a project it does nothing but to Dagster's history."""

    def declared(lake: Lake, days: float, dry_run: bool) -> Iterator[MaintenanceResult]:
        try:
            package: Path | None = project_folder().package
        except CommandError:
            package = None
        if name == HISTORY:
            kept = KeptHistory() if package is None else read_kept_history(package)
            with instance_with_runs() as instance:
                yield from task_of(name, {}, instance, kept)(lake, days, dry_run)
        elif package is not None:
            from dagster_project.lake_asset import assets_of, keeping_by_dataset

            keeping = keeping_by_dataset(assets_of(load_definitions()))
            yield from task_of(name, keeping, None, KeptHistory())(lake, days, dry_run)

    return declared

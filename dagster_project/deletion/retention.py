"""All tasks of maintenance, with those declared by datasets: old bytes move to cold folders, old increments go."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from dagster_project.deletion.history import HISTORY, KeptHistory, forget_history
from dagster_project.keeping import Freezing, Keeping, overdue, retentions
from headrace.tables.identity import require_own
from headrace.tables.quarantine import quarantine_of
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.files.storage import local_path
from spark_jobs.lake.run import maintenance
from spark_jobs.lake.run.maintenance import MaintenanceResult, Task

if TYPE_CHECKING:
    import dagster as dg

    from spark_jobs.lake.run.materialize import Lake

_DAY_SECONDS = 86_400


def freeze_old(lake: Lake, days: float, dry_run: bool, keeping: Mapping[str, Keeping]) -> Iterator[MaintenanceResult]:
    """Move the kept bytes of datasets with `freeze_after` to their cold folder, once they are old enough."""
    for name, kept in sorted(keeping.items()):
        if kept.freezing is not None:
            yield _frozen(lake, name, kept.freezing, dry_run)


@maintenance.alone
def _frozen(lake: Lake, name: str, freezing: Freezing, dry_run: bool) -> MaintenanceResult:
    before = time.time() - freezing.days * _DAY_SECONDS
    folders = [ObjectFolder.of(lake.catalogue, space) for space in (name, quarantine_of(name))]
    if local_path(folders[0].root) is None:
        text = f"{folders[0].root} is in an object store, whose own rules of life cycle move what is old"
        return MaintenanceResult(name, 0, text, is_left=True)
    if dry_run:
        count = sum(len(folder.older(before)) for folder in folders)
    else:
        require_own(lake.catalogue)
        count = sum(folder.freeze(freezing.to, before) for folder in folders)
    return MaintenanceResult(name, count, f"{count:,} objects {'to move' if dry_run else 'moved'} to {freezing.to}")


def keep_retention(
    lake: Lake, days: float, dry_run: bool, keeping: Mapping[str, Keeping]
) -> Iterator[MaintenanceResult]:
    """Delete for good the increments past the retention of datasets with `retention: {then: delete}`."""
    for name, retention in sorted(retentions(keeping).items()):
        lake.ledger.refresh()
        for number, at in overdue(lake.ledger, name, retention.days, datetime.now(UTC)).items():
            which = f"increment {number}, landed {at:%Y-%m-%d}"
            if retention.then == "report":
                yield MaintenanceResult(name, 0, f"{which}: headrace dataset delete {name} --increment {number} --plan")
            elif dry_run:
                yield MaintenanceResult(name, 1, f"{which}, to delete")
            else:
                yield _deleted(lake, name, number, retention.days, which)


@maintenance.alone
def _deleted(lake: Lake, name: str, number: int, days: float, which: str) -> MaintenanceResult:
    from dagster_project.deletion.increments import delete_increment, plan_increment

    plan = plan_increment(lake.catalogue, name, number)
    lines = list(delete_increment(lake, plan, f"retention: {days:g} days"))
    return MaintenanceResult(name, len(lines), f"{which}, deleted; {plan.follow_up()}")


# Retention comes first: a cold store that does not answer keeps nothing that is to go.
DECLARED_TASKS: dict[str, Callable[..., Iterator[MaintenanceResult]]] = {
    "retention": keep_retention,
    "freezing": freeze_old,
}
TASKS: dict[str, Callable[..., Iterator[MaintenanceResult]]] = {
    **maintenance.TASKS,
    **DECLARED_TASKS,
    HISTORY: forget_history,
}


def task_of(
    name: str, keeping: Mapping[str, Keeping], instance: dg.DagsterInstance | None, history: KeptHistory
) -> Task:
    """The maintenance task of a name; `retention` and `freezing` get what datasets declare, `history` Dagster's."""
    task = TASKS[name]
    if task is forget_history:
        return partial(task, instance=instance, kept=history)
    return partial(task, keeping=keeping) if task in DECLARED_TASKS.values() else task

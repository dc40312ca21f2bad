"""How long a dataset keeps what landed, as it declares it, and the tasks of maintenance that see to it.

    freeze_after: {days: 90, to: s3://archive/headrace}    kept bytes that are older move to a cold folder
    retention: {days: 365, then: report}                   increments that landed so long ago are named by the status
    retention: {days: 365, then: delete}                   or deleted for good, as by `headrace dataset delete`

The declarations are those of the project that is loaded (`lake_asset.keeping_by_dataset`), and nowhere in the lake:
what is deleted must not depend on what somebody declared before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dagster_project.exceptions import DefinitionError
from dagster_project.run_config import bind_config
from spark_jobs.lake.declare.quarantined import quarantine_of
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.files.storage import local_path
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.run import maintenance
from spark_jobs.lake.run.maintenance import Done, Task
from spark_jobs.lake.session.identity import require_own

if TYPE_CHECKING:
    from spark_jobs.lake.run.materialize import Lake

_DAY_SECONDS = 86_400


class Freezing(BaseModel):
    """When kept bytes move to a cold folder, and to which."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    days: float = Field(ge=0, description="least age of kept bytes that move")
    to: str = Field(min_length=1, description="folder, or a URI such as s3://bucket/cold; best on a cheap store")


class Retention(BaseModel):
    """How long increments are kept, and what happens then."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    days: float = Field(gt=0, le=36_525, description="age of an increment from which it is not to be kept any more")
    then: Literal["report", "delete"] = Field(
        "report", description="delete: maintenance deletes it; report: headrace status names it"
    )


@dataclass(frozen=True)
class Keeping:
    """What a dataset declares about how long its bytes and increments are kept; None where it declares nothing.

    Attributes:
        freezing: when kept bytes move.
        retention: how long increments are kept.
    """

    freezing: Freezing | None = None
    retention: Retention | None = None


def keeping_of(name: str, attributes: Mapping[str, Any]) -> Keeping:
    """`freeze_after` and `retention` of a dataset, from the attributes of its declaration.

    Raises:
        DefinitionError: a value cannot be used; the message names it.
    """
    freezing, retention = attributes.get("freeze_after"), attributes.get("retention")
    if freezing and attributes.get("landing", "reference") != "copy":
        raise DefinitionError(f"dataset {name}: freeze_after moves kept bytes; declare `landing: copy` to have some")
    return Keeping(
        bind_config(Freezing, f"dataset {name}: freeze_after", freezing) if freezing else None,
        bind_config(Retention, f"dataset {name}: retention", retention) if retention else None,
    )


def retentions(keeping: Mapping[str, Keeping]) -> dict[str, Retention]:
    """How long each dataset keeps its increments, where it says so."""
    return {name: one.retention for name, one in keeping.items() if one.retention is not None}


def overdue(ledger: Ledger, dataset: str, days: float, now: datetime) -> dict[int, datetime]:
    """Increments with documents that landed longer ago than some days, in order, and when they landed."""
    held = quarantine_of(dataset)
    space = held if ledger.table(f"{held}.arrivals") is not None else dataset
    landed, before = ledger.first_recorded(f"{space}.arrivals"), now - timedelta(days=days)
    there = {number for number, row in ledger.increments(f"{space}.documents").items() if row.row_count}
    found = {int(place): at for place, at in landed.items() if at < before and place.isdigit() and int(place) in there}
    return dict(sorted(found.items()))


def freeze_old(lake: Lake, days: float, dry_run: bool, keeping: Mapping[str, Keeping]) -> Iterator[Done]:
    """Moves the kept bytes of datasets that declare `freeze_after` to their cold folder, once they are that old."""
    require_own(lake.catalogue)
    for name, kept in sorted(keeping.items()):
        if kept.freezing is not None:
            yield _frozen(lake, name, kept.freezing, dry_run)


@maintenance.alone
def _frozen(lake: Lake, name: str, freezing: Freezing, dry_run: bool) -> Done:
    before = time.time() - freezing.days * _DAY_SECONDS
    folders = [ObjectFolder.of(lake.catalogue, space) for space in (name, quarantine_of(name))]
    if local_path(folders[0].root) is None:
        text = f"{folders[0].root} is in an object store, whose own rules of life cycle move what is old"
        return Done(name, 0, text, is_left=True)
    if dry_run:
        count = sum(len(folder.older(before)) for folder in folders)
    else:
        count = sum(folder.freeze(freezing.to, before) for folder in folders)
    return Done(name, count, f"{count:,} objects {'to move' if dry_run else 'moved'} to {freezing.to}")


def keep_retention(lake: Lake, days: float, dry_run: bool, keeping: Mapping[str, Keeping]) -> Iterator[Done]:
    """Deletes increments for good that datasets with `retention: {then: delete}` do not keep any longer."""
    for name, retention in sorted(retentions(keeping).items()):
        lake.ledger.refresh()
        for number, at in overdue(lake.ledger, name, retention.days, datetime.now(UTC)).items():
            told = f"increment {number}, landed {at:%Y-%m-%d}"
            if retention.then == "report":
                yield Done(name, 0, f"{told}: headrace dataset delete {name} --increment {number} --plan")
            elif dry_run:
                yield Done(name, 1, f"{told}, to delete")
            else:
                yield _deleted(lake, name, number, retention.days, told)


@maintenance.alone
def _deleted(lake: Lake, name: str, number: int, days: float, told: str) -> Done:
    from dagster_project.deletion.increments import delete_increment, plan_increment

    plan = plan_increment(lake.catalogue, name, number)
    lines = list(delete_increment(lake, plan, f"retention: {days:g} days"))
    return Done(name, len(lines), f"{told}, deleted; {plan.follow_up()}")


# Retention comes first: a cold store that does not answer keeps nothing that is to go.
DECLARED_TASKS: dict[str, Callable[..., Iterator[Done]]] = {"retention": keep_retention, "freezing": freeze_old}
TASKS: dict[str, Callable[..., Iterator[Done]]] = {**maintenance.TASKS, **DECLARED_TASKS}


def task_of(name: str, keeping: Mapping[str, Keeping]) -> Task:
    """The maintenance task of a name; `retention` and `freezing` get what datasets declare."""
    task = TASKS[name]
    return partial(task, keeping=keeping) if task in DECLARED_TASKS.values() else task

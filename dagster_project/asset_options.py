"""How an asset of the lake is shown, when it runs by itself, and what is done around its computation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg

from blender_service.auth.visibility import PUBLIC, Visibility
from dagster_project.keeping import Keeping
from dagster_project.metadata import (
    Samples,
)
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.lake.run.outcomes import TableOutcome
from spark_jobs.lake.session.catalogue import catalogue_errors

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

PACE_SECONDS = 300
APART = "headrace/apart"  # tag of assets that only jobs of their own run: files are rewritten, models trained
Condition: Any = dg.AutomationCondition  # its operators lose the type of what they join
_CHANGED = Condition.any_deps_match(Condition.data_version_changed() | Condition.will_be_requested())
# As `eager()`, but for early cut-off: what depends on an asset whose rows came out the same is not run. It also sees
# new code. An asset waits while an input is missing or being computed, and follows in the run that computes its input.
AUTOMATION: dg.AutomationCondition[dg.AssetKey] = (
    (Condition.newly_missing() | Condition.code_version_changed() | _CHANGED).since_last_handled()
    & ~Condition.any_deps_missing()
    & ~Condition.any_deps_in_progress()
    & ~Condition.in_progress()
)


@dataclass(frozen=True)
class Presentation:
    """How an asset is shown and run; nothing here affects its rows.

    Attributes:
        group: asset group; the namespace by default.
        owners: team or e-mail addresses, in Dagster's form.
        domain: the step's folder of `spark_jobs`; the asset gets it as a tag.
        samples: the sample rows the UI and `headrace table show` show; None for what is shown of the most guarded
            table that it reads.
        automation: when Dagster's daemon computes the asset by itself.
        visibility: readers of the rows; the same for all tables of a namespace.
        pace_seconds: least time between two runs of a source's sensor.
        facts: what the page of the main table shows beside what every table's shows.
    """

    group: str | None = None
    owners: tuple[str, ...] = ()
    domain: str | None = None
    samples: Samples | None = None
    automation: dg.AutomationCondition[dg.AssetKey] | None = AUTOMATION
    visibility: Visibility = PUBLIC
    pace_seconds: int = PACE_SECONDS
    facts: Callable[[Catalog], Mapping[str, Any]] | None = None


@dataclass(frozen=True)
class Upkeep:
    """Work on a table before and after its computation, done also where nothing is computed.

    Attributes:
        before: called first.
        after: called last, and says whether it changed the table; None for no such work.
        pending: whether there is such work to do even where nothing is to be computed, whose end no plan knows.
        published: called once the rows are there, and changes none of them.
        refuse: raises where `before` would, for what the declaration says; called before a run computes anything.
        planned: called before a run from the terminal is planned.
        keeping: how long landed data is kept; maintenance sees to it.
        lands: table appended to by `before` and read by the step; it is no asset.
    """

    before: Callable[[Lake], None] | None = None
    after: Callable[[Lake], bool] | None = None
    pending: Callable[[Catalog], bool] | None = None
    published: Callable[[Lake], None] | None = None
    refuse: Callable[[Catalog], None] | None = None
    planned: Callable[[Catalog], None] | None = None
    keeping: Keeping | None = None
    lands: str | None = None


def materialized(upkeep: Upkeep | None, lake: Lake, binding: Binding) -> tuple[TableOutcome, ...]:
    """Bring the tables of a binding up to date, with the upkeep before and after; once more if that changed a table."""
    if upkeep is None:
        return materialize(lake, binding)
    if upkeep.before is not None:
        with catalogue_errors():
            upkeep.before(lake)
    outcomes = materialize(lake, binding)
    with catalogue_errors():
        if upkeep.published is not None:
            upkeep.published(lake)
        changed = upkeep.after is not None and upkeep.after(lake)
    if not changed:
        return outcomes
    kept = ("computed", "unchanged", "checks", "seconds")
    return tuple(
        dataclasses.replace(now, **{name: getattr(then, name) for name in kept})
        for then, now in zip(outcomes, materialize(lake, binding), strict=True)
    )

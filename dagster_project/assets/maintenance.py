"""Assets for the lake's maintenance: what each did is its metadata.

None changes a row, a digest or an ordinal, but for `retention` (it deletes what a dataset declares to be too old).

They belong to no bare `headrace run` and not to the job `everything`; the job `maintenance`, its weekly schedule and
`headrace maintain` run them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from dagster_project.asset_options import APART
from dagster_project.deletion.history import KeptHistory
from dagster_project.deletion.retention import TASKS, task_of
from dagster_project.keeping import Keeping
from spark_jobs.lake.run.maintenance import MaintenanceResult, run_task
from spark_jobs.lake.run.materialize import Lake

MAINTENANCE = "maintenance"  # job, asset group, and first part of the assets' keys
_CONFIG = {
    "days": dg.Field(float, default_value=7.0, description="age in days from which snapshots and orphan files go"),
    "dry_run": dg.Field(bool, default_value=False, description="only say what would be done"),
}


def maintenance_assets(keeping: Mapping[str, Keeping], history: KeptHistory) -> dg.AssetsDefinition:
    """An asset for each task of maintenance, all of one step; it runs the selected ones one after another.

    A failure in one task or table stops no other: the step reports all that was done, and fails at its end.

    Args:
        keeping: how long each dataset keeps what landed.
        history: how much of Dagster's own history stays.
    """

    def maintained(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[None]]:
        lake: Lake = context.resources.lake.open(context.run.run_id)
        config = context.op_execution_context.op_config
        failed: list[str] = []
        for name in TASKS:
            key = dg.AssetKey([MAINTENANCE, name])
            if key not in context.selected_asset_keys:
                continue
            task = task_of(name, keeping, context.instance, history)
            done = list(run_task(name, task, lake, config["days"], config["dry_run"]))
            faults = [f"{name}: {outcome.table}: {outcome.text}" for outcome in done if outcome.error is not None]
            for fault in faults:
                context.log.error(fault)
            failed += faults
            if not faults:
                yield dg.MaterializeResult(asset_key=key, metadata=_metadata(name, done))
        if failed:
            raise dg.Failure(
                f"{len(failed)} failed, all else was done; first {failed[0]}",
                metadata={"failed": dg.MetadataValue.md("\n".join(f"- {fault}" for fault in failed))},
                allow_retries=False,
            )

    # Dagster compares the annotation with the class, but `from __future__ import annotations` made it a string.
    maintained.__annotations__["context"] = dg.AssetExecutionContext
    decorate = dg.multi_asset(
        name=f"{MAINTENANCE}_tasks",  # that of the job is taken
        specs=[
            dg.AssetSpec(
                key=[MAINTENANCE, name],
                group_name=MAINTENANCE,
                tags={APART: "true"},
                description=f"{task.__doc__}\n\nIn a terminal: `headrace maintain --only {name}`.",
                kinds={"iceberg"},
                skippable=True,
            )
            for name, task in TASKS.items()
        ],
        can_subset=True,
        config_schema=_CONFIG,
        required_resource_keys={"lake"},
    )
    return decorate(maintained)


def _metadata(name: str, done: list[MaintenanceResult]) -> dict[str, Any]:
    changed = [outcome for outcome in done if outcome.count]
    return {
        "tables_changed": len(changed),
        "tables_looked_at": len(done),
        "count": sum(outcome.count for outcome in done),
        # Retention reports increments that people are to delete also where it deletes nothing.
        "done": dg.MetadataValue.md(_markdown(done if name == "retention" else changed)),
    }


def _markdown(changed: list[MaintenanceResult]) -> str:
    lines = [f"| {outcome.table} | {outcome.text} |" for outcome in changed]
    return "\n".join(["| table | what was done |", "| --- | --- |", *lines]) if lines else "nothing was to be done"

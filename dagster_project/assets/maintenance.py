"""Assets that maintain the lake: what each did is its metadata.

None changes a row, a digest or an ordinal, but for `retention`, which deletes what a dataset declares to be too old.

They belong to no bare `headrace run` and not to the job `everything`; the job `maintenance`, its weekly schedule and
`headrace maintain` run them.
"""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg

from dagster_project.deletion.retention import TASKS
from spark_jobs.exceptions import SparkJobsError
from spark_jobs.lake.run.maintenance import Done
from spark_jobs.lake.run.materialize import Lake
from spark_jobs.lake.session.catalogue import catalogue_errors

MAINTENANCE = "maintenance"  # job, asset group, and first part of the assets' keys
_CONFIG = {
    "days": dg.Field(float, default_value=7.0, description="age in days from which snapshots and orphan files go"),
    "dry_run": dg.Field(bool, default_value=False, description="only say what would be done"),
}


def maintenance_assets() -> Iterator[dg.AssetsDefinition]:
    """One asset for each task of maintenance."""
    before: list[str] = []
    for name in TASKS:
        yield _asset(name, list(before))
        before = [name]


def _asset(name: str, before: list[str]) -> dg.AssetsDefinition:
    run = TASKS[name]

    def maintained(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        lake: Lake = context.resources.lake.open(context.run.run_id)
        config = context.op_execution_context.op_config
        try:
            with catalogue_errors():
                done = list(run(lake, config["days"], config["dry_run"]))
        except SparkJobsError as error:
            raise dg.Failure(str(error), allow_retries=False) from error
        changed = [one for one in done if one.count]
        return dg.MaterializeResult(
            metadata={
                "tables_changed": len(changed),
                "tables_looked_at": len(done),
                "count": sum(one.count for one in done),
                # What people are to delete is told by a task that did nothing.
                "done": dg.MetadataValue.md(_markdown(done if name == "retention" else changed)),
            }
        )

    # Dagster compares the annotation with the class, but `from __future__ import annotations` made it a string.
    maintained.__annotations__["context"] = dg.AssetExecutionContext
    decorate = dg.asset(
        key=[MAINTENANCE, name],
        deps=[dg.AssetKey([MAINTENANCE, one]) for one in before],
        group_name=MAINTENANCE,
        description=f"{run.__doc__}\n\nIn a terminal: `headrace maintain --only {name}`.",
        kinds={"iceberg"},
        config_schema=_CONFIG,
        required_resource_keys={"lake"},
    )
    return decorate(maintained)


def _markdown(changed: list[Done]) -> str:
    lines = [f"| {one.table} | {one.text} |" for one in changed]
    return "\n".join(["| table | what was done |", "| --- | --- |", *lines]) if lines else "nothing was to be done"

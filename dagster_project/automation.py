"""Jobs, schedules and sensors of a project, made of its assets; schedules and sensors are off until switched on.

    everything         job: brings every table up to date; what has not changed is left
    NAMESPACE          job: the same for one dataset or corpus
    ingest             job: looks at every source and lands what is new; the automation condition goes on
    nightly_ingest     schedule of `everything`
    weekly_maintenance schedule of `maintenance`
    DATASET_files      sensor: when the source of a dataset has something new, runs the dataset and all that follows

An asset's automation condition (`table_asset.AUTOMATION`) is the third way: Dagster's own sensor,
`default_automation_condition_sensor`, evaluates it and is off too.
"""

from __future__ import annotations

import dagster as dg

from dagster_project.assets.maintenance import MAINTENANCE, maintenance_assets
from dagster_project.assets.monitoring import status_checks
from dagster_project.inspect.lake.lake_status import Thresholds
from dagster_project.lake_asset import declared_source
from dagster_project.resources import LakeResource
from spark_jobs.exceptions import SparkJobsError
from spark_jobs.lake.declare.quarantined import quarantine_of
from spark_jobs.lake.run.plan import tasks

EVERYTHING = "everything"
INGEST = "ingest"
_NIGHTLY = "17 1 * * *"
_WEEKLY = "47 3 * * 0"
_SECONDS_BETWEEN_LOOKS = 60


def automated(assets: dg.Definitions, thresholds: Thresholds) -> dg.Definitions:
    """The jobs, schedules, sensors and checks of thresholds for some assets, and the assets that maintain the lake."""
    keys = [key for one in assets.assets or () if isinstance(one, dg.AssetsDefinition) for key in one.keys]
    namespaces = sorted({key.path[0] for key in keys if len(key.path) > 1})
    sources = [table for key in sorted(keys) if declared_source(table := ".".join(key.path)) is not None]
    everything = dg.define_asset_job(
        EVERYTHING,
        selection=dg.AssetSelection.all() - dg.AssetSelection.groups(MAINTENANCE),
        description="Brings every table up to date; what has not changed is left.",
    )
    maintenance = dg.define_asset_job(
        MAINTENANCE,
        selection=dg.AssetSelection.groups(MAINTENANCE),
        description="Merges small files, expires snapshots, removes orphan files; no row of any table changes.",
    )
    taken = {EVERYTHING, INGEST, MAINTENANCE}
    jobs = [
        dg.define_asset_job(
            name if name not in taken else f"{name}_tables",
            selection=dg.AssetSelection.key_prefixes(name, quarantine_of(name)),
            description=f"Brings the tables of {name} up to date, from the tables that they read as they are.",
        )
        for name in namespaces
    ]
    if sources:
        landed = dg.AssetSelection.assets(*(dg.AssetKey(table.split(".")) for table in sources))
        jobs.append(
            dg.define_asset_job(
                INGEST,
                selection=landed.required_multi_asset_neighbors(),
                description="Looks at every source and lands what is new; the automation condition goes on from there.",
            )
        )
    nightly = dg.ScheduleDefinition(name="nightly_ingest", job=everything, cron_schedule=_NIGHTLY)
    weekly = dg.ScheduleDefinition(name="weekly_maintenance", job=maintenance, cron_schedule=_WEEKLY)
    return dg.Definitions(
        assets=[maintenance_assets()],
        asset_checks=list(status_checks(keys, thresholds)),
        jobs=[everything, maintenance, *jobs],
        schedules=[nightly, weekly],
        sensors=[_sensor(table) for table in sources],
    )


def _sensor(table: str) -> dg.SensorDefinition:
    """A sensor that runs a dataset and what follows from it when its source has something new.

    Whether it has is what the dataset's next run would find. The run's key is that of the increment, so a listing that
    fails is tried once and then waits until the source changes again.
    """
    dataset = table.split(".")[0]
    following = dg.AssetSelection.key_prefixes(dataset).downstream()

    @dg.sensor(
        name=f"{dataset}_files",
        target=following,
        minimum_interval_seconds=_SECONDS_BETWEEN_LOOKS,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=f"Runs {dataset} and all that follows from it when its source has something new or lost something.",
        required_resource_keys={"lake"},
    )
    def look(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        resource: LakeResource = context.resources.lake
        ledger = resource.open("").ledger
        source = declared_source(table)
        try:
            ledger.refresh()
            task = next(tasks(ledger, source), None) if source is not None else None
        except SparkJobsError as error:
            return dg.SkipReason(str(error))
        if task is None:
            return dg.SkipReason(f"{dataset}: nothing is new at its source")
        return dg.RunRequest(run_key=task.key)

    return look

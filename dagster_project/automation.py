"""Jobs, schedules and sensors of a project, made of its assets; schedules and sensors are off until switched on.

    everything         job: brings every table up to date; what has not changed is left
    NAMESPACE          job: the same for one dataset or corpus; of an experiment, which no other job runs, its own
    ingest             job: looks at every source and lands what is new; the automation condition goes on
    nightly_ingest     schedule of `everything`
    weekly_maintenance schedule of `maintenance`
    DATASET_files      sensor: when the source of a dataset has something new, runs the dataset and all that follows

Of tables with partitions they bring every partition up to date (`partitioned_job`).

An asset's automation condition (`table_asset.AUTOMATION`) is the third way: Dagster's own sensor,
`default_automation_condition_sensor`, evaluates it and is off too.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import dagster as dg

from dagster_project.asset_options import APART
from dagster_project.assets.maintenance import MAINTENANCE, maintenance_assets
from dagster_project.assets.monitoring import status_checks
from dagster_project.deletion.history import KeptHistory
from dagster_project.exceptions import SourceError
from dagster_project.inspect.lake.alert_thresholds import Thresholds
from dagster_project.lake_asset import LakeAsset, assets_of, keeping_by_dataset
from dagster_project.partitioned_job import partitioned_job
from dagster_project.resources import LakeResource
from headrace.tables.quarantine import quarantine_of
from spark_jobs.exceptions import SparkJobsError
from spark_jobs.lake.plan.plan import tasks
from spark_jobs.lake.session.spark_errors import cause_line

EVERYTHING = "everything"
INGEST = "ingest"
_NIGHTLY = "17 1 * * *"
_WEEKLY = "47 3 * * 0"
_SECONDS_BETWEEN_LOOKS = 60
_SHOWN_RUNS = 20
_LONGEST_WAIT = 3600  # a source that stays broken is asked each hour
_STATE = "headrace/source-state"
_APART = dg.AssetSelection.tag(APART, "true")
_Job = Any  # Dagster's type of an asset job that is not resolved yet has no public name


class LookError(SourceError, dg.DagsterError):
    """A look of a sensor failed: an error of Dagster's, shown by the tick as it is, and not in another one."""


def automated(
    assets: dg.Definitions, thresholds: Thresholds, history: KeptHistory, whole: Callable[[], dg.Definitions]
) -> dg.Definitions:
    """The jobs, schedules, sensors and checks of thresholds for some assets, and the lake's maintenance assets.

    Args:
        assets: those of a project.
        thresholds: what is too much.
        history: how much of Dagster's own history stays.
        whole: gives the project's definitions once they are there, these among them.
    """
    keys = [key for part in assets.assets or () if isinstance(part, dg.AssetsDefinition) for key in part.keys]
    namespaces = sorted({key.path[0] for key in keys if len(key.path) > 1})
    lake_assets = assets_of(assets)
    sources = sorted((asset for asset in lake_assets if asset.source is not None), key=lambda asset: asset.tables[0])
    keeping = keeping_by_dataset(lake_assets)
    job = functools.partial(_job, assets, whole)
    everything = job(
        EVERYTHING,
        dg.AssetSelection.all() - _APART,
        "Brings every table up to date; what has not changed is left.",
    )
    maintenance = dg.define_asset_job(
        MAINTENANCE,
        selection=dg.AssetSelection.groups(MAINTENANCE),
        description="Merges small files, removes old snapshots, orphan files, old runs; no row of any table changes.",
    )
    taken = {EVERYTHING, INGEST, MAINTENANCE}
    jobs = [
        job(
            name if name not in taken else f"{name}_tables",
            dg.AssetSelection.key_prefixes(name, quarantine_of(name)),
            f"Brings the tables of {name} up to date, from the tables that they read as they are.",
        )
        for name in namespaces
    ]
    if sources:
        landed = dg.AssetSelection.assets(*(dg.AssetKey(asset.tables[0].split(".")) for asset in sources))
        jobs.append(
            dg.define_asset_job(
                INGEST,
                selection=landed.required_multi_asset_neighbors(),
                description="Looks at every source and lands what is new; the automation condition goes on from there.",
            )
        )
    nightly = dg.ScheduleDefinition(
        name="nightly_ingest",
        job=everything,
        cron_schedule=_NIGHTLY,
        description="Looks at every source each night, and brings what follows from anything new up to date.",
    )
    weekly = dg.ScheduleDefinition(
        name="weekly_maintenance",
        job=maintenance,
        cron_schedule=_WEEKLY,
        description="Merges small files and removes old snapshots, orphan files, old runs each week; no row changes.",
    )
    return dg.Definitions(
        assets=[maintenance_assets(keeping, history)],
        asset_checks=list(status_checks(keys, thresholds, keeping)),
        jobs=[everything, maintenance, *jobs],
        schedules=[nightly, weekly],
        sensors=[_sensor(asset, job) for asset in sources],
    )


def _job(
    assets: dg.Definitions, whole: Callable[[], dg.Definitions], name: str, selection: dg.AssetSelection, text: str
) -> _Job:
    """A job of some tables: one run of their assets, or where some have partitions a step of several runs."""
    if any(isinstance(part, dg.AssetsDefinition) and part.partitions_def is not None for part in assets.assets or ()):
        graph = assets.resolve_asset_graph()
        keys = selection.resolve(graph)
        if any(graph.get(key).partitions_def is not None for key in keys):
            return partitioned_job(name, keys, text, whole)
    return dg.define_asset_job(name, selection=selection, description=text)


def _sensor(asset: LakeAsset, job: Callable[[str, dg.AssetSelection, str], _Job]) -> dg.SensorDefinition:
    """A sensor to run a dataset and what follows from it when its source has something new.

    Whether it has is what the dataset's next run would find. While its requested run is under way, or was asked
    for a moment ago, what comes waits for the next. A run after which the same state of the source is still to be
    landed has failed: it is asked for again after twice, four times, .. as long, an hour at most.
    """
    dataset, pace = asset.namespace, asset.shown.pace_seconds
    name = f"{dataset}_files"
    follows = dg.AssetSelection.key_prefixes(dataset).downstream() - _APART

    @dg.sensor(
        name=name,
        job=job(name, follows, f"Runs {dataset} and all that follows."),
        minimum_interval_seconds=_SECONDS_BETWEEN_LOOKS,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=f"Runs {dataset} and all that follows from it when its source has something new or lost something.",
        required_resource_keys={"lake"},
    )
    def look(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        try:
            return looked(context)
        except SparkJobsError as error:
            raise LookError(f"{dataset}: its source cannot be read, and is asked again: {error}") from error
        except Exception as error:  # whatever it is, the tick says it in a line; its trace is below
            raise LookError(f"{dataset}: its source could not be looked at: {cause_line(error)}") from error

    def looked(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        resource: LakeResource = context.resources.lake
        ledger = resource.open("").ledger
        source = asset.source
        ledger.refresh()
        task = next(tasks(ledger, source), None) if source is not None else None
        if task is None:
            return dg.SkipReason(f"{dataset}: nothing is new at its source")
        requested = context.instance.get_run_records(dg.RunsFilter(tags={"dagster/sensor_name": name}), _SHOWN_RUNS)
        if under_way := [record.dagster_run.run_id for record in requested if not record.dagster_run.is_finished]:
            return dg.SkipReason(f"{dataset}: run {under_way[0]} is under way; what came meanwhile lands after it")
        tried = sum(record.dagster_run.tags.get(_STATE) == task.key for record in requested)
        wait = min(pace * 2**tried, max(pace, _LONGEST_WAIT))
        left = requested[0].create_timestamp.timestamp() + wait - time.time() if requested else 0.0
        if left > 0:
            return dg.SkipReason(f"{dataset}: something is new; the next run is asked for in {left:,.0f} s")
        # Dagster asks for no run whose key it has seen, so the key is another one after each run.
        return dg.RunRequest(
            run_key=f"{task.key}/{requested[0].dagster_run.run_id}" if requested else task.key, tags={_STATE: task.key}
        )

    return look

"""Jobs over tables with partitions, which bring every partition up to date.

A run of Dagster has one partition or none. So a job of tables with different partitions, or of some with and some
without, cannot be one run: a function that asks for `context.partition_key` would fail. Such a job is a step that does
what `headrace run` does. It plans the runs (those of each partition that has something to compute, and those of tables
without partitions, each after what it reads) and executes them one after another in its own process, on one Spark
session. The UI lists them as runs of their own, tagged with the job's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from dagster_project.executor import run_here
from dagster_project.lake_asset import FETCHED, declared_source
from dagster_project.run_plan import Failures, fetch_source, idle_steps, plan_runs, stages
from spark_jobs.exceptions import SparkJobsError
from spark_jobs.lake.run.materialize import Lake

if TYPE_CHECKING:
    from dagster_project.dagster_core import BaseAssetGraph

PARENT = "headrace/job-run"
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
_SHOWN = 3


def partitioned_job(
    name: str, keys: Collection[dg.AssetKey], description: str, definitions: Callable[[], dg.Definitions]
) -> dg.JobDefinition:
    """A job that brings some tables up to date, whatever their partitions.

    Args:
        name: of the job.
        keys: the tables.
        description: what the UI says of it.
        definitions: gives the project's, once they are there.
    """

    def runs(context: dg.OpExecutionContext) -> None:
        failed = _run_all(context, definitions(), keys)
        if failed:
            names = sorted(".".join(key.path) for key in failed)
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            raise dg.Failure(
                f"{', '.join(names[:_SHOWN])}{more}: failed, or left because of one that failed; the runs tagged "
                f"{PARENT}={context.run_id} say why",
                allow_retries=False,
            )

    # Dagster compares the annotation with the class, but `from __future__ import annotations` made it a string.
    runs.__annotations__["context"] = dg.OpExecutionContext
    operation = dg.op(name=f"{name}_runs", description=description, required_resource_keys={"lake"})(runs)

    @dg.job(name=name, description=description)
    def job() -> None:
        operation()

    return job


def _run_all(
    context: dg.OpExecutionContext, definitions: dg.Definitions, selected: Collection[dg.AssetKey]
) -> frozenset[dg.AssetKey]:
    """Execute the runs; gives the tables that were not brought up to date."""
    graph = definitions.resolve_asset_graph()
    keys = [key for level in graph.toposorted_asset_keys_by_level for key in sorted(level) if key in selected]
    failures = Failures(graph)
    for stage in stages(graph, keys):
        _run_stage(context, definitions, stage, failures)
    return failures.keys


def _run_stage(
    context: dg.OpExecutionContext, definitions: dg.Definitions, keys: Sequence[dg.AssetKey], failures: Failures
) -> None:
    """Fetch, plan and execute one stage of the tables (`stages`); what fails is added to `failures`."""
    graph = definitions.resolve_asset_graph()
    lake: Lake = context.resources.lake.open(context.run_id)
    lake.ledger.refresh()
    failures.unasked.update(_fetch(context, graph, lake, failures.askable(keys)))
    planned = plan_runs(definitions, keys, None, context.instance, lake.ledger, lake.catalogue)
    idle = {id(step) for step in idle_steps(graph, planned, context.instance)}
    idle -= {id(step) for run in planned for step in run.steps if step.tables[0] in failures.unasked}
    tags = {name: value for name, value in context.run.tags.items() if name.startswith("headrace/")}
    for run in planned:
        chosen = [step for step in run.steps if id(step) not in idle and not failures.keeps(step)]
        if not chosen:
            continue
        wanted = [key for step in chosen for key in step.keys]
        result = run_here(
            definitions.resolve_implicit_global_asset_job_def(),
            context.instance,
            _QUIET,
            wanted,
            run.partition,
            tags={**tags, FETCHED: "true", PARENT: context.run_id},
            raise_on_error=False,
        )
        computed = {event.asset_key for event in result.get_asset_materialization_events()}
        of = f" of partition {run.partition}" if run.partition is not None else ""
        context.log.info(f"run {result.run_id}: {len(computed)} of {len(wanted)} tables{of} are up to date")
        if not result.success and not result.filter_events(lambda event: bool(event.is_step_failure)):
            raise dg.DagsterExecutionInterruptedError  # the one inside was, and so is this
        for step in chosen:
            if not computed.issuperset(step.keys):
                failures.add(step, step.tables[0])


def _fetch(
    context: dg.OpExecutionContext, graph: BaseAssetGraph[Any], lake: Lake, tables: Iterable[str]
) -> Iterator[str]:
    """Fetch from remote sources, so that the plan knows what is new; gives tables whose source fails."""
    for table in tables:
        try:
            fetch_source(lake.ledger, declared_source(graph, table))
        except SparkJobsError as error:
            context.log.error(f"{table}: {error}")
            yield table
    lake.ledger.refresh()

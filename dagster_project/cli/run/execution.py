"""Run a selection of tables in this process, as a run of the Dagster instance, and give a line for each table."""

from __future__ import annotations

import functools
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dagster_project.cli.output import original_streams
from dagster_project.cli.run.step_lines import StepLine, Watch
from dagster_project.exceptions import CheckFailedError, RunFailedError
from dagster_project.project.loading import dagster_home, load_definitions, project_folder, select
from dagster_project.unchanged_run import Idle, catalogue_state
from headrace.tables.settings import load_settings
from spark_jobs.exceptions import SparkJobsError
from spark_jobs.lake.engine.choice import choose, require_settings
from spark_jobs.lake.session.catalogue import open_catalogue, require_writable
from spark_jobs.lake.session.session import require_installation

if TYPE_CHECKING:
    import dagster as dg
    from pyiceberg.catalog import Catalog

    from dagster_project.dagster_core import BaseAssetGraph
    from dagster_project.run_plan import Failures, PlannedRun, PlannedStep
    from dagster_project.unchanged_run import Reads
    from spark_jobs.lake.ledger.ledger import Ledger

_NAMED = 3  # failed tables that the last line names


def require_done(lines: Sequence[StepLine], again: str) -> None:
    """Raise an error if steps of a run failed; their lines have said why.

    Args:
        lines: results of a run.
        again: the command to continue it once the cause is mended.

    Raises:
        CheckFailedError: a check refused the rows of the first failed step.
        RunFailedError: the first failed step failed otherwise.
    """
    failed = [line for line in lines if line.status == "failed"]
    if failed:
        left = sum(line.status == "left" for line in lines)
        behind = f", {left} that depend on {'it' if len(failed) == 1 else 'them'} were left" if left else ""
        more = f" and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
        names = ", ".join(line.label for line in failed[:_NAMED])
        error = CheckFailedError if failed[0].failed_check else RunFailedError
        raise error(
            f"{len(failed)} of {len(lines)} tables failed ({names}{more}){behind}; mend the cause, then: {again}"
        )


def execute(
    selection: tuple[str, ...],
    partition: str | None,
    show: Callable[[StepLine], None],
    tell: Callable[[str], None] = lambda text: None,
    tags: Mapping[str, str] = MappingProxyType({}),
    run_ids: list[str] | None = None,
    definitions: dg.Definitions | None = None,
    reads: Reads | None = None,
) -> list[StepLine]:
    """Run a selection on the persistent instance and give a line for every table.

    Tables of which the ledger says that nothing is to be computed are not part of the Dagster run.

    Args:
        selection: datasets, corpora, experiments, tables, or Dagster's syntax; empty for all tables.
        partition: the only one to run, where assets have partitions.
        show: called with each line as it comes.
        tell: called, before anything is computed, with sentences about existing tables to be changed by the run.
        tags: added to the Dagster runs.
        run_ids: a list; the ids of the Dagster runs are appended to it.
        definitions: the project's, where they are loaded already.
        reads: gets what the same run would say afterwards, where it would have nothing to do.

    Raises:
        CatalogueError: the lake cannot be opened or written.
        CommandError: the selection or the partition does not exist.
        DefinitionError: the project cannot be loaded.
        SetupError: a setting of the engines has an unknown value.
    """
    require_settings()
    settings = load_settings()
    catalogue = open_catalogue(settings)
    require_writable(settings)
    dagster_home()
    import dagster as dg

    from dagster_project.event_connections import connections_kept
    from dagster_project.lake_asset import FETCHED, declared_assets
    from dagster_project.mistakes import refuse_mistakes
    from dagster_project.restrictions import record_visibility
    from dagster_project.run_plan import Failures, require_partition, stages
    from dagster_project.run_process import end_dead_runs
    from spark_jobs.lake.ledger.ledger import Ledger

    definitions = load_definitions() if definitions is None else definitions
    keys = select(definitions, selection)
    graph = definitions.resolve_asset_graph()
    ledger = Ledger.fresh(catalogue)
    refuse_mistakes(graph, keys, ledger, record_visibility(catalogue, graph))
    assets = declared_assets(graph, keys)
    if reads is not None:
        reads.cover(assets)
    for asset in assets:
        if asset.upkeep is not None and asset.upkeep.planned is not None:
            asset.upkeep.planned(catalogue)
    sentences = dict[str, None]()  # stages may have the same to tell, as their engine
    tell_once = functools.partial(_tell_once, sentences, tell)
    end_reads = (lambda: None) if reads is None else reads.end
    wishes = Wishes(selection, partition, show, tell_once, {**tags, FETCHED: "true"}, run_ids, end_reads)
    lines: list[StepLine] = []
    left: list[StepLine] = []
    with dg.DagsterInstance.get() as instance, connections_kept(instance), original_streams():
        require_partition(graph, keys, partition, instance)
        for text in end_dead_runs(instance):
            tell(text)
        failed, waiting = Failures(graph), stages(graph, keys)
        while waiting:
            stage, *waiting = waiting
            if reads is not None and waiting:  # the later ones are planned after what the first ones compute
                reads.give_up()
            later = [key for stage_keys in waiting for key in stage_keys]
            computed, kept = _execute_stage(definitions, stage, later, instance, ledger, failed, wishes)
            lines += computed
            left += kept
        if reads is not None and reads.is_complete and all(line.status != "failed" for line in lines):
            _look_again(definitions, keys, instance, ledger, reads)
    for line in left:
        show(line)
    return lines + left


def _tell_once(sentences: dict[str, None], tell: Callable[[str], None], text: str) -> None:
    """Pass a sentence to `tell` the first time; `sentences` has those of before."""
    if text not in sentences:
        sentences[text] = None
        tell(text)


@dataclass(frozen=True)
class Wishes:
    """What is asked of a run beside its tables; see `execute`."""

    selection: tuple[str, ...]
    partition: str | None
    show: Callable[[StepLine], None]
    tell: Callable[[str], None]
    tags: Mapping[str, str]
    run_ids: list[str] | None
    planned: Callable[[], None]


def _look_again(
    definitions: dg.Definitions,
    keys: Sequence[dg.AssetKey],
    instance: dg.DagsterInstance,
    ledger: Ledger,
    reads: Reads,
) -> None:
    """Note what a run of some assets would say now, if it had nothing to compute."""
    from dagster_project.run_plan import idle_steps, plan_runs

    reads.end()
    catalogue = catalogue_state()
    ledger.refresh()
    runs = plan_runs(definitions, keys, None, instance, ledger, ledger.catalogue)
    idle = list(idle_steps(definitions.resolve_asset_graph(), runs, instance))
    if len(idle) == sum(len(planned.steps) for planned in runs):
        lines = tuple(line for step in idle for line in _idle_lines(ledger, step))
        reads.idle = Idle(lines, tuple(_foretold_changes(ledger.catalogue, runs)), catalogue)


def _execute_stage(
    definitions: dg.Definitions,
    keys: Sequence[dg.AssetKey],
    later: Sequence[dg.AssetKey],
    instance: dg.DagsterInstance,
    ledger: Ledger,
    failed: Failures,
    wishes: Wishes,
) -> tuple[list[StepLine], list[StepLine]]:
    """Fetch, plan and execute one stage of a selection (`stages`); gives the lines of its tables, and of those left.

    Args:
        definitions: the project's.
        keys: tables of the stage.
        later: those of the stages after it, with a say in the engine.
        instance: Dagster's.
        ledger: of the lake.
        failed: of the stages before; what fails here is added.
        wishes: what else was asked of the run.
    """
    from dagster_project.lake_asset import declared_assets
    from dagster_project.run_plan import idle_steps, plan_runs, without_partition
    from spark_jobs.lake.plan.foreseen import engine_needs, reason_for_spark

    settings, graph = load_settings(), definitions.resolve_asset_graph()
    ledger.refresh()
    unanswered = [line for table in failed.askable(keys) for line in _fetch(graph, ledger, table)]
    failed.unasked.update(line.table for line in unanswered)
    for line in unanswered:
        wishes.show(line)
    runs = plan_runs(definitions, keys, wishes.partition, instance, ledger, ledger.catalogue)
    idle = set(map(id, idle_steps(graph, runs, instance)))
    due = [step.forecast for planned in runs for step in planned.steps if id(step) not in idle]
    if due:
        wishes.planned()
    if any(due):
        reason = reason_for_spark((asset.tables[0], asset.step) for asset in declared_assets(graph, later))
        wishes.tell(str(choose(settings.warehouse, functools.partial(engine_needs, due, ledger.catalogue), reason)))
        require_installation(settings)
    for text in (*_foretold_changes(ledger.catalogue, runs), *without_partition(keys, runs)):
        wishes.tell(text)
    idle -= {id(step) for planned in runs for step in planned.steps if step.tables[0] in failed.unasked}
    lines: list[StepLine] = list(unanswered)
    left: list[StepLine] = []
    for planned in runs:
        for line in (
            idle_line for step in planned.steps if id(step) in idle for idle_line in _idle_lines(ledger, step)
        ):
            wishes.show(line)
            lines.append(line)
        busy = [step for step in planned.steps if id(step) not in idle]
        chosen = [step for step in busy if not failed.keeps(step)]
        if chosen:
            run_id = str(uuid.uuid4())
            if wishes.run_ids is not None:
                wishes.run_ids.append(run_id)
            job = _job_of(definitions, wishes.selection, chosen)
            lines += _execute_once(
                definitions, job, instance, run_id, chosen, planned.partition, wishes.show, wishes.tags
            )
        left += _left_lines(failed, busy, lines)
    return lines, left


def _left_lines(failed: Failures, due: Sequence[PlannedStep], lines: Sequence[StepLine]) -> Iterator[StepLine]:
    """The lines of steps left since what they read failed; adds failed and left steps to `failed`.

    Args:
        failed: steps failed or left in the runs before.
        due: the steps of one run, each after those read by it.
        lines: of the tables computed or failed so far.
    """
    outcomes = {(line.table, line.partition): line for line in lines}
    for step in due:
        mine = [outcomes.get((table, step.partition)) for table in step.tables]
        broken = next((line for line in mine if line is not None and line.status == "failed"), None)
        if broken is not None:
            failed.add(step, broken.label)
        elif not any(mine) and (cause := failed.before(step)):
            failed.add(step, cause)
            for table in step.tables:
                yield StepLine(table, 0, 0.0, "left", cause, partition=step.partition)


def _fetch(graph: BaseAssetGraph[Any], ledger: Ledger, table: str) -> Iterator[StepLine]:
    """Fetch a table's source if it is remote, so that the plan knows what is new; gives a line only if that fails."""
    from dagster_project.lake_asset import declared_source
    from dagster_project.run_plan import fetch_source

    started = time.monotonic()
    try:
        fetch_source(ledger, declared_source(graph, table))
    except SparkJobsError as error:
        why = " ".join(str(error).split()).removeprefix(f"{table}: ")
        yield StepLine(table, 0, time.monotonic() - started, "failed", why)


def _idle_lines(ledger: Ledger, step: PlannedStep) -> Iterator[StepLine]:
    """The lines of a step with nothing to compute: unchanged or frozen."""
    for table in step.tables:
        places = ledger.places(table)
        rows = sum(row.row_count for place, row in places.items() if step.partition in (None, place))
        frozen = step.forecast.frozen if step.forecast is not None else ""
        yield StepLine(table, rows, 0.0, "frozen" if frozen else "unchanged", frozen, partition=step.partition)


def _foretold_changes(catalogue: Catalog, runs: Sequence[PlannedRun]) -> Iterator[str]:
    """Sentences about a run's changes besides adding increments."""
    from dagster_project.inspect.lake.dependent_blends import dependent_blends, effect_of_repacking
    from dagster_project.run_plan import surprising

    surprises = surprising(runs)
    steps = [step for run in runs for step in run.steps if step.status == "fails"]
    missing = tuple(f"{table} has not been materialized" for step in steps for table in step.tables)
    for _, problem in surprises.failing:
        if not any(text in problem for text in missing):  # else it follows from another error of this list
            yield f"will fail: {problem}"
    for table, sentence in surprises.kept_frozen:
        yield f"{table} stays {sentence}"
    for table, reason in surprises.recomputed_frozen:
        yield f"{table} is computed anew, and all that follows from it: {reason}"
    blends = dependent_blends(catalogue, surprises.renumbered)
    for table in surprises.renumbered:
        effect = effect_of_repacking(blends[table])
        yield f"{table} is packed anew, as a new generation, if its rows change{f': {effect}' if effect else ''}"


def _job_of(definitions: dg.Definitions, selection: Sequence[str], steps: Sequence[PlannedStep]) -> dg.JobDefinition:
    """Dagster's job for a run: `everything`, that of the only name given, or Dagster's implicit job."""
    from dagster_project.automation import EVERYTHING

    wanted = {key for step in steps for key in step.keys}
    name = selection[0] if len(selection) == 1 else EVERYTHING
    if len(selection) < 2 and any(getattr(job, "name", None) == name for job in definitions.jobs or ()):
        job = definitions.resolve_job_def(name)
        if wanted.issubset(job.asset_layer.executable_asset_keys):
            return job
    return definitions.resolve_implicit_global_asset_job_def()


def _execute_once(
    definitions: dg.Definitions,
    job: dg.JobDefinition,
    instance: dg.DagsterInstance,
    run_id: str,
    steps: Sequence[PlannedStep],
    partition: str | None,
    show: Callable[[StepLine], None],
    tags: Mapping[str, str],
) -> list[StepLine]:
    """Execute one Dagster run, and turn its events into lines as they come.

    Raises:
        KeyboardInterrupt: the run was interrupted.
        RunFailedError: the run itself failed, not one of its steps.
    """
    from dagster_project.executor import RETRIES_TAG, run_here

    graph = definitions.resolve_asset_graph()
    watch = Watch({graph.get(step.keys[0]).assets_def.node_def.name: step.tables[0] for step in steps}, partition, show)

    collector = threading.Thread(target=watch.follow, name="run-lines", daemon=True)
    collector.start()
    # In this process, since Dagster's own watcher reads the database again after each event.
    instance.add_event_listener(run_id, watch.put)
    try:
        result = run_here(
            job,
            instance=instance,
            run_id=run_id,
            asset_selection=[key for step in steps for key in step.keys],
            partition_key=partition,
            raise_on_error=False,
            tags={"headrace/command": "run", RETRIES_TAG: "0", **tags},
            location=project_folder().location,
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        )
    finally:
        watch.put(None)
        collector.join()
    if not result.success:
        _require_only_failed_steps(result)
    return watch.lines


def _require_only_failed_steps(result: dg.ExecuteInProcessResult) -> None:
    """Raise an error if a run ended otherwise than by failed steps: by an interruption or a fault of its own."""
    from dagster_project.dagster_core import RunFailureReason

    ends = [event.job_failure_data for event in result.all_events if event.is_run_failure]
    if not ends or ends[-1].failure_reason is RunFailureReason.UNEXPECTED_TERMINATION:
        raise KeyboardInterrupt
    if ends[-1].failure_reason is not RunFailureReason.STEP_FAILURE:
        why = ends[-1].error.message if ends[-1].error is not None else "it does not say why"
        raise RunFailedError(f"the run ended before its steps: {' '.join(why.split())}; run it again")

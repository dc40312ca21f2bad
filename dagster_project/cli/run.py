"""`headrace run`: materialize assets in one process with one Spark session, and print one line for each table.

The run is an ordinary one of the Dagster instance: the UI shows it, with its checks and metadata. A table that fails
ends nothing but what depends on it: that is left, and named in the end.
"""

from __future__ import annotations

import functools
import json
import shlex
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from dagster_project.cli.output import original_streams, print_plain
from dagster_project.cli.plan import show_plan
from dagster_project.cli.project import dagster_home, load_definitions, project_folder, select
from dagster_project.cli.step_lines import StepLine, Watch, print_left, print_line
from dagster_project.exceptions import CheckFailedError, CommandError, RunFailedError
from dagster_project.inspect.lake.run_history import BY, SELECTION, changes
from spark_jobs.exceptions import SparkJobsError
from spark_jobs.lake.declare.quarantined import SUFFIX, is_quarantine
from spark_jobs.lake.engine.choice import choose, require_settings
from spark_jobs.lake.run.rollout import Rollout
from spark_jobs.lake.session.catalogue import open_catalogue, require_writable
from spark_jobs.lake.session.session import require_installation
from spark_jobs.lake.session.settings import load_settings, user_name

if TYPE_CHECKING:
    import dagster as dg
    from pyiceberg.catalog import Catalog

    from dagster_project.dagster_core import BaseAssetGraph
    from dagster_project.run_plan import Failures, PlannedRun, PlannedStep
    from spark_jobs.lake.ledger.ledger import Ledger

_RETRIES = "dagster/max_retries"  # a command that was killed is not run again by the daemon
_NAMED = 3  # failed tables in the last line
_COUNTED = {
    "computed": "computed",
    "unchanged": "unchanged",
    "frozen": "frozen with other settings",
    "failed": "failed",
    "left": "left",
}
_ALWAYS = ("computed", "unchanged")


@click.command()
@click.argument("selection", nargs=-1)
@click.option("--select", "also", multiple=True, metavar="SELECTION", help="the same as an argument; may be repeated")
@click.option("--partition", help="run only this partition, where assets have partitions")
@click.option("--rollout", metavar="10,25,50,100", help="try each step on so many percent of its shards first")
@click.option("--max-drift", default=0.05, show_default=True, help="change of a column's mean that stops a rollout")
@click.option("--dry-run", is_flag=True, help="say what would be computed and why, as `headrace plan`")
@click.option(
    "--follow", is_flag=True, help="follow the stream of one dataset: keep what comes, run each sealed increment"
)
@click.option("--once", is_flag=True, help="with --follow: end when all that is there has been read")
@click.option("--last", is_flag=True, help="run nothing; say what the last run did and changed")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object for each table as it comes, nothing else")
def run(last: bool, follow: bool, once: bool, dry_run: bool, as_json: bool, **given: Any) -> None:
    """Bring tables up to date: all of them, or those of SELECTION.

    SELECTION is a dataset, a corpus, a table (main.tokens), or Dagster's own syntax (key:"main/tokens"+).
    With --rollout each step of documents is computed for some of the shards and compared with what is published, before
    all of it is computed; where a column's mean moved too far, the step fails and its table stays as it was.

    A table that fails ends nothing but what depends on it. The same command again computes what is missing. The exit
    status is 0 when all is done, 2 for a mistake of yours, 3 for rows that a check refused, 4 for a step that failed.
    """
    words = given.pop("selection") + given.pop("also")
    rest = given["partition"] or given["rollout"] or dry_run
    if last:
        if words or rest or follow or once:
            raise CommandError("run: --last takes --json and nothing else")
        from dagster_project.cli.runs import print_last

        print_last(as_json)
    elif follow or once:
        if not follow or len(words) != 1 or rest or as_json:
            raise CommandError("run: --follow takes the name of one dataset, and --once, and nothing else")
        from dagster_project.cli.data.landing import follow_dataset

        follow_dataset(words[0], once)
    elif dry_run:
        from dagster_project.cli.plan import planned

        show_plan([step for run in planned(words, given["partition"]) for step in run.steps], as_json)
    else:
        _run(words, as_json, **given)


def _run(words: tuple[str, ...], as_json: bool, partition: str | None, rollout: str | None, max_drift: float) -> None:
    """Run a selection, and print a line for each table and what changed."""
    tags = {BY: user_name(), **({SELECTION: " ".join(words)} if words else {})}
    tags |= {} if rollout is None else Rollout.parse(rollout, max_drift).tags
    foretold: list[str] = []

    def tell(text: str) -> None:
        foretold.append(text)
        click.echo(text)

    def show(line: StepLine) -> None:
        if line.status == "unchanged":
            return  # one line in the end says how many are
        known = line.status == "failed" and any(line.detail in text for text in foretold)
        print_line(replace(line, detail="as said above") if known else line)

    if as_json:
        lines = execute(words, partition, lambda line: print_plain(json.dumps(asdict(line))), tags=tags)
    else:
        run_ids: list[str] = []
        lines = execute(words, partition, show, tell, tags, run_ids)
        _tell_the_end(lines, run_ids)
    again = ["headrace", "run", *words, *(["--partition", partition] if partition else [])]
    again += ["--rollout", rollout, "--max-drift", str(max_drift)] if rollout else []
    require_done(lines, shlex.join(again))


def _tell_the_end(lines: Sequence[StepLine], run_ids: Collection[str]) -> None:
    """Print what a run has to say beside its lines: notices, what was left, what waits, what changed, and counts."""
    for line in (line for line in lines if line.notice and line.status == "computed"):
        click.echo(f"{line.table}: {line.notice}")
    print_left(lines)
    idle = Counter(line.table.partition(".")[0] for line in lines if line.status == "unchanged")
    if idle:
        click.echo(f"unchanged tables: {', '.join(f'{name} {count}' for name, count in idle.items())}")
    catalogue = open_catalogue(load_settings())
    if all(line.status != "failed" for line in lines):
        _tell_what_waits(catalogue, {line.table.partition(".")[0] for line in lines})
    for text in changes(catalogue, run_ids):
        click.echo(text)
    counts = {status: sum(line.status == status for line in lines) for status in _COUNTED}
    said = [f"{counts[status]} {text}" for status, text in _COUNTED.items() if counts[status] or status in _ALWAYS]
    click.echo(f"{len(lines)} tables: {', '.join(said)}. Look: headrace ui")


def _tell_what_waits(catalogue: Catalog, namespaces: Collection[str]) -> None:
    """Print a line for each dataset that was run and keeps no or few documents, and for all that waits for somebody."""
    from dagster_project.inspect.lake.empty_datasets import empty_datasets
    from dagster_project.inspect.lake.run_notices import few_kept, left_and_returned, much_removed
    from spark_jobs.lake.ledger.ledger import Ledger
    from spark_jobs.lake.run.decisions import increments_of

    quarantines = [name for name in sorted(namespaces) if is_quarantine(name)]
    ledger = Ledger.fresh(catalogue)
    for found in (empty_datasets, few_kept, much_removed, left_and_returned):
        for line in found(ledger, namespaces):
            click.echo(line)
    for name in (one.removesuffix(SUFFIX) for one in quarantines):
        for one in (one for one in increments_of(ledger, name) if one.state == "waits"):
            click.echo(
                f"{name}: {one.documents:,} documents of increment {one.increment} wait for a decision: "
                f"headrace quarantine show {name} --increment {one.increment}"
            )


def require_done(lines: Sequence[StepLine], again: str) -> None:
    """Refuse the lines of a run with failed steps; why they failed was shown with their lines.

    Args:
        lines: of the run.
        again: the command that goes on once the cause is mended.

    Raises:
        CheckFailedError: a check refused the rows of the first one.
        RunFailedError: the first one failed otherwise.
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
) -> list[StepLine]:
    """Run a selection on the persistent instance and give a line for every table.

    Tables of which the ledger says that nothing is to be computed are not part of the Dagster run.

    Args:
        selection: as of the command.
        partition: the only one to run, where assets have partitions.
        show: called with each line as it comes.
        tell: called, before anything is computed, with sentences about existing tables that the run will change.
        tags: further ones of the Dagster runs.
        run_ids: of these runs; they are added.

    Raises:
        CatalogueError: the lake cannot be opened or written.
        CommandError: the selection or the partition does not exist.
        DefinitionError: the project cannot be loaded.
        SetupError: a setting of the engines says nothing that is known.
    """
    require_settings()
    settings = load_settings()
    catalogue = open_catalogue(settings)
    require_writable(settings)
    dagster_home()
    import dagster as dg

    from dagster_project.lake_asset import FETCHED, declared_assets
    from dagster_project.mistakes import refuse_mistakes
    from dagster_project.restrictions import record_visibility
    from dagster_project.run_plan import Failures, idle_steps, plan_runs, without_partition
    from dagster_project.run_process import end_dead_runs
    from spark_jobs.lake.ledger.ledger import Ledger
    from spark_jobs.lake.run.foreseen import engine_needs

    definitions = load_definitions()
    keys = select(definitions, selection)
    graph = definitions.resolve_asset_graph()
    ledger = Ledger.fresh(catalogue)
    refuse_mistakes(graph, keys, ledger, record_visibility(catalogue, graph))
    for one in declared_assets(graph, keys):
        if one.upkeep is not None and one.upkeep.planned is not None:
            one.upkeep.planned(catalogue)
    ledger.refresh()
    unanswered = [line for key in keys for line in _fetch(graph, ledger, ".".join(key.path))]
    tags = {**tags, FETCHED: "true"}
    for line in unanswered:
        show(line)
    with dg.DagsterInstance.get() as instance, original_streams():
        for text in end_dead_runs(instance):
            tell(text)
        runs = plan_runs(definitions, keys, partition, instance, ledger, catalogue)
        idle = set(map(id, idle_steps(graph, runs, instance)))
        due = [step.forecast for planned in runs for step in planned.steps if id(step) not in idle]
        if any(due):
            tell(str(choose(settings.warehouse, functools.partial(engine_needs, due))))
            require_installation(settings)
        for text in (*_foretold_changes(catalogue, runs), *without_partition(keys, runs)):
            tell(text)
        unasked = {line.table for line in unanswered}
        idle -= {id(step) for planned in runs for step in planned.steps if step.tables[0] in unasked}
        failed = Failures(graph, unasked)
        lines: list[StepLine] = list(unanswered)
        left: list[StepLine] = []
        for planned in runs:
            for line in (one for step in planned.steps if id(step) in idle for one in _idle_lines(ledger, step)):
                show(line)
                lines.append(line)
            busy = [step for step in planned.steps if id(step) not in idle]
            chosen = [step for step in busy if not failed.keeps(step)]
            if chosen:
                run_id = str(uuid.uuid4())
                if run_ids is not None:
                    run_ids.append(run_id)
                job = _job_of(definitions, selection, chosen)
                lines += _execute_once(definitions, job, instance, run_id, chosen, planned.partition, show, tags)
            left += _left_lines(failed, busy, lines)
        for line in left:
            show(line)
    return lines + left


def _left_lines(failed: Failures, due: Sequence[PlannedStep], lines: Sequence[StepLine]) -> Iterator[StepLine]:
    """The lines of steps that were left because of a failure; notes in `failed` what failed and was left.

    Args:
        failed: of the runs before.
        due: the steps that were to be computed in one run, those that are read first.
        lines: what is known of tables by now.
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
    """Ask the source of a table, if it is far away, so that the plan knows what is new; a failed line if that fails."""
    from dagster_project.lake_asset import declared_source
    from dagster_project.run_plan import fetch_source

    started = time.monotonic()
    try:
        fetch_source(ledger, declared_source(graph, table))
    except SparkJobsError as error:
        why = " ".join(str(error).split()).removeprefix(f"{table}: ")
        yield StepLine(table, 0, time.monotonic() - started, "failed", why)


def _idle_lines(ledger: Ledger, step: PlannedStep) -> Iterator[StepLine]:
    """The lines of a step that has nothing to do."""
    for table in step.tables:
        places = ledger.places(table)
        rows = sum(row.row_count for place, row in places.items() if step.partition in (None, place))
        frozen = step.forecast.frozen if step.forecast is not None else ""
        yield StepLine(table, rows, 0.0, "frozen" if frozen else "unchanged", frozen, partition=step.partition)


def _foretold_changes(catalogue: Catalog, runs: Sequence[PlannedRun]) -> Iterator[str]:
    """Sentences about changes that a run will make besides adding increments."""
    from dagster_project.inspect.lake.dependent_blends import dependent_blends, effect_of_repacking
    from dagster_project.run_plan import surprising

    found = surprising(runs)
    steps = [step for run in runs for step in run.steps if step.status == "fails"]
    missing = tuple(f"{table} has not been materialized" for step in steps for table in step.tables)
    for _, problem in found.failing:
        if not any(text in problem for text in missing):  # else it only follows from another of these
            yield f"will fail: {problem}"
    for table, sentence in found.kept_frozen:
        yield f"{table} stays {sentence}"
    for table in found.recomputed_frozen:
        yield f"{table} was computed from rows that are computed anew: so is it, and all that follows from it"
    blends = dependent_blends(catalogue, found.renumbered)
    for table in found.renumbered:
        effect = effect_of_repacking(blends[table])
        yield f"{table} is packed anew, as a new generation, if its rows change{f': {effect}' if effect else ''}"


def _job_of(definitions: dg.Definitions, selection: Sequence[str], steps: Sequence[PlannedStep]) -> dg.JobDefinition:
    """The job that shows a run: `everything`, that of the one dataset or corpus named, or one without a name."""
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
    from dagster_project.executor import run_here

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
            tags={"headrace/command": "run", _RETRIES: "0", **tags},
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
    """Refuse a run that ended otherwise than by steps that failed: it was interrupted, or could not go on."""
    from dagster_project.dagster_core import RunFailureReason

    ends = [event.job_failure_data for event in result.all_events if event.is_run_failure]
    if not ends or ends[-1].failure_reason is RunFailureReason.UNEXPECTED_TERMINATION:
        raise KeyboardInterrupt
    if ends[-1].failure_reason is not RunFailureReason.STEP_FAILURE:
        why = ends[-1].error.message if ends[-1].error is not None else "it does not say why"
        raise RunFailedError(f"the run ended before its steps: {' '.join(why.split())}; run the same again")

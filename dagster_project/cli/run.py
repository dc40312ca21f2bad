"""`headrace run`: materialize assets in one process with one Spark session, and print one line for each table.

The run is an ordinary one of the Dagster instance: the UI shows it, with its checks and metadata.
"""

from __future__ import annotations

import json
import queue
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from dagster_project.cli.output import original_stdout, print_styled
from dagster_project.cli.plan import show_plan
from dagster_project.cli.project import dagster_home, load_definitions, select
from dagster_project.exceptions import CheckFailedError, RunFailedError
from spark_jobs.exceptions import SparkJobsError
from spark_jobs.lake.declare.quarantined import SUFFIX, is_quarantine
from spark_jobs.lake.ledger.lease import WAIT_SECONDS
from spark_jobs.lake.run.rollout import Rollout
from spark_jobs.lake.session.catalogue import catalogue_errors, open_catalogue, require_writable
from spark_jobs.lake.session.settings import load_settings

if TYPE_CHECKING:
    import dagster as dg
    from pyiceberg.catalog import Catalog

    from dagster_project.run_plan import PlannedRun, PlannedStep
    from spark_jobs.lake.ledger.ledger import Ledger

_DRAIN_SECONDS = 1.0


@dataclass(frozen=True)
class StepLine:
    """The result of a run for one table.

    Attributes:
        table: identifier.
        rows: rows that the table holds now (of the partition, where one was run).
        seconds: wall-clock time of the step.
        status: computed, unchanged, frozen (unchanged under other settings), failed.
        detail: increments computed, what is frozen, or why it failed.
        notice: rows that a user should know of, such as rejected files, and the command that shows them.
        failed_check: name of the check that refused the rows of a failed step; empty where none did.
    """

    table: str
    rows: int
    seconds: float
    status: str
    detail: str
    notice: str = ""
    failed_check: str = ""


@click.command()
@click.argument("selection", nargs=-1)
@click.option("--select", "also", multiple=True, metavar="SELECTION", help="the same as an argument; may be repeated")
@click.option("--partition", help="run only this partition, where assets have partitions")
@click.option("--rollout", metavar="10,25,50,100", help="try each step on so many percent of its shards first")
@click.option("--max-drift", default=0.05, show_default=True, help="change of a column's mean that stops a rollout")
@click.option("--dry-run", is_flag=True, help="say what would be computed and why, as `headrace plan`")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object for each table as it comes, nothing else")
def run(
    selection: tuple[str, ...],
    also: tuple[str, ...],
    partition: str | None,
    rollout: str | None,
    max_drift: float,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Bring tables up to date: all of them, or those of SELECTION.

    SELECTION is a dataset, a corpus, a table (main.tokens), or Dagster's own syntax (group:main, key:"main/tokens"+).
    With --rollout each step of documents is computed for some of the shards and compared with what is published, before
    all of it is computed; where a column's mean moved too far, the step fails and its table stays as it was.

    The exit status is 0 when all is done, 2 for a mistake of yours, 3 for rows that a check refused, 4 for a step that
    failed.
    """
    if dry_run:
        from dagster_project.cli.plan import planned

        show_plan([step for run in planned(selection + also, partition) for step in run.steps], as_json)
        return
    tags = {} if rollout is None else Rollout.parse(rollout, max_drift).tags
    show = (lambda line: click.echo(json.dumps(asdict(line)))) if as_json else print_line
    lines = execute(selection + also, partition, show, (lambda text: None) if as_json else click.echo, tags)
    if not as_json:
        for line in (line for line in lines if line.notice and line.status == "computed"):
            click.echo(f"{line.table}: {line.notice}")
    require_done(lines)
    if not as_json:
        computed, frozen = (sum(line.status == status for line in lines) for status in ("computed", "frozen"))
        kept = f", {frozen} frozen with other settings" if frozen else ""
        unchanged = len(lines) - computed - frozen
        _tell_what_waits({line.table.partition(".")[0] for line in lines})
        click.echo(f"{len(lines)} tables: {computed} computed, {unchanged} unchanged{kept}. Look: headrace ui")


def _tell_what_waits(namespaces: Collection[str]) -> None:
    """Print a line for each dataset that was run and has no document, and for each increment that a person decides."""
    from dagster_project.inspect.lake.empty_datasets import empty_datasets
    from spark_jobs.lake.ledger.ledger import Ledger
    from spark_jobs.lake.run.decisions import increments_of

    quarantines = [name for name in sorted(namespaces) if is_quarantine(name)]
    ledger = Ledger.fresh(open_catalogue(load_settings()))
    for line in empty_datasets(ledger, namespaces):
        click.echo(line)
    for name in (one.removesuffix(SUFFIX) for one in quarantines):
        for one in (one for one in increments_of(ledger, name) if one.state == "waits"):
            click.echo(
                f"{name}: {one.documents:,} documents of increment {one.increment} wait for a decision: "
                f"headrace quarantine show {name} --increment {one.increment}"
            )


def require_done(lines: Sequence[StepLine]) -> None:
    """Refuse the lines of a run with failed steps.

    Raises:
        CheckFailedError: a check refused the rows of the first one.
        RunFailedError: the first one failed otherwise.
    """
    failed = [line for line in lines if line.status == "failed"]
    if failed:
        error = CheckFailedError if failed[0].failed_check else RunFailedError
        raise error(f"{len(failed)} of {len(lines)} steps failed; first {failed[0].table}: {failed[0].detail}")


def print_line(line: StepLine) -> None:
    """Print the line of a table, aligned with those of others."""
    style = {"computed": "green", "unchanged": "dim", "frozen": "yellow", "failed": "red"}[line.status]
    text = f"{line.table:<36} {line.rows:>12,} rows {line.seconds:>7.1f} s  {line.status:<9} {line.detail}"
    print_styled(text.rstrip(), style)


def execute(
    selection: tuple[str, ...],
    partition: str | None,
    show: Callable[[StepLine], None],
    tell: Callable[[str], None] = lambda text: None,
    tags: Mapping[str, str] = MappingProxyType({}),
) -> list[StepLine]:
    """Run a selection on the persistent instance and give a line for every table.

    Tables of which the ledger says that nothing is to be computed are not part of the Dagster run.

    Args:
        selection: as of the command.
        partition: the only one to run, where assets have partitions.
        show: called with each line as it comes.
        tell: called, before anything is computed, with sentences about existing tables that the run will change.
        tags: further ones of the Dagster runs.

    Raises:
        CatalogueError: the lake cannot be opened or written.
        CommandError: the selection or the partition does not exist.
        DefinitionError: the project cannot be loaded.
    """
    settings = load_settings()
    catalogue = open_catalogue(settings)
    require_writable(settings)
    dagster_home()
    import dagster as dg

    from dagster_project.assets.quarantine import apply_rules
    from dagster_project.lake_asset import FETCHED
    from dagster_project.mistakes import refuse_mistakes
    from dagster_project.restrictions import record_visibility
    from dagster_project.run_plan import idle_steps, plan_runs
    from spark_jobs.lake.ledger.ledger import Ledger

    definitions = load_definitions()
    keys = select(definitions, selection)
    graph = definitions.resolve_asset_graph()
    refuse_mistakes(graph, keys, Ledger.fresh(catalogue), record_visibility(catalogue, graph))
    for space in sorted({key.path[0] for key in keys if is_quarantine(key.path[0])}):
        apply_rules(catalogue, space.removesuffix(SUFFIX))
    ledger = Ledger.fresh(catalogue)
    lines: list[StepLine] = []
    unanswered = [line for key in keys for line in _fetch(catalogue, ".".join(key.path))]
    tags = {**tags, FETCHED: "true"}
    for line in unanswered:
        show(line)
    with dg.DagsterInstance.get() as instance, original_stdout():
        runs = plan_runs(definitions, keys, partition, instance, ledger, catalogue)
        for text in _foretold_changes(catalogue, runs):
            tell(text)
        idle = set(map(id, idle_steps(runs, instance)))
        for planned in runs:
            left = [line for step in planned.steps if id(step) in idle for line in _idle_lines(ledger, step)]
            for line in left:
                show(line)
            lines += left
            chosen = [key for step in planned.steps if id(step) not in idle for key in step.keys]
            if chosen:
                lines += _execute_once(definitions, instance, chosen, planned.partition, show, tags)
            if any(line.status == "failed" for line in lines):
                break
    return unanswered + lines


def _fetch(catalogue: Catalog, table: str) -> Iterator[StepLine]:
    """Ask the source of a table, if it is far away, so that the plan knows what is new; a failed line if that fails."""
    from dagster_project.lake_asset import declared_source
    from spark_jobs.lake.ledger.ledger import Ledger
    from spark_jobs.lake.run.decisions import refuse_around_quarantine

    binding = declared_source(table)
    if binding is None or binding.step.fetch is None:
        return
    try:
        with catalogue_errors():
            ledger = Ledger.fresh(catalogue)
            refuse_around_quarantine(ledger, binding)
            binding.fetch(catalogue, WAIT_SECONDS)
    except SparkJobsError as error:
        yield StepLine(table, 0, 0.0, "failed", str(error))


def _idle_lines(ledger: Ledger, step: PlannedStep) -> Iterator[StepLine]:
    """The lines of a step that has nothing to do."""
    for table in step.tables:
        places = ledger.places(table)
        rows = sum(row.row_count for place, row in places.items() if step.partition in (None, place))
        frozen = step.forecast.frozen if step.forecast is not None else ""
        yield StepLine(table, rows, 0.0, "frozen" if frozen else "unchanged", frozen)


def _foretold_changes(catalogue: Catalog, runs: Sequence[PlannedRun]) -> Iterator[str]:
    """Sentences about changes that a run will make besides adding increments."""
    from dagster_project.inspect.lake.dependent_blends import dependent_blends, effect_of_repacking
    from dagster_project.run_plan import surprising

    found = surprising(runs)
    for _, problem in found.failing:
        yield f"will fail: {problem}"
    for table, sentence in found.kept_frozen:
        yield f"{table} stays {sentence}"
    for table in found.recomputed_frozen:
        yield f"{table} was computed from rows that are computed anew: so is it, and all that follows from it"
    blends = dependent_blends(catalogue, found.renumbered)
    for table in found.renumbered:
        effect = effect_of_repacking(blends[table])
        yield f"{table} is packed anew, as a new generation, if its rows change{f': {effect}' if effect else ''}"


def _execute_once(
    definitions: dg.Definitions,
    instance: dg.DagsterInstance,
    keys: list[dg.AssetKey],
    partition: str | None,
    show: Callable[[StepLine], None],
    tags: Mapping[str, str],
) -> list[StepLine]:
    """Execute one Dagster run, and turn its events into lines as they come."""
    import threading

    from dagster_project.executor import run_here

    run_id = str(uuid.uuid4())
    events: queue.Queue[dg.DagsterEvent | None] = queue.Queue()

    def on_event(record: Any, cursor: str) -> None:
        events.put(record.dagster_event)

    job = definitions.resolve_implicit_global_asset_job_def()
    lines: list[StepLine] = []

    def collect() -> None:
        for line in _lines(iter(events.get, None)):
            lines.append(line)
            show(line)

    collector = threading.Thread(target=collect, name="run-lines", daemon=True)
    collector.start()
    instance.watch_event_logs(run_id, None, on_event)
    try:
        result = run_here(
            job,
            instance=instance,
            run_id=run_id,
            asset_selection=keys,
            partition_key=partition,
            raise_on_error=False,
            tags={"headrace/command": "run", **tags},
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        )
        if not result.success and not result.filter_events(_failed):
            raise KeyboardInterrupt  # a run that failed without a step that failed was interrupted
        _drain(lines, len(result.get_asset_materialization_events()) + len(result.filter_events(_failed)))
    finally:
        instance.end_watch_event_logs(run_id, on_event)
        events.put(None)
        collector.join()
    # Dagster's watcher of Postgres looks every 16 seconds once a run is quiet; what it did not tell is told now.
    told = {line.table for line in lines}
    for line in _lines(iter(result.all_events)):
        if line.table not in told:
            lines.append(line)
            show(line)
    return lines


def _failed(event: dg.DagsterEvent) -> bool:
    return bool(event.is_step_failure)


def _drain(lines: list[StepLine], expected: int) -> None:
    """Give Dagster's watcher of events, which polls, a moment to deliver the last ones."""
    deadline = time.monotonic() + _DRAIN_SECONDS
    while time.monotonic() < deadline and len(lines) < expected:
        time.sleep(0.05)


def _lines(events: Iterator[dg.DagsterEvent]) -> Iterator[StepLine]:
    """A line for every materialization and every failed step; other events are ignored."""
    for event in events:
        if event.event_type_value == "ASSET_MATERIALIZATION":
            values: dict[str, Any] = {name: value.value for name, value in event.materialization.metadata.items()}
            detail = values.get("detail") or f"increments {values.get('increments_computed')}"
            if "rollout" in values:
                detail += f", {values['rollout']}"
            note, skipped = values.get("note", ""), values.get("skipped")
            yield StepLine(
                table=".".join(event.asset_key.path) if event.asset_key else "",
                rows=values.get("dagster/row_count", 0),
                seconds=0.0 if skipped else values.get("seconds", 0.0),
                status="computed" if not skipped else "frozen" if note else "unchanged",
                detail=note if skipped else detail,
                notice=values.get("notice", ""),
            )
        elif event.is_step_failure:
            table, check = (event.step_key or "").replace("__", ".", 1), _failed_check(event)
            why = failure_text(event).removeprefix(f"{table}: ")
            yield StepLine(table, 0, 0.0, "failed", why, failed_check=check)


def _failed_check(event: dg.DagsterEvent) -> str:
    """Name of the check that refused the rows of a failed step; empty where none did."""
    from dagster_project.lake_asset import FAILED_CHECK

    data = event.step_failure_data.user_failure_data
    found = data.metadata.get(FAILED_CHECK) if data is not None else None
    return str(found.value) if found is not None else ""


def failure_text(event: dg.DagsterEvent) -> str:
    """Why a step failed, in one line."""
    data = event.step_failure_data
    if data.user_failure_data is not None and data.user_failure_data.description:
        return " ".join(data.user_failure_data.description.split())
    error = data.error
    while error is not None and error.cause is not None:
        error = error.cause
    return " ".join((error.message if error is not None else "unknown").split())

"""`headrace plan`: what a run would compute and why, with rows and seconds estimated from the ledger; without Spark."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from dagster_project.cli.output import print_styled, say
from dagster_project.declared_kinds import declared_among
from dagster_project.exceptions import CommandError
from dagster_project.project.loading import dagster_home, lake_catalogue, load_definitions, select
from headrace.tables.settings import load_settings
from spark_jobs.lake.engine.choice import choice, require_settings

if TYPE_CHECKING:
    from dagster_project.run_plan import PlannedRun, PlannedStep

_STYLES = {"compute": "green", "possible": "yellow", "fails": "red", "unknown": "yellow", "frozen": "yellow"}
_MOST_ALIKE = 8  # slices of a table that each have a line
_WORDS = {
    "compute": "to compute",
    "possible": "if rows change",
    "unknown": "known when it runs",
    "fails": "will fail",
    "frozen": "frozen with other settings",
    "unchanged": "unchanged",
}


@click.command()
@click.argument("selection", nargs=-1)
@click.option("--partition", help="plan only this partition, where assets have partitions")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object a step")
@click.option("--markdown", is_flag=True, help="print a Markdown table, for a comment on a pull request")
def plan(selection: tuple[str, ...], partition: str | None, as_json: bool, markdown: bool) -> None:
    """Say what `headrace run SELECTION` would compute, and why; nothing is computed or written.

    Rows and seconds are estimates from what the ledger has of earlier increments. The exit status is 2 where a step
    will fail. Of experiments alone it also says what their variants consist of, and which runs are to be done.
    """
    steps = [step for run in planned(selection, partition) for step in run.steps]
    show_plan(steps, as_json, markdown)
    if not as_json:
        # Beside other names variants are not read: what they consist of may be computed first.
        if len(declared := list(declared_among(selection))) == len(selection):
            for line in (line for kind, name in declared for line in kind.plan(name)):
                say(line)
        _tell_what_stays_out({step.tables[0].partition(".")[0] for step in steps})


def _tell_engine(steps: Collection[PlannedStep]) -> None:
    """Print which engine would run the steps, where there is anything to run."""
    from spark_jobs.lake.plan.foreseen import engine_needs

    due = [step.forecast for step in steps if step.status not in ("unchanged", "frozen")]
    if any(due):
        say(str(choice(load_settings().warehouse, functools.partial(engine_needs, due, lake_catalogue()))))


def _tell_what_stays_out(namespaces: Collection[str]) -> None:
    """Print a line for each corpus with returned documents, taken in by a new generation alone."""
    from dagster_project.inspect.lake.run_notices import left_and_returned
    from spark_jobs.lake.ledger.ledger import Ledger

    for line in left_and_returned(Ledger.fresh(lake_catalogue()), namespaces):
        say(line)


def planned(selection: Sequence[str], partition: str | None) -> list[PlannedRun]:
    """The runs needed by a selection.

    Raises:
        CatalogueError: the lake cannot be opened.
        CommandError: the selection or the partition does not exist.
        DefinitionError: the project cannot be loaded.
        SetupError: a setting of the engines has an unknown value.
    """
    require_settings()
    catalogue = lake_catalogue()
    home = dagster_home(make=False)
    import dagster as dg

    from blender_service.auth.visibility import recorded_visibility
    from dagster_project.mistakes import refuse_mistakes
    from dagster_project.run_plan import plan_runs, require_partition, without_partition
    from spark_jobs.lake.ledger.ledger import Ledger

    definitions = load_definitions()
    keys, graph = select(definitions, selection), definitions.resolve_asset_graph()
    ledger = Ledger.fresh(catalogue)
    refuse_mistakes(graph, keys, ledger, recorded_visibility(catalogue))
    with contextlib.ExitStack() as opened:
        has_partitions = any(graph.get(key).partitions_def for key in keys)
        instance: Any = None
        if has_partitions:
            is_there = (home / "dagster.yaml").is_file()
            instance = opened.enter_context(dg.DagsterInstance.get() if is_there else dg.DagsterInstance.ephemeral())
        require_partition(graph, keys, partition, instance)
        runs = plan_runs(definitions, keys, partition, instance, ledger, catalogue)
    for text in without_partition(keys, runs):
        say(text, err=True)
    return runs


def show_plan(steps: Sequence[PlannedStep], as_json: bool, markdown: bool = False) -> None:
    """Print a plan: a line for each slice of a table (increment or partition) that may be computed, then a sum.

    Where the same is said of many slices of a table they have one line; JSON names each.
    """
    if as_json:
        for step in steps:
            say(json.dumps(_facts(step)))
        _refuse_failing(steps)
        return
    lines = _joined(line for step in steps for line in _lines(step))
    if markdown:
        say("| table | place | why | rows | seconds |\n| --- | --- | --- | ---: | ---: |")
        for line in lines:
            rows = line.amount.removesuffix(" rows")
            say(f"| {line.table} | {line.place} | {line.why.replace('|', '/')} | {rows} | {line.time} |")
        say()
    else:
        for line in lines:
            cost = f"{line.amount:>17} {line.time and f'{line.time:>7} s'}" if line.amount or line.time else ""
            print_styled(f"{line.table:<36} {line.place:<12} {cost:<27} {line.why}", _STYLES[line.status])
    _tell_engine(steps)
    say(_sum(steps))
    _refuse_failing(steps)


def _refuse_failing(steps: Sequence[PlannedStep]) -> None:
    """Refuse a plan with steps sure to fail.

    Raises:
        CommandError: names the first.
    """
    failing = [(step.tables[0], step.forecast.problem) for step in steps if step.forecast and step.forecast.problem]
    if failing:
        table, problem = failing[0]
        failure = problem if problem.startswith(f"{table}:") else f"{table}: {problem}"
        raise CommandError(f"{len(failing)} of {len(steps)} steps will fail; first {failure}")


@dataclass(frozen=True)
class _PlanLine:
    """What a plan says of a slice (increment or partition) of a table, or of several; no estimate where it is None."""

    status: str
    table: str
    place: str
    why: str
    rows: int | None = None
    files: int | None = None
    seconds: float | None = None

    @property
    def amount(self) -> str:
        if self.rows is not None:
            return f"~{self.rows:,} rows"
        return "" if self.files is None else f"{self.files:,} files"

    @property
    def time(self) -> str:
        return "" if self.seconds is None else f"~{self.seconds:,.1f}"


def _lines(step: PlannedStep) -> Iterator[_PlanLine]:
    """A line for each slice of a step's table, or for the whole table."""
    table, forecast, partition = step.tables[0], step.forecast, step.partition or ""
    if forecast is None:
        yield _PlanLine("unknown", table, partition, "known when it runs")
    elif forecast.problem:
        yield _PlanLine("fails", table, partition, forecast.problem)
    elif step.asks:
        yield _PlanLine("unknown", table, "", "the run asks the source first, then plans with what came")
    elif forecast.frozen or forecast.stays:
        yield _PlanLine("frozen", table, "", f"stays {forecast.frozen or forecast.stays}")
    else:
        for place in forecast.places:
            status = "compute" if place.certain else "possible"
            yield _PlanLine(status, table, place.place, place.reason, place.rows, place.files, place.seconds)


def _joined(lines: Iterable[_PlanLine]) -> list[_PlanLine]:
    """The lines, joined where they say the same of more than a few slices of a table: how many, the first, the last."""
    alike: dict[tuple[str, str, str], list[_PlanLine]] = {}
    for line in lines:
        alike.setdefault((line.table, line.status, line.why), []).append(line)
    return [line for some in alike.values() for line in (some if len(some) <= _MOST_ALIKE else [_join(some)])]


def _join(lines: Sequence[_PlanLine]) -> _PlanLine:
    def total(values: Iterable[float | None]) -> Any:
        numbers = [value for value in values if value is not None]
        return sum(numbers) if numbers else None

    first, last = lines[0], lines[-1]
    place = f"{len(lines):,} slices: {first.place} .. {last.place}"
    sums = (total(getattr(line, name) for line in lines) for name in ("rows", "files", "seconds"))
    return _PlanLine(first.status, first.table, place, first.why, *sums)


def _sum(steps: Sequence[PlannedStep]) -> str:
    counts = {name: sum(len(step.keys) for step in steps if step.status == name) for name in _WORDS}
    by_status = ", ".join(f"{count} {_WORDS[name]}" for name, count in counts.items() if count)
    places = [place for step in steps if step.forecast is not None for place in step.forecast.places]
    total = sum(counts.values())
    if not places:
        return f"{total} tables: {by_status}"
    unknown = sum(place.seconds is None for place in places)
    if unknown == len(places):
        return f"{total} tables: {by_status}; how long it takes is not known: none of them was ever computed"
    sure, most = (sum(p.seconds or 0 for p in places if p.certain or also) for also in (False, True))
    time = f"{sure:,.0f} s" if round(sure) == round(most) else f"{sure:,.0f} s, at most {most:,.0f} s"
    beside = f" beside {unknown} that were never computed" if unknown else ""
    return f"{total} tables: {by_status}; about {time} of steps{beside}, and the engine's start"


def _facts(step: PlannedStep) -> dict[str, Any]:
    """A step as JSON."""
    forecast = step.forecast
    places = [] if forecast is None else [vars(place) for place in forecast.places]
    detail = "" if forecast is None else forecast.problem or forecast.frozen or forecast.stays
    return {
        "table": step.tables[0],
        "tables": list(step.tables),
        "partition": step.partition,
        "status": step.status,
        "detail": detail,
        "places": places,
        "unchanged": 0 if forecast is None else forecast.kept,
    }

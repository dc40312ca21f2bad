"""`headrace run`: materialize assets in one process with one Spark session, and print one line for each table.

The run is an ordinary one of the Dagster instance: the UI shows it, with its checks and metadata. If a table fails,
only tables depending on it are left, and named in the end.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, replace
from types import FunctionType
from typing import TYPE_CHECKING, Any

import click

from dagster_project.cli.output import say
from dagster_project.cli.run.execution import execute, require_done
from dagster_project.cli.run.plan import show_plan
from dagster_project.cli.run.step_lines import StepLine, print_left, print_line
from dagster_project.declared_kinds import declared_among
from dagster_project.exceptions import CommandError
from dagster_project.inspect.lake.run_history import BY, SELECTION, changes
from dagster_project.project.loading import lake_catalogue
from headrace.tables.quarantine import SUFFIX, is_quarantine
from spark_jobs.features import brought
from spark_jobs.lake.engine.choice import AUTO, ENGINE, SAIL, chosen
from spark_jobs.lake.engine.embedded import replace_process
from spark_jobs.lake.ledger.attempts import unmanaged
from spark_jobs.lake.ledger.process import user_name
from spark_jobs.lake.plan.foreseen import another_way
from spark_jobs.lake.run.rollout import TrialConfig
from spark_jobs.plugins import load

if TYPE_CHECKING:
    import dagster as dg
    from pyiceberg.catalog import Catalog

    from dagster_project.unchanged_run import Reads

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
@click.option(
    "--watch", "watched", is_flag=True, help="run again when declarations or sources change, in one warm process"
)
@click.option("--last", is_flag=True, help="run nothing; say what the last run did and changed")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object for each table as it comes, nothing else")
@click.pass_obj
def run(
    reads: Reads | None,
    /,
    last: bool,
    watched: bool,
    follow: bool,
    once: bool,
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Bring tables up to date: all of them, or those of SELECTION.

    SELECTION is a dataset, corpus or experiment, a table (main.tokens), or Dagster's own syntax (key:"main/tokens"+).
    With --watch it runs again whenever declarations, code of the project or sources change, until Ctrl-C: without the
    seconds in which a process loads everything. With --rollout each step of documents is computed for some of the
    shards and compared with what is published, before all of it is computed; where a column's mean moved too far, the
    step fails and its table stays as it was.

    If a table fails, only tables that depend on it are left. The same command again computes what is missing. The exit
    status is 0 when all is done, 2 for a mistake of yours, 3 for rows that a check refused, 4 for a step that failed.
    """
    words = options.pop("selection") + options.pop("also")
    rest = options["partition"] or options["rollout"] or dry_run or watched
    if last:
        if words or rest or follow or once:
            raise CommandError("run: --last takes --json and nothing else")
        from dagster_project.cli.run.runs import print_last

        print_last(as_json)
    elif follow or once:
        if not follow or len(words) != 1 or rest or as_json:
            raise CommandError("run: --follow takes the name of one dataset, and --once, and nothing else")
        from dagster_project.cli.run.follow import follow_dataset

        follow_dataset(words[0], once)
    elif watched:
        if options["partition"] or options["rollout"] or dry_run:
            raise CommandError("run: --watch takes a SELECTION and --json, and nothing else")
        from dagster_project.cli.run.watch import watch

        watch(lambda definitions: _run(words, as_json, definitions=definitions, **options), words)
    elif dry_run:
        from dagster_project.cli.run.plan import planned

        show_plan([step for run in planned(words, options["partition"]) for step in run.steps], as_json)
    else:
        _run(words, as_json, reads=reads, **options)


def _run(
    words: tuple[str, ...],
    as_json: bool,
    partition: str | None,
    rollout: str | None,
    max_drift: float,
    definitions: dg.Definitions | None = None,
    reads: Reads | None = None,
) -> None:
    """Run a selection, and print a line for each table and what changed."""
    tags = {BY: user_name(), **({SELECTION: " ".join(words)} if words else {})}
    tags |= {} if rollout is None else TrialConfig.parse(rollout, max_drift).tags
    foretold: list[str] = []

    def tell(text: str) -> None:
        foretold.append(text)
        say(text)

    def show(line: StepLine) -> None:
        if line.status == "unchanged":
            return  # one line in the end says how many are
        is_foretold = line.status == "failed" and any(line.detail in text for text in foretold)
        print_line(replace(line, detail="as said above") if is_foretold else line)

    run_ids: list[str] = []
    if as_json:
        lines = execute(
            words, partition, lambda line: say(_as_json(line)), lambda text: None, tags, run_ids, definitions, reads
        )
        if reads is not None and reads.idle is not None:
            reads.write([_as_json(line) for line in reads.idle.lines])
    else:
        lines = execute(words, partition, show, tell, tags, run_ids, definitions, reads)
        waits = _tell_the_end(lines, run_ids)
        declared = list(declared_among(words))
        for kind, name in declared if all(line.status != "failed" for line in lines) else ():
            say(kind.outcome(name))
        idle = None if reads is None or declared else reads.idle
        if reads and idle and all(line.status == "unchanged" for line in idle.lines):  # others have lines of their own
            reads.write([*idle.foretold, _unchanged(idle.lines), *waits, _counts(idle.lines)])
    for name in brought("run_ends") if run_ids else ():  # features tell others of what ran
        load("run_ends", name, FunctionType)(run_ids)
    again = ["run", *words, *(["--partition", partition] if partition else [])]
    again += ["--rollout", rollout, "--max-drift", str(max_drift)] if rollout else []
    again += ["--watch"] if definitions is not None else []
    if reason := _other_way([line.table for line in lines if line.status == "failed"]):
        say(f"{reason}: the run goes on in another process", err=True)
        replace_process([sys.executable, "-m", "dagster_project.cli", *again, *(["--json"] if as_json else [])])
    require_done(lines, shlex.join(["headrace", *again]))


def _other_way(failed: Collection[str]) -> str:
    """The failed tables perhaps manageable by another engine, or by Sail with more care; empty where there is none.

    A setting of the engine, and a step in need of Spark, leave Sail with more care alone.
    """
    failures = unmanaged(lake_catalogue(), failed) if failed else None
    now = chosen()
    if failures is None or not failures.failed:
        return ""
    by_setting = os.environ.get(ENGINE, AUTO) != AUTO or now.joined is None
    there_is = now.way == SAIL if by_setting else another_way(failures)
    return str(failures) if there_is else ""


def _as_json(line: StepLine) -> str:
    return json.dumps(asdict(line))


def _tell_the_end(lines: Sequence[StepLine], run_ids: Collection[str]) -> list[str]:
    """Print what follows the lines of a run: notices, tables left, due decisions, changes, and counts.

    Returns:
        The lines from `_what_waits`.
    """
    for line in (line for line in lines if line.notice and line.status == "computed"):
        say(f"{line.table}: {line.notice}")
    print_left(lines)
    if any(line.status == "unchanged" for line in lines):
        say(_unchanged(lines))
    catalogue, waits = lake_catalogue(), list[str]()
    if all(line.status != "failed" for line in lines):
        waits = list(_what_waits(catalogue, {line.table.partition(".")[0] for line in lines}))
    for text in (*waits, *changes(catalogue, run_ids), _counts(lines)):
        say(text)
    return waits


def _unchanged(lines: Sequence[StepLine]) -> str:
    idle = Counter(line.table.partition(".")[0] for line in lines if line.status == "unchanged")
    return f"unchanged tables: {', '.join(f'{name} {count}' for name, count in idle.items())}"


def _counts(lines: Sequence[StepLine]) -> str:
    counts = {status: sum(line.status == status for line in lines) for status in _COUNTED}
    parts = [f"{counts[status]} {text}" for status, text in _COUNTED.items() if counts[status] or status in _ALWAYS]
    return f"{len(lines)} tables: {', '.join(parts)}. Look: headrace ui"


def _what_waits(catalogue: Catalog, namespaces: Collection[str]) -> Iterator[str]:
    """Warnings about datasets and corpora of a run, and increments waiting in quarantine for a decision."""
    from dagster_project.inspect.lake.control_names import named_in_texts
    from dagster_project.inspect.lake.empty_datasets import empty_datasets
    from dagster_project.inspect.lake.run_notices import few_kept, left_and_returned, much_removed
    from dagster_project.inspect.lake.unread_code import unread_code
    from spark_jobs.lake.ledger.ledger import Ledger
    from spark_jobs.lake.plan.decisions import increments_of

    quarantines = [name for name in sorted(namespaces) if is_quarantine(name)]
    ledger = Ledger.fresh(catalogue)
    for notices in (empty_datasets, unread_code, few_kept, much_removed, named_in_texts, left_and_returned):
        yield from notices(ledger, namespaces)
    for name in (quarantine.removesuffix(SUFFIX) for quarantine in quarantines):
        for increment in (increment for increment in increments_of(ledger, name) if increment.state == "waits"):
            yield (
                f"{name}: {increment.documents:,} documents of increment {increment.increment} wait for a decision: "
                f"headrace quarantine show {name} --increment {increment.increment}"
            )

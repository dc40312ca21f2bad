"""`headrace runs`: what ran, and what training runs were trained on."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dagster_project.cli.output import JSON, print_json, print_rows, print_table, say
from dagster_project.cli.run.status import instance_with_runs
from dagster_project.exceptions import CommandError
from dagster_project.project.loading import lake_catalogue
from spark_jobs.plugins import load

if TYPE_CHECKING:
    from dagster_project.inspect.lake.run_history import PastRun

_SHOWN_FAILURES = 3


@click.command()
@click.argument("run", default="")
@click.option("--training", is_flag=True, help="show what training runs read of blends: all, or RUN by its name")
@click.option("--beside", default="", metavar="RUN", help="with --training RUN: whether this run read the same rows")
@click.option(
    "--losses",
    "log",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="with --training RUN: import its losses from this file, lines of JSON with `loss` and `offset` or `step`",
)
@click.option("--worst", metavar="RUN", help="show the documents that a training run lost most on")
@click.option("--at", "step", type=click.IntRange(min=0), help="with --worst: the segments of this step, by loss")
@click.option("--limit", default=10, show_default=True, type=click.IntRange(min=1), help="most runs or documents shown")
@JSON
def runs(
    run: str, training: bool, beside: str, log: Path | None, worst: str | None, step: int | None, limit: int,
    as_json: bool,
) -> None:  # fmt: skip
    """Show what ran in this lake, the newest first: when, by whom, which tables were computed, and what failed.

    With --training a line is one read of a blend: rows from `first row` up to `sent` were sent, those below `consumed`
    reached the training loop, the others waited in buffers. A run that went back to a checkpoint read some rows twice.
    """
    if log is not None:
        if not (training and run):
            raise CommandError("runs --losses: name the run that they are of: --training RUN")
        _take_losses(run, log)
        return
    if beside:
        if not (training and run):
            raise CommandError("runs --beside: name the run to compare: --training RUN")
        _print_comparison(run, beside, as_json)
        return
    if worst is not None:
        view: Any = load("parts", "worst", object)
        print_rows(view(lake_catalogue(), worst, step, limit, not as_json), as_json, "no document")
        return
    if training:
        _print_training(run, as_json)
        return
    if run:
        raise CommandError(f"runs {run}: only training runs have names; give --training, or no name")
    rows: list[dict[str, Any]] = [
        {
            "began": f"{past.began.astimezone(UTC):%Y-%m-%d %H:%M}",
            "what": past.what,
            "by": past.by or "-",
            "state": past.status,
            "computed": len({row["table"] for row in past.computed}),
            "failed": ", ".join(past.failed[:_SHOWN_FAILURES]) or "-",
            "seconds": round(past.seconds, 1),
            "run": past.run_id,
        }
        for past in _past(limit)
    ]
    shown = rows if as_json else [{**row, "run": row["run"][-8:]} for row in rows]
    print_rows(shown, as_json, "Nothing ran yet. Fill the lake: headrace run")
    if rows and not as_json:
        say("What the last one changed: headrace run --last")


def print_last(as_json: bool) -> None:
    """Print what the last run computed, what failed, and what changed."""
    from dagster_project.inspect.lake.run_history import changes

    newest = _past(1)
    if not newest:
        say("[]" if as_json else "Nothing ran yet. Fill the lake: headrace run")
        return
    (last,) = newest
    lines = changes(lake_catalogue(), [last.run_id])
    if as_json:
        return print_json({**asdict(last), "changes": lines})
    who = f" by {last.by}" if last.by else ""
    ago = (datetime.now(UTC) - last.began.astimezone(UTC)).total_seconds() / 60
    say(f"{last.what}{who}, {ago:,.0f} minutes ago, {last.seconds:,.1f} s: {last.status}, run {last.run_id}")
    if last.computed:
        columns = ("table", "place", "row_count", "seconds")
        print_table([{name: row[name] for name in columns} for row in last.computed])
    else:
        say("no table was computed")
    for line in (*lines, *(f"{table} failed" for table in last.failed)):
        say(line)


def _past(limit: int) -> list[PastRun]:
    from dagster_project.inspect.lake.run_history import past_runs

    with instance_with_runs() as instance:
        return past_runs(lake_catalogue(), instance, limit)


def _take_losses(run: str, log: Path) -> None:
    from dagster_project.inspect.lake.training_runs import take_losses

    count, new, left_out = take_losses(lake_catalogue(), run, log)
    without = f"; {left_out:,} lines without a finite loss were left out" if left_out else ""
    say(f"{run}: {count:,} losses in {log}, {new:,} of them new{without}. Look: headrace explore")


def _print_comparison(run: str, beside: str, as_json: bool) -> None:
    """Print whether two training runs read the same rows."""
    from dagster_project.inspect.lake.run_comparison import compare
    from dagster_project.inspect.lake.training_runs import open_register

    compared = compare(open_register(lake_catalogue()), run, beside)
    if as_json:
        return print_json([asdict(of_blend) for of_blend in compared])
    for of_blend in compared:
        where = f", blend {(of_blend.blends[0] or of_blend.blends[1])[:12]}" if len(compared) > 1 else ""
        say(f"{run} and {beside}{where}: {of_blend.equal_rows:,} rows are the same")
        for first, end in of_blend.differing[:_SHOWN_FAILURES]:
            say(f"rows {first:,} to {end:,} differ")
        if len(of_blend.differing) > _SHOWN_FAILURES:
            say(f"and {len(of_blend.differing) - _SHOWN_FAILURES:,} stretches more")
        for first, end, reason in of_blend.left_out[:_SHOWN_FAILURES]:
            say(f"rows {first:,} to {end:,} are not compared: {reason}")
        if len(of_blend.left_out) > _SHOWN_FAILURES:
            say(f"nor are {len(of_blend.left_out) - _SHOWN_FAILURES:,} stretches more")


def _print_training(run: str, as_json: bool) -> None:
    """Print the reads of one training run by its name, or of all that have a name."""
    from blender_service.blend.store import open_store
    from blender_service.catalogue import open_catalogue as open_served
    from blender_service.server.run_register import RunRegister

    register = RunRegister(open_store(open_served()).objects)
    reads = [read for name in ([run] if run else register.names()) for read in register.reads(name)]
    rows: list[dict[str, Any]] = [
        {
            "run": read.run,
            "began": read.began,
            "blend": read.blend_id[:12],
            "first row": read.first,
            "sent": read.end,
            "consumed": "-" if read.consumed is None else read.consumed,
            "ranks": read.world_size,
            "ended": read.status or "-",
            "principal": read.principal,
            "code": read.code_version or "-",
            "notes": read.notes or "-",
        }
        for read in reads
    ]
    shown = [read._asdict() for read in reads] if as_json else rows
    print_rows(shown, as_json, "no run has named itself yet: give the client a run name (docs/feed/operation.md)")

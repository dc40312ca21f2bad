"""`headrace experiment plan|run|compare|list` and `headrace mix fit`: which composition makes the better model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dagster_project.cli.declared import EXPERIMENT, declarations
from dagster_project.cli.output import print_table
from dagster_project.exceptions import CommandError
from spark_jobs.exceptions import nearest
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.lake.session.settings import load_settings

if TYPE_CHECKING:
    from dagster_project.experiments.declaration import ExperimentDeclaration
    from dagster_project.experiments.experiment import Experiment
    from dagster_project.experiments.report import Report


@click.group()
def experiment() -> None:
    """Find out which composition of the data makes the better model, and how sure that is."""


@click.group()
def mix() -> None:
    """Find a mix of sources by small runs."""


@experiment.command("plan")
@click.argument("name")
def plan(name: str) -> None:
    """Check the variants of NAME, and say what they consist of and which runs are to be done; nothing is trained."""
    opened = _opened(name)
    opened.check()
    for variant, line in opened.facts().items():
        click.echo(f"{variant}: {line}")
    missing, total = opened.missing(), list(opened.runs())
    tokens = sum(run.tokens for run in missing)
    click.echo(f"{len(missing)} of {len(total)} runs are to be done, {tokens:,} tokens in all")


@experiment.command("run")
@click.argument("name")
def run(name: str) -> None:
    """Train and measure the variants of NAME, as far as that was not done, and compare them."""
    _execute(name)
    _compare(name)


@experiment.command("compare")
@click.argument("name")
def compare(name: str) -> None:
    """Say what came out of NAME so far: verdicts, how sure they are, what differs between the data."""
    _compare(name)


@experiment.command("list")
def list_() -> None:
    """List all runs of the lake's experiments: what each was trained on, and how it did."""
    from spark_jobs.lake.run.evaluations import known_rows

    rows = known_rows(open_catalogue(load_settings()))
    if not rows:
        click.echo("No experiment was run yet. Declare one: docs/experiments.md")
        return
    print_table(
        [
            {
                "experiment": row["experiment"],
                "variant": row["variant"],
                "seed": row["seed"],
                "rate": f"{row['learning_rate']:g}",
                "tokens": row["tokens"],
                "blend": row["blend"][:12],
                "scores": ", ".join(f"{one['set']} {one['value']:.4f}" for one in row["scores"]),
                "when": f"{row['recorded_at']:%Y-%m-%d %H:%M}",
            }
            for row in rows
        ]
    )


@mix.command("fit")
@click.argument("name")
def fit(name: str) -> None:
    """Train small models on mixes of the sources of NAME, fit a law of the loss, and propose a mix as a blend."""
    declared = _declared(name)
    if declared.mixes is None:
        raise CommandError(f"mix {name}: it declares variants; run it by `headrace experiment run {name}`")
    _execute(name)


def _execute(name: str) -> None:
    """Run the assets of an experiment."""
    from dagster_project.cli.execution import execute, require_done
    from dagster_project.cli.step_lines import print_left, print_line

    _declared(name)
    lines = execute((name,), None, print_line)
    print_left(lines)
    require_done(lines, f"headrace experiment run {name}")


def _compare(name: str) -> None:
    click.echo(declared_report(name).text())


def declared_report(name: str) -> Report:
    """The results of an experiment that the project declares.

    Raises:
        CommandError: none is declared so, or none of its runs was done.
    """
    from dagster_project.experiments.report import report_of

    return report_of(_opened(name))


def _opened(name: str) -> Experiment:
    """An experiment on the lake."""
    from dagster_project.experiments.experiment import Experiment

    settings = load_settings()
    return Experiment(_declared(name), open_catalogue(settings), settings)


def _declared(name: str) -> ExperimentDeclaration:
    """The declaration of an experiment.

    Raises:
        CommandError: none is declared so.
    """
    from dagster_project.experiments.declaration import declare_experiment

    found = {str(attributes["name"]): (file, attributes) for file, attributes in declarations(EXPERIMENT)}
    if name not in found:
        raise CommandError(f"experiment {name} is not declared{nearest(name, found)}; see docs/experiments.md")
    file, attributes = found[name]
    return declare_experiment({key: value for key, value in attributes.items() if key != "owners"}, file.parent)

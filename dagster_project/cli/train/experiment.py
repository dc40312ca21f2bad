"""`headrace experiment show`: which composition makes the better model. `plan` and `run` take experiments by name."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import click

from dagster_project.cli.declared import EXPERIMENT, declaration, declarations
from dagster_project.cli.output import print_table
from dagster_project.cli.project import lake_catalogue
from spark_jobs.lake.session.settings import load_settings

if TYPE_CHECKING:
    from dagster_project.experiments.declaration import ExperimentDeclaration
    from dagster_project.experiments.experiment import Experiment
    from dagster_project.experiments.report import Report


@click.group()
def experiment() -> None:
    """Find out which composition of the data makes the better model, and how sure that is."""


@experiment.command("show")
@click.argument("name", required=False)
def show(name: str | None) -> None:
    """List all runs of the lake's experiments; of NAME show verdicts so far, how sure they are, how the data differ.

    What NAME consists of, and which runs are to be done: headrace plan NAME. To train them: headrace run NAME.
    """
    if name is None:
        _list_runs()
    else:
        click.echo(declared_report(name).text())


def _list_runs() -> None:
    """Print all runs: what each was trained on, and how it did."""
    from dagster_project.experiments.records import known_rows

    rows = known_rows(lake_catalogue())
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


def experiments_among(names: Collection[str]) -> list[str]:
    """Experiments with variants among some names; of a mix, the variants are only known when it runs."""
    return [one["name"] for _, one in declarations(EXPERIMENT) if one["name"] in names and one.get("mixes") is None]


def print_variants(name: str) -> None:
    """Print what the variants of an experiment consist of, and how many of its runs are to be done.

    Raises:
        CommandError: variants differ in what has to be equal, or a table of them is not there.
    """
    opened = _opened(name)
    opened.check()
    for variant, line in opened.facts().items():
        click.echo(f"{variant}: {line}")
    missing, total = opened.missing(), list(opened.runs())
    tokens = sum(run.tokens for run in missing)
    click.echo(f"{name}: {len(missing)} of {len(total)} runs are to be done, {tokens:,} tokens in all")


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

    return Experiment(_declared(name), lake_catalogue(), load_settings())


def _declared(name: str) -> ExperimentDeclaration:
    """The declaration of an experiment.

    Raises:
        CommandError: none is declared so.
    """
    from dagster_project.experiments.declaration import declare_experiment

    file, attributes = declaration(EXPERIMENT, name)
    return declare_experiment({key: value for key, value in attributes.items() if key != "owners"}, file.parent)

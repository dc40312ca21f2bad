"""`headrace experiment show`: which composition makes the better model."""

from __future__ import annotations

import click

from dagster_project.cli.output import print_table, say
from dagster_project.project.loading import lake_catalogue
from headrace_features.experiments.declared import declared_report


@click.group(short_help="Show which data makes better models, and how sure that is.")
def experiment() -> None:
    """Find out which composition of the data makes the better model, and how sure that is."""


@experiment.command("show", epilog="\b\nExample: headrace experiment show filtering")
@click.argument("name", required=False)
def show(name: str | None) -> None:
    """List all runs of the lake's experiments; of NAME show verdicts so far, how sure they are, how the data differ.

    Of mixes it shows the proposed one, and what else could be had.

    What NAME consists of, and which runs are to be done: headrace plan NAME. To train them: headrace run NAME.
    """
    if name is None:
        _list_runs()
    else:
        say(declared_report(name).text())


def _list_runs() -> None:
    """Print all runs: what each was trained on, and how it did."""
    from spark_jobs.lake.run.evaluations import known_rows

    rows = known_rows(lake_catalogue())
    if not rows:
        say("No experiment was run yet. Declare one: docs/feed/experiments.md")
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
                "scores": ", ".join(f"{score['set']} {score['value']:.4f}" for score in row["scores"]),
                "when": f"{row['recorded_at']:%Y-%m-%d %H:%M}",
            }
            for row in rows
        ]
    )

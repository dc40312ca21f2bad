"""`headrace model train`: a model that finds names and the like, for datasets that redact."""

from __future__ import annotations

from pathlib import Path

import click

from dagster_project.cli.output import print_table
from dagster_project.cli.project import lake_catalogue


@click.command()
@click.argument("name")
@click.option(
    "--from",
    "file",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Parquet or JSONL: content, and spans with start, end (bytes) and kind",
)
@click.option(
    "--list", "lists", multiple=True, metavar="NAME=FILE", help="words that are a hint, such as cities, one a line"
)
@click.option("--seed", default=7, show_default=True, help="of the order in which texts are learnt")
@click.option("--version", default="1", show_default=True, help="a name and version always mean the same model")
def train(name: str, file: Path, lists: tuple[str, ...], seed: int, version: str) -> None:
    """Train a tagger, which finds names and the like: learn the kinds labelled in a file, and enter it as NAME.

    It learns from four fifths of the texts, and is measured on the fifth that it was not shown.
    """
    from spark_jobs.filters.personal_data.registered_tagger import read_labelled, read_list, train_measured
    from spark_jobs.lake.run.registry import record

    table = read_labelled(file)
    model, measured = train_measured(table, seed, dict(map(read_list, lists)))
    entry = record(lake_catalogue(), "tagger", name, version, model)
    click.echo(
        f"{entry.label}: {len(model) / 1000:,.0f} kB of {len(table):,} texts. On the fifth that it was not shown:"
    )
    print_table(
        [
            {
                "kind": kind,
                "labelled": one.labelled,
                "precision": f"{one.right / one.found:.3f}" if one.found else "",
                "recall": f"{one.right / one.labelled:.3f}" if one.labelled else "",
            }
            for kind, one in measured.items()
        ]
    )
    redact = f"redact: {{{next(iter(measured))}: replace}}"
    click.echo(f"Next, in a dataset: `scorers: {{personal_data: {{tagger: {entry.label}}}}}` and `{redact}`")

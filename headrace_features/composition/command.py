"""`headrace corpus cells`: what each cell of a corpus holds."""

from __future__ import annotations

import click

from dagster_project.cli.completion import complete_names
from dagster_project.cli.output import JSON, print_rows
from dagster_project.project.loading import lake_catalogue


@click.command("cells", epilog="\b\nExample: headrace corpus cells main")
@click.argument("name", shell_complete=complete_names)
@JSON
def corpus_cells(name: str, as_json: bool) -> None:
    """List the cells of a corpus: documents, bytes, tokens, windows where packed, means of measures."""
    from headrace_features.composition.listed import listed_cells

    print_rows(listed_cells(lake_catalogue(), name), as_json, f"{name} has no cells yet; run its asset cell_statistics")

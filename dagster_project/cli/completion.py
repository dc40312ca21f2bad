"""Names of datasets and corpora, for the tab key."""

from __future__ import annotations

import click

from dagster_project.exceptions import CommandError
from dagster_project.project.declared import CORPUS, DATASET, declarations


def complete_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of datasets and corpora for the tab key; none where a declaration cannot be read."""
    try:
        names = [str(declared["name"]) for kind in (DATASET, CORPUS) for _, declared in declarations(kind)]
    except CommandError:
        return []
    return sorted(name for name in names if name.startswith(incomplete))

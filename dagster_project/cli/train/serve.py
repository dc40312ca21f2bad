"""The command `headrace serve`: Blender's own, and the service that takes rollouts."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Final

import click

from blender_service.__main__ import serve as blender_serve
from blender_service.__main__ import serve_with

LEAST_REQUEST_BYTES: Final = 16 << 20  # limit of a request with rollouts: a million tokens with their columns


@click.command(
    help=blender_serve.help,
    context_settings=blender_serve.context_settings,
    params=[
        *blender_serve.params,
        click.Option(
            ["--rollouts"],
            type=click.Path(path_type=Path),
            help="TOML file of the tables that take rollouts (docs/feed/rollouts.md); requests may then have 16 MiB",
        ),
    ],
)
def serve(rollouts: Path | None, **given: Any) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    if rollouts is None:
        serve_with(None, **given)
        return
    from dagster_project.rollouts.service import add_rollouts
    from dagster_project.rollouts.settings import read_settings

    read_settings(rollouts)  # fails on a mistake before anything starts
    given["max_request_bytes"] = max(given["max_request_bytes"], LEAST_REQUEST_BYTES)
    serve_with(functools.partial(add_rollouts, rollouts), **given)

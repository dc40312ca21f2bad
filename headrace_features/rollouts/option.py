"""`headrace serve --rollouts FILE`: the option that adds the service of rollouts to Blender's."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Final

import click

from blender_service.server.server import AddService
from dagster_project.services import Service


def _add(path: Path) -> AddService:
    """Open and add the service of a file's tables; a mistake in the file fails before anything starts."""
    from headrace_features.rollouts.service import add_rollouts
    from headrace_features.rollouts.settings import read_settings

    read_settings(path)
    return functools.partial(add_rollouts, path)


ROLLOUTS: Final = Service(
    click.Option(
        ["--rollouts"],
        type=click.Path(path_type=Path),
        help="TOML file of the tables that take rollouts (docs/feed/rollouts.md); requests may then have 16 MiB",
    ),
    _add,
    least_request_bytes=16 << 20,  # a million tokens with their columns
)

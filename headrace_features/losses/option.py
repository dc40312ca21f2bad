"""`headrace serve --no-losses`: the option that leaves out the service taking losses of training."""

from __future__ import annotations

from typing import Final

import click

from blender_service.server.server import AddService
from dagster_project.services import Service


def _add(wanted: bool) -> AddService:
    """Give what adds the service; without a call of it nothing is opened or made."""
    assert wanted  # a service that is left out is not asked for
    from headrace_features.losses.service import add_losses

    return add_losses


LOSSES: Final = Service(
    click.Option(
        ["--losses/--no-losses"],
        default=True,
        help="take losses of training runs by document, into NAMESPACE.losses beside what they read",
    ),
    _add,
)

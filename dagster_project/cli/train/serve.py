"""The command `headrace serve`: Blender's own, and a service for each option of a feature or package."""

from __future__ import annotations

from typing import Any, Final

import click

from blender_service.__main__ import serve as blender_serve
from blender_service.__main__ import serve_with
from blender_service.server.server import AddService
from dagster_project.services import Service
from spark_jobs.features import missing
from spark_jobs.plugins import added, load

_SERVICES: Final = [load("services", name, Service) for name in added("services")]


class _Serve(click.Command):
    """A command to name the feature of a missing option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if feature := missing("services").get(error.option_name.removeprefix("--")):
                line = f"{error.option_name} is of the feature {feature}, which is not installed here"
                raise click.UsageError(line, ctx) from error
            raise


@click.command(
    cls=_Serve,
    help=blender_serve.help,
    context_settings=blender_serve.context_settings,
    params=[*blender_serve.params, *(service.option for service in _SERVICES)],
)
def serve(**values: Any) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    added: list[AddService] = []
    for service in _SERVICES:
        if (value := values.pop(str(service.option.name))) not in (None, False):
            added.append(service.add(value))
            values["max_request_bytes"] = max(values["max_request_bytes"], service.least_request_bytes)
    serve_with(added, **values)

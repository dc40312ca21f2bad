"""Serve the lake of this directory until SIGTERM: the command `headrace serve`, and `python -m blender_service`."""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click
from pydantic import ValidationError

from blender_service.exceptions import BlenderError, ServerStartError
from blender_service.server.processes import serve_processes, set_up_logging
from blender_service.server.server import DEFAULT_PORT, AddService, end_process
from blender_service.server.server import serve as serve_one
from blender_service.server.settings import OperationConfig
from blender_service.tables.block_cache import default_cache_bytes
from headrace.process.interrupts import heed_interrupts

_TYPES: Final = {Path: click.Path(path_type=Path), int: click.INT, float: click.FLOAT, str: click.STRING}


def _operation_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for every setting of operation."""
    for name, field in reversed(OperationConfig.model_fields.items()):
        kinds = (field.annotation, *typing.get_args(field.annotation))
        flag = f"--{name.replace('_', '-')}"
        command = click.option(
            flag,
            type=next(option_type for kind, option_type in _TYPES.items() if kind in kinds),
            default=field.default,
            show_default=field.default not in (None, ""),
            help=field.description,
        )(command)
    return command


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="address to listen on, or unix:PATH; this one is loopback only",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="0 takes any free port"
)
@click.option(
    "--cache-memory",
    "cache_bytes",
    type=click.IntRange(1),
    default=default_cache_bytes,
    show_default="a third of the memory that is free, 1 GiB at most",
    help="most bytes of memory for decoded blocks, of all processes together",
)
@click.option(
    "--processes", type=click.IntRange(1, 256), default=1, show_default=True, help="servers at one port, one per core"
)
@_operation_options
def serve(host: str, port: int, cache_bytes: int, processes: int, **given: Any) -> None:
    """Stream blends of packed tables to training jobs over gRPC, until Ctrl-C or SIGTERM.

    Tokens may also come in the variable HEADRACE_TOKENS. More: docs/feed/operation.md
    """
    serve_with((), host, port, cache_bytes, processes, **given)


def serve_with(
    add_services: Sequence[AddService], host: str, port: int, cache_bytes: int, processes: int, **given: Any
) -> None:
    """Do what the command does, with further services."""
    set_up_logging()
    operation = _operation(given)
    if processes > 1:
        serve_processes(processes, host, port, cache_bytes, operation, add_services)
    else:
        serve_one(host, port, cache_bytes, operation, add_services=add_services)
    end_process()


def _operation(options: dict[str, Any]) -> OperationConfig:
    """Check the options of operation.

    Raises:
        ServerStartError: one of them is out of its bounds.
    """
    try:
        return OperationConfig(**options)
    except ValidationError as error:
        first = error.errors()[0]
        flag = f"--{str(first['loc'][0]).replace('_', '-')} is {first['input']}: " if first["loc"] else ""
        raise ServerStartError(f"serve: {flag}{first['msg']}; see --help") from error


if __name__ == "__main__":
    heed_interrupts()
    try:
        serve(prog_name="python -m blender_service")
    except BlenderError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)

"""`python -m blender_service`, the same as `headrace serve`: serve the lake of this directory until SIGTERM."""

from __future__ import annotations

import argparse
import sys
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from blender_service.exceptions import BlenderError, ServerStartError
from blender_service.server.processes import serve_processes, set_up_logging
from blender_service.server.server import DEFAULT_PORT, serve
from blender_service.server.settings import OperationConfig
from blender_service.tables.block_cache import DEFAULT_CACHE_BYTES


def main(arguments: Sequence[str] | None = None, program: str = "python -m blender_service") -> int:
    """Serve; an error that a user can mend is one line and exit status 2.

    Args:
        arguments: of the command line; the process's own if None.
        program: what the help calls it.
    """
    given = vars(_parser(program).parse_args(arguments))
    host, port, cache_bytes, processes = (given.pop(name) for name in ("host", "port", "cache_bytes", "processes"))
    set_up_logging()
    try:
        operation = _operation(given)
        if processes > 1:
            serve_processes(processes, host, port, cache_bytes, operation)
        else:
            serve(host, port, cache_bytes, operation)
    except BlenderError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _parser(program: str) -> argparse.ArgumentParser:
    """Make the flags; those of operation from its settings."""
    parser = argparse.ArgumentParser(
        prog=program,
        description="Stream blends of packed tables to training jobs over gRPC, until Ctrl-C or SIGTERM.",
        epilog="Tokens may also come in the variable HEADRACE_TOKENS. More: docs/operation.md",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: loopback only)")
    parser.add_argument("--port", type=_port, default=DEFAULT_PORT, help=f"0 for any (default: {DEFAULT_PORT})")
    parser.add_argument("--cache-bytes", type=int, default=DEFAULT_CACHE_BYTES, help="bound of the block files")
    parser.add_argument("--processes", type=_count, default=1, help="servers at one port, one per core (default: 1)")
    for name, field in OperationConfig.model_fields.items():
        kind = next(
            kind for kind in (Path, int, float, str) if kind in (field.annotation, *typing.get_args(field.annotation))
        )
        default = "" if field.default is None else f" (default: {field.default})"
        text = f"{field.description}{default}".replace("%", "%%")
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=kind.__name__.upper(), help=text)
    return parser


def _operation(given: dict[str, Any]) -> OperationConfig:
    """Check the flags of operation.

    Raises:
        ServerStartError: one of them is out of its bounds.
    """
    try:
        return OperationConfig(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        flag = f"--{str(first['loc'][0]).replace('_', '-')} is {first['input']}: " if first["loc"] else ""
        raise ServerStartError(f"serve: {flag}{first['msg']}; see --help") from error


def _port(text: str) -> int:
    """Read a port."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; give 0 to 65535")
    return int(text)


def _count(text: str) -> int:
    """Read a number of processes."""
    if not text.isdecimal() or not 1 <= int(text) <= 256:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes; give 1 to 256")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())

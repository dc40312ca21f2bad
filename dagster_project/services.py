"""gRPC services that a package or feature adds to Blender's: entry points `headrace.services`.

    [project.entry-points."headrace.services"]
    mill = "mill.serving:MILL"

makes `headrace serve --mill ..` possible, where MILL is a `Service` with that option.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import click

from blender_service.server.server import AddService


class Service(NamedTuple):
    """A service, and the option of `headrace serve` that asks for it.

    Attributes:
        option: asks for the service; without a value, or with False, there is none.
        add: gives what adds the service to a server, from the option's value; refuses a mistake in it.
        least_request_bytes: lowest limit of a request that the server then has.
    """

    option: click.Option
    add: Callable[[Any], AddService]
    least_request_bytes: int = 0

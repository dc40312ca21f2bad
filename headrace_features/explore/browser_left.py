"""Whether the browser that asked for a page still waits for it, for queries that take long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from starlette.concurrency import run_in_threadpool

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

_LOOK_SECONDS: Final = 0.1
HAS_LEFT: ContextVar[Callable[[], bool]] = ContextVar("has_left", default=lambda: False)


def while_asked(handler: Callable[[Request], Response]) -> Callable[[Request], Awaitable[Response]]:
    """A handler whose queries of an index end when the browser leaves, so that no page waits for those left before."""

    async def handle(request: Request) -> Response:
        left = threading.Event()
        HAS_LEFT.set(left.is_set)

        async def watch() -> None:
            while not await request.is_disconnected():
                await asyncio.sleep(_LOOK_SECONDS)
            left.set()

        watching = asyncio.create_task(watch())
        try:
            return await run_in_threadpool(handler, request)
        finally:
            watching.cancel()

    return handle

"""The application: routes of all pages, their errors, the guard around them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Future
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.staticfiles import StaticFiles

from blender_service.exceptions import BlenderError
from dagster_project.exceptions import DagsterProjectError
from headrace_features.explore.added_pages import added_routes
from headrace_features.explore.answers import FOLDER, answer
from headrace_features.explore.guard import ExplorerGuard
from spark_jobs.exceptions import SparkJobsError

if TYPE_CHECKING:
    from headrace_features.explore.explorer import Explorer

# Modules of pages, each with PATHS, path to handler; they are imported when one of them is first asked for.
PAGES: Final = (
    "dataset documents document rules duplicates review compare windows blends training repositories find "
    "selection query similar vectors"
)


def make_app(
    explorer: Explorer | Future[Explorer], hosts: frozenset[str], holder: Callable[[str], str]
) -> ExplorerGuard:
    """Make the web application of a lake, which may still be opening; `ExplorerGuard` decides who may use it."""
    opened: Future[Any] = Future()
    if isinstance(explorer, Future):
        opened = explorer
    else:
        opened.set_result(explorer)
    routes = [Mount("/static", StaticFiles(directory=FOLDER / "static")), *_routes("lake")]
    app = Starlette(routes=routes, exception_handlers={Exception: _failed, HTTPException: _missing, **_TOLD})
    app.router.default = _other_page
    app.state.opened = opened
    return ExplorerGuard(app, hosts, holder)


async def _other_page(scope: Any, receive: Any, send: Any) -> None:
    await run_in_threadpool(scope["app"].state.opened.result)  # imports what other pages need too
    await (await run_in_threadpool(other_pages))(scope, receive, send)


@functools.cache
def other_pages() -> Router:
    """Routes of all pages but the first, which is there before what these import."""
    return Router([*(route for name in PAGES.split() for route in _routes(name)), *added_routes()])


def _routes(name: str) -> list[BaseRoute]:
    """The routes of a module of pages."""
    page = import_module(f"headrace_features.explore.pages.{name}")
    routes: list[BaseRoute] = []
    for path, handler in page.PATHS.items():
        methods = ["GET"] if path not in getattr(page, "POSTED", ()) else ["POST"]
        if path != "/" and "GET" in methods:
            routes.append(Route(f"{path}.json", handler, methods=methods))
        routes.append(Route(path, handler, methods=methods))
    return routes


def _told(request: Request, error: Exception) -> Response:
    """Answer a mistake of the reader by one line that says what is wrong."""
    return answer(request, "error.html", {"error": str(error)}, 404)


def _missing(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    return answer(request, "error.html", {"error": "there is no such page"}, status)


def _failed(request: Request, error: Exception) -> Response:
    return answer(
        request, "error.html", {"error": f"this page failed: {type(error).__name__}; the server's log says why"}, 500
    )


_TOLD: Final[dict[Any, Any]] = dict.fromkeys((DagsterProjectError, SparkJobsError, BlenderError), _told)

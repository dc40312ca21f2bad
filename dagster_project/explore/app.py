"""The application: routes of all pages, their errors, the guard around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from blender_service.exceptions import BlenderError
from dagster_project.exceptions import DagsterProjectError
from dagster_project.explore.answers import FOLDER, answer
from dagster_project.explore.explorer import Explorer
from dagster_project.explore.guard import Guard
from dagster_project.explore.pages import (
    blends,
    clusters,
    compare,
    document,
    documents,
    duplicates,
    experiments,
    find,
    lake,
    repositories,
    review,
    rules,
    training,
    windows,
)
from spark_jobs.exceptions import SparkJobsError

PAGES: Final = (  # each has PATHS, path to handler
    lake,
    documents,
    document,
    rules,
    duplicates,
    review,
    compare,
    windows,
    blends,
    training,
    experiments,
    repositories,
    clusters,
    find,
)


def make_app(explorer: Explorer, hosts: frozenset[str], holder: Callable[[str], str]) -> Guard:
    """Make the application of a lake; see `Guard` for who may open it."""
    routes: list[Route | Mount] = [Mount("/static", StaticFiles(directory=FOLDER / "static"))]
    for page in PAGES:
        for path, handler in page.PATHS.items():
            methods = ["GET"] if path not in getattr(page, "POSTED", ()) else ["POST"]
            if path != "/" and "GET" in methods:
                routes.append(Route(f"{path}.json", handler, methods=methods))
            routes.append(Route(path, handler, methods=methods))
    app = Starlette(routes=routes, exception_handlers={Exception: _failed, HTTPException: _missing, **_TOLD})
    app.state.explorer = explorer
    return Guard(app, hosts, holder)


def _told(request: Request, error: Exception) -> Response:
    """An error of the reader: what is wrong, in one line."""
    return answer(request, "error.html", {"error": str(error)}, 404)


def _missing(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    return answer(request, "error.html", {"error": "there is no such page"}, status)


def _failed(request: Request, error: Exception) -> Response:
    return answer(
        request, "error.html", {"error": f"this page failed: {type(error).__name__}; the server's log says why"}, 500
    )


_TOLD: Final[dict[Any, Any]] = dict.fromkeys((DagsterProjectError, SparkJobsError, BlenderError), _told)

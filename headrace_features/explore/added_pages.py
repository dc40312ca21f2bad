"""Pages that features and packages add (`dagster_project.pages`), as routes of the explorer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from dagster_project.exceptions import DefinitionError
from dagster_project.pages import PageAnswer, PageRequest, Pages, Picture
from headrace_features.explore.answers import add_templates, answer, explorer_of, principal_of
from spark_jobs.plugins import added, load

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


class _Request:
    """A request of Starlette's, as added pages see it; the lake stays as it was when the page began."""

    def __init__(self, request: Request) -> None:
        self._explorer = explorer_of(request)
        self.catalogue: Catalog = self._explorer.catalogue
        self.principal = principal_of(request)
        self.parts: Mapping[str, str] = request.path_params
        self.query: Mapping[str, str] = request.query_params

    def may_read(self, namespace: str) -> bool:
        return self._explorer.may_read(self.principal, namespace)

    def hides_text(self, dataset: str) -> str:
        return self._explorer.hides_text(dataset)

    def require(self, *tables: str) -> None:
        self._explorer.reads(self.principal, *tables)


def added_names() -> list[str]:
    """The names of all added pages; the first address of each is `/NAME`."""
    return list(added("pages"))


def address_of(name: str, part: str) -> str:
    """The address of one of the added pages of a name; empty where there are none."""
    return f"/{name}/{part}" if name in added_names() else ""


def added_routes() -> list[BaseRoute]:
    """The routes of all added pages.

    Raises:
        DefinitionError: an address lies outside of those of its name.
    """
    return [route for name in added_names() for route in _routes(name, load("pages", name, Pages))]


def _routes(name: str, pages: Pages) -> list[BaseRoute]:
    """The routes of the pages of a name; of one that is no picture, its values too."""
    add_templates(name, pages.templates)
    routes: list[BaseRoute] = []
    for path, handler in pages.paths.items():
        if path != f"/{name}" and not path.startswith(f"/{name}/"):
            raise DefinitionError(f"pages {name}: {path} does not begin with /{name}; give its address that beginning")
        answered = _answering(name, handler)
        routes += [Route(f"{path}.json", answered), Route(path, answered)]
    return routes


def _answering(name: str, handler: Callable[[PageRequest], PageAnswer | Picture]) -> Callable[[Request], Response]:
    """The handler of an added page, as a handler of Starlette's."""

    def handle(request: Request) -> Response:
        shown = handler(_Request(request))
        if isinstance(shown, Picture):
            return Response(shown.content, media_type=shown.media_type)
        return answer(request, f"{name}/{shown.template}", shown.values)

    return handle

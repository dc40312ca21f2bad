"""Pages that a package or feature adds to the explorer: entry points `headrace.pages`.

    [project.entry-points."headrace.pages"]
    mill = "mill.pages:MILL"

MILL is a `Pages`, whose addresses all begin with `/mill`; the page of the lake has a link to `/mill`. An address that
ends with `.json` has the values of its page. Templates are Jinja's. They may begin with `{% extends "base.html" %}` and
use what the explorer's own use: the filters `visible` (for texts of strangers), `count`, `number`, `moment`, `quoted`
and the functions `share_bar(shares, title)`, `scatter(points, title)`, `colour(number)`, the class of the colour of a
share, and `address(path, query, NAME=value)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


class PageRequest(Protocol):
    """A request for a page, and the lake as its reader may see it."""

    @property
    def catalogue(self) -> Catalog:
        """The lake as it was when the page began."""

    @property
    def principal(self) -> str:
        """Who asks."""

    @property
    def parts(self) -> Mapping[str, str]:
        """The parts of the address that its pattern names."""

    @property
    def query(self) -> Mapping[str, str]:
        """The fields of the query."""

    def may_read(self, namespace: str) -> bool:
        """Whether the reader may read a dataset or corpus."""

    def hides_text(self, dataset: str) -> str:
        """Why texts of a dataset, and words of them, are not shown; empty where they are."""

    def require(self, *tables: str) -> None:
        """Refuse tables that the reader may not read; rows that are not public leave a row of the audit.

        Raises:
            CommandError: there is none of them for this reader.
        """


class PageAnswer(NamedTuple):
    """A template and its values; values whose name begins with `_` are not in the JSON."""

    template: str
    values: Mapping[str, Any]


class Picture(NamedTuple):
    """A picture that a page shows by its address."""

    content: bytes
    media_type: str = "image/png"


@dataclass(frozen=True)
class Pages:
    """Pages of a package.

    Attributes:
        paths: what answers each address; parts in braces are in `PageRequest.parts`.
        templates: their folder.
    """

    paths: Mapping[str, Callable[[PageRequest], PageAnswer | Picture]]
    templates: Path

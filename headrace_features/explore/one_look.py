"""The catalogue of a lake as it is when a page begins: which tables there are, and where the metadata of each is.

A page asks for some tables ten times over, each time a query and a file of metadata to parse: half of what it took.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table as IcebergTable

from blender_service.recently_used import RecentlyUsed
from spark_jobs.lake.session.identity import metadata_locations

_Result = TypeVar("_Result")


class OneLook(SqlCatalog):
    """A catalogue that answers from one look at it, but for what is written through it, after which it looks anew."""

    def __init__(self, catalogue: SqlCatalog, parsed: RecentlyUsed[str, IcebergTable]) -> None:
        """Look at a catalogue.

        Args:
            catalogue: where to look, and where writes go.
            parsed: tables by the path of their metadata file, which never changes; shared by all looks.
        """
        self.name, self.properties, self.engine = catalogue.name, catalogue.properties, catalogue.engine
        self._whole, self._parsed = catalogue, parsed
        self._places = metadata_locations(catalogue)

    def load_table(self, identifier: str | tuple[str, ...]) -> IcebergTable:
        """A table as it was."""
        name = _dotted(identifier)
        if name not in self._places:
            raise NoSuchTableError(f"Table does not exist: {name}")
        table = self._parsed.get(self._places[name])
        if table is None:
            table = self._whole.load_table(identifier)
            self._places[name] = table.metadata_location
            self._parsed.put(table.metadata_location, table)
        own = copy.copy(table)  # whoever appends to a table changes the object
        own.catalog = self
        return own

    def list_namespaces(self, namespace: str | tuple[str, ...] = ()) -> list[tuple[str, ...]]:
        """Those that have tables."""
        if namespace:
            return self._whole.list_namespaces(namespace)
        return sorted({(name.partition(".")[0],) for name in self._places})

    def list_tables(self, namespace: str | tuple[str, ...]) -> list[tuple[str, ...]]:
        """The tables of a namespace, by name."""
        own = f"{_dotted(namespace)}."
        found: list[tuple[str, ...]] = [
            (own[:-1], name.removeprefix(own)) for name in self._places if name.startswith(own)
        ]
        return found or self._whole.list_tables(namespace)

    def commit_table(self, *given: Any, **named: Any) -> Any:
        """Commit to the table as it is now."""
        return self._looking_anew(self._whole.commit_table, *given, **named)

    def create_table(self, *given: Any, **named: Any) -> IcebergTable:
        """Make a table."""
        return self._looking_anew(self._whole.create_table, *given, **named)

    def _looking_anew(self, write: Callable[..., _Result], *given: Any, **named: Any) -> _Result:
        try:
            return write(*given, **named)
        finally:
            self._places = metadata_locations(self._whole)


def _dotted(identifier: str | tuple[str, ...]) -> str:
    return identifier if isinstance(identifier, str) else ".".join(identifier)

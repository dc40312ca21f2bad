"""Within a page, read once which tables a lake has and where their metadata is; parsed metadata is kept between pages.

A page asks for some tables ten times over, each time a query and a file of metadata to parse: half of what it took.
Elsewhere, as in threads that build indexes, the catalogue answers as usual.
"""

from __future__ import annotations

import copy
import functools
from contextvars import ContextVar
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table as IcebergTable

from blender_service.recently_used import RecentlyUsed
from spark_jobs.lake.session.identity import metadata_locations

_TABLES_AT_HAND: Final = 512
_LOOK: ContextVar[dict[str, str] | None] = ContextVar("look", default=None)  # by table, its metadata; empty: look anew


def begin_look() -> None:
    """Let the rest of this page see one state of the lake, but for what it writes itself."""
    _LOOK.set({})


def look_once(catalogue: Catalog) -> None:
    """Let a catalogue answer from one state after `begin_look`; one that is no SQL database stays as it is."""
    if not isinstance(catalogue, SqlCatalog) or hasattr(catalogue, "looks_once"):
        return
    load, spaces, tables = catalogue.load_table, catalogue.list_namespaces, catalogue.list_tables
    kept = RecentlyUsed[str, IcebergTable](_TABLES_AT_HAND)  # by the address of its metadata file

    def seen() -> dict[str, str]:
        look = _LOOK.get()
        if look is not None and not look:
            look.update(metadata_locations(catalogue))
        return look or {}

    def load_table(identifier: Any) -> IcebergTable:
        place = seen().get(identifier if isinstance(identifier, str) else ".".join(identifier))
        table = kept.get(place) if place is not None else None
        if table is None:
            table = load(identifier)
            kept.put(table.metadata_location, table)
        return copy.copy(table)  # whoever appends to a table changes the object

    def list_namespaces(namespace: Any = ()) -> Any:
        return sorted({(one.partition(".")[0],) for one in seen()}) if seen() and not namespace else spaces(namespace)

    def list_tables(namespace: Any) -> Any:
        name = namespace if isinstance(namespace, str) else ".".join(namespace)
        return [(name, one.partition(".")[2]) for one in seen() if one.startswith(f"{name}.")] or tables(namespace)

    def looking_anew(write: Any, *arguments: Any, **named: Any) -> Any:
        (_LOOK.get() or {}).clear()  # a commit checks the present state, not the page's
        try:
            return write(*arguments, **named)
        finally:
            (_LOOK.get() or {}).clear()

    answers: dict[str, Any] = {"load_table": load_table, "list_namespaces": list_namespaces, "list_tables": list_tables}
    writes = ("commit_table", "create_table")
    answers |= {name: functools.partial(looking_anew, getattr(catalogue, name)) for name in writes}
    for name, answer in {**answers, "looks_once": True}.items():
        setattr(catalogue, name, answer)

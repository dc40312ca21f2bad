"""Whether the catalogue and the files that are open are of one lake; `spark_jobs.lake.session.identity` says why.

What it notes is read here and never written: in the catalogue as a property of the namespace `system`, and beside the
files as an object with the same JSON. Before a tag is set or a blend deleted the lake's fencing token is raised, as
before each write (`headrace.fence`). A clone of the catalogue is served.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.io import load_file_io
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from blender_service.exceptions import CatalogueError
from headrace.fence import BehindError, raise_fence

PROPERTY: Final = "headrace.lake"
OBJECT: Final = "headrace-lake.json"
POSTGRES: Final = (
    "SELECT d.oid, c.system_identifier FROM pg_control_system() c, pg_database d WHERE d.datname = current_database()"
)


def require_one_lake(catalogue: Catalog, location: str | None = None) -> None:
    """Refuse a catalogue that was copied or moved, so that it names the files of another lake.

    Before its first write a lake notes nothing.

    Args:
        catalogue: of the lake.
        location: of what is about to be written or deleted, which must lie in the lake's warehouse.

    Raises:
        CatalogueError: one line. The catalogue is not that of the lake, or, where something is written, another
            catalogue wrote the lake since, of which this one is a clone or an older copy.
    """
    given = str(catalogue.properties.get("warehouse", ""))
    if not given or not (given.startswith("/") or ":/" in given or isinstance(catalogue, SqlCatalog)):
        return  # a name that only a REST server understands
    warehouse = _real(given)
    if location is not None and not f"{_real(location)}/".startswith(f"{warehouse}/"):
        raise CatalogueError(f"lake: {location} lies outside of the warehouse {warehouse}; see headrace doctor")
    # In this order: a first writer may note the identity meanwhile, in the catalogue first.
    found, known = _noted_in_warehouse(catalogue, warehouse), _noted_in_catalogue(catalogue)
    if known is None and found is None:
        return
    made_in = (known or {}).get("warehouse", "elsewhere")
    if known is None or _real(made_in) != warehouse:
        raise CatalogueError(
            f"lake: the catalogue is of a lake in {made_in}, {warehouse} is open; see headrace doctor, which says how "
            "to relocate it"
        )
    if known["catalogue"] != _mark(catalogue) or (found is not None and found != known):
        raise CatalogueError(
            f"lake: {warehouse} belongs to another catalogue; see headrace doctor, which says what to do"
        )
    if location is not None:
        try:
            raise_fence(catalogue, warehouse)
        except BehindError as error:
            raise CatalogueError(str(error)) from error


def _noted_in_catalogue(catalogue: Catalog) -> dict[str, str] | None:
    with contextlib.suppress(NoSuchNamespaceError):
        content = catalogue.load_namespace_properties("system").get(PROPERTY)
        return None if content is None else _parsed(content)
    return None


def _noted_in_warehouse(catalogue: Catalog, warehouse: str) -> dict[str, str] | None:
    place = f"{warehouse}/{OBJECT}"
    try:
        with load_file_io(dict(catalogue.properties), place).new_input(place).open() as stream:
            return _parsed(stream.read())
    except FileNotFoundError:
        return None


def _parsed(content: str | bytes) -> dict[str, str]:
    try:
        note: Any = json.loads(content)
        return {name: str(note[name]) for name in ("lake", "warehouse", "catalogue")}
    except (ValueError, TypeError, KeyError) as error:
        raise CatalogueError(f"lake: its identity is damaged ({error}); restore {OBJECT} and the catalogue") from error


def _mark(catalogue: Catalog) -> str:
    """What tells the catalogue from a copy of it, whatever address leads to it."""
    if not isinstance(catalogue, SqlCatalog):
        return ""
    if catalogue.engine.dialect.name == "sqlite":
        return f"sqlite:{_real(str(catalogue.engine.url.database))}"
    try:
        with catalogue.engine.connect() as connection:
            database, cluster = connection.execute(text(POSTGRES)).one()
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        return f"{catalogue.engine.dialect.name}:{catalogue.engine.url.database}"
    return f"postgresql:{cluster}:{database}"


def _real(location: str) -> str:
    """A location as it is compared: links followed, without scheme of local files."""
    if location.startswith("file:"):
        location = "/" + location.removeprefix("file:").lstrip("/")
    for scheme in ("s3a://", "s3n://"):
        location = location.replace(scheme, "s3://", 1) if location.startswith(scheme) else location
    return location.rstrip("/") if "://" in location else os.path.realpath(location)

"""Load a table named by a user."""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable

from dagster_project.exceptions import CommandError
from headrace.tables.catalogue import load_table, metadata_locations
from spark_jobs.exceptions import nearest


def require_table(catalogue: Catalog, identifier: str) -> IcebergTable:
    """The table `namespace.table`.

    Raises:
        CommandError: there is none of this name; the message has the nearest.
    """
    table = load_table(catalogue, identifier) if identifier.count(".") == 1 else None
    if table is None:
        near = nearest(identifier, metadata_locations(catalogue))
        raise CommandError(f"table {identifier} is not in the lake{near}; `headrace table show` shows those that are")
    return table

"""The catalogue of a lake behind a server of Iceberg's REST protocol."""

from __future__ import annotations

from pyiceberg.catalog.rest import RestCatalog

from headrace.tables.catalogue import LakeCatalogue


class RestLake(LakeCatalogue, RestCatalog):
    """PyIceberg's, guarded as any other."""

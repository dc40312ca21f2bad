"""Open the lake: by PyIceberg's own settings where there are any, else SQLite and local files in ./warehouse."""

from __future__ import annotations

import errno
import logging
import os
import re
from pathlib import Path
from typing import Final

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import ServiceUnavailableError
from pyiceberg.utils.config import Config
from sqlalchemy import URL, make_url
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from blender_service.exceptions import CatalogueError
from blender_service.identity import require_one_lake

CATALOGUE_NAME: Final = "lake"

logger = logging.getLogger(__name__)


def open_catalogue(warehouse: str | os.PathLike[str] | None = None) -> Catalog:
    """Open the catalogue `lake`.

    Args:
        warehouse: directory of an embedded lake; without it PyIceberg's settings (its config file, or
            `PYICEBERG_CATALOG__LAKE__*`) decide, and without those the directory `./warehouse`.

    Raises:
        CatalogueError: the settings are wrong, the directory holds no lake, or it names the files of another.
    """
    catalogue = _load(warehouse)
    try:
        require_one_lake(catalogue)
    except OSError as error:  # rows are read once the store is back; what is written is compared again
        logger.warning("lake: which lake this is cannot be read now: %s", _first_line(error))
    return catalogue


def _load(warehouse: str | os.PathLike[str] | None) -> Catalog:
    """Open it by PyIceberg's settings, where there are any and no directory is given."""
    if warehouse is None and Config().get_catalog_config(CATALOGUE_NAME):
        try:
            require_database(str((Config().get_catalog_config(CATALOGUE_NAME) or {}).get("uri", "")))
            return load_catalog(CATALOGUE_NAME)
        except (ValueError, ImportError, OSError, SQLAlchemyError) as error:
            raise CatalogueError(
                f"lake: the catalogue's settings do not work: {_first_line(error)}; mend PYICEBERG_CATALOG__LAKE__*"
            ) from error
    return _open_embedded(Path(warehouse if warehouse is not None else "warehouse").absolute())


def require_database(uri: str) -> None:
    """Refuse the address of a file of SQLite that is not there, since opening it would make an empty lake.

    Raises:
        CatalogueError: names the file.
    """
    database = make_url(uri).database if uri.startswith("sqlite:") else None
    if database and not Path(database).is_file():
        raise CatalogueError(
            f"lake: {database} does not exist; build tables first (headrace run), or mend PYICEBERG_CATALOG__LAKE__URI"
        )


def _open_embedded(warehouse: Path) -> Catalog:
    """Open SQLite and local files; a lake that was never built is an error, not an empty catalogue."""
    database = warehouse / "catalog.db"
    if not database.is_file():
        raise CatalogueError(
            f"lake: {database} does not exist; build tables first (headrace run), change to the directory that holds "
            "warehouse/, or set PYICEBERG_CATALOG__LAKE__URI"
        )
    # Spark writes to the same file; 30 s is the wait both sides use for SQLite's lock.
    uri = str(URL.create("sqlite", database=str(database), query={"timeout": "30"}))
    try:
        return load_catalog(CATALOGUE_NAME, type="sql", uri=uri, warehouse=str(warehouse))
    except SQLAlchemyError as error:
        raise CatalogueError(f"lake: {database} is no catalogue: {_first_line(error)}; restore the file") from error


# Errors that another try does not mend: a wrong path, a full disk, a bucket that is not there. PyArrow gives what the
# store says as an OSError whose text alone names the code of AWS's SDK (NO_SUCH_BUCKET) or of S3 (NoSuchBucket). A key
# that it refuses is none of them: it was rotated, and servers are being started again with the new one.
_LASTING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_LASTING_NUMBERS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
_LASTING_CODES = re.compile("NO_SUCH_BUCKET|NoSuchBucket|NotImplemented")


def warehouse_location(catalogue: Catalog) -> str:
    """Give the root of the warehouse, under which blends are kept.

    Raises:
        CatalogueError: the catalogue's settings do not say it.
    """
    location = catalogue.properties.get("warehouse")
    if not location:
        raise CatalogueError("lake: the catalogue has no warehouse setting; set PYICEBERG_CATALOG__LAKE__WAREHOUSE")
    return str(location).rstrip("/")


def is_outage(error: Exception) -> bool:
    """Say whether a catalogue or store is away or refuses its credentials for now, so that another try may succeed."""
    if isinstance(error, DBAPIError):
        return isinstance(error, OperationalError) or error.connection_invalidated
    if not isinstance(error, (OSError, ServiceUnavailableError)) or isinstance(error, _LASTING):
        return False
    return getattr(error, "errno", None) not in _LASTING_NUMBERS and not _LASTING_CODES.search(str(error))


def _first_line(error: BaseException) -> str:
    """Shorten a foreign error to its first line."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__

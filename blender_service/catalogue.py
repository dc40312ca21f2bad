"""Open the served lake, and tell what its catalogue and its store raise."""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ServiceUnavailableError
from sqlalchemy.exc import DBAPIError, OperationalError

from blender_service.exceptions import CatalogueError, PackedTableError
from headrace.tables import exceptions
from headrace.tables.catalogue import first_line, open_lake
from headrace.tables.identity import require_lake
from headrace.tables.settings import load_settings, settings_at

logger = logging.getLogger(__name__)


def open_catalogue(warehouse: str | os.PathLike[str] | None = None) -> Catalog:
    """Open the catalogue `lake`.

    Args:
        warehouse: directory of an embedded lake; without it PyIceberg's settings (its config file, or
            `PYICEBERG_CATALOG__LAKE__*`) decide, and without those the directory `warehouse`, here or of the project.

    Raises:
        CatalogueError: the settings are wrong, the directory holds no lake, or it names the files of another.
    """
    with lake_errors():
        settings = load_settings() if warehouse is None else settings_at(Path(warehouse))
        if not settings.is_there:  # opening it would make an empty lake
            raise CatalogueError(
                f"lake: {settings.database} does not exist; build tables first (headrace run), change to the directory "
                "that holds warehouse/, or set PYICEBERG_CATALOG__LAKE__URI"
            )
        catalogue = open_lake(settings)
        try:
            require_lake(catalogue)
        except OSError as error:  # rows are read once the store is back; what is written is compared again
            logger.warning("lake: which lake this is cannot be read now: %s", first_line(error))
        catalogue.is_guarded = True
        return catalogue


@contextmanager
def lake_errors() -> Iterator[None]:
    """Raise Blender's errors, known to clients, in place of those of `headrace.tables`."""
    try:
        yield
    except exceptions.CatalogueError as error:
        raise CatalogueError(str(error)) from error
    except exceptions.PackedTableError as error:
        raise PackedTableError(str(error)) from error


# Errors that another try does not mend: a wrong path, a full disk, a bucket that is not there. PyArrow gives what the
# store says as an OSError whose text alone names the code of AWS's SDK (NO_SUCH_BUCKET) or of S3 (NoSuchBucket). A key
# that it refuses is none of them: it was rotated, and servers are being started again with the new one.
_LASTING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_LASTING_NUMBERS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
_LASTING_CODES = re.compile("NO_SUCH_BUCKET|NoSuchBucket|NotImplemented")


def is_outage(error: Exception) -> bool:
    """Say whether a catalogue or store is away or refuses its credentials for now, so that another try may succeed."""
    if isinstance(error, DBAPIError):
        return isinstance(error, OperationalError) or error.connection_invalidated
    if not isinstance(error, (OSError, ServiceUnavailableError)) or isinstance(error, _LASTING):
        return False
    return getattr(error, "errno", None) not in _LASTING_NUMBERS and not _LASTING_CODES.search(str(error))

"""The catalogue through PyIceberg: open it, make tables as declared, commit several changes as one."""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    TableAlreadyExistsError,
)
from pyiceberg.table import Table as IcebergTable
from sqlalchemy import Engine, MetaData, create_engine, event
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from headrace.tables.catalogue import COMMIT_TRIES, LakeCatalogue, SqlLake, first_line, load_table, open_lake
from headrace.tables.exceptions import CatalogueError
from headrace.tables.identity import STANDS_IN, ensure_namespace, require_lake, require_own
from headrace.tables.quarantine import QUARANTINE_PROPERTY, is_quarantine
from headrace.tables.settings import CATALOGUE, LakeSettings
from spark_jobs.exceptions import InputError, LeaseError, TableMismatchError
from spark_jobs.lake.declare.tables import Table
from spark_jobs.lake.session import pyiceberg_core  # noqa: F401 - how PyIceberg reads doubles
from spark_jobs.lake.session.table_columns import column_difference, with_declared_columns

_BASE_PROPERTIES = {
    "format-version": "2",
    "commit.retry.num-retries": str(COMMIT_TRIES),
    "commit.retry.min-wait-ms": "100",
    "commit.manifest-merge.enabled": "true",  # off by default in PyIceberg
    "write.parquet.compression-codec": "zstd",
    "write.target-file-size-bytes": str(256 * 1024**2),
    "write.distribution-mode": "none",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
}
_RECONNECT_SECONDS, _RECONNECT_PAUSE_SECONDS = 60.0, 0.5
_ARROW_RETRIES = "spark_jobs.lake.session.object_store.patient_retries"
SCOPE_PROPERTY = "headrace.scope"
COMMENT_PROPERTY = "comment"


def open_catalogue(settings: LakeSettings, look_at_store: bool = True) -> LakeCatalogue:
    """Open the catalogue of a lake, making the folder of an embedded one.

    Args:
        settings: of the lake.
        look_at_store: whether a store that does not answer is refused now, rather than when a table is first read.

    Raises:
        CatalogueError: it cannot be reached, or the store of its files cannot.
        WrongLakeError: it is a copy, or was moved, and names the files of another lake.
    """
    catalogue = connect(settings, look_at_store)
    if look_at_store:
        with catalogue_errors():
            require_lake(catalogue)
    catalogue.is_guarded = True
    return catalogue


def open_to_read(settings: LakeSettings) -> LakeCatalogue:
    """Open a lake that is there; of one that is not, a catalogue without tables in memory, and nothing on disk.

    Raises:
        CatalogueError: it cannot be reached, or settings name a folder that is not there.
        WrongLakeError: it names the files of another lake.
    """
    if settings.is_there:
        return open_catalogue(settings)
    require_folder(settings)
    catalogue = SqlLake(CATALOGUE, **{**settings.properties, "uri": "sqlite://", STANDS_IN: "true"})
    # One connection for all threads: each further one would have a database of its own, without the catalogue's tables.
    catalogue.engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    catalogue.create_tables()
    catalogue.is_guarded = True
    return catalogue


def require_folder(settings: LakeSettings) -> None:
    """Refuse settings that name a file of SQLite in a folder that is not there: more likely a slip than a new lake.

    Raises:
        CatalogueError: names the file.
    """
    database = settings.database
    if not settings.embedded and database is not None and not database.parent.is_dir():
        raise CatalogueError(
            f"catalogue lake at {database}: its folder is not there; make it, or correct PYICEBERG_CATALOG__LAKE__URI"
        )


def connect(settings: LakeSettings, look_at_store: bool = True) -> LakeCatalogue:
    """Open a catalogue without comparing identities, to look at it or to relocate it; arguments as of `open_catalogue`.

    Raises:
        CatalogueError: as `open_catalogue`.
    """
    if look_at_store and settings.warehouse.startswith("s3://"):
        from spark_jobs.lake.session.object_store import require_store

        require_store(settings)
    try:
        if settings.database is not None:
            settings.database.parent.mkdir(parents=True, exist_ok=True)
            _write_ahead(settings.database)
    except OSError as error:
        raise CatalogueError(
            f"catalogue lake at {settings.database}: {first_line(error)}; check PYICEBERG_CATALOG__LAKE__URI"
        ) from error
    properties = dict(settings.properties)
    if settings.warehouse.startswith("s3://"):
        properties.setdefault("s3.retry-strategy-impl", _ARROW_RETRIES)
    catalogue = open_lake(replace(settings, properties=properties))
    # From here on a lost server may come back; at the first connection a wrong address must fail at once.
    if isinstance(catalogue, SqlLake) and catalogue.engine.dialect.name != "sqlite":
        event.listen(catalogue.engine, "do_connect", _connect_again)
    return catalogue


def _write_ahead(database: Path) -> None:
    """Have SQLite keep a write-ahead log from the start, as Spark's connections ask for.

    The first of them would switch otherwise, and that fails at once, without waiting, while another connection writes.
    """
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")


def _connect_again(dialect: Any, record: object, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Connect to the database, waiting up to a minute for its server, so that a restart of it fails no run."""
    deadline = time.monotonic() + _RECONNECT_SECONDS
    while True:
        try:
            return dialect.connect(*arguments, **options)
        except dialect.loaded_dbapi.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RECONNECT_PAUSE_SECONDS)


def require_writable(settings: LakeSettings) -> None:
    """Refuse an embedded lake that this user may not write, before any step starts.

    Raises:
        CatalogueError: names the file or folder.
    """
    paths = [Path(settings.warehouse)] if "://" not in settings.warehouse else []
    paths += [settings.database, settings.database.parent] if settings.database is not None else []
    for path in paths:
        if path.exists() and not os.access(path, os.W_OK):
            raise CatalogueError(
                f"{path}: may not be written by this user; run as its owner, change its permissions (chmod), or name "
                "another lake in PYICEBERG_CATALOG__LAKE__URI and PYICEBERG_CATALOG__LAKE__WAREHOUSE"
            )


@contextlib.contextmanager
def catalogue_errors() -> Iterator[None]:
    """Turn errors of the catalogue's database and of the store, and lost races with other writers, into one line.

    Raises:
        CatalogueError: the database is locked, full or gone; the store is gone or refuses the keys.
        LeaseError: every retry of a commit lost against a commit of another writer.
    """
    try:
        yield
    except SQLAlchemyError as error:
        raise CatalogueError(
            f"catalogue lake: {str(error).splitlines()[0]}; nothing was published, run again"
        ) from error
    except CommitFailedException as error:
        raise LeaseError(f"{str(error).splitlines()[0]}; others write this table all the time, run again") from error
    except OSError as error:
        from spark_jobs.lake.session.object_store import store_fault

        fault = store_fault(error, "of the lake")
        if fault is None:
            raise
        raise fault from error


def ensure_table(
    catalogue: Catalog, identifier: str, declared: Table, properties: Mapping[str, str], keeps_rows: bool = True
) -> IcebergTable:
    """Get a table with the declared columns, making it if it does not exist.

    Args:
        catalogue: where it is.
        identifier: its name.
        declared: its declaration.
        properties: of a new table, beside those declared.
        keeps_rows: whether an existing table keeps its rows if its columns change (`table_columns`); False where all of
            them are marked to be computed anew.

    Raises:
        TableMismatchError: it has other columns or partitions, and cannot keep its rows with those that are declared;
            the message names the first difference.
    """
    existing = load_table(catalogue, identifier)
    if existing is None:
        namespace = identifier.split(".")[0]
        ensure_namespace(catalogue, namespace)
        schema = declared.schema()
        quarantine = {QUARANTINE_PROPERTY: namespace} if is_quarantine(namespace) else {}
        described = {COMMENT_PROPERTY: declared.comment, **declared.properties}
        all_properties = {**_BASE_PROPERTIES, **described, **properties, **quarantine}
        try:
            return catalogue.create_table(
                identifier,
                schema,
                partition_spec=declared.partition_spec(schema),
                sort_order=declared.sort_order(schema),
                properties=all_properties,
            )
        except TableAlreadyExistsError:
            existing = catalogue.load_table(identifier)
    require_own(catalogue, [existing])
    if keeps_rows and (difference := column_difference(existing, declared, keeps_rows)):
        raise TableMismatchError(
            f"{identifier}: {difference}; drop the table (headrace table delete {identifier}) "
            "or go back to the former declaration"
        )
    return with_declared_columns(existing, declared, keeps_rows)


def database_of(catalogue: Catalog, what: str, tables: MetaData) -> Engine:
    """The catalogue's database, with some tables made in it.

    Args:
        catalogue: of the lake.
        what: is kept there, for the message.
        tables: the tables.

    Raises:
        InputError: the catalogue has none.
    """
    if not isinstance(catalogue, SqlCatalog):
        raise InputError(
            f"{what} are kept in the catalogue's database, and a REST catalogue has none; use one of type sql"
        )
    try:
        tables.create_all(catalogue.engine)
    except (OperationalError, ProgrammingError, IntegrityError):  # another process made them after the look
        tables.create_all(catalogue.engine)
    return catalogue.engine


@functools.cache
def spark_identifier(identifier: str, branch: str | None = None) -> str:
    """The table's name in Spark SQL, with the branch if one is given."""
    suffix = f".branch_{branch}" if branch else ""
    return f"{CATALOGUE}.{identifier}{suffix}"

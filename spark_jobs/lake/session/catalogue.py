"""The catalogue through PyIceberg: open it, make tables as declared, commit several changes as one."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import random
import sqlite3
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.reader import DoubleReader
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog, SqlCatalogBaseTable
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io import load_file_io
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotRefUpdate, TableRequirement, TableUpdate
from sqlalchemy import Engine, MetaData, create_engine, event
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, ProgrammingError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from spark_jobs.exceptions import CatalogueError, InputError, LeaseError, TableMismatchError
from spark_jobs.lake.declare.quarantined import QUARANTINE_PROPERTY, is_quarantine
from spark_jobs.lake.declare.tables import Table
from spark_jobs.lake.session.identity import STANDS_IN, ensure_namespace, guard, require_lake, require_own
from spark_jobs.lake.session.settings import CATALOGUE, LakeSettings
from spark_jobs.lake.session.table_columns import column_difference, with_declared_columns

_Result = TypeVar("_Result")

_log = logging.getLogger(__name__)
# It logs only that a commit is retried, which is harmless, and prints it where no logging is set up.
logging.getLogger("pyiceberg.table").setLevel(logging.ERROR)


def _read_double(self: DoubleReader, decoder: BinaryDecoder) -> float:
    number: float = struct.unpack("<d", decoder.read(8))[0]
    return number


# PyIceberg 0.12.0's compiled decoder rounds doubles to floats: a filter over a partition by one would miss its files,
# and the next commit would write the rounded values into the manifest.
DoubleReader.read = _read_double  # type: ignore[method-assign]

# Optimistic commits clash when several write at once; 4 retries (the default) lost 12 of 80 appends in a measured run.
_BASE_PROPERTIES = {
    "format-version": "2",
    "commit.retry.num-retries": "20",
    "commit.retry.min-wait-ms": "100",
    "commit.manifest-merge.enabled": "true",  # off by default in PyIceberg
    "write.parquet.compression-codec": "zstd",
    "write.target-file-size-bytes": str(256 * 1024**2),
    "write.distribution-mode": "none",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
}
_COMMIT_TRIES = 20  # as many as tables have for their own commits, see above
_COMMIT_PAUSE_SECONDS, _LONGEST_COMMIT_PAUSE_SECONDS = 0.1, 3.0  # half a minute in all, on average
_PARSED_FILES = 128  # two versions of each table of a large corpus
_RECONNECT_SECONDS, _RECONNECT_PAUSE_SECONDS = 60.0, 0.5
_READS = ("load_table", "table_exists", "list_tables", "list_namespaces", "load_namespace_properties")
SCOPE_PROPERTY = "headrace.scope"
GENERATION_PROPERTY = "headrace.generation"
COMMENT_PROPERTY = "comment"


def open_catalogue(settings: LakeSettings, look_at_store: bool = True) -> Catalog:
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
    guard(catalogue)
    return catalogue


def open_to_read(settings: LakeSettings) -> Catalog:
    """Open a lake that is there; of one that is not, a catalogue without tables in memory, and nothing on disk.

    Raises:
        CatalogueError: it cannot be reached, or settings name a folder that is not there.
        WrongLakeError: it names the files of another lake.
    """
    if settings.is_there:
        return open_catalogue(settings)
    require_folder(settings)
    catalogue = load_catalog(CATALOGUE, **{**settings.properties, "uri": "sqlite://", STANDS_IN: "true"})
    assert isinstance(catalogue, SqlCatalog)
    # One connection for all threads: each further one would have a database of its own, without the catalogue's tables.
    catalogue.engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    catalogue.create_tables()
    guard(catalogue)
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


def connect(settings: LakeSettings, look_at_store: bool = True) -> Catalog:
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
        catalogue = _load(settings)
        if isinstance(catalogue, SqlCatalog):
            _parse_once(catalogue)
        # From here on a lost server may come back; at the first connection a wrong address must fail at once.
        if isinstance(catalogue, SqlCatalog) and catalogue.engine.dialect.name != "sqlite":
            event.listen(catalogue.engine, "do_connect", _connect_again)
            for name in _READS:
                setattr(catalogue, name, functools.partial(again_if_disconnected, getattr(catalogue, name)))
        return catalogue
    except (SQLAlchemyError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        address = settings.properties.get("uri", "").split("@")[-1]
        raise CatalogueError(f"catalogue lake at {address}: {reason}; check PYICEBERG_CATALOG__LAKE__URI") from error


def _write_ahead(database: Path) -> None:
    """Have SQLite keep a write-ahead log from the start, as Spark's connections ask for.

    The first of them would switch otherwise, and that fails at once, without waiting, while another connection writes.
    """
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")


def _load(settings: LakeSettings) -> Catalog:
    """Open it; each of the catalogue's tables may be made by another process at this moment, which costs one try."""
    for _ in SqlCatalogBaseTable.metadata.tables:
        try:
            return load_catalog(CATALOGUE, **settings.properties)
        except SQLAlchemyError as error:
            if "already exists" not in str(error):  # as SQLite says it, and Postgres
                raise
    return load_catalog(CATALOGUE, **settings.properties)


def _parse_once(catalogue: SqlCatalog) -> None:
    """Have a catalogue parse a file of metadata once: such a file never changes, and a step loads a table 25 times."""

    @functools.lru_cache(_PARSED_FILES)
    def parsed(location: str) -> TableMetadata:
        return FromInputFile.table_metadata(load_file_io(catalogue.properties, location).new_input(location))

    def table_of(orm_table: IcebergTables) -> IcebergTable:
        row, location = orm_table, orm_table.metadata_location
        if not location:
            raise NoSuchTableError(f"{row.table_namespace}.{row.table_name}: its row names no metadata")
        metadata = parsed(location)
        identifier = (*Catalog.identifier_to_tuple(row.table_namespace), row.table_name)
        io = catalogue._load_file_io(metadata.properties, location)
        return IcebergTable(identifier, metadata, location, io, catalogue)

    catalogue._convert_orm_to_iceberg = table_of  # type: ignore[method-assign]


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


def again_if_disconnected(function: Callable[..., _Result], *arguments: Any, **named: Any) -> _Result:
    """Call a function that may be repeated, a second time where the database's server ended the connection meanwhile.

    A pool tests a connection before it is used, but a server that is restarted also ends those in use.
    """
    try:
        return function(*arguments, **named)
    except DBAPIError as error:
        if not error.connection_invalidated:
            raise
        _log.warning("catalogue lake: %s; trying again", str(error).splitlines()[0])
    return function(*arguments, **named)


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


def load_table(catalogue: Catalog, identifier: str) -> IcebergTable | None:
    """The table, or None where there is none."""
    try:
        return catalogue.load_table(identifier)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None


def tables_in(catalogue: Catalog, namespace: str) -> list[str]:
    """Identifiers of the tables of a namespace, by name; none where there is no such namespace."""
    try:
        return sorted(".".join(name) for name in catalogue.list_tables(namespace))
    except NoSuchNamespaceError:
        return []


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
        held = {QUARANTINE_PROPERTY: namespace} if is_quarantine(namespace) else {}
        described = {COMMENT_PROPERTY: declared.comment, **declared.properties}
        all_properties = {**_BASE_PROPERTIES, **described, **properties, **held}
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


def commit(
    catalogue: Catalog,
    identifier: str,
    requirements: Callable[[IcebergTable], tuple[TableRequirement, ...]],
    updates: Callable[[IcebergTable], tuple[TableUpdate, ...]],
) -> None:
    """Apply several updates as one commit, with retries from fresh metadata when another commit came between.

    Between them are pauses that grow, at random below a bound, so that those who clashed do not clash again.

    Raises:
        CommitFailedException: a requirement does not hold, or every retry lost against another commit.
    """
    for attempt in range(_COMMIT_TRIES):
        table = catalogue.load_table(identifier)
        wanted = requirements(table)
        for requirement in wanted:
            requirement.validate(table.metadata)
        changes = updates(table)
        if not changes:
            return
        try:
            catalogue.commit_table(table, wanted, changes)
            return
        except CommitFailedException:
            if attempt == _COMMIT_TRIES - 1:
                raise
            _log.debug("%s: another commit came between, trying again", identifier)
            time.sleep(random.uniform(0, min(_COMMIT_PAUSE_SECONDS * 2**attempt, _LONGEST_COMMIT_PAUSE_SECONDS)))


def remove_ref(catalogue: Catalog, identifier: str, name: str) -> None:
    """Remove a tag or branch of a table, if it is there still."""
    commit(
        catalogue,
        identifier,
        lambda now: (AssertTableUUID(uuid=now.metadata.table_uuid),),
        lambda now: (RemoveSnapshotRefUpdate(ref_name=name),) if name in now.refs() else (),
    )


@functools.cache
def spark_identifier(identifier: str, branch: str | None = None) -> str:
    """The table's name in Spark SQL, with the branch if one is given."""
    suffix = f".branch_{branch}" if branch else ""
    return f"{CATALOGUE}.{identifier}{suffix}"

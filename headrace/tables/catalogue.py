"""The catalogue of a lake: PyIceberg's for SQL or REST, with the needs of every reader and writer of a lake.

guard      a write begins with a comparison of identities, and raises the fencing token (`identity.require_own`)
stamp      a new snapshot says the root of the opt-out register (`rights_root`)
retry      a read is done twice where the database's server ended the connection meanwhile; a commit of several
           changes is made again from fresh metadata where another one came between
read       a file of metadata is parsed once in a process, since such a file never changes: a step loads a table 25
           times, a page ten times
one look   of a catalogue in SQL a view that answers from one query, but for writes through it
"""

from __future__ import annotations

import copy
import functools
import logging
import random
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

import sqlalchemy
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import ICEBERG_TABLE_TYPE, IcebergTables, SqlCatalog, SqlCatalogBaseTable
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchIdentifierError,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
)
from pyiceberg.io import load_file_io
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from headrace.tables.exceptions import CatalogueError
from headrace.tables.identity import require_own
from headrace.tables.rights_root import RootStamp
from headrace.tables.settings import CATALOGUE, LakeSettings

Name = str | tuple[str, ...]
_Result = TypeVar("_Result")

_log = logging.getLogger(__name__)
# It logs only that a commit is retried, which is harmless, and prints it where no logging is set up.
logging.getLogger("pyiceberg.table").setLevel(logging.ERROR)

_PARSED_FILES = 512  # two versions of each table of a large corpus, or what pages of an explorer show
# Optimistic commits clash when several write at once; 4 retries (the default) lost 12 of 80 appends in a measured run.
COMMIT_TRIES = 20
_COMMIT_PAUSE_SECONDS, _LONGEST_COMMIT_PAUSE_SECONDS = 0.1, 3.0  # half a minute in all, on average


class LakeCatalogue(Catalog):
    """Additions to a catalogue of PyIceberg; in a class they stand before it.

    Attributes:
        is_guarded: whether its writes begin with a comparison of identities. Without, it is for whoever looks at a lake
            that is a copy, or relocates it.
    """

    is_guarded = False

    @functools.cached_property
    def _roots(self) -> RootStamp:
        return RootStamp()

    def _write(self, name: str, tables: list[Name | IcebergTable], *arguments: Any, **named: Any) -> Any:
        if self.is_guarded:
            require_own(self, [".".join(table) if isinstance(table, tuple) else table for table in tables])
        return getattr(super(), name)(*arguments, **named)

    def commit_table(self, table: IcebergTable, *arguments: Any) -> CommitTableResponse:
        """Change a table; new snapshots say the root of the opt-out register."""
        if self.is_guarded:
            self._roots.stamp(self, ".".join(table.name()), arguments[-1])
        return cast(CommitTableResponse, self._write("commit_table", [table], table, *arguments))

    def create_table(self, identifier: Name, *arguments: Any, **named: Any) -> IcebergTable:
        """Make a table."""
        return cast(IcebergTable, self._write("create_table", [identifier], identifier, *arguments, **named))

    def register_table(self, identifier: Name, *arguments: Any, **named: Any) -> IcebergTable:
        """Register an existing table."""
        return cast(IcebergTable, self._write("register_table", [identifier], identifier, *arguments, **named))

    def rename_table(self, from_identifier: Name, to_identifier: Name) -> IcebergTable:
        """Give a table another name."""
        return cast(IcebergTable, self._write("rename_table", [from_identifier], from_identifier, to_identifier))

    def purge_table(self, identifier: Name) -> None:
        """Take a table out of the catalogue and delete its files."""
        self._write("purge_table", [identifier], identifier)

    def drop_table(self, identifier: Name) -> None:
        """Take a table out of the catalogue; its files stay, so it may lie anywhere."""
        self._write("drop_table", [], identifier)


class SqlLake(LakeCatalogue, SqlCatalog):
    """A catalogue in a database."""

    def __init__(self, name: str, **properties: str) -> None:
        """Open it, making its tables in a new database."""
        super().__init__(name, **properties)
        self._parsed = functools.lru_cache(_PARSED_FILES)(functools.partial(_parsed, dict(self.properties)))
        self._places: dict[str, str] | None = None  # of one look
        self._whole: SqlLake = self

    def load_table(self, identifier: Name) -> IcebergTable:
        """Load a table; parse its metadata unless that is done."""
        location = self.metadata_location(identifier)
        if location is None:
            raise NoSuchTableError(f"Table does not exist: {_dotted(identifier)}")
        metadata = self._parsed(location)
        io = load_file_io({**self.properties, **metadata.properties}, location)
        return IcebergTable(Catalog.identifier_to_tuple(identifier), metadata, location, io, self)

    def metadata_location(self, identifier: Name) -> str | None:
        """Where the present metadata of a table is; None where there is no such table."""
        if self._places is not None:
            return self._places.get(_dotted(identifier))
        namespace, _, name = _dotted(identifier).rpartition(".")
        named = IcebergTables.table_namespace == namespace, IcebergTables.table_name == name
        return next((location for *_, location in self._locations(*named)), None)

    def metadata_locations(self) -> dict[str, str]:
        """By table, where its present metadata is; one query, without opening a file."""
        return {f"{space}.{name}": location for space, name, location in sorted(self._locations())}

    def at_one_look(self) -> SqlLake:
        """The same catalogue as it is now, but for writes through it; after these it is looked at again."""
        look = copy.copy(self)
        look._places, look._whole = self.metadata_locations(), self
        return look

    def list_namespaces(self, namespace: Name = ()) -> list[tuple[str, ...]]:
        """The namespaces in a namespace; at one look those with tables."""
        if self._places is None or namespace:
            return again_if_disconnected(super().list_namespaces, namespace)
        return sorted({(name.partition(".")[0],) for name in self._places})

    def load_namespace_properties(self, namespace: Name) -> dict[str, Any]:
        """The properties of a namespace."""
        return again_if_disconnected(super().load_namespace_properties, namespace)

    def list_tables(self, namespace: Name) -> list[tuple[str, ...]]:
        """The tables of a namespace, by name at one look."""
        prefix = f"{_dotted(namespace)}."
        names = [name for name in self._places or () if name.startswith(prefix)]
        if not names:  # it may be there without tables
            return again_if_disconnected(super().list_tables, namespace)
        return [(prefix[:-1], name.removeprefix(prefix)) for name in names]

    def _write(self, name: str, tables: list[Name | IcebergTable], *arguments: Any, **named: Any) -> Any:
        if self._places is None:
            return super()._write(name, tables, *arguments, **named)
        try:
            result = getattr(self._whole, name)(*arguments, **named)
        finally:
            self._places = self._whole.metadata_locations()
        if isinstance(result, IcebergTable):
            result.catalog = self  # through which it is written on
        return result

    def _locations(self, *conditions: Any) -> list[tuple[str, str, str]]:
        """Namespace, name and metadata of tables under some conditions; views are left out."""
        columns = IcebergTables.table_namespace, IcebergTables.table_name, IcebergTables.metadata_location
        chosen = select(*columns).where(IcebergTables.catalog_name == self.name, *conditions)
        if self._has_types:
            kind = IcebergTables.iceberg_type
            chosen = chosen.where((kind == ICEBERG_TABLE_TYPE) | kind.is_(None))

        def rows() -> list[tuple[str, str, str]]:
            with self.engine.connect() as connection:
                return [(space, name, place) for space, name, place in connection.execute(chosen) if place]

        return again_if_disconnected(rows)

    @functools.cached_property
    def _has_types(self) -> bool:
        """Whether the database tells tables from views; databases of early versions do not."""
        columns = sqlalchemy.inspect(self.engine).get_columns(IcebergTables.__tablename__)
        return any(column["name"] == "iceberg_type" for column in columns)


def open_lake(settings: LakeSettings) -> LakeCatalogue:
    """Open the catalogue of a lake, unguarded; that of a database without tables is made.

    Raises:
        CatalogueError: its settings make no sense, or it does not answer.
    """
    kind = settings.properties.get("type", "sql")
    if kind not in ("sql", "rest"):
        raise CatalogueError(f"catalogue lake: type {kind!r} is not supported; use sql (SQLite, Postgres) or rest")
    try:
        if kind == "rest":
            from headrace.tables.rest_catalogue import RestLake  # half a second to load, which most lakes are spared

            return RestLake(CATALOGUE, **settings.properties)
        return _sql_lake(settings)
    except (SQLAlchemyError, RESTError, ImportError, OSError, ValueError) as error:
        address = settings.properties.get("uri", "").split("@")[-1]
        raise CatalogueError(
            f"catalogue lake at {address}: {first_line(error)}; check PYICEBERG_CATALOG__LAKE__URI"
        ) from error


def _sql_lake(settings: LakeSettings) -> SqlLake:
    """Each of the catalogue's tables may be made by another process at this moment, at the cost of one try."""
    for _ in SqlCatalogBaseTable.metadata.tables:
        try:
            return SqlLake(CATALOGUE, **settings.properties)
        except SQLAlchemyError as error:
            if "already exists" not in str(error):  # as SQLite says it, and Postgres
                raise
    return SqlLake(CATALOGUE, **settings.properties)


def again_if_disconnected(function: Callable[..., _Result], *arguments: Any, **named: Any) -> _Result:
    """Call a repeatable function, a second time where the database's server ended the connection meanwhile.

    A pool tests a connection before it is used, but a restarted server also ends those in use.
    """
    try:
        return function(*arguments, **named)
    except DBAPIError as error:
        if not error.connection_invalidated:
            raise
        _log.warning("catalogue lake: %s; trying again", first_line(error))
    return function(*arguments, **named)


def metadata_locations(catalogue: Catalog) -> dict[str, str]:
    """By table, where its metadata is; of a catalogue in SQL in one query, without opening a file."""
    if isinstance(catalogue, SqlLake):
        return catalogue.metadata_locations()
    tables = [table for space in catalogue.list_namespaces() for table in catalogue.list_tables(space)]
    return {".".join(table): catalogue.load_table(table).metadata_location for table in sorted(tables)}


def load_table(catalogue: Catalog, identifier: str) -> IcebergTable | None:
    """The table, or None where there is none."""
    try:
        return catalogue.load_table(identifier)
    except (NoSuchTableError, NoSuchIdentifierError, NoSuchNamespaceError):
        return None


def tables_in(catalogue: Catalog, namespace: str) -> list[str]:
    """Identifiers of the tables of a namespace, by name; none where there is no such namespace."""
    try:
        return sorted(".".join(name) for name in catalogue.list_tables(namespace))
    except NoSuchNamespaceError:
        return []


def commit(
    catalogue: Catalog,
    identifier: str,
    requirements: Callable[[IcebergTable], tuple[TableRequirement, ...]],
    updates: Callable[[IcebergTable], tuple[TableUpdate, ...]],
) -> None:
    """Apply several updates as one commit, with retries from fresh metadata when another commit came between.

    Between them are growing pauses, at random below a bound, so that clashing writers do not clash again.

    Raises:
        CommitFailedException: a requirement does not hold, or every retry lost against another commit.
    """
    for attempt in range(COMMIT_TRIES):
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
            if attempt == COMMIT_TRIES - 1:
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


def tag_named(name: str, snapshot_id: int) -> SetSnapshotRefUpdate:
    """The update to create a tag or move it to a snapshot."""
    return SetSnapshotRefUpdate(
        ref_name=name,
        type=SnapshotRefType.TAG,
        snapshot_id=snapshot_id,
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )


def first_line(error: BaseException) -> str:
    """The first line of a foreign error."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _parsed(properties: dict[str, str], location: str) -> TableMetadata:
    return FromInputFile.table_metadata(load_file_io(properties, location).new_input(location))


def _dotted(identifier: Name) -> str:
    return identifier if isinstance(identifier, str) else ".".join(identifier)

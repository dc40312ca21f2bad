"""Which lake this is: noted in its catalogue and beside its files, and compared before anything is written or deleted.

Tables hold the absolute locations of their files. So a copied catalogue still names the files of the original,
and maintenance of the copy would delete what the original has made since. An identity tells such lakes apart:

    catalogue    property `headrace.lake` of the namespace `system`
    warehouse    the object <warehouse>/headrace-lake.json, the same JSON: a random id, the warehouse, the catalogue

    what was done                                     what differs
    ------------------------------------------------  -------------------------------------------------------
    project folder copied or moved; bucket copied     the warehouse that is open is not the one that is noted
    catalogue copied over the same warehouse          the catalogue that is open is not the one that is noted
    settings that mix two lakes                       the two notes

A different lake is not opened. `files.relocation` gives it files and an identity of its own. A clone with the same
address has the same identity; what tells it is the fencing token: each writing run begins its writes and deletes by
raising it in both places (`fence`).

A Postgres database is known by the identifier of its cluster and its number in it, whatever address leads there; both
are others after `pg_dump` and `pg_restore`. A file of SQLite is known by its path. A REST catalogue tells nothing of
itself, so a copy of one is told by its warehouse, or by the fencing token.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergNamespaceProperties, SqlCatalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io import load_file_io
from pyiceberg.table import Table as IcebergTable
from sqlalchemy import insert, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from headrace.tables.exceptions import CatalogueError, WrongLakeError
from headrace.tables.fence import BehindError, is_fresh, raise_fence, require_newest_token
from headrace.tables.locations import is_inside, is_local, plain, real

SPACE, PROPERTY, OBJECT = "system", "headrace.lake", "headrace-lake.json"
STANDS_IN = "headrace.stands-in"
"""Property of a catalogue in memory that stands for a lake which is not there, so that commands may read nothing."""
_PATH_PROPERTIES = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
_POSTGRES = (
    "SELECT d.oid, c.system_identifier FROM pg_control_system() c, pg_database d WHERE d.datname = current_database()"
)


@dataclass(frozen=True)
class LakeIdentity:
    """What is noted of a lake in both places.

    Attributes:
        lake: a random id.
        warehouse: where its files are, as its settings wrote it.
        catalogue: what tells its catalogue from a copy (`catalogue_mark`).
        before: id of the lake before its relocation.
    """

    lake: str
    warehouse: str
    catalogue: str
    before: str = ""

    @classmethod
    def of_json(cls, content: str | bytes | None) -> LakeIdentity | None:
        """Read a note; None where there is none.

        Raises:
            WrongLakeError: it is no note of an identity.
        """
        if content is None:
            return None
        names = [field.name for field in fields(cls)]
        try:
            values = {"before": "", **json.loads(content)}  # what a later version notes beside is left alone
            identity = cls(*(values[name] for name in names))
            if not all(isinstance(values[name], str) for name in names):
                raise TypeError("not all are texts")
            return identity
        except (ValueError, TypeError, KeyError) as error:
            raise WrongLakeError(f"lake: its identity is damaged ({error}): {content!r:.200}; restore it") from error

    def to_json(self) -> str:
        """The note, equal for equal identities."""
        return json.dumps(asdict(self), sort_keys=True)


def warehouse_of(catalogue: Catalog) -> str | None:
    """Root of the files of a catalogue; None where its settings give a name for a REST server alone."""
    root = plain(str(catalogue.properties.get("warehouse", "")))
    if root.startswith("/") or "://" in root:
        return root
    return os.path.abspath(root) if root and isinstance(catalogue, SqlCatalog) else None


def catalogue_mark(catalogue: Catalog) -> str:
    """What tells a catalogue from a copy of it, whatever address leads to it; empty where nothing does."""
    if not isinstance(catalogue, SqlCatalog):
        return ""
    if catalogue.engine.dialect.name == "sqlite":
        return f"sqlite:{real(str(catalogue.engine.url.database))}"
    try:
        with catalogue.engine.connect() as connection:
            database, cluster = connection.execute(text(_POSTGRES)).one()
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        return f"{catalogue.engine.dialect.name}:{catalogue.engine.url.database}"  # a relative of Postgres
    return f"postgresql:{cluster}:{database}"


def noted_in_catalogue(catalogue: Catalog) -> LakeIdentity | None:
    """The identity in a catalogue."""
    with suppress(NoSuchNamespaceError):
        return LakeIdentity.of_json(catalogue.load_namespace_properties(SPACE).get(PROPERTY))
    return None


def noted_in_warehouse(catalogue: Catalog, warehouse: str) -> LakeIdentity | None:
    """The identity beside the files of a warehouse."""
    place = f"{warehouse}/{OBJECT}"
    try:
        with load_file_io(dict(catalogue.properties), place).new_input(place).open() as stream:
            return LakeIdentity.of_json(stream.read())
    except FileNotFoundError:
        return None


def note_in_catalogue(catalogue: Catalog, identity: LakeIdentity) -> None:
    """Note an identity in a catalogue; in one of SQL only where none is noted, so that the first writer wins."""
    ensure_namespace(catalogue, SPACE)
    if not isinstance(catalogue, SqlCatalog):
        catalogue.update_namespace_properties(SPACE, updates={PROPERTY: identity.to_json()})
        return
    row = {"catalog_name": catalogue.name, "namespace": SPACE, "property_key": PROPERTY}
    with suppress(IntegrityError), catalogue.engine.begin() as connection:
        connection.execute(insert(IcebergNamespaceProperties).values(**row, property_value=identity.to_json()))


def ensure_namespace(catalogue: Catalog, name: str) -> None:
    """Make a namespace; asking first whether it is there would be a race with another writer."""
    with suppress(NamespaceAlreadyExistsError, IntegrityError):
        catalogue.create_namespace(name)


def note_in_warehouse(catalogue: Catalog, warehouse: str, identity: LakeIdentity) -> None:
    """Note an identity beside the files of a warehouse."""
    place = f"{warehouse}/{OBJECT}"
    if "://" not in warehouse:  # a store shows an object when it is whole; a file is there while it is still empty
        os.makedirs(os.path.dirname(place), exist_ok=True)
        half = f"{place}.{uuid.uuid4().hex}"
        with open(half, "wb") as file:
            file.write(identity.to_json().encode())
        os.replace(half, place)
        return
    with load_file_io(dict(catalogue.properties), place).new_output(place).create(overwrite=True) as stream:
        stream.write(identity.to_json().encode())


def require_lake(catalogue: Catalog) -> None:
    """Refuse a catalogue and a warehouse of two lakes.

    Raises:
        WrongLakeError: one line about what is open, what is noted, and how to mend it.
    """
    warehouse = warehouse_of(catalogue)
    if warehouse is not None:
        _is_noted(catalogue, warehouse)


def _is_noted(catalogue: Catalog, warehouse: str) -> bool:
    """Whether the identity of the lake is noted in both places; refuses what is not of one lake."""
    # In this order: another process may note the identity meanwhile, in the catalogue first.
    return _is_of(catalogue, warehouse, noted_in_warehouse(catalogue, warehouse), noted_in_catalogue(catalogue))


def _is_of(catalogue: Catalog, warehouse: str, stored: LakeIdentity | None, noted: LakeIdentity | None) -> bool:
    if noted is None:
        if stored is not None:
            raise WrongLakeError(
                f"lake: {warehouse} holds the files of lake {stored.lake}, and the catalogue that is open is not that "
                "lake's; open its own catalogue or restore that, or name an empty PYICEBERG_CATALOG__LAKE__WAREHOUSE"
            )
        return False
    if real(noted.warehouse) != real(warehouse):
        raise WrongLakeError(_elsewhere(noted.warehouse, warehouse))
    mark = catalogue_mark(catalogue)
    if noted.catalogue != mark or (stored is not None and stored.catalogue != mark and stored.lake == noted.lake):
        raise WrongLakeError(
            f"lake: {warehouse} belongs to another catalogue, of which the one that is open is a copy, and two must "
            "not write one warehouse; copy the files, too, and relocate the lake to them, or, if that one is gone for "
            f"good, take its place: {relocation(warehouse, warehouse)}"
        )
    if stored is not None and stored != noted:
        if stored.before == noted.lake:
            raise WrongLakeError(
                f"lake: another copy of the catalogue that is open took its place in {warehouse} (lake {noted.lake} is "
                f"{stored.lake} now); go on with that one, or, if it is gone for good, take its place: "
                f"{relocation(warehouse, warehouse)}"
            )
        raise WrongLakeError(
            f"lake: the catalogue is that of lake {noted.lake}, {warehouse} holds the files of lake {stored.lake}; "
            "correct PYICEBERG_CATALOG__LAKE__URI or PYICEBERG_CATALOG__LAKE__WAREHOUSE"
        )
    return stored is not None


def relocation(former: str, now: str) -> str:
    """The command to relocate a lake."""
    return f"headrace relocate --from {former} --to {now}"


def _elsewhere(former: str, now: str) -> str:
    return (
        f"lake: it was made in {former} and its tables name files there, {now} is open, a copy or what was moved; "
        f"nothing was done. Make it a lake of its own: {relocation(former, now)}"
    )


def require_own(catalogue: Catalog, tables: Iterable[str | IcebergTable] = ()) -> None:
    """Refuse to write or delete in a lake other than the open one, or tables outside of its warehouse.

    Called before every write and delete; the first one gives a lake its identity, and each run's first one raises the
    lake's fencing token, so that a catalogue behind it writes and deletes nothing. In a store that raise compares
    the identity as well, since it fails where another catalogue wrote; so a run asks the store once.

    Args:
        catalogue: of the lake.
        tables: the written ones; names of missing tables are skipped.

    Raises:
        CatalogueError: there is no lake.
        WrongLakeError: one line.
    """
    if STANDS_IN in catalogue.properties:
        raise CatalogueError("no lake is here yet, so nothing is written; its first run makes it: headrace run")
    warehouse = warehouse_of(catalogue)
    if warehouse is None:
        return
    _raise(catalogue, warehouse)
    for named in tables:
        with suppress(NoSuchTableError, NoSuchNamespaceError, FileNotFoundError):  # then there is nothing to write to
            table = catalogue.load_table(named) if isinstance(named, str) else named
            for location in (table.location(), *(table.properties.get(name, "") for name in _PATH_PROPERTIES)):
                if location:
                    require_inside(".".join(table.name()), location, warehouse)


def _raise(catalogue: Catalog, warehouse: str) -> None:
    """Compare the identity and raise the fencing token; asks a store nothing where this process has just done so."""
    noted = None if is_local(warehouse) else noted_in_catalogue(catalogue)
    if noted is None:
        if not _is_noted(catalogue, warehouse):
            _note(catalogue, warehouse)
    else:
        _is_of(catalogue, warehouse, noted, noted)
    if is_fresh(catalogue, warehouse):
        return
    try:
        raise_fence(catalogue, warehouse)
    except BehindError as error:
        _is_noted(catalogue, warehouse)  # who took the lake's place is told as such
        raise WrongLakeError(str(error)) from error


def require_newest(catalogue: Catalog) -> None:
    """Refuse as `require_lake` does, and also a lake written by another catalogue since this one.

    Raises:
        WrongLakeError: one line.
    """
    require_lake(catalogue)
    warehouse = warehouse_of(catalogue)
    if warehouse is not None:
        try:
            require_newest_token(catalogue, warehouse)
        except BehindError as error:
            raise WrongLakeError(str(error)) from error


def require_inside(what: str, location: str, warehouse: str) -> None:
    """Refuse to write or delete what lies outside of the lake's warehouse.

    Raises:
        WrongLakeError: names both.
    """
    if not is_inside(location, warehouse):
        raise WrongLakeError(
            f"{what}: {location} lies outside of the lake's warehouse {warehouse}; nothing is written or deleted there"
        )


def _note(catalogue: Catalog, warehouse: str) -> None:
    """Note an identity in both places; processes at the same moment all end with the same one."""
    while True:
        identity = noted_in_catalogue(catalogue)
        if identity is None:
            note_in_catalogue(catalogue, LakeIdentity(uuid.uuid4().hex, warehouse, catalogue_mark(catalogue)))
            continue
        note_in_warehouse(catalogue, warehouse, identity)
        if noted_in_catalogue(catalogue) == identity:  # else another process noted its own after this one
            return

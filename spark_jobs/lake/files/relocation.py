r"""Relocate a lake: have tables name their copied or moved files where they are now.

    metadata JSON  ->  manifest lists  ->  manifests  ->  data files, which stay as they are
                                                     \->  position deletes, whose rows name data files

Each file naming others is written again beside the old one, under a name that follows from the new place, and the
tables of the catalogue are led to the new ones in one transaction at the end. So a killed relocation has
changed nothing readers see, and the same command does it again. Ids of snapshots, tags, properties and rows stay,
and with them data versions and all that blends pin. The former place is never asked.

In the end the lake has an identity of its own (`session.identity`), so that it is never taken for the former one.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroFile, AvroOutputFile
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergNamespaceProperties, IcebergTables, SqlCatalog
from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, StructType
from sqlalchemy import delete, insert, update

from headrace.tables.catalogue import metadata_locations
from headrace.tables.exceptions import WrongLakeError
from headrace.tables.fence import raise_fence
from headrace.tables.identity import (
    PROPERTY,
    SPACE,
    LakeIdentity,
    catalogue_mark,
    ensure_namespace,
    note_in_warehouse,
    noted_in_catalogue,
    noted_in_warehouse,
    require_newest,
    warehouse_of,
)
from headrace.tables.locations import is_inside, plain
from spark_jobs.exceptions import LeaseError
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.files.storage import create, exists, files_below, open_input, remove

_BLOCK_ENTRIES = 1000
_AVRO_SCHEMA = "avro.schema"
_DELETED = 2  # status of a manifest's entry whose file need not be there any more
_PATH_BOUNDS = 2147483546  # the column of a position delete that names the data file
_JOURNAL = "headrace-relocation.json"
_WRITTEN_AGAIN = re.compile("^at-[0-9a-f]{8}-")


def relocate(catalogue: Catalog, former: str, now: str, dry_run: bool = False) -> Iterator[str]:
    """Relocate the lake of a catalogue; gives a line for each thing done.

    Args:
        catalogue: as `session.catalogue.connect` opens it.
        former: the warehouse where tables were made.
        now: the open one, where its files were copied or moved; the same as `former` where the catalogue
            alone was copied and takes the place of a lost one.
        dry_run: whether nothing is written.

    Raises:
        WrongLakeError: the files are those of another lake or incomplete, or one warehouse lies in the other.
    """
    former, now = plain(former), plain(now)
    warehouse = warehouse_of(catalogue)
    if warehouse is None or not (is_inside(now, warehouse) and is_inside(warehouse, now)):
        raise WrongLakeError(
            f"--to {now}: the lake that is open is in {warehouse}; set PYICEBERG_CATALOG__LAKE__WAREHOUSE={now}, or, "
            "for the default ./warehouse, change to the folder that holds it"
        )
    now = warehouse
    if former != now and (former.startswith(f"{now}/") or now.startswith(f"{former}/")):
        raise WrongLakeError(f"--from {former} --to {now}: one lies in the other; copy the files to a place beside it")
    if not dry_run:
        _resume(catalogue, now)
    places = metadata_locations(catalogue)
    identity = _next_identity(catalogue, former, now, bool(places))
    moved, outside = dict[str, str](), dict[str, str]()
    for table, location in places.items():
        if former != now and plain(location).startswith(f"{former}/"):
            files = _Relocation(former, now, dict(catalogue.properties), dry_run)
            moved[table] = files.table(location)
            yield f"{table}: {files.counts()}"
        elif is_inside(location, now):
            if not exists(plain(location), dict(catalogue.properties)):
                raise WrongLakeError(
                    f"{table}: {plain(location)} is not there; copy all files that the catalogue names"
                )
        else:
            outside[table] = plain(location)
            yield f"{table}: lies in neither place ({plain(location)}); it can be read there, and is never written"
    if len(outside) == len(places) > 0:
        first, location = next(iter(outside.items()))
        raise WrongLakeError(f"--from {former}: no table lies there; {first} lies in {location}")
    if _is_done(catalogue, moved):
        yield "the lake is in its place; nothing to do"
        return
    if dry_run:
        yield f"{len(moved)} tables would be led to {now}; nothing was written"
        return
    if former != now:
        for space in catalogue.list_namespaces():
            ObjectFolder.of(catalogue, ".".join(space)).leave_cold_folders()
    note_in_warehouse(catalogue, now, identity)
    ensure_namespace(catalogue, SPACE)
    raise_fence(catalogue, now, over=True)
    _lead(catalogue, now, {table: (places[table], location) for table, location in moved.items()}, identity)
    yield f"lake {identity.lake} is in {now}, with {len(moved)} tables led there"


def _is_done(catalogue: Catalog, moved: Mapping[str, str]) -> bool:
    """Whether catalogue and warehouse are of one lake, of which no other catalogue is ahead, and no table was moved."""
    try:
        require_newest(catalogue)
    except WrongLakeError:
        return False
    return not moved


def _next_identity(catalogue: Catalog, former: str, now: str, has_tables: bool) -> LakeIdentity:
    """The future identity of the lake: that of an earlier try, or a new one.

    Raises:
        WrongLakeError: the files are those of another lake.
    """
    noted, stored, mark = noted_in_catalogue(catalogue), noted_in_warehouse(catalogue, now), catalogue_mark(catalogue)
    lake = noted.lake if noted is not None else ""
    if stored is None or stored.lake == lake or (noted is None and has_tables):
        return LakeIdentity(uuid.uuid4().hex, now, mark, lake)
    if lake and stored.before == lake:  # what this lake became, by an earlier try of the same catalogue or by another's
        if stored.catalogue == mark:
            return stored
        if former == now:
            return LakeIdentity(uuid.uuid4().hex, now, mark, lake)
    raise WrongLakeError(
        f"--to {now}: holds the files of lake {stored.lake}, the catalogue is that of lake {lake or 'none'}; copy the "
        "files that belong to the catalogue, or open the catalogue that belongs to the files"
    )


@dataclass
class _Relocation:
    """Writes the files of one table naming others, with the new place in them; a manifest of many snapshots once."""

    former: str
    now: str
    properties: dict[str, str]
    dry_run: bool
    needed: set[str] = field(default_factory=set)
    written: dict[str, tuple[str, int]] = field(default_factory=dict)

    def counts(self) -> str:
        """Counts for the line of output: files found, and those written again."""
        return f"{len(self.needed):,} files are there, {len(self.written):,} of them name others"

    def table(self, location: str) -> str:
        """Relocate a table; gives the place of its new metadata.

        Raises:
            WrongLakeError: a file is not in the new place.
        """
        source = self.here(location)
        try:
            with open_input(source, self.properties) as stream:
                data = bytes(stream.read())
        except OSError as error:
            raise self._missing(source, 1) from error
        content = json.loads(gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data)
        for snapshot in content.get("snapshots", ()):
            snapshot["manifest-list"], _ = self.again(snapshot["manifest-list"], "manifest_file", self._listed)
        self._require_there(self.here(content["location"]))
        content["metadata-log"] = [
            *content.get("metadata-log", ()),
            {"timestamp-ms": content["last-updated-ms"], "metadata-file": source},
        ]
        folder, _, name = source.rpartition("/")
        version = int(name.partition("-")[0]) + 1
        target = f"{folder}/{version:05d}-{uuid.uuid5(uuid.NAMESPACE_URL, f'{self.now} {source}')}.metadata.json"
        if not self.dry_run:
            with create(target, self.properties) as stream:
                stream.write(json.dumps(self._moved(content)).encode())
        return target

    def here(self, location: str) -> str:
        """The location with the former warehouse replaced by the new one; locations outside both stay."""
        location = plain(location)
        return f"{self.now}{location[len(self.former) :]}" if f"{location}/".startswith(f"{self.former}/") else location

    def _moved(self, value: Any) -> Any:
        """A JSON value with all texts about the former place."""
        if isinstance(value, dict):
            return {key: self._moved(part) for key, part in value.items()}
        if isinstance(value, list):
            return [self._moved(part) for part in value]
        return self.here(value) if isinstance(value, str) and plain(value).startswith(f"{self.former}/") else value

    def again(self, location: str, name: str, change: Callable[[Record, Schema], None]) -> tuple[str, int]:
        """Write an Avro file again, each of its records changed; gives where it is now and its bytes."""
        source = self.here(location)
        if source in self.written:
            return self.written[source]
        self.needed.add(source)
        target, files = self._beside(source), self._files(source)
        try:
            with AvroFile[Record](files.new_input(source)) as read:
                records = list(read)
        except FileNotFoundError as error:
            raise self._missing(source, 1) from error
        for record in records:
            change(record, read.schema)
        if self.dry_run:
            self.written[source] = target, 0
            return self.written[source]
        header = {key: value for key, value in read.header.meta.items() if key != _AVRO_SCHEMA}
        with AvroOutputFile[Record](files.new_output(target), read.schema, name, metadata=header) as out:
            for start in range(0, len(records), _BLOCK_ENTRIES):
                out.write_block(records[start : start + _BLOCK_ENTRIES])
        self.written[source] = target, len(files.new_input(target))
        return self.written[source]

    def _listed(self, record: Record, schema: Schema) -> None:
        """Write a manifest again, and put its new path and length into its record in the manifest list."""
        at = _positions(schema.fields)
        path = record[at["manifest_path"]]
        record[at["manifest_path"]], record[at["manifest_length"]] = self.again(path, "manifest_entry", self._entry)

    def _entry(self, record: Record, schema: Schema) -> None:
        """Change a file's record in a manifest."""
        kind = schema.find_field("data_file").field_type
        assert isinstance(kind, StructType)
        file, at = record[_positions(schema.fields)["data_file"]], _positions(kind.fields)
        for name in ("file_path", "referenced_data_file"):
            if name in at and file[at[name]]:
                file[at[name]] = self.here(file[at[name]])
        if record[_positions(schema.fields)["status"]] == _DELETED:
            return
        self.needed.add(file[at["file_path"]])
        if "content" in at and file[at["content"]] == DataFileContent.POSITION_DELETES:  # tables of format 1 have none
            for name in ("lower_bounds", "upper_bounds"):
                bounds = file[at[name]] or {}
                file[at[name]] = {column: value for column, value in bounds.items() if column != _PATH_BOUNDS}
            path = file[at["file_path"]]
            file[at["file_path"]], file[at["file_size_in_bytes"]] = self._position_deletes(path)

    def _position_deletes(self, source: str) -> tuple[str, int]:
        """Write a file of position deletes again, for its rows name data files; gives where it is now and its bytes."""
        if source not in self.written:
            target = self._beside(source)
            if self.dry_run:
                return target, 0
            with open_input(source, self.properties) as stream:
                rows = pq.read_table(stream)
            at = rows.schema.get_field_index("file_path")
            paths = [self.here(path) for path in rows["file_path"].to_pylist()]
            rows = rows.set_column(at, rows.schema.field(at), pa.array(paths, rows.schema.field(at).type))
            with create(target, self.properties) as out:
                pq.write_table(rows, out)
            self.written[source] = target, len(self._files(target).new_input(target))
        return self.written[source]

    def _beside(self, source: str) -> str:
        """The name of a rewritten file: the same for each try, another for each place."""
        folder, _, name = source.rpartition("/")
        return f"{folder}/at-{hashlib.sha256(self.now.encode()).hexdigest()[:8]}-{_WRITTEN_AGAIN.sub('', name)}"

    def _files(self, place: str) -> FileIO:
        return load_file_io(self.properties, place)

    def _require_there(self, folder: str) -> None:
        """Refuse an incomplete copy; one listing finds the files below the table's folder."""
        lacking = sorted(self.needed - set(files_below(folder, self.properties)))
        lacking = [file for file in lacking if not exists(file, self.properties)]
        if lacking:
            raise self._missing(lacking[0], len(lacking))

    def _missing(self, first: str, count: int) -> WrongLakeError:
        return WrongLakeError(
            f"--to {self.now}: {count} files of the lake are not there, first {first}; copy all of {self.former} as it "
            "was when the catalogue was copied, or later, before its snapshots were expired"
        )


def _positions(fields: Iterable[NestedField]) -> dict[str, int]:
    return {field.name: number for number, field in enumerate(fields)}


def _lead(catalogue: Catalog, now: str, moved: Mapping[str, tuple[str, str]], identity: LakeIdentity) -> None:
    """Point tables to their new metadata, given with the former one, and note the identity; one transaction in SQL."""
    if not isinstance(catalogue, SqlCatalog):
        _register(catalogue, now, {table: location for table, (_, location) in moved.items()})
        ensure_namespace(catalogue, SPACE)
        catalogue.update_namespace_properties(SPACE, updates={PROPERTY: identity.to_json()})
        return
    note = IcebergNamespaceProperties
    here = note.catalog_name == catalogue.name, note.namespace == SPACE, note.property_key == PROPERTY
    row = {"catalog_name": catalogue.name, "namespace": SPACE, "property_key": PROPERTY}
    with catalogue.engine.begin() as connection:
        for identifier, (former, location) in moved.items():
            space, _, table = identifier.rpartition(".")
            mine = IcebergTables.catalog_name == catalogue.name, IcebergTables.table_namespace == space
            at = IcebergTables.table_name == table, IcebergTables.metadata_location == former
            values = {"metadata_location": location, "previous_metadata_location": None}
            if connection.execute(update(IcebergTables).where(*mine, *at).values(**values)).rowcount != 1:
                raise LeaseError(
                    f"{identifier}: was written meanwhile; end all runs of the lake, then relocate it again"
                )
        connection.execute(delete(note).where(*here))
        connection.execute(insert(note).values(**row, property_value=identity.to_json()))


def _register(catalogue: Catalog, now: str, moved: Mapping[str, str]) -> None:
    """Point tables to new metadata in a catalogue limited to drop and register; an object lists those under way."""
    place, properties = f"{now}/{_JOURNAL}", dict(catalogue.properties)
    with create(place, properties) as stream:
        stream.write(json.dumps(moved).encode())
    for table, location in moved.items():
        catalogue.drop_table(table)
        catalogue.register_table(table, location)
    remove(place, properties)


def _resume(catalogue: Catalog, now: str) -> None:
    """Register the tables dropped by a relocation before it was killed."""
    place, properties = f"{now}/{_JOURNAL}", dict(catalogue.properties)
    if isinstance(catalogue, SqlCatalog) or not exists(place, properties):
        return
    with open_input(place, properties) as stream:
        moved: dict[str, str] = json.loads(bytes(stream.read()))
    for table, location in moved.items():
        with contextlib.suppress(TableAlreadyExistsError):
            catalogue.register_table(table, location)

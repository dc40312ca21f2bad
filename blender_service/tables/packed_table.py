"""Read a packed table at one snapshot: the facts of its windows, and which file holds which ordinals.

A packed table is an array with an explicit dense index. Each data file holds one contiguous ascending run of ordinals,
found by its smallest and largest `ordinal` in Iceberg's metadata, so an index of all rows costs one line a file::

    file A  ordinals 0..4095       row of ordinal o in a file = o - smallest
    file B  ordinals 4096..9999
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pyiceberg.catalog import Catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import NoSuchIdentifierError, NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.types import LongType
from pyiceberg.utils.concurrent import ExecutorFactory

from blender_service.exceptions import PackedTableError, SourceChangedError
from blender_service.order.segments import Pin
from blender_service.recently_used import RecentlyUsed
from blender_service.tables.block import Block
from blender_service.tables.file_columns import Column, find_column
from blender_service.tables.mirrors import NO_MIRRORS, Mirrors
from blender_service.tables.token_columns import TokenColumn

COLUMNS: Final = ("ordinal", "token_count", "input_ids", "segments")
PROPERTY_OF_FACT: Final = {
    "window_tokens": "headrace.window-tokens",
    "tokenizer_sha256": "headrace.tokenizer-sha256",
    "vocabulary_size": "headrace.vocabulary-size",
    "end_of_document_id": "headrace.end-of-document-id",
    "padding_id": "headrace.padding-id",
}
GENERATION: Final = "headrace.generation"
SUCCESSORS: Final = "headrace.successors"
NAMED_ROWS: Final = "headrace.named-rows"  # rows of what is served from a successor, by snapshot id or tag
EXCISES: Final = "headrace.excises"  # in a summary: the snapshot that documents were excised from
EVALS: Final = "headrace.evals"  # digest of the benchmarks that its documents were searched for
QUARANTINE: Final = "headrace.quarantine"  # the namespace in which a table's rows wait for a release
_QUARANTINE_SUFFIX: Final = "_quarantine"
EXCISED: Final = "headrace.excised"  # documents taken out, where maintenance counts them


class WindowFacts(BaseModel):
    """Window length, tokenizer and special ids of a packed table; all sources of a blend agree on them."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    window_tokens: int = Field(ge=1, description="length L of every row, in tokens")
    tokenizer_sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the tokenizer's file")
    vocabulary_size: int = Field(ge=1, le=1 << 31, description="number of token ids; every id is below it")
    end_of_document_id: int = Field(ge=0, description="token that ends a document")
    padding_id: int = Field(ge=0, description="token that fills the end of a window")

    @property
    def token_bytes(self) -> int:
        """Width of a token id on the wire: 2 up to a vocabulary of 65,536, else 4."""
        return 2 if self.vocabulary_size <= 1 << 16 else 4


class OrdinalRun(NamedTuple):
    """One data file: where it is, and the ordinals [start, end) it holds."""

    path: str
    start: int
    end: int


class PackedTable(NamedTuple):
    """A packed table pinned to a snapshot.

    Attributes:
        identifier: namespace.table.
        window: facts of its rows.
        runs: its files, ascending, covering [0, rows) without gap.
        io: how its files are opened.
        most_rows: rows that are served; None for all. The last file may have more.
        mirrors: other places of its files.
        decode: makes blocks of ranges of ordinals, where rows do not lie in Parquet as they are served; else None.
        columns: that are read beside the ids, in the order of the blocks' `columns`.
        fields: what is read of a file, by the name it has in rows (`columns_read`).
        mapping: which names of files without field ids are which columns.
    """

    identifier: str
    window: WindowFacts
    runs: tuple[OrdinalRun, ...]
    io: FileIO
    most_rows: int | None = None
    mirrors: Mirrors = NO_MIRRORS
    decode: Callable[[Sequence[tuple[int, int]]], Iterator[Block]] | None = None
    columns: tuple[TokenColumn, ...] = ()
    fields: Mapping[str, Column] = MappingProxyType({})
    mapping: NameMapping | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        rows = self.runs[-1].end if self.runs else 0
        return rows if self.most_rows is None else min(rows, self.most_rows)


def schema_at(table: Table, snapshot: Snapshot) -> Schema:
    """Give the schema that a snapshot was written with; the present one where it is not known any more."""
    return table.schemas().get(-1 if snapshot.schema_id is None else snapshot.schema_id, table.schema())


def columns_read(table: Table, snapshot: Snapshot, columns: Sequence[TokenColumn]) -> dict[str, Column]:
    """Find what is read of a packed table's files: rows by their names at a snapshot, columns by their ids.

    Raises:
        PackedTableError: the table has no such column.
    """
    schemas = (schema_at(table, snapshot), table.schema())
    wanted = {**{name: name for name in COLUMNS}, **{one.name: one.field_id for one in columns if one.field_id}}
    found = {
        name: next(filter(None, (find_column(schema, key) for schema in schemas)), None) for name, key in wanted.items()
    }
    missing = [name for name, column in found.items() if column is None]
    if missing:
        raise PackedTableError(
            f"table {'.'.join(table.name())}: has no column {missing[0]}; name a packed_<dataset>_<length> table"
        )
    return {name: column for name, column in found.items() if column is not None}


def row_bytes_of(window: WindowFacts, columns: Sequence[TokenColumn]) -> int:
    """Bytes of a row's ids and columns."""
    return window.window_tokens * sum((window.token_bytes, *(np.dtype(column.dtype).itemsize for column in columns)))


def load_table(catalogue: Catalog, identifier: str) -> Table | None:
    """Load a table's metadata, None if there is none; a quarantined table does not exist, whatever it is called now."""
    try:
        return if_shown(identifier, catalogue.load_table(identifier))
    except (NoSuchTableError, NoSuchIdentifierError):
        return None


def if_shown(identifier: str, table: Table) -> Table | None:
    """Give a table, None for one that is quarantined."""
    held = identifier.partition(".")[0].endswith(_QUARANTINE_SUFFIX) or QUARANTINE in table.properties
    return None if held else table


def read_window_facts(table: Table, identifier: str, snapshot: Snapshot | None = None) -> WindowFacts:
    """Read the facts of a snapshot's windows; those of the table's properties if none is given.

    Raises:
        PackedTableError: a property is missing or wrong, or the facts of this snapshot are lost.
    """
    properties = properties_at(table, snapshot)
    missing = [name for name in (*PROPERTY_OF_FACT.values(), GENERATION) if name not in properties]
    if missing:
        raise PackedTableError(
            f"table {identifier}: is not packed, it lacks {', '.join(missing)}; name a packed_<dataset>_<length> table"
        )
    if snapshot is not None and has_lost_facts(table, snapshot):
        raise PackedTableError(
            f"table {identifier}: snapshot {snapshot.snapshot_id} does not say what its rows are, and the table was "
            "packed again since; name a later snapshot"
        )
    values = {fact: properties[name] for fact, name in PROPERTY_OF_FACT.items()}
    try:
        return WindowFacts.model_validate_strings(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = PROPERTY_OF_FACT[str(first["loc"][0])]
        raise PackedTableError(
            f"table {identifier}: property {name} is {values[str(first['loc'][0])]!r}: {first['msg']}; pack it again"
        ) from error


def properties_at(table: Table, snapshot: Snapshot | None) -> dict[str, str]:
    """Give the properties of a table as they were when a snapshot was written.

    The snapshot's summary holds the facts of its windows and the generation of the packing, which changes whenever an
    ordinal may mean another row. Where the summary leaves one out, the table's property holds.
    """
    return {**table.properties, **_facts_in_summary(_describing_snapshot(table, snapshot))}


def has_lost_facts(table: Table, snapshot: Snapshot) -> bool:
    """Say whether a snapshot's summary names its generation alone, and the table's properties are of a later one.

    This is so for snapshots that were written before summaries held all facts.
    """
    own = _facts_in_summary(_describing_snapshot(table, snapshot))
    return own.keys() == {GENERATION} and own[GENERATION] != table.properties.get(GENERATION)


def _facts_in_summary(snapshot: Snapshot | None) -> dict[str, str]:
    """Give the facts of the windows and the generation, as far as a summary holds them."""
    held = snapshot.summary.additional_properties if snapshot is not None and snapshot.summary is not None else {}
    return {name: held[name] for name in (*PROPERTY_OF_FACT.values(), GENERATION) if name in held}


def _describing_snapshot(table: Table, snapshot: Snapshot | None) -> Snapshot | None:
    """Give the snapshot whose summary holds the facts of another one's rows; None if it has expired.

    Compaction writes a summary without facts, and so may an excision; their parent then has the same rows' facts.
    """
    while snapshot is not None and snapshot.summary is not None and GENERATION not in _facts_in_summary(snapshot):
        upkeep = snapshot.summary.operation == Operation.REPLACE or EXCISES in snapshot.summary.additional_properties
        if not upkeep:
            return snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = table.snapshot_by_id(parent) if parent is not None else None
    return snapshot


KnownRuns = RecentlyUsed[str, tuple[OrdinalRun, ...]]  # by the path of a manifest, which never changes


def index_snapshot(
    table: Table, identifier: str, snapshot: Snapshot, known: KnownRuns | None = None
) -> tuple[OrdinalRun, ...]:
    """List the files of a snapshot by their ordinals; of its manifests only those that are not `known` are read.

    Raises:
        PackedTableError: the ordinals are not dense from 0, or a file cannot say which it holds.
    """
    if "ordinal" not in table.schema().column_names:
        raise PackedTableError(f"table {identifier}: has no column ordinal; name a packed_<dataset>_<length> table")
    ordinal_id = table.schema().find_field("ordinal").field_id

    def runs_of(manifest: ManifestFile) -> tuple[OrdinalRun, ...]:
        found = known.get(manifest.manifest_path) if known is not None else None
        if found is None:
            entries = manifest.fetch_manifest_entry(table.io)
            found = tuple(_run_of(entry.data_file, ordinal_id, identifier) for entry in entries)
            if known is not None:
                known.put(manifest.manifest_path, found)
        return found

    manifests = snapshot.manifests(table.io)
    runs = [run for found in ExecutorFactory.get_or_create().map(runs_of, manifests) for run in found]
    runs.sort(key=lambda run: run.start)
    expected = 0
    for run in runs:
        if run.start != expected:
            raise PackedTableError(
                f"table {identifier}: ordinal {expected} should come next, but {run.path} starts at {run.start}; "
                "ordinals must be dense from 0, each in one file: pack the table again"
            )
        expected = run.end
    return tuple(runs)


def _run_of(file: DataFile, ordinal_id: int, identifier: str) -> OrdinalRun:
    """Read which ordinals a file holds from its bounds in the manifest."""
    if file.content != DataFileContent.DATA:
        raise PackedTableError(
            f"table {identifier}: {file.file_path} deletes rows of its data files; rewrite them without those"
        )
    lower = (file.lower_bounds or {}).get(ordinal_id)
    upper = (file.upper_bounds or {}).get(ordinal_id)
    if lower is None or upper is None or file.file_format != FileFormat.PARQUET:
        raise PackedTableError(
            f"table {identifier}: file {file.file_path} is not Parquet with bounds for ordinal; write the table with "
            "write.metadata.metrics.column.ordinal=full"
        )
    start, last = int(from_bytes(LongType(), lower)), int(from_bytes(LongType(), upper))
    if last - start + 1 != file.record_count:
        raise PackedTableError(
            f"table {identifier}: file {file.file_path} holds {file.record_count} rows for ordinals {start}..{last}; "
            "each file must hold one contiguous run: rewrite it sorted by ordinal"
        )
    return OrdinalRun(file.file_path, start, last + 1)


def successor_of(table: Table, snapshot_id: int) -> int:
    """Give the snapshot that is served for a pinned one: itself, unless documents were excised from it."""
    successors = json.loads(table.properties.get(SUCCESSORS, "{}"))
    return int(successors.get(str(snapshot_id), snapshot_id))


def rows_noted(table: Table, reference: str, snapshot_id: int) -> int | None:
    """Give the rows that a snapshot, or what a tag named, had before documents were excised; None if none is noted.

    Args:
        table: whose snapshot it is.
        reference: id of a snapshot, or a tag.
        snapshot_id: what is served for it now; a tag that was moved by somebody since is another one.
    """
    served, rows = json.loads(table.properties.get(NAMED_ROWS, "{}")).get(reference, ("", 0))
    return int(rows) if served == str(snapshot_id) or (served and reference.isdecimal()) else None


def served_snapshot(table: Table | None, name: str, pin: Pin, window: WindowFacts | None) -> Snapshot | None:
    """Find the snapshot that is served for a source, and check that table and snapshot are those the blend pinned.

    Where documents were excised since, the pinned snapshot has a successor of the same ordinals, which is given.

    Args:
        table: as it is now; None if there is none.
        name: of the source, for messages.
        pin: what the blend pinned; a live source gives its current snapshot, None while there is none.
        window: facts of the blend's rows; None for a table of text, which states none.

    Raises:
        SourceChangedError: the table was dropped, made again, repacked, or its snapshot expired.
    """
    where = f"source {name}: table {pin.table}"
    if table is None:
        raise SourceChangedError(f"{where} does not exist any more; restore it, or create a blend without it")
    if str(table.metadata.table_uuid) != pin.table_uuid:
        raise SourceChangedError(
            f"{where} has UUID {table.metadata.table_uuid}, the blend pinned {pin.table_uuid}: it was dropped and "
            "made again; create a new blend"
        )
    if pin.snapshot_id is None:
        snapshot = table.current_snapshot()
    else:
        snapshot = table.snapshot_by_id(successor_of(table, int(pin.snapshot_id)))
        if snapshot is None:
            raise SourceChangedError(
                f"{where} has no snapshot {pin.snapshot_id} any more, its tag was removed; create a new blend"
            )
    # Where the describing snapshot has expired, nothing is left to compare with; the blend holds the facts it pinned.
    if window is not None and (snapshot is None or _describing_snapshot(table, snapshot) is not None):
        _require_same(table, snapshot, where, pin, window)
    return snapshot


def _require_same(table: Table, snapshot: Snapshot | None, where: str, pin: Pin, window: WindowFacts) -> None:
    """Check that a snapshot has the generation that the blend pinned and the blend's window facts.

    Raises:
        SourceChangedError: names the property that differs.
    """
    generation = properties_at(table, snapshot).get(GENERATION, "")
    if generation != pin.generation:
        at = f"at snapshot {pin.snapshot_id}" if pin.snapshot_id is not None else "now"
        raise SourceChangedError(
            f"{where} is generation {generation} {at}, the blend pinned {pin.generation}: it was packed again; create "
            "a new blend"
        )
    if snapshot is not None and has_lost_facts(table, snapshot):  # nothing else to compare with
        return
    try:
        facts = read_window_facts(table, pin.table, snapshot)
    except PackedTableError as error:
        raise SourceChangedError(f"{where} changed: {error}") from error
    for fact, property_name in PROPERTY_OF_FACT.items():
        if getattr(facts, fact) != getattr(window, fact):
            raise SourceChangedError(
                f"{where} says {property_name} = {getattr(facts, fact)}, the blend was made for "
                f"{getattr(window, fact)}; create a new blend, and start training with its tokenizer"
            )

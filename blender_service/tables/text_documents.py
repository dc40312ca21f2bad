"""The documents of a table of text at a snapshot, by number: their files, and how they are read.

Documents are numbered by the names of the data files, then by their place in the file. Columns are those that the
snapshot has under the names of a rule; where a blend means others of the same names, as the table had them when the
blend was made of its present schema, the pin of the source names their field ids (`TextColumns.note`).

Files need not have page checksums, so a digest of each row group's values is kept with the blends when a table is
measured, and compared whenever it is read again: what has changed in the store since is refused, never served.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BooleanType, IntegerType, ListType, LongType, StringType, StructType, UUIDType

from blender_service.arrays import Int64Array
from blender_service.exceptions import PackedTableError
from blender_service.recently_used import RecentlyUsed
from blender_service.tables.data_file import FAULTS, StoreError, opened_parquet, told
from blender_service.tables.file_columns import Constants, FileColumn, FileColumns, find_column
from blender_service.tables.packed_table import schema_at
from blender_service.tables.text_packing import TextRule
from headrace.tables.cells import CellChoice, nearest
from headrace.tables.exceptions import CellsError

_CHOSEN_BY: Final = (StringType, IntegerType, LongType, BooleanType)

GROUP_BYTES: Final = 256 << 20  # of the row groups read last: neighbouring blocks lie in one
SPANS, TEMPLATE, TOOLS = "trainable", "template", "tools"
_BY_ID: Final = " columns "  # in a generation, before field ids

RowGroups = RecentlyUsed[tuple[str, int, tuple[int, ...]], pa.Table]  # by file, number and field ids


def row_groups() -> RowGroups:
    """Give an empty cache of row groups: a row group holds many blocks, and is read as a whole."""
    return RecentlyUsed(GROUP_BYTES, weigh=lambda rows: int(rows.nbytes))


class TextFile(NamedTuple):
    """One data file: where it is, its number of documents, and what its partition says of columns."""

    path: str
    documents: int
    constants: Constants


class TextColumns(NamedTuple):
    """Columns of a table of text.

    Attributes:
        columns: by what they are: `text`, `doc_id`, and `trainable`, `template` and `tools` where the rule names one.
        note: what a pin says of them: empty where a snapshot's own schema leads from the rule to them.
    """

    columns: Mapping[str, FileColumn]
    note: str

    def of_rows(self) -> dict[str, FileColumn]:
        """Give those needed for rows."""
        return {name: column for name, column in self.columns.items() if name != TEMPLATE}


def names_of(rule: TextRule) -> dict[str, str]:
    """Give the names of a rule's columns, by what they are here."""
    names = {"text": rule.text, "doc_id": rule.doc_id, SPANS: rule.trainable, TEMPLATE: rule.template}
    names[TOOLS] = rule.tools
    return {name: column for name, column in names.items() if column is not None}


def find_columns(
    table: Table, snapshot: Snapshot | None, names: Mapping[str, str], is_present: bool
) -> TextColumns | str:
    """Find columns by their names.

    Args:
        table: of text.
        snapshot: whose rows are wanted; None for a table without any.
        names: of columns, by what they are here.
        is_present: whether the names are those of the table's present schema, else those of the snapshot's.

    Returns:
        The columns, or the name of one that there is not.
    """
    then = table.schema() if snapshot is None else schema_at(table, snapshot)
    columns: dict[str, FileColumn] = {}
    for name, wanted in names.items():
        column = find_column(table.schema() if is_present else then, wanted)
        if column is None:
            return wanted
        # A wider type of today may write the same value in another way.
        columns[name] = find_column(then, column.field.field_id) or column
    ids = [column.field.field_id for column in columns.values()]
    by_name = [find_column(then, wanted) for wanted in names.values()]
    is_same = ids == [column and column.field.field_id for column in by_name]
    return TextColumns(columns, "" if is_same else _BY_ID + ".".join(map(str, ids)))


def columns_of_pin(table: Table, snapshot: Snapshot, names: Mapping[str, str], generation: str) -> TextColumns:
    """Find the columns a blend is bound to.

    Raises:
        PackedTableError: the table does not know them any more.
    """
    _, mark, noted = generation.partition(_BY_ID)
    wanted: dict[str, str | int] = dict(zip(names, map(int, noted.split(".")), strict=True)) if mark else {**names}
    then = schema_at(table, snapshot)
    schemas = [then, *(schema for _, schema in sorted(table.schemas().items()))] if mark else [then]
    columns = {}
    for name, key in wanted.items():
        column = next(filter(None, (find_column(schema, key) for schema in schemas)), None)
        if column is None:
            raise PackedTableError(
                f"table {'.'.join(table.name())}: has no column {names[name]} (field {key}) at snapshot "
                f"{snapshot.snapshot_id} any more; create a new blend"
            )
        columns[name] = column
    return TextColumns(columns, mark + noted)


def are_spans(column: FileColumn) -> bool:
    """Whether a column is a list of structs with the whole numbers `start` and `end`."""
    kind = column.field.field_type
    of = kind.element_type if isinstance(kind, ListType) else None
    types = {field.name: str(field.field_type) for field in of.fields} if isinstance(of, StructType) else {}
    return all(types.get(name) in ("int", "long") for name in ("start", "end"))


def text_files(table: Table, identifier: str, snapshot: Snapshot) -> tuple[TextFile, ...]:
    """List the data files of a snapshot, ascending by name, whatever folder they lie in.

    Raises:
        PackedTableError: a file deletes rows of others, or is not Parquet.
    """
    specs = table.specs()
    files: list[TextFile] = []
    for manifest in snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io):
            file: DataFile = entry.data_file
            if file.content != DataFileContent.DATA or file.file_format != FileFormat.PARQUET:
                raise PackedTableError(
                    f"table {identifier}: {file.file_path} is no Parquet of rows; rewrite the table without deletes"
                )
            parts = specs[manifest.partition_spec_id].fields
            constants = {
                part.source_id: value
                for part, value in zip(parts, (file.partition[at] for at in range(len(parts))), strict=True)
                if isinstance(part.transform, IdentityTransform)
            }
            files.append(TextFile(file.file_path, file.record_count, constants))
    return tuple(sorted(files, key=lambda file: file.path.rsplit("/", 1)[-1]))


def chosen_documents(
    table: Table, identifier: str, snapshot: Snapshot, files: Sequence[TextFile], choice: CellChoice
) -> NDArray[np.bool_]:
    """(D,) which documents of a table of text are chosen by its columns of text, whole numbers and booleans.

    Raises:
        CellsError: there is no such column, or no document is chosen.
        PackedTableError: a file cannot be read.
    """
    schema = schema_at(table, snapshot)
    columns = {condition.name: find_column(schema, condition.name) for condition in choice.conditions}
    there = [field.name for field in schema.fields if isinstance(field.field_type, _CHOSEN_BY)]
    for name, column in columns.items():
        if column is None or not isinstance(column.field.field_type, _CHOSEN_BY):
            raise CellsError(
                f"{identifier}[{choice}]: no column {name} of text, whole numbers or booleans"
                f"{nearest(name, there)}; there are {', '.join(there)}"
            )
    read = {name: column for name, column in columns.items() if column is not None}
    chosen = [np.zeros(0, dtype=np.bool_)]
    for of in files:
        where = f"table {identifier}: file {of.path}"
        try:
            with opened_parquet(table.io, of.path) as (file, _):
                of_file = FileColumns(file, where, read, table.name_mapping(), of.constants)
                for batch in file.iter_batches(1 << 16, columns=of_file.names, use_threads=False):
                    values = [array.to_pylist() for array in of_file.select(batch).values()]
                    rows = (dict(zip(read, row, strict=True)) for row in zip(*values, strict=True))
                    chosen.append(np.array([choice.holds(row) for row in rows], dtype=np.bool_))
        except (StoreError, *FAULTS) as error:
            raise told(where, error) from error
    mask = np.concatenate(chosen)
    if not mask.any():
        raise CellsError(f"{identifier}[{choice}]: no document of {len(mask):,} has all of this")
    return mask


class Digests(NamedTuple):
    """Digests of a column's values in the G row groups of a table's files.

    Attributes:
        starts: (G,) number of the first document of each with any.
        values: (G,) uint64.
    """

    starts: Int64Array
    values: np.ndarray[Any, np.dtype[np.uint64]]

    def to_bytes(self) -> bytes:
        """Write them."""
        written = io.BytesIO()
        np.savez_compressed(written, starts=self.starts, values=self.values)
        return written.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> Digests:
        """Read them."""
        read = np.load(io.BytesIO(content))
        return cls(read["starts"], read["values"])


class TextDocuments:
    """The documents of a table of text at a snapshot, by number; safe for many threads."""

    def __init__(
        self,
        identifier: str,
        files: Sequence[TextFile],
        file_io: FileIO,
        columns: Mapping[str, FileColumn],
        mapping: NameMapping | None,
        groups: RowGroups,
    ) -> None:
        """Read columns, keeping row groups in `groups`; those of texts are `text` and `doc_id`, maybe `trainable`."""
        self._where = f"table {identifier}"
        self.files, self._io, self._mapping = files, file_io, mapping
        self.columns = columns
        self.field_ids = tuple(column.field.field_id for column in columns.values())
        self._starts = np.concatenate([[0], np.cumsum([file.documents for file in files])]).astype(np.int64)
        self._groups = groups
        self.expected: Mapping[str, Digests] = {}
        """Digests that row groups must have, by column."""

    @property
    def count(self) -> int:
        """Number of documents."""
        return int(self._starts[-1])

    def read(self, first: int, last: int) -> pa.Table:
        """Give the documents [first, last): texts, none of them null, and lists of spans, null for whole documents.

        Raises:
            PackedTableError: a data file cannot be read, or has changed since the table was measured.
            ServerUnavailableError: its store does not answer.
        """
        return pa.concat_tables(part for _, part in self.parts(first, last))

    def parts(self, first: int, last: int) -> Iterator[tuple[int, pa.Table]]:
        """Give the documents [first, last) by row groups, each with the number of its first document."""
        for index in range(int(np.searchsorted(self._starts, first, side="right")) - 1, len(self.files)):
            if self._starts[index] >= last:
                return
            if self.files[index].documents:
                yield from self._parts_of(self.files[index], int(self._starts[index]), first, last)

    def _parts_of(self, of: TextFile, number: int, first: int, last: int) -> Iterator[tuple[int, pa.Table]]:
        where, begin = f"{self._where}: file {of.path}", number
        try:
            with opened_parquet(self._io, of.path) as (file, _):
                if file.metadata.num_rows != of.documents:
                    raise PackedTableError(
                        f"{where} has {file.metadata.num_rows} rows, its manifest says {of.documents}; restore the file"
                    )
                columns = FileColumns(file, where, self.columns, self._mapping, of.constants)
                for group in range(file.num_row_groups):
                    end = number + file.metadata.row_group(group).num_rows
                    if end > first and number < last and end > number:
                        low, high = max(first, number), min(last, end)
                        read = functools.partial(self._read_group, file, group, columns, number, where)
                        rows = self._groups.find((of.path, group, self.field_ids), read)
                        if rows.num_rows != end - number:
                            raise PackedTableError(f"{where} cannot be read: its footer has changed; restore the file")
                        yield low, rows.slice(low - number, high - low)
                    number = end
                if number != begin + of.documents:
                    raise PackedTableError(f"{where} cannot be read: its row groups have changed; restore the file")
        except (StoreError, *FAULTS) as error:
            raise told(where, error) from error

    def _read_group(self, file: pq.ParquetFile, group: int, columns: FileColumns, number: int, where: str) -> pa.Table:
        read = file.read_row_group(group, columns.names, use_threads=False)
        read.validate(full=True)
        values = columns.select(read)
        if read.num_rows != file.metadata.row_group(group).num_rows:
            raise PackedTableError(f"{where} cannot be read: row group {group} has changed; restore the file")
        texts = {name: _as_text(array, self.columns[name]) for name, array in values.items() if name != SPANS}
        rows = pa.table(texts | ({SPANS: _spans(values[SPANS])} if SPANS in values else {}))
        for name, digests in self.expected.items():
            at = int(np.searchsorted(digests.starts, number))
            if at == digests.starts.size or digests.starts[at] != number or digests.values[at] != digest(rows[name]):
                raise PackedTableError(
                    f"{where}: row group {group} is not what it was when the table was measured; restore the file"
                )
        return rows


def _as_text(array: pa.Array, column: FileColumn) -> pa.Array:
    """Values as texts, lists as their JSON; an empty one for null."""
    if isinstance(column.field.field_type, ListType):
        values = array.to_pylist(maps_as_pydicts="strict")
        written = (None if value is None else json.dumps(value, ensure_ascii=False, default=str) for value in values)
        array = pa.array(written, pa.large_string())
    if isinstance(column.field.field_type, UUIDType):
        array = pa.array([None if value is None else str(value) for value in array.to_pylist()], pa.large_string())
    return array.cast(pa.large_string()).fill_null("")


def _spans(array: pa.Array) -> pa.Array:
    """Spans with the fields `start` and `end` alone.

    Raises:
        ValueError: one has no start or no end.
    """
    inner = array.values
    bounds = [inner.field(name).cast(pa.int64()) for name in ("start", "end")]
    within = array.flatten()
    if within.null_count or any(within.field(name).null_count for name in ("start", "end")):
        raise ValueError("a span of its column of spans has no start or no end")
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(array.offsets, pa.StructArray.from_arrays(bounds, ["start", "end"]), mask=mask)


def utf8_of(texts: pa.LargeStringArray) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], Int64Array]:
    """Give the bytes of D texts, none of them null, and the (D + 1,) place of each in them."""
    if not len(texts):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    _, offsets, characters = texts.buffers()
    places = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(characters or b"", np.uint8), places


def digest(column: pa.ChunkedArray) -> int:
    """64 bits over the values of a column of `TextDocuments`, whatever buffers they lie in."""
    summed = hashlib.blake2b(digest_size=8)
    array = column.combine_chunks()
    if pa.types.is_list(array.type):
        within = array.flatten()
        summed.update(np.asarray(pc.list_value_length(array).fill_null(-1)).astype("<i8").data)
        for name in ("start", "end"):
            summed.update(np.asarray(within.field(name)).astype("<i8").data)
    else:
        data, ends = utf8_of(array)
        summed.update(np.diff(ends).astype("<i8").data)
        summed.update(data[ends[0] : ends[-1]].data)
    return int.from_bytes(summed.digest(), "little")

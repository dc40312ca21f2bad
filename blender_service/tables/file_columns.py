"""Read columns of a data file as Iceberg means them: by field id, whatever they are called in the file.

A table's schema changes without a file being written again: columns are renamed, dropped, added again under a name that
was used before, moved, and given wider types, also inside structs. A file holds the schema of its day, each column with
its id. Files that were added to a table may have no ids; then the table's name mapping says which name is which column.
What a file lacks is the value of its partition, the column's initial default, or null.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.types import IcebergType, ListType, NestedField, StructType

from blender_service.exceptions import PackedTableError

_FIELD_ID: Final = b"PARQUET:field_id"
Constants = Mapping[int, Any]
"""Values of the columns that a data file need not hold, by field id: those that its partition says."""


class FileColumn(NamedTuple):
    """A column of a table, or a field in a struct.

    Attributes:
        path: fields from the table's schema down to it; all but the last are structs.
    """

    path: tuple[NestedField, ...]

    @property
    def field(self) -> NestedField:
        """The column itself."""
        return self.path[-1]


def find_column(schema: Schema, wanted: str | int) -> FileColumn | None:
    """Find a column by its name (`struct.field` for one in structs) or its field id; None if there is none."""

    def search(fields: Iterable[NestedField], prefix: str, path: tuple[NestedField, ...]) -> FileColumn | None:
        for field in fields:
            if wanted in (prefix + field.name, field.field_id):
                return FileColumn((*path, field))
            if isinstance(field.field_type, StructType):
                inner = search(field.field_type.fields, f"{prefix}{field.name}.", (*path, field))
                if inner is not None:
                    return inner
        return None

    return search(schema.fields, "", ())


class FileColumns:
    """Reads columns of one open file by field id."""

    def __init__(
        self,
        file: pq.ParquetFile,
        where: str,
        columns: Mapping[str, FileColumn],
        mapping: NameMapping | None,
        constants: Constants | None = None,
    ) -> None:
        """Find the columns in a file.

        Args:
            file: open.
            where: the table and the file, for messages.
            columns: by their new name.
            mapping: which names of a file without ids are which columns; None where the table has none.
            constants: values of what the file lacks.

        Raises:
            PackedTableError: the file has no ids, and the table no name mapping.
        """
        schema = file.schema_arrow
        self._columns, self._constants = columns, constants or {}
        self._mapped = None if _has_ids(schema) else mapping.root if mapping is not None else []
        if self._mapped is not None and mapping is None:
            raise PackedTableError(
                f"{where}: its columns have no field ids, and the table no schema.name-mapping.default that says which "
                "names they have; set that property"
            )
        there = _by_id(schema, self._mapped)
        roots = {name: column.path[0].field_id for name, column in columns.items()}
        self.missing = {name for name, root in roots.items() if root not in there}
        self.names = sorted({schema[there[root][0]].name for name, root in roots.items() if name not in self.missing})
        """Names in the file of what is to be read."""

    def select(self, rows: pa.Table | pa.RecordBatch) -> dict[str, pa.Array]:
        """Give the columns of rows read by `names`, in the types of the table."""
        there = _by_id(rows.schema, self._mapped)
        return {name: self._of(rows, there, column) for name, column in self._columns.items()}

    def there(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Give the file's columns of rows."""
        arrays = self.select(rows)
        return pa.RecordBatch.from_pydict({name: array for name, array in arrays.items() if name not in self.missing})

    def _of(self, rows: pa.Table | pa.RecordBatch, there: _Fields, column: FileColumn) -> pa.Array:
        mapped: Sequence[MappedField] | None = self._mapped
        array: pa.Array | None = None
        for field in column.path:
            if field.field_id not in there:
                return self._lacking(column, field, array, rows.num_rows)
            index, mapped = there[field.field_id]
            array = _whole(rows.column(index)) if array is None else array.flatten()[index]  # null where the struct is
            if field is not column.field:
                _require(pa.types.is_struct(array.type), "struct", array)
                there = _by_id(list(array.type), mapped)
        return self._typed(array, column.field.field_type, mapped)

    def _lacking(self, column: FileColumn, lacking: NestedField, struct: pa.Array | None, count: int) -> pa.Array:
        """The values of a column missing from a file, or with a struct missing there."""
        if lacking is not column.field:
            return pa.nulls(count, _arrow_type(column.field.field_type))
        filled = self._filled(lacking, count)
        return filled if struct is None else pc.if_else(struct.is_valid(), filled, pa.scalar(None, filled.type))

    def _typed(self, array: pa.Array, kind: IcebergType, mapped: Sequence[MappedField] | None) -> pa.Array:
        """A value of a file in the table's present type."""
        if isinstance(kind, StructType):
            _require(pa.types.is_struct(array.type), "struct", array)
            inner = _by_id(list(array.type), mapped)
            parts = []
            for field in kind.fields:
                index, below = inner.get(field.field_id, (-1, None))
                is_there = index >= 0
                parts.append(
                    self._typed(array.field(index), field.field_type, below)
                    if is_there
                    else self._filled(field, len(array))
                )
            fields = [pa.field(one.name, part.type) for one, part in zip(kind.fields, parts, strict=True)]
            return pa.StructArray.from_arrays(parts, fields=fields, mask=array.is_null())
        if isinstance(kind, ListType):
            is_long = pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type)
            _require(is_long or pa.types.is_list(array.type), "list", array)
            if is_long:
                array = array.cast(pa.list_(array.type.value_field))
            values = self._typed(array.values, kind.element_type, mapped[0].fields if mapped else mapped)
            mask = array.is_null() if array.null_count else None
            return pa.ListArray.from_arrays(array.offsets, values, mask=mask)
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        target = _arrow_type(kind)
        if array.type == target:
            return array
        _require(_may_become(array.type, target), str(kind), array)
        return array.cast(target)

    def _filled(self, field: NestedField, count: int) -> pa.Array:
        """What a file has that is older than a column."""
        value, kind = self._constants.get(field.field_id, field.initial_default), _arrow_type(field.field_type)
        return pa.nulls(count, kind) if value is None else pa.repeat(pa.scalar(value, kind), count)


_Fields = dict[int, tuple[int, Sequence[MappedField] | None]]


def _has_ids(schema: pa.Schema) -> bool:
    return any(_FIELD_ID in (field.metadata or {}) for field in schema)


def _by_id(fields: Iterable[pa.Field], mapped: Sequence[MappedField] | None) -> _Fields:
    """Places of fields by their ids, with the name mapping of what is inside each."""
    if mapped is None:
        return {
            int(field.metadata[_FIELD_ID]): (index, None)
            for index, field in enumerate(fields)
            if _FIELD_ID in (field.metadata or {})
        }
    named = {name: mapping for mapping in mapped for name in mapping.names}
    return {
        int(mapping.field_id): (index, mapping.fields)
        for index, field in enumerate(fields)
        if (mapping := named.get(field.name)) is not None and mapping.field_id is not None
    }


@functools.lru_cache(maxsize=256)  # asked for each column of each block
def _arrow_type(kind: IcebergType) -> pa.DataType:
    return schema_to_pyarrow(kind, include_field_ids=False)


def _require(holds: bool, kind: str, array: pa.Array) -> None:
    """Refuse a file of another type than the table, as one without field ids may after its names were reused."""
    if not holds:
        raise ValueError(f"a column of type {kind} is {array.type} in it")


def _may_become(kind: pa.DataType, target: pa.DataType) -> bool:
    """Whether Iceberg lets values of a file be read as a type: the same, or a wider one of its kind."""
    types = pa.types
    for is_kind in (types.is_integer, types.is_floating):
        if is_kind(kind) and is_kind(target):
            return bool(kind.bit_width <= target.bit_width)
    if types.is_decimal(kind) and types.is_decimal(target):
        return bool(kind.scale == target.scale and kind.precision <= target.precision)
    if types.is_timestamp(kind) and types.is_timestamp(target):
        return True
    if types.is_map(kind) and types.is_map(target):  # whatever their keys and values are called
        return _may_become(kind.key_type, target.key_type) and _may_become(kind.item_type, target.item_type)
    return str(kind).replace("large_", "") == str(target).replace("large_", "")


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as one array from its buffers' beginning."""
    if pa.types.is_string(column.type):  # one array of 2 GB and more needs wide offsets
        column = column.cast(pa.large_string())
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return array if array.offset == 0 else array.take(pa.array(np.arange(len(array))))

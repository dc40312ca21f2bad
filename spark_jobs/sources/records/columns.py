"""Usable records as columns of Arrow: of readers with columns, and of records read one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.arrays import BoolArray
from spark_jobs.sources.config.file_reading import KINDS, FileReading
from spark_jobs.sources.records.plain_values import value_text
from spark_jobs.sources.records.records import Record, Refused, usable_record

_MAP = pa.map_(pa.string(), pa.string())
_TYPES = (pa.int64(), *(pa.string(),) * 6, _MAP)
_BATCH_ROWS, _BATCH_CHARACTERS = 2_048, 4 << 20


class Records(NamedTuple):
    """Usable records in their order, as columns: of each field of `Record` an array, but for the facts.

    Facts are None where no record states any. Texts are valid UTF-8, and empty texts beside the text are null.
    """

    number: pa.Array
    text: pa.Array
    record_id: pa.Array
    repository: pa.Array
    language: pa.Array
    licence: pa.Array
    kind: pa.Array
    metadata: pa.Array
    facts: Sequence[Mapping[str, Any]] | None

    def only(self, kept: BoolArray) -> Records:
        """Some of the records."""
        if kept.all():
            return self
        mask, facts = pa.array(kept), self.facts and [self.facts[row] for row in np.flatnonzero(kept).tolist()]
        return Records._make([*(column.filter(mask) for column in self[:-1]), facts])


def in_columns(records: Iterable[Record | Refused | Records]) -> Iterator[Records | Refused]:
    """Records coming one by one as columns, about 4 MB of text together; those before an error too.

    Raises:
        OSError: of the reader.
    """
    waiting, characters = list[Record](), 0
    try:
        for record in records:
            if not isinstance(record, Record):
                yield record
                continue
            waiting.append(record)
            characters += len(record.text) + sum(map(len, record.metadata.values()))
            del record
            if len(waiting) >= _BATCH_ROWS or characters >= _BATCH_CHARACTERS:
                yield _columns(waiting)
                waiting, characters = [], 0
    except OSError:
        if waiting:
            yield _columns(waiting)
        raise
    if waiting:
        yield _columns(waiting)


def _columns(records: Sequence[Record]) -> Records:
    *columns, metadata, facts = zip(*records, strict=True)
    columns.append([list(fields.items()) for fields in metadata])
    arrays = (pa.array(column, kind) for column, kind in zip(columns, _TYPES, strict=True))
    return Records._make([*arrays, facts if any(facts) else None])


def usable_records(
    number: int, columns: Mapping[str, pa.Array], source: FileReading, max_bytes: int
) -> tuple[Records, list[Refused]] | None:
    """Records of columns, and those refused by `usable_record`; None where their values must be looked at singly.

    Args:
        number: of the first.
        columns: the mapped columns, in types of Parquet's with a form in JSON; strings in valid UTF-8.
        source: the column mapping.
        max_bytes: longest text in UTF-8.
    """
    texts, kinds = (columns.get(name or "") for name in (source.text_column, source.kind_column))
    if texts is None or not _is_string(texts) or source.fact_columns or not (kinds is None or _is_string(kinds)):
        return None
    count, texts = len(texts), texts.cast(pa.string())
    odd = pc.fill_null(pc.greater(pc.binary_length(texts), max_bytes), True)
    if (np.frombuffer(texts.buffers()[2] or b"", np.uint8) == 0).any():
        odd = pc.or_(odd, pc.fill_null(pc.greater_equal(pc.find_substring(texts, "\0"), 0), False))
    if kinds is not None:
        kinds = kinds.cast(pa.string())
        odd = pc.or_(odd, pc.invert(pc.is_in(kinds, pa.array([*KINDS, None], pa.string()))))
    refused, kept = list[Refused](), np.ones(count, np.bool_)
    for row in np.flatnonzero(odd.to_numpy(zero_copy_only=False)).tolist():
        fields = {name: column[row].as_py() for name, column in columns.items()}
        record = usable_record(number + row, fields.get(source.text_column or ""), fields, source, max_bytes)
        if isinstance(record, Refused):
            refused.append(record)
            kept[row] = False
    none = pa.nulls(count, pa.string())
    stated = (source.id_column, source.repository_column, source.language_column, source.licence_column)
    identity = (_null_where_empty(_texts(columns[name])) if name and name in columns else none for name in stated)
    kind = pa.repeat(source.record_kind, count) if kinds is None else pc.fill_null(kinds, source.record_kind)
    metadata = _maps({name: _texts(columns[name]) for name in source.metadata_columns if name in columns}, count)
    numbers = pa.array(np.arange(number, number + count))
    return Records._make([numbers, texts, *identity, kind, metadata, None]).only(kept), refused


def _is_string(column: pa.Array) -> bool:
    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def _texts(column: pa.Array) -> pa.Array:
    """Values as texts, see `value_text`."""
    return (
        column.cast(pa.string()) if _is_string(column) else pa.array(map(value_text, column.to_pylist()), pa.string())
    )


def _null_where_empty(column: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)


def _maps(columns: Mapping[str, pa.Array], count: int) -> pa.Array:
    """(count,) maps of the present values, by the names of their columns and in the columns' order."""
    if not columns:
        return pa.MapArray.from_arrays(np.zeros(count + 1, np.int32), *(pa.array([], pa.string()),) * 2)
    there = np.column_stack([column.is_valid().to_numpy(zero_copy_only=False) for column in columns.values()])
    rows, places = np.nonzero(there)
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(there.sum(axis=1), out=offsets[1:])
    keys = pa.array(list(columns), pa.string()).take(pa.array(places))
    return pa.MapArray.from_arrays(
        offsets, keys, pa.concat_arrays(columns.values()).take(pa.array(places * count + rows))
    )

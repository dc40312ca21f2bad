"""Read columns of a Parquet file as batches of plain values: the half for the child of parser_process.py.

Arrow's Parquet reader ends its whole process on some damaged and encrypted files, and a file of a few kilobytes can
hold gigabytes (a repeated long text is stored once). So a file is read here, in batches sized by what the last one took
when decoded, and goes to the worker as the buffers of Arrow's arrays, in types with a form in JSON:

    null, bool, numbers, string, binary    as they are; floats as the shortest equal number
    dictionaries, extension types          what they stand for
    decimal; duration                      text: 12.50; seconds
    INTERVAL; 128-bit integers             text: P14M3DT1.5S; digits
    date, time, timestamp                  text: 2026-01-31, 12:00:00.5, 2026-01-31T12:00:00 (with Z where it is in UTC)
    lists, structs, maps, VARIANT          JSON
"""

from __future__ import annotations

import decimal
import json
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs.sources.formats.parquet_leaves import OpenedFile, leaf_count, leaf_values, opened
from spark_jobs.sources.formats.parquet_paths import (
    InVariant,
    JsonValues,
    all_names,
    column_at,
    steps_to,
    stored_path,
    type_at,
)
from spark_jobs.sources.formats.variants import is_variant, variant_values
from spark_jobs.sources.records.plain_values import plain_text, value_text
from spark_jobs.sources.refusals import Reason, Refusal, first_line

BATCH_BYTES = 8 << 20
PAGE_BYTES = 400 << 20
NO_FORM = "no JSON: "
"""Begins the JSON of a value that has none; why stands behind it."""
PLAIN = {
    name: pa.type_for_alias(name)
    for name in (
        *("null", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float", "double"),
        *("string", "large_string", "binary", "large_binary"),
    )
}
"""Types that are sent, by their names."""
_FIRST_ROWS = 16
_GROWTH = 4
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


class Mapped(NamedTuple):
    """A column to read: whether it is the text, the steps to it, what its columns of values are."""

    is_text: bool
    steps: Sequence[str]
    leaves: Sequence[str | None]


def column_names(file: Any) -> Iterator[list[str]]:
    """Yield the names of all columns, and of fields inside of them as paths, read from the footer alone."""
    yield all_names(opened(file).parquet.schema_arrow)


def batches(
    file: Any, columns: Sequence[str], text_column: str | None, start: int, most_rows: int, optional: Sequence[str] = ()
) -> Iterator[dict[str, Any] | Refusal]:
    """Rows of a file.

    Args:
        file: to be read at any offset.
        columns: names of columns, or paths of fields inside of them; where one is not there exactly once, nothing is
            read.
        text_column: the one required to hold text, if there is one.
        start: rows before this one are left out.
        most_rows: largest batch.
        optional: columns allowed to be missing.

    Yields:
        First `names` of all columns, and which of `columns` are `there`. Then of so many `rows` from a `row` on,
        counted from 0, these columns (each a type of PLAIN, whether its texts are JSON, and its buffers), or a
        `refusal`. At last a refusal where the file is damaged.
    """
    row = start
    try:
        opened_file = opened(file)
        schema = opened_file.parquet.schema_arrow
        counts = {name: schema.names.count(name) or int(steps_to(schema, name) is not None) for name in columns}
        there = [name for name, count in counts.items() if count == 1]
        yield {"names": all_names(schema, there), "there": there}
        if any(count != 1 and not (count == 0 and name in optional) for name, count in counts.items()):
            return
        kind = type_at(schema, steps_to(schema, text_column) or []) if text_column in there else pa.null()
        if not _is_text(kind):
            yield Refusal(Reason.WRONG_TYPE, f"column {text_column!r} is {kind}, not text; name the column of the text")
            return
        for group in _groups(file, opened_file, there, text_column, start, most_rows):
            yield group
            row = group["row"] + group["rows"]
    except MemoryError:  # Arrow's is an ArrowException, too
        raise
    except (OSError, pa.ArrowException) as error:
        words = first_line(error)
        where = "no Parquet file" if row == 0 else f"damaged after row {row}"
        reason = Reason.ENCRYPTED if "crypt" in words.lower() else Reason.CORRUPT_FILE
        yield Refusal(reason, f"{where}: {words}")


def _groups(
    file: Any, opened_file: OpenedFile, columns: Sequence[str], text_column: str | None, start: int, most_rows: int
) -> Iterator[dict[str, Any]]:
    """Batches and refusals of all row groups from a row on.

    The next batch has as many rows as would take about 8 MB if they are like the last; sizes in the file say nothing
    about that, because they are of what is encoded.
    """
    row, rows, parquet = 0, min(_FIRST_ROWS, most_rows), opened_file.parquet
    paths = [parquet.schema.column(leaf).path for leaf in range(len(parquet.schema))]
    steps = {name: steps_to(parquet.schema_arrow, name) or [name] for name in columns}
    stored = [stored_path(parquet.schema_arrow, names) for names in steps.values()]
    below = [[leaf for leaf, path in enumerate(paths) if f"{path}.".startswith(f"{name}.")] for name in stored]
    leaves = sorted(set(chain.from_iterable(below)))
    read = [
        Mapped(name == text_column, names, [opened_file.leaves.get(leaf) for leaf in under])
        for (name, names), under in zip(steps.items(), below, strict=True)
    ]
    for number in range(parquet.metadata.num_row_groups):
        group = parquet.metadata.row_group(number)
        if row + group.num_rows <= start:
            row += group.num_rows
        elif (size := _largest_page(file, group, leaves)) > PAGE_BYTES:
            where = f"rows {row + 1} to {row + group.num_rows} stand in pages of {size >> 20} MB, which are not read"
            detail = f"{where}; write smaller row groups (at most {PAGE_BYTES >> 20} MB)"
            yield {"row": row, "rows": group.num_rows, "refusal": Refusal(Reason.TOO_LARGE, detail)}
            row += group.num_rows
        else:
            for batch in parquet.iter_batches(rows, row_groups=[number], columns=stored, use_threads=False):
                first, row = row, row + batch.num_rows
                if row > start:
                    wanted = batch.slice(max(0, start - first))
                    message, row_bytes = _message(wanted, read)
                    yield {"row": row - wanted.num_rows, "rows": wanted.num_rows, **message}
                    rows = max(1, min(most_rows, rows * _GROWTH, BATCH_BYTES // max(1, row_bytes)))
                    parquet.reader.set_batch_size(rows)


def _largest_page(file: Any, group: pq.RowGroupMetaData, leaves: Sequence[int]) -> int:
    """Decompressed bytes of the largest of the first pages of some columns: a page is read as a whole.

    They are the second field of the page's header, a zigzag number of Thrift's compact protocol.
    """
    sizes = [0]
    for column in map(group.column, leaves):
        if column.total_uncompressed_size > PAGE_BYTES:
            for start in filter(None, (column.dictionary_page_offset, column.data_page_offset)):
                file.seek(start)
                varint = file.read(8)[3:]
                end = next((at for at, byte in enumerate(varint) if byte < 0x80), 0)
                sizes.append(sum((byte & 0x7F) << 7 * place for place, byte in enumerate(varint[: end + 1])) >> 1)
    return max(sizes)


def _is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type may hold the text of documents."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    kind = kind.storage_type if isinstance(kind, pa.JsonType) else kind
    texts = (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view())
    return kind in texts or pa.types.is_null(kind) or is_variant(kind)


def _message(batch: pa.RecordBatch, columns: Sequence[Mapped]) -> tuple[dict[str, Any], int]:
    """A batch as it is sent, and the mean bytes of a decoded row."""
    sent, byte_count = list[Any](), 0
    for is_text, steps, leaves in columns:
        values = column_at(batch, steps)
        if isinstance(values, pa.Array):
            leaves = leaves[-leaf_count(values.type) :]  # noqa: PLW2901 - of a map's values, not of its keys
        column, is_json = plain_column(values, leaves)
        if is_text and is_json and isinstance(values, pa.Array):
            column = _texts(column)
        if column.offset:
            column = pa.concat_arrays([pa.array([], column.type), column])
        byte_count += column.nbytes
        buffers = [None if buffer is None else memoryview(buffer) for buffer in column.buffers()]
        sent.append([str(column.type), is_json, buffers])
    return {"columns": sent}, byte_count // max(1, batch.num_rows)


def plain_column(column: pa.Array | JsonValues | InVariant, leaves: Sequence[str | None] = ()) -> tuple[pa.Array, bool]:
    """The column converted to a type of PLAIN, and whether its texts are JSON.

    Args:
        column: the column.
        leaves: what its columns of values are where their types do not say it (`parquet_leaves`).
    """
    if not isinstance(column, pa.Array):
        return _json_column(column), True
    kind, types = column.type, pa.types
    if types.is_dictionary(kind):
        return plain_column(column.dictionary_decode(), leaves)
    if isinstance(kind, pa.BaseExtensionType) and not isinstance(kind, pa.UuidType):
        return plain_column(column.storage, leaves)
    if types.is_nested(kind) or types.is_interval(kind):
        try:
            return pa.array(map(_json_text, _values(column, iter(leaves))), pa.large_string()), True
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - a value that has no form, which is told for its row alone
            rows = (column.slice(row, 1) for row in range(len(column)))
            return pa.array([_json(row, leaves) for row in rows], pa.large_string()), True
    leaf = next(iter(leaves), None)
    return (_flat_column(column), False) if leaf is None else _leaf_column(column, leaf)


def _json_column(column: JsonValues | InVariant) -> pa.Array:
    """JSON of values inside of others."""
    if isinstance(column, JsonValues):
        return column.texts
    texts = plain_column(column.column)[0].to_pylist()
    return pa.array(column.values(texts, NO_FORM), pa.large_string())


def _leaf_column(column: pa.Array, leaf: str) -> tuple[pa.Array, bool]:
    """A flat column of a type not stated by Arrow, in the form of `plain_column`."""
    if leaf.startswith("duration "):
        return _flat_column(column.cast(pa.duration(leaf.removeprefix("duration ")))), False
    try:
        values = leaf_values(column, leaf)
    except ValueError as error:
        return pa.array([f"{NO_FORM}{error}"] * len(column), pa.string()), True
    return pa.array([None if value is None else str(value) for value in values], pa.string()), False


def _values(column: pa.Array, leaves: Iterator[str | None]) -> list[Any]:
    """Python values of a column, nested ones of those that its innermost columns have alone.

    Raises:
        Exception: a value has no form.
    """
    kind, types = column.type, pa.types
    if isinstance(kind, pa.BaseExtensionType) and not isinstance(kind, pa.UuidType):
        return _values(column.storage, leaves)
    if is_variant(kind):
        list(islice(leaves, leaf_count(kind)))
        return variant_values(column, lambda inner: list(plain_column(inner)[0].to_pylist()))
    if types.is_struct(kind):
        names = [field.name for field in kind]
        if len(set(names)) < len(names):
            raise ValueError("a name is there twice in a struct")
        columns = [_values(inner, leaves) for inner in column.flatten()]
        rows = zip(*columns, strict=True) if names else ((),) * len(column)
        valid = column.is_valid().to_pylist()
        return [dict(zip(names, row, strict=True)) if there else None for row, there in zip(rows, valid, strict=True)]
    if types.is_map(kind):
        pairs = column.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
        return [row and [[pair["key"], pair["value"]] for pair in row] for row in _values(pairs, leaves)]
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        lengths, items = pc.list_value_length(column).to_pylist(), iter(_values(column.flatten(), leaves))
        return [None if length is None else list(islice(items, length)) for length in lengths]
    if types.is_nested(kind) or types.is_interval(kind):
        return list(column.to_pylist())
    leaf = next(leaves, None)
    if leaf is not None and not leaf.startswith("duration "):
        return leaf_values(column, leaf)
    return list(plain_column(column, [leaf])[0].to_pylist())


def _texts(column: pa.Array) -> pa.Array:
    """JSON of the texts for values in JSON: strings are texts themselves."""
    values = column.to_pylist()
    is_value = [text is not None and not text.startswith(NO_FORM) for text in values]
    texts = [
        json.dumps(value_text(json.loads(text))) if there else text
        for text, there in zip(values, is_value, strict=True)
    ]
    return pa.array(texts, pa.large_string())


def _json_text(value: Any) -> str | None:
    """A nested value as JSON."""
    return None if value is None else json.dumps(value, default=plain_text)


def _flat_column(column: pa.Array) -> pa.Array:
    """A flat column in a type of PLAIN; strings stay unchecked (Parquet does not check them)."""
    kind, types = column.type, pa.types
    if types.is_float32(kind):  # .1 is its shortest form, not 0.10000000149011612
        return column.cast(pa.string()).cast(pa.float64())
    if kind in PLAIN.values():
        return column
    if types.is_float16(kind):
        return pa.array([None if n is None else float(str(np.float16(n))) for n in column.to_pylist()], pa.float64())
    if types.is_string_view(kind):
        return column.cast(pa.binary_view()).cast(pa.large_binary())
    if types.is_binary_view(kind) or types.is_fixed_size_binary(kind):
        return column.cast(pa.large_binary())
    if types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind):
        return _moments(column)
    if types.is_duration(kind):
        digits = _DIGITS[kind.unit]
        seconds = [n and decimal.Decimal(n).scaleb(-digits) for n in column.cast(pa.int64()).to_pylist()]
        return pa.array([None if n is None else plain_text(n) for n in seconds], pa.string())
    return pa.array([None if value is None else plain_text(value) for value in column.to_pylist()], pa.string())


def _moments(column: pa.Array) -> pa.Array:
    """Dates and times as in ISO 8601, without zeros at the end; those with a time zone in UTC."""
    is_utc = pa.types.is_timestamp(column.type) and column.type.tz is not None
    if is_utc:
        column = column.cast(pa.int64()).cast(pa.timestamp(column.type.unit))
    texts = pc.replace_substring(column.cast(pa.string()), " ", "T", max_replacements=1)
    texts = pc.replace_substring_regex(texts, r"(\.\d*?)0+$", r"\1")
    texts = pc.replace_substring_regex(texts, r"\.$", "")
    return pc.binary_join_element_wise(texts, "Z", "") if is_utc else texts


def _json(row: pa.Array, leaves: Sequence[str | None]) -> str | None:
    """The nested value in a column of one as JSON, or why it has none."""
    try:
        return _json_text(_values(row, iter(leaves))[0])
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - a time zone that nobody knows, a name that is there twice, ..
        return f"{NO_FORM}{type(error).__name__}: {error}"[:300]

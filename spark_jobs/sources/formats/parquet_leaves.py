"""Open a Parquet file, and tell the columns of bytes and bare numbers of types not stated by Arrow.

INTERVAL of Parquet                                     Arrow gives 12 bytes
types of other libraries in the Arrow schema beside     Arrow refuses the whole file; without that schema 128-bit
Parquet's own (128-bit integers of Polars)              integers are 16 bytes, and durations numbers
"""

from __future__ import annotations

import base64
import itertools
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

_ARROW_SCHEMA: Final = b"ARROW:schema"
_READ_BYTES: Final = 1 << 22  # the parent computes between two questions
_INT, _DURATION, _LAST_KNOWN = 2, 18, 26  # numbers of types in Schema.fbs of Arrow
_UNITS: Final = ("s", "ms", "us", "ns")
_WIDE_BYTES: Final = 16
_UNKNOWN: Final = "unknown"
_MARK: Final = b"\xff\xff\xff\xff"


class OpenedFile(NamedTuple):
    """A Parquet file, its footer read, and what its columns of values are where Arrow does not say it, by number."""

    parquet: pq.ParquetFile
    leaves: dict[int, str]


def opened(file: Any) -> OpenedFile:
    """The file, its footer read.

    Raises:
        OSError, ArrowException: it cannot be read.
    """
    options = {"pre_buffer": False, "buffer_size": _READ_BYTES, "page_checksum_verification": True}
    leaves = dict[int, str]()
    try:
        parquet = pq.ParquetFile(file, **options)
    except MemoryError:
        raise
    except pa.ArrowException:
        if (metadata := _without_arrow_schema(file)) is None:
            raise
        parquet = pq.ParquetFile(file, metadata=metadata, **options)
        try:
            leaves = dict(_told(parquet))
        except (ValueError, IndexError, struct.error, RecursionError) as error:
            raise pa.ArrowInvalid(f"its Arrow schema is damaged: {error}") from error
    schema = parquet.schema
    columns = map(schema.column, range(len(schema)))
    intervals = {at: "interval" for at, of in enumerate(columns) if of.converted_type == "INTERVAL"}
    return OpenedFile(parquet, {**leaves, **intervals})


def leaf_values(column: pa.Array, leaf: str) -> list[Any]:
    """Values of a column named in `OpenedFile.leaves`.

    Raises:
        ValueError: their type is not known.
    """
    if leaf in ("int128", "uint128"):
        values: list[bytes | None] = column.to_pylist()
        return [None if data is None else int.from_bytes(data, "little", signed=leaf == "int128") for data in values]
    if leaf == "interval":
        return [None if data is None else _interval_text(*struct.unpack("<III", data)) for data in column.to_pylist()]
    raise ValueError("its type is of another library, and not known")


def _interval_text(months: int, days: int, milliseconds: int) -> str:
    """An interval of a database in ISO 8601, such as P14M3DT1.5S; nothing is carried from one unit to another."""
    seconds = f"{milliseconds // 1000}.{milliseconds % 1000:03d}".rstrip("0").rstrip(".")
    dates = "".join(f"{count}{unit}" for count, unit in ((months, "M"), (days, "D")) if count)
    return f"P{dates}T{seconds}S" if milliseconds or not dates else f"P{dates}"


def leaf_count(kind: pa.DataType) -> int:
    """How many columns of values a type has in a file."""
    inner = [kind.field(at).type for at in range(kind.num_fields)] if pa.types.is_nested(kind) else []
    return sum(map(leaf_count, inner)) if inner else 1


def _without_arrow_schema(file: Any) -> pq.FileMetaData | None:
    """The footer without the Arrow schema written beside Parquet's own; None where there is none."""
    size = file.seek(0, 2)
    file.seek(max(0, size - 8))
    tail = bytes(file.read(8))
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != b"PAR1" or length > size - 12:
        return None
    file.seek(size - 8 - length)
    footer = bytes(file.read(length))
    if _ARROW_SCHEMA not in footer:
        return None
    renamed = footer.replace(_ARROW_SCHEMA, _ARROW_SCHEMA.lower())
    return pq.read_metadata(pa.BufferReader(b"PAR1" + renamed + tail))


def _told(parquet: pq.ParquetFile) -> Iterator[tuple[int, str]]:
    """What the Arrow schema left aside says of columns of bytes and bare numbers, by their numbers.

    Raises:
        ValueError, IndexError, struct.error: it is damaged, or has not as many columns as the file.
    """
    data = base64.b64decode(parquet.metadata.metadata[_ARROW_SCHEMA.lower()])
    kinds = list(_fields(data))
    if len(kinds) != len(parquet.schema):
        raise ValueError(f"{len(kinds)} columns, the file has {len(parquet.schema)}")
    for at, kind in enumerate(kinds):
        of = parquet.schema.column(at)
        is_wide = of.physical_type == "FIXED_LEN_BYTE_ARRAY" and of.length == _WIDE_BYTES
        if kind is None or of.logical_type.type != "NONE" or (kind in ("int128", "uint128") and not is_wide):
            continue
        yield at, kind


def _fields(data: bytes) -> Iterator[str | None]:
    """What a column of values is, in the order of the file; None for what Parquet says itself.

    Source: Schema.fbs and Message.fbs of Arrow, and the binary form of FlatBuffers.
    """
    start = 8 if data.startswith(_MARK) else 4
    schema = _slot(data, start + _number(data, start), 2)
    if schema is None or (fields := _slot(data, schema + _number(data, schema), 1)) is None:
        raise ValueError("no schema")
    yield from itertools.chain.from_iterable(_leaves(data, field) for field in _tables(data, fields))


def _leaves(data: bytes, field: int, depth: int = 0) -> Iterator[str | None]:
    """The columns of values of a field: its innermost children."""
    kind_at, type_at, children = (_slot(data, field, number) for number in (2, 3, 5))
    inner = [] if children is None or _slot(data, field, 4) else list(_tables(data, children))
    for child in inner:
        yield from _leaves(data, child, depth + 1)
    if inner:
        return
    kind = 0 if kind_at is None else data[kind_at]
    table = None if type_at is None else type_at + _number(data, type_at)
    first, second = (None if table is None else _slot(data, table, number) for number in (0, 1))
    if kind == _INT and first is not None and _number(data, first) == 8 * _WIDE_BYTES:
        yield "int128" if second is not None and data[second] else "uint128"
    elif kind == _DURATION:
        yield f"duration {_UNITS[1 if first is None else struct.unpack_from('<h', data, first)[0]]}"
    else:
        yield _UNKNOWN if kind > _LAST_KNOWN else None


def _slot(data: bytes, table: int, number: int) -> int | None:
    """Where a field of a table stands; None where it is left out."""
    names = table - struct.unpack_from("<i", data, table)[0]
    (size,) = struct.unpack_from("<H", data, names)
    at = 4 + 2 * number
    offset: int = struct.unpack_from("<H", data, names + at)[0] if at < size else 0
    return table + offset if offset else None


def _tables(data: bytes, at: int) -> Iterator[int]:
    """Where the tables of a vector stand."""
    begin = at + _number(data, at)
    places = range(begin + 4, begin + 4 + 4 * min(_number(data, begin), len(data)), 4)
    return (place + _number(data, place) for place in places)


def _number(data: bytes, at: int) -> int:
    number: int = struct.unpack_from("<I", data, at)[0]
    return number

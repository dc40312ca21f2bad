"""Frames in hand: rows of any library that gives Arrow, or a list; the same type comes back with fewer rows.

pandas, Polars, Arrow     a frame, and one of its columns of texts
Hugging Face datasets     as they are; rows are chosen by number, nothing is written
list, tuple, NumPy array  of texts, or of dictionaries with a text each; an iterator of them becomes a list
anything else             with the Arrow C stream, a stream of Hugging Face or an iterator of batches: an Arrow table
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from spark_jobs.arrays import Int64Array
from spark_jobs.exceptions import InputError, nearest

_STREAM_ROWS = 1000  # of a stream at a time, as `datasets` reads by itself
_TEXTS = (pa.string(), pa.large_string(), pa.string_view())


@dataclass(frozen=True)
class Frame:
    """N rows in hand.

    Attributes:
        texts: (N,) large strings; null where a row has no text.
        rows: gives the rows of some numbers, in the type of the frame.
    """

    texts: pa.ChunkedArray
    rows: Callable[[Int64Array], Any]

    def __len__(self) -> int:
        return len(self.texts)

    def batches(self, most_bytes: int = 4 << 20) -> Iterator[pa.Array]:
        """Texts of some MB at a time, an empty one for null, in order."""
        for chunk in self.texts.chunks:
            offsets = np.frombuffer(chunk.buffers()[1], np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
            first = 0
            while first < len(chunk):
                last = int(np.searchsorted(offsets, offsets[first] + most_bytes, side="right")) - 1
                last = min(max(last, first + 1), len(chunk))
                yield chunk.slice(first, last - first).fill_null("")
                first = last


def frame_of(data: Any, column: str | None = "text") -> Frame:
    """Open a frame, a list or a stream at its column of texts.

    Raises:
        InputError: there is no such column, or it holds no texts.
    """
    library = type(data).__module__.partition(".")[0]
    data = _gathered(data) if isinstance(data, Iterator) else data
    if isinstance(data, list | tuple):
        return _of_list(data, column)
    if isinstance(data, np.ndarray) and data.ndim == 1:
        return Frame(_texts(_array(data.tolist(), column), column), lambda rows: data[rows])
    if library == "pandas":
        values = data if column is None or data.ndim == 1 else data[_named(column, map(str, data.columns))]
        return Frame(_texts(pa.array(values, from_pandas=True), column), lambda rows: data.iloc[rows])
    if library == "polars":
        frame = data.collect() if hasattr(data, "collect") else data
        values = frame if not hasattr(frame, "columns") else frame[_named(column, frame.columns)]
        return Frame(_texts(values.to_arrow(), column), lambda rows: frame[rows])
    if library == "datasets" and isinstance(data, Mapping):
        raise InputError(f"headrace: a {type(data).__name__} has splits; give one of them: {', '.join(data)}")
    if library == "datasets" and not hasattr(data, "select"):  # a stream, which has neither length nor columns
        data = _gathered(pa.Table.from_pydict(batch) for batch in data.iter(_STREAM_ROWS))
    elif library == "datasets":
        named = _named(column, data.column_names)
        values = data.select_columns([named]).with_format("arrow")[:][named]
        return Frame(_texts(values, column), data.select)
    if isinstance(data, pa.Array | pa.ChunkedArray):
        return Frame(_texts(data, column), lambda rows: data.take(pa.array(rows)))
    table = _table(data)
    views = [field.name for field in table.schema if field.type == pa.string_view()]
    for name in views:  # Arrow cannot take rows of them yet
        table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.large_string()))
    return Frame(_texts(table[_named(column, table.column_names)], column), lambda rows: table.take(pa.array(rows)))


def _table(data: Any) -> pa.Table:
    """An Arrow table of a stream.

    Raises:
        InputError: the data is none.
    """
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return pa.table(data) if hasattr(data, "__arrow_c_stream__") else pa.Table.from_batches([pa.record_batch(data)])
    raise InputError(
        f"headrace: a {type(data).__name__} is no data that is read; give a pandas, Polars or Arrow frame, a Hugging "
        "Face dataset, a list of texts, or an iterator of texts or Arrow batches"
    )


def _gathered(parts: Iterator[Any]) -> Any:
    """What an iterator gives: an Arrow table of batches, a list of anything else."""
    gathered = list(parts)
    if gathered and all(hasattr(part, "__arrow_c_stream__") for part in gathered):
        return pa.concat_tables([pa.table(part) for part in gathered], promote_options="default")
    if gathered and all(hasattr(part, "__arrow_c_array__") for part in gathered):
        return pa.Table.from_batches([pa.record_batch(part) for part in gathered])
    return gathered


def _of_list(data: Sequence[Any], column: str | None) -> Frame:
    """A list of texts, or of dictionaries."""
    values: Sequence[Any] = data
    if data and isinstance(data[0], Mapping):
        for number, row in enumerate(data):
            if not isinstance(row, Mapping):
                raise InputError(f"headrace: row {number} is a {type(row).__name__}, and row 0 is not; give one kind")
        names = dict.fromkeys(name for row in data for name in row)
        named = _named(column, names)
        values = [row.get(named) for row in data]
    kind = tuple if isinstance(data, tuple) else list
    return Frame(_texts(_array(values, column), column), lambda rows: kind(data[row] for row in rows.tolist()))


def _array(values: Sequence[Any], column: str | None) -> pa.Array:
    try:
        return pa.array(values, pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError) as error:
        raise InputError(f"headrace: {column or 'the list'} holds no texts: {error}; give strings") from error


def _named(column: str | None, names: Any) -> str:
    """The column of texts, which may be left out where there is one column."""
    listed = list(names)
    if column is None and len(listed) == 1:
        return str(listed[0])
    if column not in listed:
        raise InputError(
            f"headrace: there is no column {column!r}{nearest(str(column), listed)}; columns: {', '.join(listed)}"
        )
    return str(column)


def _texts(values: Any, column: str | None) -> pa.ChunkedArray:
    """Values as large strings in chunks.

    Raises:
        InputError: they are of another type.
    """
    chunked = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
    kind = chunked.type
    if isinstance(kind, pa.DictionaryType):
        chunked, kind = chunked.cast(kind.value_type), kind.value_type
    if pa.types.is_null(kind):
        chunked, kind = chunked.cast(pa.large_string()), pa.large_string()
    if kind not in _TEXTS:
        raise InputError(f"headrace: {column or 'the column'} is of type {kind}, no texts; name a column of strings")
    return chunked.cast(pa.large_string())

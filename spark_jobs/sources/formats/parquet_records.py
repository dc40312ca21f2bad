"""Read records from Parquet files, parsed by another process; records.py says what records are.

    worker                      child (formats/parquet_batches.py)
    file, columns          ->   opens the file, asks for the wanted bytes
    records  <-  values    <-   batches of about 8 MB in plain types

A file ending the child is refused at its present row, and no other file with it. Where the child ended for want of
memory, a smaller batch may do: it is tried.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

import pyarrow as pa

from spark_jobs.sources.config.file_reading import FileReading
from spark_jobs.sources.formats.parquet_batches import NO_FORM, PLAIN, batches, column_names
from spark_jobs.sources.opening.compression import codec_of, decompressed
from spark_jobs.sources.opening.parser_process import ChildEndedError, read_apart
from spark_jobs.sources.opening.streams import HashedFile
from spark_jobs.sources.records.columns import Records, usable_records
from spark_jobs.sources.records.records import (
    NO_PARTITIONS,
    Record,
    RecordFile,
    Refused,
    names_refusal,
    usable_record,
)
from spark_jobs.sources.refusals import Reason, Refusal, first_line

_MEMORY_BYTES = 1536 << 20
"""Address space of the child: a page of 400 MB packed, unpacked and as values."""
_BATCH_ROWS = (10_000, 32, 1)  # at most, of each try
_FOOTER_SECONDS = 20


class ParquetRows(NamedTuple):
    """Rows of a file: the number of the first, from 1, their columns, and what is wrong with some of them.

    Columns of JSON are lists, others arrays: strings where all are UTF-8, else bytes.
    """

    number: int
    row_count: int
    columns: dict[str, pa.Array | list[Any]]
    faults: dict[int, Refusal]

    def values(self) -> dict[str, list[Any]]:
        """Python's values by column."""
        return {
            name: column if isinstance(column, list) else column.to_pylist() for name, column in self.columns.items()
        }


def read_parquet(file: RecordFile) -> Iterator[Record | Records | Refused]:
    """Records of a file; see `parquet_records`."""
    return parquet_records(_seekable(file), file.source, file.max_bytes, file.partitions)


def names_in(file: RecordFile) -> list[str]:
    """Names of the columns of a file, of fields inside of them as paths, and of those from its folders."""
    return list(dict.fromkeys((*parquet_columns(_seekable(file)), *file.partitions)))


def _seekable(file: RecordFile) -> IO[bytes]:
    """The file at any offset; of one compressed as a whole a temporary copy."""
    raw = file.raw
    is_packed = raw.head(4) != b"PAR1" and codec_of(raw) is not None
    limits = file.source.archives
    plain = HashedFile(decompressed(raw, codec_of(raw) or "", limits)) if is_packed else raw
    return plain.random_access(limits.max_temporary_bytes)


def parquet_records(
    file: IO[bytes], source: FileReading, max_bytes: int, partitions: Mapping[str, str | None] = NO_PARTITIONS
) -> Iterator[Record | Records | Refused]:
    """Records of a Parquet file, as columns where they are plain; only the mapped columns are read.

    Args:
        file: the file, seekable.
        source: the column mapping; every column it names must be in the file.
        max_bytes: longest text in UTF-8.
        partitions: columns from folders, where the file does not have them.

    Raises:
        OSError: the file cannot be read.
    """
    constants = {name: value for name, value in partitions.items() if name in source.mapped_columns}
    columns, text_column = source.mapped_columns, source.text_column
    for rows in parquet_rows(file, columns, text_column, source.extract_seconds, tuple(constants)):
        if isinstance(rows, Refused):
            yield rows
        elif isinstance(rows, ParquetRows):
            yield from _records(rows, constants, source, max_bytes)
        elif refusal := names_refusal([*rows, *(name for name in constants if name not in rows)], source, "file"):
            yield Refused(None, refusal)


def _records(
    rows: ParquetRows, partition_values: Mapping[str, str | None], source: FileReading, max_bytes: int
) -> Iterator[Record | Records | Refused]:
    if not any(isinstance(column, list) for column in rows.columns.values()):
        constants = {
            name: pa.repeat(pa.scalar(value, pa.string()), rows.row_count) for name, value in partition_values.items()
        }
        if plain := usable_records(rows.number, {**constants, **rows.columns}, source, max_bytes):
            records, refused = plain
            yield from refused
            yield records
            return
    values, text_column = rows.values(), source.text_column or ""
    texts = values.get(text_column) or [partition_values.get(text_column)] * rows.row_count
    for row, number in enumerate(range(rows.number, rows.number + rows.row_count)):
        if number in rows.faults:
            yield Refused(number, rows.faults[number])
        else:
            fields = {**partition_values, **{name: column[row] for name, column in values.items()}}
            yield usable_record(number, texts[row], fields, source, max_bytes, typed=True)


def parquet_rows(
    file: IO[bytes], columns: Sequence[str], text_column: str | None, seconds: int, optional: Sequence[str] = ()
) -> Iterator[list[str] | ParquetRows | Refused]:
    """Names of all columns, then the rows; a refusal without a number ends them.

    Args:
        file: the file, seekable.
        columns: what is read; where one of them is not there exactly once, there are no rows.
        text_column: the one required to hold text, if there is one.
        seconds: processor time for a batch.
        optional: columns allowed to be missing.

    Raises:
        OSError: the file cannot be read.
    """
    row, names, there = 0, list[str](), list[str]()
    for most_rows in _BATCH_ROWS:
        call = (batches, seconds, file, list(columns), text_column, row, most_rows, list(optional))
        try:
            for answer in read_apart(*call, memory_bytes=_MEMORY_BYTES):
                if not isinstance(answer, dict) or not isinstance(answer.get("names"), list):
                    rows = _rows(answer, there)
                    yield rows
                    row = row if rows.number is None else rows.number - 1 + int(answer["rows"])
                elif not names:
                    names = list(map(str, answer["names"]))
                    there = [name for name in columns if name in answer.get("there", ())]
                    yield names
        except ChildEndedError as error:
            if not names or error.out_of_time or most_rows == _BATCH_ROWS[-1]:
                where = f"after row {row}" if names else "no Parquet file"
                detail = f"{where}: {error.refusal.detail}; encrypted columns are not read"
                yield Refused(None, Refusal(error.refusal.reason, detail))
                return
        else:
            return


def parquet_columns(file: IO[bytes]) -> list[str]:
    """Names of the columns of a Parquet file, by its footer alone; none where it is damaged."""
    try:
        (names,) = read_apart(column_names, _FOOTER_SECONDS, file, memory_bytes=_MEMORY_BYTES)
    except ChildEndedError:
        return []
    return [] if isinstance(names, Refusal) else list(map(str, names))


def _rows(answer: Any, names: Sequence[str]) -> ParquetRows | Refused:
    """The answer of the child, checked, because a hostile file may have taken the child over."""
    if isinstance(answer, Refusal):
        return Refused(None, answer)
    try:
        number, count = int(answer["row"]) + 1, int(answer["rows"])
        if isinstance(answer.get("refusal"), Refusal):
            return Refused(number, answer["refusal"])
        columns, faults = dict[str, pa.Array | list[Any]](), dict[int, Refusal]()
        for name, (kind, is_json, buffers) in zip(names, answer["columns"], strict=True):
            columns[name] = column = _column(PLAIN[kind], count, buffers)
            if is_json:
                columns[name] = values = column.to_pylist()
                for row, value in enumerate(values):
                    if value is not None and value.startswith(NO_FORM):
                        detail = f"column {name!r}: {value.removeprefix(NO_FORM)}"
                        faults[number + row] = Refusal(Reason.BAD_RECORD, detail)
                    elif value is not None:
                        values[row] = json.loads(value)
    except (pa.ArrowException, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        detail = f"what its parser answered are no rows of it: {first_line(error)}"
        return Refused(None, Refusal(Reason.CORRUPT_FILE, detail))
    return ParquetRows(number, count, columns, faults)


def _column(kind: pa.DataType, count: int, buffers: list[bytes | None]) -> pa.Array:
    """A column; where one of its strings is not UTF-8, all of them as bytes."""
    arrow_buffers = [None if data is None else pa.py_buffer(data) for data in buffers]
    checked = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}.get(kind, kind)
    column = pa.Array.from_buffers(checked, count, arrow_buffers)
    column.validate(full=True)  # that offsets lie inside of the buffers, above all
    if checked == kind:
        return column
    texts = pa.Array.from_buffers(kind, count, arrow_buffers)
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return column
    return texts

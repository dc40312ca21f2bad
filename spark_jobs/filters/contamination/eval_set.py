"""Eval sets: the items of a benchmark, read from a file, and the bytes kept of them by a registry.

An *item* is one text of a benchmark, such as a question or an answer. Its id is a hash of its letters
(`spark_jobs.filters.contamination.folding`), so the same text has the same id in every set, however it is set.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import pyarrow as pa

from spark_jobs.exceptions import InputError, did_you_mean
from spark_jobs.filters.contamination.folding import folded_words
from spark_jobs.sources.formats.csv_records import rows_of
from spark_jobs.sources.formats.parquet_records import ParquetRows, parquet_columns, parquet_rows
from spark_jobs.sources.opening.streams import Stream
from spark_jobs.sources.records.records import FileLine, Refused, numbered_lines

FORMAT: Final = "headrace-eval-set-1"
_ID_DIGITS: Final = 32
_PACKED: Final = (".gz", ".bz2", ".zst")
_DELIMITERS: Final = {".csv": ",", ".tsv": "\t"}
_ROW_BYTES: Final = 1 << 30
_BATCH_SECONDS: Final = 60  # of processor time


class EvalText(NamedTuple):
    """A text of a benchmark: the hash of its letters, its column, and the text as it was read."""

    item_id: str
    column: str
    text: str


class EvalSet(NamedTuple):
    """The items of a benchmark.

    Attributes:
        name: as registered.
        items: distinct by column and id, in the order of these.
        row_count: rows read.
        empty_count: texts without a letter or number, left out.
        repeated_count: texts of another row too, in the same column; left out.
    """

    name: str
    items: tuple[EvalText, ...]
    row_count: int = 0
    empty_count: int = 0
    repeated_count: int = 0

    @property
    def content_sha256(self) -> str:
        """Hash of the items, whatever the order of the rows and the kind of file they came from."""
        return hashlib.sha256(encode(self.items)).hexdigest()

    def __str__(self) -> str:
        """One line on what was read."""
        left_out = f"{self.empty_count:,} empty texts and {self.repeated_count:,} repeated ones left out"
        return f"{self.name}: {len(self.items):,} items of {self.row_count:,} rows; {left_out}"


def item_id(text: str) -> str:
    """The first 128 bits, in hex, of the SHA-256 of the letters of a text; empty for a text without any."""
    letters = "".join(folded_words(text))
    return hashlib.sha256(letters.encode()).hexdigest()[:_ID_DIGITS] if letters else ""


def read_eval_set(name: str, path: Path, columns: Iterable[str]) -> EvalSet:
    """Read a benchmark from JSONL, JSON, CSV, TSV or Parquet; text files may be packed (.gz, .bz2, .zst).

    A list in a column, such as the choices of a question, is one text with a line for each entry; a number is its
    digits. A row without the column, or with null in it, has an empty text.

    Raises:
        InputError: the file is missing, damaged, empty or of an unknown kind, lacks a column, or has no item.
    """
    columns = list(dict.fromkeys(columns))
    if not columns:
        raise InputError(f"eval set {name}: no column named; name those that hold items, such as question,answer")
    texts, row_count, empty_count, text_count = dict[tuple[str, str], str](), 0, 0, 0
    columns_there: dict[str, None] = {}
    for row in _rows(name, path, columns):
        row_count += 1
        columns_there |= dict.fromkeys(row)
        for column in columns:
            text = _text(row.get(column))
            identity = item_id(text)
            if not identity:
                empty_count += 1
                continue
            text_count += 1
            key = (column, identity)
            texts[key] = min(text, texts.get(key, text))  # of two spellings one, whichever row comes first
    if not row_count:
        raise InputError(f"eval set {name}: {path} has no row; give a file that holds the benchmark's items")
    for column in columns:
        if column not in columns_there:
            raise InputError(f"eval set {name}: {path} has no column {column!r}{did_you_mean(column, columns_there)}")
    if not texts:
        raise InputError(
            f"eval set {name}: all {empty_count} texts of {', '.join(columns)} in {path} are without a letter or "
            "number; name the columns that hold items"
        )
    items = tuple(EvalText(identity, column, text) for (column, identity), text in sorted(texts.items()))
    return EvalSet(name, items, row_count, empty_count, text_count - len(items))


def encode(items: Iterable[EvalText]) -> bytes:
    """Items as bytes depending on nothing but the items: sorted lines of JSON, after one naming the format.

    They are not packed: bytes of a compressor change with its version, and the hash of these names the set.
    """
    ordered = sorted({(item.column, item.item_id, item.text) for item in items})
    lines = [json.dumps(row, ensure_ascii=False) for row in ordered]
    return "\n".join([json.dumps({"format": FORMAT}), *lines, ""]).encode()


def decode(data: bytes) -> tuple[EvalText, ...]:
    """The items of `encode`, in its order.

    Raises:
        InputError: the bytes are damaged or of another format.
    """
    try:
        head, *lines = data.decode().removesuffix("\n").split("\n")
        file_format = json.loads(head)["format"]
        rows = [json.loads(line) for line in lines] if file_format == FORMAT else []
        items = tuple(EvalText(identity, column, text) for column, identity, text in rows)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"eval set: the registered bytes are damaged ({error}); register the file again") from error
    if file_format != FORMAT:
        raise InputError(
            f"eval set: registered in format {file_format!r}, this version reads {FORMAT!r}; register it again"
        )
    return items


def _text(value: Any) -> str:
    """The text of a value of JSON or Parquet; parts of a nested one are lines."""
    if value is None:
        return ""
    if isinstance(value, dict):
        return _text(list(value.values()))
    if isinstance(value, list | tuple):
        return "\n".join(map(_text, value))
    return str(value).encode("utf-8", "replace").decode()  # JSON can hold half a surrogate pair, UTF-8 cannot


def _rows(name: str, path: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Rows of a file as mappings; every fault of it is an InputError."""
    endings = [ending.lower() for ending in path.suffixes]
    if endings and endings[-1] in _PACKED:
        endings.pop()
    kind = endings[-1] if endings else ""
    try:
        if kind == ".parquet":
            with path.open("rb") as file:
                yield from _parquet_rows(file, columns)
            return
        if kind not in (".jsonl", ".ndjson", ".json", *_DELIMITERS):
            raise InputError(
                f"eval set {name}: cannot tell what {path} is; end its name in .jsonl, .json, .csv, .tsv or .parquet "
                f"(text files also with {', '.join(_PACKED)})"
            )
        with pa.input_stream(path, compression="detect") as stream:
            if kind in _DELIMITERS:
                yield from _csv_rows(stream, _DELIMITERS[kind])
            else:
                yield from _json_rows(stream.read(), columns)
    except (OSError, ValueError, RecursionError, pa.ArrowException) as error:
        raise InputError(f"eval set {name}: cannot read {path}: {str(error).splitlines()[0]}") from error


def _parquet_rows(file: IO[bytes], columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Rows with the columns in the file; a file without any of them gives its names, in one empty row."""
    names = parquet_columns(file)
    there = [name for name in columns if name in names]
    for rows in parquet_rows(file, there, None, _BATCH_SECONDS):
        if isinstance(rows, Refused):
            raise ValueError(rows.refusal.detail)
        if isinstance(rows, ParquetRows):
            for fault in rows.faults.values():
                raise ValueError(fault.detail)
            columns_read = rows.values()
            for row in range(rows.row_count):
                yield dict.fromkeys(names) | {name: values[row] for name, values in columns_read.items()}


def _csv_rows(stream: Stream, delimiter: str) -> Iterator[dict[str, Any]]:
    """Rows by the names in the first; a row may be shorter."""
    names = list[str]()
    for row in rows_of(stream, delimiter, _ROW_BYTES):
        if isinstance(row, Refused):
            where = "" if row.number is None else f"line {row.number}: "
            raise ValueError(f"{where}{row.refusal.detail}")
        if len(row.fields) > len(names) > 0:
            raise ValueError(f"line {row.number} has more fields than the head names")
        fields = (field.encode("utf-8", "surrogateescape").decode() for field in row.fields)
        if names:
            yield dict.fromkeys(names) | dict(zip(names, fields, strict=False))
        else:
            names = list(fields)


def _json_rows(data: bytes, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Objects of a JSON array, or of the array in a JSON object, or one on each nonblank line.

    Of BIG-Bench-Hard `{"canary": "..", "examples": [{"input": .., "target": ..}, ..]}` the examples are the rows.
    """
    whole = _whole(data)
    rows: Iterable[Any]
    if isinstance(whole, dict):
        rows = [whole] if any(column in whole for column in columns) else _inner_rows(whole, columns)
    elif whole is not None:
        rows = whole
    else:
        rows = map(_parsed, numbered_lines(io.BytesIO(data), len(data)))
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise ValueError(f"record {number} is a JSON {type(row).__name__}, not an object")
        yield row


def _whole(data: bytes) -> list[Any] | dict[str, Any] | None:
    """The array or object in a file; None where it is several values, as lines are, or no JSON.

    Raises:
        ValueError: an array cut short.
    """
    try:
        value = json.loads(data)
    except ValueError:
        if data.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"["):
            raise
        return None
    return value if isinstance(value, list | dict) else None


def _inner_rows(document: dict[str, Any], columns: Sequence[str]) -> list[Any]:
    """The one list of objects with the columns in an object; the object itself where there is no list.

    Raises:
        ValueError: there are several.
    """
    every = _lists_of_objects(document)
    lists = {path: rows for path, rows in every.items() if any(row.keys() & set(columns) for row in rows)} or every
    if len(lists) > 1:
        raise ValueError(f"it has lists of objects under {', '.join(sorted(lists))}; give a file with one of them")
    return next(iter(lists.values()), [document])


def _lists_of_objects(document: Mapping[str, Any], prefix: str = "") -> dict[str, list[Any]]:
    """The lists of objects in an object, and in objects in it, by path."""
    lists: dict[str, list[Any]] = {}
    for key, value in document.items():
        if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            lists[f"{prefix}{key}"] = value
        elif isinstance(value, dict):
            lists |= _lists_of_objects(value, f"{prefix}{key}.")
    return lists


def _parsed(line: FileLine | Refused) -> Any:
    assert isinstance(line, FileLine)  # none is longer than the file, which is in memory
    try:
        return json.loads(line.data.removeprefix(codecs.BOM_UTF8).decode())
    except ValueError as error:
        raise ValueError(f"line {line.number} is not JSON: {error}") from error

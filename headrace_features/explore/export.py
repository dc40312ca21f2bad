"""Write chosen documents as JSONL, Parquet or CSV, with the filter beside them, piece by piece.

    notes.zip
        notes.jsonl         a row for each document: facts, verdict, failed rules, tags, signals, text
        selection.json      dataset, filter, versions of the tables, person, time, count, and what was left out

Excised documents, and those that their dataset drops for personal data, are left out; texts are those of `texts`, in
which personal data is replaced, and only where the dataset shows them.
"""

from __future__ import annotations

import csv
import io
import json
import math
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import IO, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog

from headrace_features.explore.chosen import Chosen
from headrace_features.explore.index_files import NARROW
from spark_jobs.filters.judge import PERSONAL_DATA_RULE
from spark_jobs.lake.files.lookups import read_columns
from spark_jobs.lake.plan.excisions import EXCISIONS, SUPERSEDE_PREFIX

FORMATS: Final = ("jsonl", "parquet", "csv")
_FLUSH_BYTES: Final = 4 << 20  # of texts that are in memory
_FORMULA: Final = tuple("=+-@\t\r'")  # a spreadsheet would compute a cell that begins so; ' is our mark against it
_INFINITE: Final = (math.inf, -math.inf)
_Row = dict[str, Any]
_Tags = Callable[[Iterable[str]], Mapping[str, list[str]]]


def exported(
    catalogue: Catalog,
    chosen: Chosen,
    tags: _Tags,
    form: str,
    facts: Mapping[str, Any],
    now: datetime,
) -> Iterator[bytes]:
    """The pieces of a zip file.

    Args:
        catalogue: of the lake, for the list of excised documents.
        chosen: the documents.
        tags: gives those of some documents, by doc_id.
        form: one of FORMATS.
        facts: what else selection.json says.
        now: the time of the files.
    """
    index, sink, left_out = chosen.index, _Sink(), {"excised": 0, "personal_data": 0}
    with_text = index.wait_for_texts(0)
    schema = _schema(index.scores, with_text)
    written = 0
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED if form == "parquet" else zipfile.ZIP_DEFLATED) as archive:
        with archive.open(
            zipfile.ZipInfo(f"{index.dataset}.{form}", now.timetuple()[:6]), "w", force_zip64=True
        ) as file:
            write, close = _WRITERS[form](file, schema)
            for rows in _flushes(_rows(chosen, excised(catalogue), tags, with_text, left_out)):
                write(rows)
                written += len(rows)
                yield sink.taken()
            close()
        about = {**facts, "count": written, "left_out": left_out, "columns": schema.names}
        if form == "csv":
            about["cells"] = "one that begins with = + - @ ', a tab or a return has a ' before it"
        elif form == "jsonl":
            about["numbers"] = "one that is infinite, which JSON cannot write, is null"
        archive.writestr(zipfile.ZipInfo("selection.json", now.timetuple()[:6]), json.dumps(about, indent=2))
    yield sink.taken()


def excised(catalogue: Catalog) -> set[str]:
    """Documents that people took out of packed tables; not those that a revision replaced."""
    rows = read_columns(catalogue, EXCISIONS, ("doc_id", "run_id"))
    named = [] if rows is None else rows.to_pylist()
    return {row["doc_id"] for row in named if not row["run_id"].startswith(SUPERSEDE_PREFIX)}


def _rows(chosen: Chosen, gone: set[str], tags: _Tags, with_text: bool, left_out: dict[str, int]) -> Iterator[_Row]:
    """Documents with their texts, but for those that never leave."""
    for part in chosen.parts():
        stay, tagged = [], tags(row["doc_id"] for row in part)
        for row in part:
            rules = row["rules"].split(",") if row["rules"] else []
            why = "excised" if row["doc_id"] in gone else ""
            why = why or ("personal_data" if PERSONAL_DATA_RULE.rule in rules else "")
            if why:
                left_out[why] += 1
                continue
            kept = None if row["kept"] is None else bool(row["kept"])
            stay.append({**row, "kept": kept, "failed": rules, "tags": tagged.get(row["doc_id"], [])})
        texts = chosen.index.texts.each(stay) if with_text else ((row, None) for row in stay)
        yield from ({**row, "text": text} for row, text in texts)


def _flushes(rows: Iterator[_Row]) -> Iterator[list[_Row]]:
    some: list[_Row] = []
    size = 0
    for row in rows:
        some.append(row)
        size += 500 + len(row["text"] or "")
        if size > _FLUSH_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def _schema(scores: list[str], with_text: bool) -> pa.Schema:
    texts, several = pa.string(), pa.list_(pa.string())
    kinds = {"increment": pa.int64(), "shard": pa.int64(), "byte_count": pa.int64()}
    fields = [("doc_id", texts), *((name, kinds.get(name, texts)) for name in NARROW)]
    fields += [("kept", pa.bool_()), ("failed", several), ("tags", several)]
    return pa.schema([*fields, *((name, pa.float64()) for name in scores), *([("text", texts)] if with_text else [])])


_Writer = tuple[Callable[[list[_Row]], object], Callable[[], object]]


def _jsonl(file: IO[bytes], schema: pa.Schema) -> _Writer:
    def write(rows: list[_Row]) -> None:
        for row in rows:
            values = {name: None if row[name] in _INFINITE else row[name] for name in schema.names}
            file.write(json.dumps(values, ensure_ascii=False, allow_nan=False).encode() + b"\n")

    return write, lambda: None


def _parquet(file: IO[bytes], schema: pa.Schema) -> _Writer:
    writer = pq.ParquetWriter(pa.PythonFile(file, mode="w"), schema)
    return lambda rows: writer.write_table(pa.Table.from_pylist(rows, schema)), writer.close


def _csv(file: IO[bytes], schema: pa.Schema) -> _Writer:
    text = io.TextIOWrapper(file, "utf-8", "replace", newline="", write_through=True)
    table = csv.writer(text)
    table.writerow([_cell(name) for name in schema.names])
    return lambda rows: table.writerows([_cell(row[name]) for name in schema.names] for row in rows), text.detach


def _cell(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula; numbers are as they are."""
    if isinstance(value, list):
        value = ";".join(value)
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


_WRITERS: Final[Mapping[str, Callable[[IO[bytes], pa.Schema], _Writer]]] = {
    "jsonl": _jsonl, "parquet": _parquet, "csv": _csv,
}  # fmt: skip


class _Sink(io.RawIOBase):
    """What was written since it was last taken; it cannot go back, so `zipfile` puts sizes behind each file."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        self._pieces.append(bytes(piece))
        return len(piece)

    def taken(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)

"""Records that come as columns: the same records, refusals and rows as one by one."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_features.apis.api_config import ApiSource
from spark_jobs.sources.config.source_config import FilesSource
from spark_jobs.sources.formats.parquet_records import parquet_records
from spark_jobs.sources.identity import sha256_hex
from spark_jobs.sources.languages import kinds_of, language_of_text
from spark_jobs.sources.licences.expressions import is_recognised
from spark_jobs.sources.licences.names import stated
from spark_jobs.sources.listed_file import ListedFile
from spark_jobs.sources.opening.streams import BATCH_BYTES
from spark_jobs.sources.reading import files
from spark_jobs.sources.reading.record_rows import DocumentRows, Seen, document_rows, each_row
from spark_jobs.sources.reading.rows import READ_ROWS, ReadingRules, Row, arrival, document_row, refused_part
from spark_jobs.sources.records.columns import Records, in_columns
from spark_jobs.sources.records.records import Record, usable_record
from spark_jobs.sources.refusals import Reason, Refusal
from tests.spark_jobs.sources.one_by_one import one_by_one
from tests.tiers import tries

MOST = 8_200
"""Bytes of a document in these tests; a null character is looked for in the first 8,192 characters."""
MAPPING = FilesSource(
    path="x",
    text_column="body",
    id_column="id",
    repository_column="repo",
    language_column="lang",
    licence_column="licence",
    kind_column="kind",
    metadata_columns=("score", "note"),
)
TEXTS = st.sampled_from(
    (
        "",
        "a",
        "é\u2028\U0001f600",
        "x" * MOST,
        "x" * (MOST + 1),
        "é" * (MOST // 2),
        "é" * (MOST // 2) + "x",
        "a\0b",
        "x" * 8191 + "\0",
        "x" * 8192 + "\0",
        "é" * 4000 + "\0",
        '"\\\n',
    )
)
NAMES = st.sampled_from((None, "", "a", "b", "a/é.py", 'a"b', "a\\b", "a\nb", "\x7f\u2028"))
KINDS = st.sampled_from((None, "code", "prose", "data", "proze", ""))
SCORES = st.one_of(
    st.lists(st.sampled_from((None, 0.1, 1e22, float("nan"), -0.0)), min_size=1),
    st.lists(st.sampled_from((None, 2**62, -1, 0)), min_size=1),
    st.lists(st.sampled_from((None, True, False)), min_size=1),
    st.lists(NAMES, min_size=1),
    st.lists(st.sampled_from((None, ["a", None], [])), min_size=1),
)


@pytest.mark.nightly
@given(
    st.lists(st.tuples(TEXTS | st.none(), NAMES, NAMES, NAMES, NAMES, KINDS, NAMES), min_size=1, max_size=12),
    SCORES,
    st.sampled_from((pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int8(), pa.string()))),
    st.booleans(),
)
@settings(max_examples=tries(1000, 100))
def test_columns_give_the_records_that_rows_give(
    rows: list[tuple[Any, ...]], scores: list[Any], text_type: pa.DataType, has_other_bytes: bool
) -> None:
    """Null, empty, too long, with null characters, of an unknown kind, not UTF-8: refused or not as each by itself."""
    columns = dict(zip(("body", "id", "repo", "lang", "licence", "kind", "note"), zip(*rows, strict=True), strict=True))
    table = {name: pa.array(column, pa.string()) for name, column in columns.items()}
    table["body"] = table["body"].cast(text_type)
    table["score"] = pa.array((scores * len(rows))[: len(rows)])
    if pa.types.is_null(table["score"].type):
        table["score"] = table["score"].cast(pa.int64())
    values = [dict(zip(table, row, strict=True)) for row in zip(*(c.to_pylist() for c in table.values()), strict=True)]
    if has_other_bytes and text_type in (pa.string(), pa.binary()):
        raw = [
            *(row["body"] if isinstance(row["body"], bytes) else row["body"] and row["body"].encode() for row in values)
        ]
        raw[0] = b"\xff\xfe"
        table["body"] = pa.Array.from_buffers(text_type, len(raw), pa.array(raw, pa.binary()).buffers())
        values = [row | {"body": data} for row, data in zip(values, raw, strict=True)]
    sink = io.BytesIO()
    pq.write_table(pa.table(table), sink)
    found = one_by_one(parquet_records(pa.BufferReader(sink.getvalue()), MAPPING, MOST))
    wanted = [usable_record(number, row["body"], row, MAPPING, MOST) for number, row in enumerate(values, 1)]
    assert found == wanted


RECORDS = st.builds(
    Record,
    st.just(0),
    st.sampled_from(("a", "b", "a", "#include <a>\n")),
    st.sampled_from((None, "a", "a.py", "b.h", 'a"b', "a\\b", "a\nb", "é")),
    st.sampled_from((None, None, "r", 'r"s')),
    st.sampled_from((None, "C")),
    st.sampled_from((None, "MIT", "gpl v2", "do as you like", "")).map(lambda name: name or None),
    st.sampled_from(("prose", "code", "data")),
    st.dictionaries(st.sampled_from(("m", "licence", "lang")), st.sampled_from(("1", "é"))),
    st.just({}),
)
FILE = ListedFile("/x/lang=de/m=0/f.log", 'f"é.log', "log", media_type="text/plain")
SOURCES = (
    FilesSource(path="x", text_column="body"),
    MAPPING,
    FilesSource(path="x", text_column="body", metadata_columns=("m",)),
    ApiSource(url="https://a.example", text_column="body", id_column="n"),
)


def row_of(file: ListedFile, record: Record, seen: dict[Any, str], rules: ReadingRules) -> Row | None:
    """The row of one record, or the arrival of one that is no document; None for a version that says nothing new."""
    data, source = record.text.encode(), rules.source
    digits, licence = sha256_hex(data), stated(record.licence)
    path, language = f"{file.path}#{record.record_id or digits[:16]}", record.language
    if record.kind != "prose" and getattr(source, "language_column", None) is None:
        name = record.record_id or ""
        told = language_of_text(name, data) if kinds_of(name) else None
        language = told and told.name
    about = {
        "repository": record.repository,
        "path": path,
        "kind": record.kind,
        "language": language,
        "licence": licence,
    }
    folderless = rules._replace(source=FilesSource(path="x")) if file.reader == "parquet" else rules
    row = document_row(replace(file, **about), folderless, record.text, "utf-8", digits, len(data))
    unknown = {"licence": record.licence} if licence and not is_recognised(licence) else {}
    row["metadata"] = {**row["metadata"], **unknown, **record.metadata}
    row |= {"number": record.number}
    key = record.repository, path
    if isinstance(source, ApiSource):
        repeats, seen[key] = seen.get(key) == row["doc_id"], row["doc_id"]
        return None if repeats else row
    if key not in seen:
        seen[key] = row["doc_id"]
        return row
    unit = "row" if file.reader == "parquet" else "line"
    if seen[key] == row["doc_id"]:
        refusal = Refusal(Reason.REPEATED_RECORD, f"same path and text as an earlier {unit}")
    else:
        said = f"id {record.record_id!r}" if record.record_id else "hash of the text"
        refusal = Refusal(Reason.LISTED_TWICE, f"the {said} is that of an earlier {unit}, which has another text")
    return refused_part(f"{file.location}#{unit}:{record.number}", refusal, digits)


def as_read(rows: Iterable[Row]) -> list[str]:
    """Rows with all columns, in one order."""
    table = pa.Table.from_pylist([{"metadata": None} | row for row in rows], READ_ROWS)
    return sorted(json.dumps(row, default=str) for row in table.to_pylist())


@given(
    st.lists(st.lists(RECORDS, min_size=1, max_size=6), min_size=1, max_size=3),
    st.sampled_from(SOURCES),
    st.sampled_from(("log", "parquet")),
    st.sampled_from((1, 64)),
)
@settings(max_examples=tries(2000, 200))
def test_rows_of_a_batch_are_those_of_its_records(
    batches: list[list[Record]], source: Any, reader: str, shards: int
) -> None:
    """Ids, paths, hashes, licences, languages, metadata, and which of several at a path is none; over all batches."""
    rules, file = ReadingRules('d"é', shards, 1000, source), replace(FILE, reader=reader)
    seen, found = Seen(isinstance(source, ApiSource)), list[Row]()
    one_seen, wanted = dict[Any, str](), list[Row | None]()
    number = 0
    for batch in batches:
        numbered = [record._replace(number=number + at) for at, record in enumerate(batch, 1)]
        number += len(batch)
        (columns,) = in_columns(numbered)
        assert isinstance(columns, Records)
        documents, kept, refused = document_rows(file, columns, seen, rules)
        assert documents.rows.schema == READ_ROWS
        assert kept.number.to_pylist() == documents.rows["number"].to_pylist()
        found += [*each_row(documents), *refused]
        wanted += [row_of(file, record, one_seen, rules) for record in numbered]
    assert as_read(found) == as_read(row for row in wanted if row is not None)
    assert {row["unit"] for row in found if row["doc_id"]} == {"row" if reader == "parquet" else "line"}


def test_records_before_an_error_are_not_lost() -> None:
    """Those that wait for their batch land, and then the error is told."""

    def broken() -> Iterator[Record]:
        yield Record(1, "a", None, None, None, None, "prose", {}, {})
        raise OSError("gone")

    found = in_columns(broken())
    first = next(found)
    assert isinstance(first, Records) and first.text.to_pylist() == ["a"]
    with pytest.raises(OSError, match="gone"):
        next(found)


@given(st.lists(st.sampled_from((0, 1000, 1 << 20, BATCH_BYTES // 3)), max_size=8))
def test_no_row_is_lost_where_batches_go_out(sizes: list[int]) -> None:
    """Large batches pass as they are, small ones go together with rows."""
    held, rows, rules = list[DocumentRows](), list[Row](), ReadingRules("d", 1, 1000, SOURCES[0])
    for number, size in enumerate(sizes, 1):
        (columns,) = in_columns([Record(number, "x" * size, None, None, None, None, "prose", {}, {})])
        assert isinstance(columns, Records)
        held.append(document_rows(FILE, columns, Seen(False), rules)[0])
        rows.append(arrival(ListedFile(str(number)), None))
    listing = pa.RecordBatch.from_pylist([{"location": FILE.location}])
    with patch.object(files, "read_parts", lambda file, rules: [*held, *rows]):
        found = pa.Table.from_batches(files.read_files(iter([listing]), rules), READ_ROWS)
    documents = found.filter(pc.is_valid(found["doc_id"])).sort_by("number")
    assert documents["byte_count"].to_pylist() == sizes == pc.utf8_length(documents["content"]).to_pylist()
    assert sorted(found["location"].to_pylist()) == sorted(
        [FILE.location] * len(sizes) + [row["location"] for row in rows]
    )

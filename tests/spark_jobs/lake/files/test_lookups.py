"""Looking up rows without Spark: the right value, and no more read than is needed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, EqualTo
from pyiceberg.types import StringType

from headrace.tables.settings import settings_at
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.files.lookups import first_rows, parts, read_columns, read_rows
from spark_jobs.lake.files.wide_values import read_wide_value, read_wide_values
from spark_jobs.lake.session.catalogue import ensure_table, open_catalogue

ROWS = 3000


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A lake with a table of texts in two files of several row groups, and an empty one."""
    made = open_catalogue(settings_at(tmp_path_factory.mktemp("lookups")))
    made.create_namespace("notes")
    schema = pa.schema([("increment", pa.int32()), ("doc_id", pa.string()), ("content", pa.string())])
    table = made.create_table("notes.texts", schema, properties={"write.parquet.row-group-limit": "700"})
    for increment in (0, 1):
        ids = [f"{increment}{number:04}" for number in range(ROWS)]
        table.append(
            pa.table(
                {"increment": [increment] * ROWS, "doc_id": ids, "content": [f"text of {one}" for one in ids]},
                schema=schema,
            )
        )
    made.create_table("notes.nothing", schema)
    return made


@pytest.mark.parametrize("doc_id", ["00000", "00001", "00063", "00064", "00699", "00700", "02999", "10000", "12999"])
def test_a_wide_value_is_found_wherever_it_lies(catalogue: Catalog, doc_id: str) -> None:
    """First and last rows of batches, row groups and files."""
    assert read_wide_value(catalogue, "notes.texts", "content", doc_id) == f"text of {doc_id}"
    narrow = EqualTo("increment", int(doc_id[0]))
    assert read_wide_value(catalogue, "notes.texts", "content", doc_id, narrow) == f"text of {doc_id}"


def test_a_wide_column_is_read_up_to_the_row_alone(catalogue: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the wide column one row group, and of that only batches up to the row."""
    read: list[int] = []
    iter_batches = pq.ParquetFile.iter_batches

    def counted(self: pq.ParquetFile, *arguments: object, **options: object) -> object:
        for batch in iter_batches(self, *arguments, **options):
            assert options["columns"] == ["content"]
            read.append(len(batch))
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    assert read_wide_value(catalogue, "notes.texts", "content", "00710") == "text of 00710"
    assert read == [64]


def test_wide_values_of_several_documents_come_together_within_a_budget(catalogue: Catalog) -> None:
    """Of documents in both files, none of one that is in neither; with few bytes, those decoded before their end."""
    ids = {"00000", "00064", "00710", "12999", "nobody"}
    found = read_wide_values(catalogue, "notes.texts", "content", ids)
    assert found == {one: f"text of {one}" for one in ids - {"nobody"}}
    few = read_wide_values(catalogue, "notes.texts", "content", ids, most_bytes=1)
    assert 0 < len(few) < 4 and few.items() < found.items()
    assert read_wide_values(catalogue, "notes.texts", "content", ids, most_bytes=0) == {}


def test_what_is_not_there_is_none(catalogue: Catalog) -> None:
    """No such document, table or snapshot."""
    assert read_wide_value(catalogue, "notes.texts", "content", "nobody") is None
    assert read_wide_value(catalogue, "notes.texts", "content", "00001", EqualTo("increment", 1)) is None
    for table in ("notes.nothing", "notes.absent", "absent.texts"):
        assert read_wide_value(catalogue, table, "content", "00001") is None
        assert read_columns(catalogue, table, ("doc_id",)) is None
        assert read_rows(catalogue, table, ("doc_id",), EqualTo("doc_id", "00001")) == []


def test_rows_have_the_columns_asked_for_that_there_are(catalogue: Catalog) -> None:
    """A column that a table lacks (it was made by an older step) is left out, not an error."""
    found = read_rows(catalogue, "notes.texts", ("doc_id", "place"), EqualTo("doc_id", "00007"))
    assert found == [{"doc_id": "00007"}]


def test_the_first_rows_are_read_and_no_more(catalogue: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as asked, of those that meet the condition; the second file is not opened where the first is enough."""
    table = catalogue.load_table("notes.texts")
    opened: list[pq.ParquetFile] = []
    make = pq.ParquetFile.__init__

    def counted(self: pq.ParquetFile, *arguments: object, **options: object) -> None:
        opened.append(self)
        make(self, *arguments, **options)

    monkeypatch.setattr(pq.ParquetFile, "__init__", counted)
    assert first_rows(table, ["content", "doc_id"], 3).column_names == ["content", "doc_id"]
    assert first_rows(table, ["doc_id"], 1500).num_rows == 1500 and len(opened) == 2
    found = first_rows(table, ["content"], 5, EqualTo("doc_id", "12999"))
    assert found.to_pylist() == [{"content": "text of 12999"}]
    assert first_rows(table, ["doc_id"], 10**9).num_rows == 2 * ROWS
    assert first_rows(table, ["doc_id"], 5, EqualTo("increment", 7)).num_rows == 0
    nothing = first_rows(catalogue.load_table("notes.nothing"), ["doc_id"], 5)
    assert nothing.num_rows == 0 and nothing.column_names == ["doc_id"]


def test_first_rows_know_deleted_rows_and_later_columns(tmp_path: Path) -> None:
    """A column that came after a file is null in its rows; a condition may ask for it."""
    made = open_catalogue(settings_at(tmp_path))
    made.create_namespace("notes")
    table = made.create_table("notes.texts", pa.schema([("n", pa.int64())]))
    table.append(pa.table({"n": [1, 2, 3]}))
    with table.update_schema() as update:
        update.add_column("late", StringType())
    table.append(pa.table({"n": [4], "late": ["yes"]}))
    table.delete(EqualTo("n", 2))
    rows = first_rows(table, ["late", "n"], 9).to_pylist()
    assert sorted(rows, key=lambda row: row["n"]) == [
        {"late": None, "n": 1},
        {"late": None, "n": 3},
        {"late": "yes", "n": 4},
    ]
    assert first_rows(table, ["n"], 9, EqualTo("late", "yes")).to_pylist() == [{"n": 4}]


@pytest.mark.parametrize("rows", [1, 50, 500, 10**6])
def test_parts_hold_every_row_once_and_no_more_than_asked(tmp_path: Path, rows: int) -> None:
    """Some increments together, one in shards, a shard in ranges of ids."""
    catalogue = open_catalogue(settings_at(tmp_path))
    columns = (Column("shard!", "int", "shard"), Column("doc_id!", "string", "a hash"))
    declared = Table("texts", "texts", columns, partition=("increment", "shard"))
    table = ensure_table(catalogue, "notes.texts", declared, {})
    written = []
    for increment, count in enumerate((3, 20, 400, 20)):
        ids = [hashlib.sha256(f"{increment} {number}".encode()).hexdigest()[:32] for number in range(count)]
        values = {"increment": [increment] * count, "shard": [number % 4 for number in range(count)], "doc_id": ids}
        table.append(pa.table(values, schema=table.schema().as_arrow()))
        written += ids
    found = [
        read_columns(catalogue, "notes.texts", ("doc_id",), part) for part in parts(catalogue, "notes.texts", rows)
    ]
    sizes = [len(part) for part in found if part is not None]
    assert sorted(doc_id for part in found if part is not None for doc_id in part["doc_id"].to_pylist()) == sorted(
        written
    )
    assert max(sizes) <= max(2 * rows, 8) and (len(sizes) == 1) == (rows >= 443)
    assert list(parts(catalogue, "notes.absent", rows)) == [AlwaysTrue()]

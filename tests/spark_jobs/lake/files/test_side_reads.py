"""Columns that workers read from the files are those that Spark would have given, row for row."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.lake.files import side_reads
from spark_jobs.lake.files.rows import path_rows
from spark_jobs.lake.files.side_reads import FILE, ROW, SideReads, located, map_joined, map_rows
from spark_jobs.lake.files.storage import local_path
from spark_jobs.lake.run.materialize import Lake, materialize
from tests.spark_jobs.lake.files.test_data_files import lists
from tests.spark_jobs.lake.steps import bind
from tests.tiers import needs_spark, on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DDL = "n bigint, ids array<int>"


def whole(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows as they come."""
    for batch in batches:
        yield batch.select(["n", "ids"])


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Three Parquet files in a folder whose name needs escapes, several row groups each."""
    folder = tmp_path / "a folder+%20é"
    folder.mkdir()
    paths = []
    for number in range(3):
        table = pa.table(
            {
                "n": pa.array(range(100 * number, 100 * number + 40), pa.int64()),
                "ids": pa.array([[n] * (n % 5) for n in range(40)], pa.list_(pa.int32())),
            }
        )
        paths.append(folder / f"{number} +.parquet")
        pq.write_table(table, paths[-1], row_group_size=7)
    return paths


@needs_spark
def test_rows_of_files_are_found_where_they_lie(spark: SparkSession, files: list[Path]) -> None:
    """A selection of rows of many files, as Spark reads them and as workers do."""
    frame = spark.read.parquet(str(files[0].parent)).where("n % 3 = 1")
    expected = sorted(tuple(row) for row in frame.select("n", "ids").collect())
    found = map_rows(frame, ["n"], ["ids"], whole, _DDL).to_frame()
    assert "ids" not in found._jdf.queryExecution().executedPlan().toString().split("ReadSchema")[1]
    assert sorted(tuple(row) for row in found.collect()) == expected and len(expected) == 40


def test_a_row_group_may_be_too_large_for_one_array(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in any order of a row group whose column comes in several arrays, as Arrow gives it beyond 2 GiB."""
    monkeypatch.setattr(side_reads, "_pieces", lambda group: group.to_batches(max_chunksize=2))
    places = random.Random(0).sample(range(40), 25)
    rows = pa.RecordBatch.from_pydict({"n": places, FILE: [str(files[0])] * 25, ROW: pa.array(places, pa.int64())})
    found = pa.Table.from_batches(SideReads(("ids",), {}).fetch([rows]))
    assert found.to_pylist() == [{"n": n, "ids": [n] * (n % 5)} for n in places]


@on_spark
def test_rows_of_a_table_are_found_where_they_lie(lake: Lake) -> None:
    """An Iceberg table's rows, through a condition on another column."""
    materialize(lake, bind(lists))
    frame = lake.session().table("lake.demo.lists").where("name <> 'plain'")
    expected = sorted(tuple(row) for row in frame.select("n", "ids").collect())
    assert (
        sorted(tuple(row) for row in map_rows(frame, ["n"], ["ids"], whole, _DDL).to_frame().collect())
        == expected
        != []
    )


@on_spark
def test_rows_without_files_are_read_by_spark(spark: SparkSession) -> None:
    """Rows made in memory have no place, and come through Spark."""
    frame = spark.createDataFrame([(1, [2, 3]), (4, [])], _DDL)
    assert located(frame) is None
    assert sorted(tuple(row) for row in map_rows(frame, ["n"], ["ids"], whole, _DDL).to_frame().collect()) == [
        (1, [2, 3]),
        (4, []),
    ]


@needs_spark
def test_rows_of_a_join_are_read_in_the_order_of_their_files(spark: SparkSession, files: list[Path]) -> None:
    """Whatever the join did to them, file by file; rows that nothing goes with are left out, and each comes once."""
    frame = spark.read.parquet(str(files[0].parent))
    others = spark.createDataFrame([(n, 7 * n) for n in range(0, 240, 3)], "n bigint, other bigint").repartition(5, "n")
    ddl = "n bigint, other bigint, ids array<int>"

    def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.select(["n", "other", "ids"])

    def in_order(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = list(joined(batches))
        numbers = [number for batch in rows for number in batch.column("n").to_pylist()]
        of_files = [list(numbers) for _, numbers in itertools.groupby(numbers, lambda number: number // 100)]
        if len(of_files) != len({of_file[0] // 100 for of_file in of_files}) or of_files != list(map(sorted, of_files)):
            raise AssertionError(numbers)
        yield from rows

    expected = [(n, 7 * n, [n % 100] * (n % 5)) for n in range(0, 240, 3) if n % 100 < 40]
    for rows, function in ((frame, in_order), (spark.createDataFrame(frame.toArrow()), joined)):
        found = map_joined(rows, others, ["n"], ["n", "other"], ["ids"], function, ddl)
        assert sorted(tuple(row) for row in found.to_frame().collect()) == expected


@on_spark
def test_no_join_holds_what_is_read_aside_on_either_engine(spark: SparkSession, tmp_path: Path) -> None:
    """Ids and texts are read after the join, by file and row, also where the engine could read them itself."""
    ids = [[n] * (n % 5) for n in range(60)]
    table = pa.table({"n": pa.array(range(60), pa.int64()), "input_ids": pa.array(ids, pa.list_(pa.int32()))})
    for number in range(3):
        pq.write_table(table.slice(20 * number, 20), tmp_path / f"{number}.parquet", row_group_size=7)
    others = spark.createDataFrame([(n, 7 * n) for n in range(0, 60, 3)], "n bigint, other bigint")

    def whole_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.select(["n", "other", "input_ids"])

    ddl = "n bigint, other bigint, input_ids array<int>"
    rows = path_rows(spark, str(tmp_path))
    joined = map_joined(rows, others, ["n"], ["n", "other"], ["input_ids"], whole_rows, ddl)
    assert "input_ids" not in joined.frame.columns
    expected = [(n, 7 * n, ids[n]) for n in range(0, 60, 3)]
    assert sorted(tuple(row) for row in joined.to_frame().collect()) == expected


def test_any_order_is_right_and_that_of_the_files_reads_each_group_once(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows asked for in any order, again and again; in order, every row group is read once."""
    places = [(str(path), row) for path in files for row in range(40)]
    reads = []
    real = pq.ParquetFile.read_row_group

    def counted(self: pq.ParquetFile, number: int, **options: object) -> pa.Table:
        reads.append(number)
        return real(self, number, **options)

    monkeypatch.setattr(side_reads.pq.ParquetFile, "read_row_group", counted)
    for order in (places, random.Random(1).choices(places, k=60)):
        batch = pa.RecordBatch.from_pydict(
            {FILE: [p for p, _ in order], ROW: pa.array([r for _, r in order], pa.int64())}
        )
        late = SideReads(("ids", "n"), {})
        halves = [batch.slice(0, 50), batch.slice(50, 0), batch.slice(50)]
        found = [row for part in late.fetch(halves) for row in part.to_pylist()]
        wanted = [{"ids": [r] * (r % 5), "n": 100 * [str(f) for f in files].index(p) + r} for p, r in order]
        assert found == wanted
        if order is places:
            assert reads == [0, 1, 2, 3, 4, 5] * 3


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a/b", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("s3://bucket/a", None),
        ("relative", "relative"),
    ],
)
def test_local_paths_are_told_from_others(path: str, expected: str | None) -> None:
    """With and without scheme, as Iceberg and Spark write them."""
    assert local_path(path) == expected

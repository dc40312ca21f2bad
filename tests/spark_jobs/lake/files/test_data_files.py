"""Rows that workers write as their function makes them are those that they write for an engine: versions, checks."""

from __future__ import annotations

import dataclasses
import os
import pickle
import resource
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table as IcebergTable

from spark_jobs.exceptions import AuditError, StepRunError
from spark_jobs.lake.declare.step import ArrowRows, Output, Scope, Step, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.files.data_files import file_schema
from spark_jobs.lake.files.file_writer import FileRules, PartitionField, write_task
from spark_jobs.lake.files.side_reads import FILE, ROW, SideReads
from spark_jobs.lake.ledger.digests import digest
from spark_jobs.lake.run.materialize import Lake, materialize
from tests.spark_jobs.lake.steps import FactorConfig, FolderConfig, bind, land, numbers, one, rows
from tests.tiers import needs_spark, on_spark

pytestmark = on_spark

_DDL = "n bigint, ids array<int>, name string"
_SCHEMA = pa.schema({"n": pa.int64(), "ids": pa.list_(pa.int32()), "name": pa.string()})


def _starts_with_n(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    firsts = np.array([ids[0] for ids in batch.column("ids").to_pylist()])
    found: npt.NDArray[np.bool_] = firsts == batch.column("n").to_numpy()
    return found


LISTS = Table(
    name="lists",
    comment="a list for each number",
    columns=(
        Column("name!", "string", "one of three, with characters that a path escapes"),
        Column("n!", "long", "the number"),
        Column("ids!", "list<int!>", "n, n + 1, .., of n % 7 + 1 ids"),
    ),
    key=("n",),
    partition=("increment", "name"),
    checks=(Check("starts_with_n", "element_at(ids, 1) = n", "the list starts with the number", _starts_with_n),),
    properties={"write.parquet.row-group-limit": "2"},
)


def _listed(batches: Iterable[pa.RecordBatch], factor: int) -> Iterator[pa.RecordBatch]:
    """A row for each number; a negative factor breaks the check for 12, 100 forgets its name, 1000 stumbles."""
    for batch in batches:
        found = []
        for n in batch.column("n").to_pylist():
            if factor == 1000 and n == 12:
                raise OSError(28, "No space left on device")
            first = -n if factor < 0 and n == 12 else n
            name = None if factor == 100 and n == 12 else ["a/b c", "é", "plain"][n % 3]
            found.append({"n": n, "ids": [first, *range(n + 1, n + n % 7 + 1)], "name": name})
        yield pa.RecordBatch.from_pylist(found, schema=_SCHEMA)


@step(version="1", scope=Scope.INCREMENT, tables=(LISTS,))
def lists(numbers, config: FactorConfig) -> Output:  # type: ignore[no-untyped-def]
    """Lists made in Python."""
    factor = config.factor
    made = ArrowRows(numbers.select("n"), lambda batches: _listed(batches, factor), _DDL)
    return Output({"lists": made.to_frame()}, arrow_rows={"lists": made})


def by_engine(what: Step) -> Step:
    """The same step, whose rows go through the engine."""

    def function(numbers, config: FactorConfig) -> Output:  # type: ignore[no-untyped-def]
        return Output(dict(what.function(numbers, config).frames))

    return dataclasses.replace(what, function=function)


def data_files(table: IcebergTable) -> list[str]:
    """Paths of the data files of main."""
    return [task.file.file_path for task in table.scan().plan_files()]


def test_version_rows_and_checks_are_those_of_the_engine(lake: Lake, folder: Path) -> None:
    """Two increments, the first replaced by other rows and back: as made, through the engine, and as read again."""
    outcome = one(materialize(lake, bind(lists)))
    assert outcome.version == digest(lake.session().table("lake.demo.lists")) and outcome.version.count == 4
    assert all(check.passed for check in outcome.checks)
    assert [check.name for check in outcome.checks] == [
        "required_columns",
        "rows_in_place",
        "starts_with_n",
        "unique_key",
    ]
    seen = rows(lake, "demo.lists", "increment", "name", "n", "ids")
    assert seen[0][:3] == (0, "a/b c", 3) and seen[0][3] == [3, 4, 5, 6]

    again = one(materialize(lake, dataclasses.replace(bind(by_engine(dataclasses.replace(lists, version="2"))))))
    assert again.version == outcome.version
    land(folder, "b.txt", [30, 31, 32, 33, 44, 50])
    materialize(lake, bind(numbers, FolderConfig(folder=str(folder))))
    both = one(materialize(lake, bind(lists)))
    assert both.version.count == 10
    assert both.version == digest(lake.session().table("lake.demo.lists"))
    assert rows(lake, "demo.lists", "increment", "name", "n", "ids")[:4] == seen
    assert sorted(lake.catalogue.load_table("demo.lists").scan().to_arrow()["n"].to_pylist())[-1] == 50


def test_an_increment_is_replaced_whole(lake: Lake) -> None:
    """A new config replaces the increment's files; the old snapshot still reads as it was."""
    materialize(lake, bind(lists))
    old = lake.catalogue.load_table("demo.lists").current_snapshot()
    land_more = dataclasses.replace(lists, version="2", function=_only_odd)
    outcome = one(materialize(lake, bind(land_more)))
    assert rows(lake, "demo.lists", "n") == [(1,), (3,)]
    assert outcome.version == digest(lake.session().table("lake.demo.lists"))
    assert old is not None
    before = lake.catalogue.load_table("demo.lists").scan(snapshot_id=old.snapshot_id)
    assert before.to_arrow().num_rows == 4


def _only_odd(numbers, config: FactorConfig) -> Output:  # type: ignore[no-untyped-def]
    return lists.function(numbers.where("n % 2 = 1"), config)  # type: ignore[no-any-return]


def test_files_lie_by_partition_with_statistics_and_row_groups(lake: Lake) -> None:
    """One value of the partition a file, its bounds known, at most two rows a row group, plain Parquet for anyone."""
    materialize(lake, bind(lists))
    table = lake.catalogue.load_table("demo.lists")
    found = {}
    for task in table.scan().plan_files():
        path = task.file.file_path.removeprefix("file://")
        file = pq.ParquetFile(path)
        names = set(file.read(columns=["name"]).column(0).to_pylist())
        assert len(names) == 1 and task.file.record_count == file.metadata.num_rows
        assert {file.metadata.row_group(n).num_rows for n in range(file.metadata.num_row_groups)} <= {1, 2}
        assert file.schema_arrow.field("ids").type == pa.list_(pa.field("element", pa.int32(), False))
        found[names.pop()] = task.file.partition[1], Path(path).parent.name
    assert found == {
        "a/b c": ("a/b c", "name=a%2Fb+c"),
        "é": ("é", "name=%C3%A9"),
        "plain": ("plain", "name=plain"),
    }
    assert table.scan("n = 12").to_arrow()["n"].to_pylist() == [12]
    assert lake.session().table("lake.demo.lists").where("n > 2 and name = 'a/b c'").count() == 2


@pytest.mark.nightly
def test_a_task_keeps_few_files_open(tmp_path: Path) -> None:
    """Of 500 partitions, in order and in none; each value in order has one file, whose rows are all there."""
    schema = file_schema(schema_to_pyarrow(LISTS.schema()))
    by_name = (PartitionField("name", "name", False),)
    sizes = {"group_rows": 1 << 20, "group_bytes": 1 << 20, "file_bytes": 1 << 30}
    rules = FileRules(schema, str(tmp_path), by_name, "zstd", properties={}, checks={}, **sizes)
    numbers = range(1000)
    made = {"increment": [0] * 1000, "n": numbers, "ids": [[1]] * 1000}
    fewest, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    for names, files in (([f"{n // 2:03}" for n in numbers], 500), ([f"{n % 500}" for n in numbers], 1000)):
        table = pa.Table.from_pydict({**made, "name": names}).select(schema.names).cast(schema)
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 60, most))
        try:
            (result,) = list(write_task(table.to_batches(max_chunksize=33), rules))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (fewest, most))
        written = result.column("files")[0].as_py()
        assert len(written) == files
        assert sum(pq.read_metadata(pa.BufferReader(file["footer"])).num_rows for file in written) == 1000


def test_a_bit_that_flips_in_a_data_file_is_found(lake: Lake) -> None:
    """Pages have checksums."""
    materialize(lake, bind(lists))
    table = lake.catalogue.load_table("demo.lists")
    for path in data_files(table):
        file = Path(path.removeprefix("file://"))
        damaged = bytearray(file.read_bytes())
        column = pq.ParquetFile(file).metadata.row_group(0).column(1)
        damaged[(column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 1] ^= 1
        file.write_bytes(damaged)
        with pytest.raises(OSError, match="CRC"):
            pq.ParquetFile(file, page_checksum_verification=True).read()


@pytest.mark.parametrize(
    ("factor", "message"), [(-1, "starts_with_n: 1 rows"), (100, "required_columns: 1 rows")], ids=["check", "null"]
)
def test_rows_that_break_a_check_are_not_published(lake: Lake, factor: int, message: str) -> None:
    """The audit fails as it does for Spark's rows, and main is as it was."""
    materialize(lake, bind(lists))
    before = lake.catalogue.load_table("demo.lists").current_snapshot()
    with pytest.raises(AuditError, match=message):
        materialize(lake, bind(lists, FactorConfig(factor=factor)))
    after = lake.catalogue.load_table("demo.lists")
    assert after.current_snapshot() == before
    assert set(after.refs()) == {"main"}


@needs_spark
def test_a_task_that_fails_leaves_no_file(lake: Lake) -> None:
    """What a worker wrote before an error goes with it; the message is one line."""
    materialize(lake, bind(lists))
    folder = Path(lake.catalogue.load_table("demo.lists").location().removeprefix("file://"))
    there = sorted(folder.rglob("*.parquet"))
    assert there
    with pytest.raises(StepRunError, match=r"^demo\.lists: the disk is full"):
        materialize(lake, bind(lists, FactorConfig(factor=1000)))
    assert sorted(folder.rglob("*.parquet")) == there
    assert rows(lake, "demo.lists", "n") == [(1,), (2,), (3,), (12,)]


def test_no_rows_make_an_empty_increment(lake: Lake) -> None:
    """A step that makes no row materializes nothing, and says so."""

    def nothing(numbers, config: FactorConfig) -> Output:  # type: ignore[no-untyped-def]
        return lists.function(numbers.where("n < 0"), config)  # type: ignore[no-any-return]

    outcome = one(materialize(lake, bind(dataclasses.replace(lists, function=nothing))))
    assert outcome.version.count == 0 and outcome.computed == ("0",)
    assert rows(lake, "demo.lists", "n") == []


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"sort": ("n",)}, marks=pytest.mark.nightly),
        {"checks": (Check("positive", "n > 0", "numbers are positive"),)},
        pytest.param(
            {"columns": (*LISTS.columns[:2], Column("ids", "list<int>", "ids that may be null"))},
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["sorted", "SQL check", "nullable list"],
)
def test_an_engine_sorts_and_checks_what_workers_cannot(lake: Lake, changed: dict[str, Any]) -> None:
    """The rows are those that the function makes, in the order and with the checks that the table asks for."""
    table = dataclasses.replace(LISTS, **changed)
    outcome = one(materialize(lake, bind(dataclasses.replace(lists, tables=(table,)))))
    assert outcome.version == digest(lake.session().table("lake.demo.lists")) and outcome.version.count == 4
    assert rows(lake, "demo.lists", "n") == [(1,), (2,), (3,), (12,)]


def test_files_in_an_object_store_are_written_read_and_removed() -> None:
    """A worker writes to S3 and reads columns aside there, with the lake's own properties; a failed task cleans up."""
    server = pytest.importorskip("moto.server", reason="moto is in the extra dev").ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        properties = {
            "s3.endpoint": f"http://{host}:{port}",
            "s3.access-key-id": "key",
            "s3.secret-access-key": "secret",
            "s3.region": "us-east-1",
        }
        store = pa.fs.S3FileSystem(
            endpoint_override=f"{host}:{port}",
            scheme="http",
            access_key="key",
            secret_key="secret",
            region="us-east-1",
            allow_bucket_creation=True,
        )
        store.create_dir("bucket")
        schema = file_schema(schema_to_pyarrow(LISTS.schema()))
        by_name = (PartitionField("name", "name", False),)
        rules = FileRules(
            schema,
            "s3://bucket/lists/data",
            by_name,
            "zstd",
            2,
            1 << 20,
            1 << 30,
            properties,
            {},
        )
        batch = next(_listed([pa.RecordBatch.from_pydict({"n": [1, 2, 3, 12]})], 2))
        batch = batch.append_column("increment", pa.array([0] * 4, pa.int32()))
        (result,) = list(write_task([batch], rules))
        files = result.column("files")[0].as_py()
        assert sorted(pickle.loads(file["partition"]) for file in files) == [["a/b c"], ["plain"], ["é"]]
        for file in files:
            late = SideReads(("n", "ids"), properties)
            count = pq.read_metadata(pa.BufferReader(file["footer"])).num_rows
            places = {FILE: [file["path"]] * count, ROW: pa.array(range(count), pa.int64())}
            found = [row for part in late.fetch([pa.RecordBatch.from_pydict(places)]) for row in part.to_pylist()]
            wanted = [row for row in batch.to_pylist() if [row["name"]] == pickle.loads(file["partition"])]
            assert found == [{"n": row["n"], "ids": row["ids"]} for row in wanted] != []
            assert store.get_file_info(file["path"].removeprefix("s3://")).size == file["size"]

        def stumbles() -> Iterator[pa.RecordBatch]:
            yield batch
            raise OSError("gone")

        with pytest.raises(OSError, match="gone"):
            list(write_task(stumbles(), rules))
        listed = store.get_file_info(pa.fs.FileSelector("bucket", recursive=True))
        assert len([info for info in listed if info.is_file]) == len(files)
    finally:
        server.stop()

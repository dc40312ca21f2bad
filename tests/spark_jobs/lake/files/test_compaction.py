"""Small files become one with the same rows in the table's order, whatever is killed or committed in between."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import StringType

from headrace.tables.settings import settings_at
from spark_jobs.exceptions import LeaseError
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.files import compaction, file_writer
from spark_jobs.lake.files.compaction import compact
from spark_jobs.lake.files.replacement import version_of_rows
from spark_jobs.lake.session.catalogue import ensure_table, open_catalogue

_COLUMNS = (
    Column("part", "string", "of the partition"),
    Column("n", "long", "number"),
    Column("text", "string", "its name"),
    Column("score", "double", "any"),
    Column("tokens!", "list<int!>", "of any length"),
    Column("parts!", "list<struct<a!: int, b!: string>>", "nested"),
)
_NAME = "demo.things"


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalog:
    """An empty lake."""
    return open_catalogue(settings_at(tmp_path))


def made(catalogue: Catalog, sort: tuple[str, ...] = ("n", "text")) -> IcebergTable:
    """A table without rows."""
    return ensure_table(catalogue, _NAME, Table("things", "anything", _COLUMNS, sort=sort, partition=("part",)), {})


def aim_at(table: IcebergTable, file_bytes: int) -> None:
    """Set the target size of files that are written from now on."""
    with table.transaction() as change:
        change.set_properties({"write.target-file-size-bytes": str(file_bytes)})


def row(draw: random.Random, n: int | None, part: str | None) -> dict[str, Any]:
    """A row of any length."""
    return {
        "part": part,
        "n": n,
        "text": draw.choice([None, "", "ü", "é" * draw.randrange(40)]),
        "score": draw.choice([None, 0.5, math.inf, -0.0]),
        "tokens": [draw.randrange(99) for _ in range(draw.randrange(9))],
        "parts": [{"a": draw.randrange(9), "b": "x" * draw.randrange(9)} for _ in range(draw.randrange(3))],
    }


def append(table: IcebergTable, rows: list[dict[str, Any]]) -> None:
    """Add rows as one file a partition, in the order given."""
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))


def facts(catalogue: Catalog, snapshot_id: int | None = None) -> tuple[str, int]:
    """Data version and number of rows of a table; the version leaves out doubles, which only Spark hashes."""
    table = catalogue.load_table(_NAME)
    rows = table.scan(snapshot_id=snapshot_id).to_arrow()
    return str(version_of_rows(rows, pa.schema(one for one in table.schema().as_arrow() if one.name != "score"))), len(
        rows
    )


def files(catalogue: Catalog) -> list[pa.Table]:
    """The data files that a reader sees, by their first number."""
    paths = [task.file.file_path for task in catalogue.load_table(_NAME).scan().plan_files()]
    return sorted(
        (pq.read_table(path.removeprefix("file://"), partitioning=None) for path in paths),
        key=lambda rows: (rows["part"][0].as_py() or "", rows["n"][0].as_py() or -1),
    )


def test_any_rows_are_the_same_rows_in_order(catalogue: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Overlapping files, sorted or not, with nulls, in three partitions: one file each, in the table's order."""
    monkeypatch.setattr(compaction, "_BATCHES_BYTES", 2_000)
    draw, table = random.Random(7), made(catalogue)
    for number in range(7):
        numbers = [draw.choice([None, *range(200)]) for _ in range(draw.randrange(1, 60))]
        rows = [row(draw, n, draw.choice([None, "a/b", "c"])) for n in numbers]
        rows.sort(key=lambda one: [(one[name] is not None, one[name] or 0) for name in ("n",)])
        append(table, draw.sample(rows, len(rows)) if number % 3 == 0 else rows)
    before, history = facts(catalogue), catalogue.load_table(_NAME).metadata.snapshots
    assert compact(catalogue, _NAME) == (sum(1 for _ in table.scan().plan_files()), 3)
    assert facts(catalogue) == before
    for rows in files(catalogue):
        keys = [
            [(v is not None, v or (0 if name == "n" else "")) for v in rows[name].to_pylist()] for name in ("n", "text")
        ]
        assert list(zip(*keys, strict=True)) == sorted(zip(*keys, strict=True))
        assert len(set(rows["part"].to_pylist())) == 1
    now = catalogue.load_table(_NAME)
    assert {one.snapshot_id for one in history} < {one.snapshot_id for one in now.metadata.snapshots}
    head = now.current_snapshot()
    assert head is not None and head.summary is not None and head.summary.operation == Operation.REPLACE
    assert head.summary.additional_properties["total-records"] == str(before[1])
    assert facts(catalogue, history[-1].snapshot_id) == before, "what is pinned is read as it was"
    assert compact(catalogue, _NAME) == (3, 3) and catalogue.load_table(_NAME).metadata == now.metadata


def test_a_file_holds_one_run_of_ordinals(catalogue: Catalog) -> None:
    """Neighbours alone are merged: a large file between small ones stays between two."""
    draw = random.Random(3)
    table, counts = made(catalogue), [5, 5, 5, 2_000, 5, 5, 2_000, 5]
    for at in draw.sample(range(len(counts)), len(counts)):
        append(table, [row(draw, sum(counts[:at]) + n, "a") for n in range(counts[at])])
    before = facts(catalogue)
    aim_at(table, max(task.file.file_size_in_bytes for task in table.scan().plan_files()))
    assert compact(catalogue, _NAME) == (8, 5) and facts(catalogue) == before
    runs = [rows["n"].to_pylist() for rows in files(catalogue)]
    assert [len(one) for one in runs] == [15, 2_000, 10, 2_000, 5]
    assert all(one == list(range(one[0], one[0] + len(one))) for one in runs)


def test_files_of_an_earlier_schema_and_without_an_order(catalogue: Catalog) -> None:
    """Rows of before a column was added hold null in it; many become files of the target size."""
    draw = random.Random(5)
    table = made(catalogue, ())
    for _ in range(4):
        append(table, [row(draw, n, "a") for n in range(400)])
    with table.update_schema() as change:
        change.add_column("later", StringType())
    for _ in range(4):
        append(table, [row(draw, n, "a") | {"later": "x"} for n in range(400)])
    aim_at(table, 40_000)
    before, (was, now) = facts(catalogue), compact(catalogue, _NAME)
    assert was == 8 and 1 < now < 5 and facts(catalogue) == before
    assert sum(rows["later"].null_count for rows in files(catalogue)) == 1_600


class Killed(BaseException):
    """Stands for `kill -9`: no handler of errors sees it."""


@pytest.mark.nightly
def test_a_kill_loses_and_doubles_nothing(catalogue: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before or after each thing that is written: the rows are the same, and the next compaction ends the work."""
    draw, table = random.Random(9), made(catalogue)
    for part in "abab":
        append(table, [row(draw, n, part) for n in range(50)])
    before = facts(catalogue)
    moments = (
        (file_writer, "create"),
        (compaction, "write_measured"),
        (compaction, "replace_files"),
        (catalogue, "commit_table"),
    )
    for where, name in moments:
        for after in (False, True):
            with monkeypatch.context() as patch:
                patch.setattr(where, name, killing(getattr(where, name), after))
                with pytest.raises(Killed):
                    compact(catalogue, _NAME)
            assert facts(catalogue) == before
            count = compact(catalogue, _NAME)
            assert count[1] == 2 and facts(catalogue) == before, "the next compaction ends the work"
            append(table := catalogue.load_table(_NAME), [row(draw, 60, "a"), row(draw, 60, "b")])
            before = facts(catalogue)


def killing(call: Callable[..., Any], after: bool) -> Callable[..., Any]:
    """The same function, which kills before or after its first call."""

    def killed(*given: Any, **named: Any) -> Any:
        if after:
            call(*given, **named)
        raise Killed

    return killed


def test_what_others_commit_meanwhile_stays(catalogue: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that were appended while files were merged are there once; if a merged file is gone, nothing is done."""
    draw, table = random.Random(11), made(catalogue)
    for _ in range(3):
        append(table, [row(draw, n, "a") for n in range(50)])
    commit_table, expected = catalogue.commit_table, []

    def between(other: Callable[[IcebergTable], None]) -> Callable[..., Any]:
        def committed(*given: Any) -> Any:
            monkeypatch.setattr(catalogue, "commit_table", commit_table)
            other(catalogue.load_table(_NAME))
            expected.append(facts(catalogue))
            return commit_table(*given)

        return committed

    monkeypatch.setattr(compaction, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(catalogue, "commit_table", between(lambda table: append(table, [row(draw, 70, "a")])))
    assert compact(catalogue, _NAME) == (3, 1) and [facts(catalogue)] == expected
    append(catalogue.load_table(_NAME), [row(draw, 71, "a")])
    monkeypatch.setattr(catalogue, "commit_table", between(lambda table: table.delete("n = 70")))
    on_disk = len(list(Path(table.location().removeprefix("file://")).rglob("*.parquet")))
    with pytest.raises(LeaseError, match="somebody else wrote it meanwhile"):
        compact(catalogue, _NAME)
    assert facts(catalogue) == expected[-1]
    assert len(list(Path(table.location().removeprefix("file://")).rglob("*.parquet"))) == on_disk

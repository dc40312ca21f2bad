"""What a Python function is given: whole groups, each row in its place; and that steps ask for it in no other way."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import spark_jobs
from spark_jobs.lake.engine import spooled_rows
from spark_jobs.lake.engine.arrangement import Arranged, Shared, dealt, dealt_in_turn, grouped, release
from spark_jobs.lake.engine.embedded import is_embedded, parallelism
from spark_jobs.spark_sql import F
from tests.tiers import on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CALL = pa.schema([("rows", pa.list_(pa.int64()))])
# By the seam itself, by the writer of Iceberg tables and by the query that fills the archive of Java classes.
_ALLOWED = {"lake/engine/arrangement.py", "lake/files/write.py", "lake/session/class_archive.py"}


def _one_row_a_call(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    numbers = [number for batch in batches for number in batch.column("number").to_pylist()]
    if numbers:
        yield pa.RecordBatch.from_pylist([{"rows": numbers}], _CALL)


def _calls(arranged: Arranged) -> list[list[int]]:
    return [list(row["rows"]) for row in arranged.map(_one_row_a_call, _CALL).to_frame().collect()]


@pytest.fixture(scope="module")
def rows() -> list[dict[str, int | str | None]]:
    """Some hundred rows of groups of one to forty, in no order; nulls in the key and in the order."""
    draw = random.Random("arrangement")
    made = [
        {"key": draw.choice([None, "a", "b", *map(str, range(20))]), "other": draw.randrange(2)} for _ in range(400)
    ]
    placed = [{**row, "place": draw.choice([None, *range(1_000)])} for row in made]
    return [{**row, "number": number} for number, row in enumerate(placed)]


@on_spark
def test_groups_are_whole_and_in_order(spark: SparkSession, rows: list[dict[str, int | str | None]]) -> None:
    """In any number of calls; a null is a key like another one, and comes first in an order."""
    frame = spark.createDataFrame(rows, "key string, other int, place int, number bigint").repartition(7)

    def place(number: int) -> tuple[int, int]:
        found = rows[number]["place"]
        return (0, 0) if found is None else (1, int(found))

    for most_calls in (None, 1, 3):
        calls = _calls(grouped(frame, ["key", "other"], ["place"], most_calls).select("number"))
        assert most_calls is None or len(calls) <= most_calls
        assert sorted(number for call in calls for number in call) == list(range(len(rows)))
        seen: set[tuple[object, object]] = set()
        for call in calls:
            groups = [(rows[number]["key"], rows[number]["other"]) for number in call]
            firsts = [group for at, group in enumerate(groups) if at == 0 or groups[at - 1] != group]
            assert len(firsts) == len(set(firsts)) and not seen & set(firsts)
            seen |= set(firsts)
            for group in firsts:
                places = [place(number) for number, own in zip(call, groups, strict=True) if own == group]
                assert places == sorted(places)

    (everything,) = _calls(grouped(frame, [], ["place"]).persist())
    assert [place(number) for number in everything] == sorted(map(place, range(len(rows))))


@on_spark
def test_calls_in_turn_have_their_rows_and_no_more_begin_than_there_are_cores(
    spark: SparkSession, rows: list[dict[str, int | str | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of 40 calls has the rows of one number, whatever parts they were written in; they go with the frame."""
    monkeypatch.setattr(spooled_rows, "_WAITING_BYTES", 2_000)
    frame = spark.createDataFrame(rows, "key string, other int, place int, number bigint").repartition(3)
    arranged = dealt_in_turn(frame, 40, F.expr("cast(number % 40 as int)"))
    made = arranged.map(iter, frame.schema.simpleString()[7:-1].replace(":", " "))
    for called in (arranged.map(_one_row_a_call, _CALL).to_frame(), made.map(_one_row_a_call, "rows array<bigint>")):
        numbers = sorted(sorted(call["rows"]) for call in called.collect())
        assert numbers == [list(range(first, 400, 40)) for first in range(40)]
    if is_embedded(frame):
        folder = vars(arranged.frame)["_headrace_folder"]
        assert arranged.frame.select(F.spark_partition_id()).distinct().count() <= parallelism()
        assert len(list(folder.glob("*.parquet"))) <= parallelism()
        release(arranged.frame)
        assert not folder.exists()


@on_spark
def test_rows_go_to_the_call_that_they_name(spark: SparkSession, rows: list[dict[str, int | str | None]]) -> None:
    """Each call has the rows of one number, in order."""
    frame = spark.createDataFrame(rows, "key string, other int, place int, number bigint").repartition(3)
    calls = _calls(dealt(frame, 5, F.expr("cast(number % 5 as int)"), ["number"]))
    assert sorted(calls) == [list(range(first, len(rows), 5)) for first in range(5)]


@on_spark
def test_a_large_value_reaches_every_call(spark: SparkSession) -> None:
    """Larger than what a query may hold on Sail, where calls get the value itself."""
    rows = spark.range(4).withColumnRenamed("id", "number").repartition(2)
    shared = Shared(rows, np.arange((150 if is_embedded(spark) else 1) << 17))

    def look_up(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_arrays([pa.array(shared.value[batch.column("number").to_numpy()])], ["number"])

    found = rows.mapInArrow(look_up, "number bigint").collect()
    assert sorted(row["number"] for row in found) == [0, 1, 2, 3]


def test_no_step_arranges_rows_by_itself() -> None:
    """A sort or a distribution in front of a Python function is not kept by every engine."""
    folder = Path(spark_jobs.__file__).parent
    used = {
        str(file.relative_to(folder))
        for file in folder.rglob("*.py")
        if re.search(r"\.(sortWithinPartitions|repartitionById)\(", file.read_text(encoding="utf-8"))
    }
    assert used <= _ALLOWED, f"ask spark_jobs/lake/engine for it: {sorted(used - _ALLOWED)}"

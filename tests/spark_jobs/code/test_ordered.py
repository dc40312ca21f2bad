"""The step that orders the documents of a repository."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from spark_jobs.code.ordered import ORDERED, ordered
from spark_jobs.step import NoConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

# Dataset, shard, doc_id, repository, path, whether it survived.
MEMBERS = [
    ("code", 0, "00", "r", "src/b.py", True),
    ("code", 0, "01", "r", "src/a.py", True),
    ("code", 0, "02", "r", "setup.py", True),
    ("code", 0, "03", "r", "src/Z.py", True),
    ("code", 0, "04", "r", "src/é.py", True),
    ("code", 0, "05", "r", "src/\ue000.py", True),
    ("code", 0, "06", "r", "src/\U0001f600.py", True),
    ("code", 0, "07", "r", "gone.py", False),
    ("code", 0, "0f", "r", "src/deep/er/x.py", True),
    ("code", 0, "0e", "r", "twice.py", True),
    ("code", 0, "0d", "r", "twice.py", True),
    ("code", 1, "10", "s", "a.py", True),
    ("docs", 2, "20", "r", "README.md", True),
    ("docs", 3, "30", None, "file.jsonl#1", True),
    ("docs", 3, "31", None, "notes/file.jsonl#2", True),
    ("docs", 3, "32", "31", "a repository named like a doc_id", True),
    ("docs", 3, "33", None, "/absolute", True),
]


def run(spark: SparkSession, partitions: int = 2, order: int = 1) -> DataFrame:
    """The order of the members above that survived."""
    rows = MEMBERS[::order]
    columns = "dataset string, shard int, doc_id string, repository string, path string, other boolean"
    members = spark.createDataFrame(rows, columns).repartition(partitions)
    survivors = spark.createDataFrame([r[:3] for r in rows if r[5]], "dataset string, shard int, doc_id string")
    return ordered(survivors.repartition(partitions), members, NoConfig())


def by_id(frame: DataFrame) -> list[Row]:
    """Rows by doc_id; sorting them here spares Spark a second run of the step."""
    return sorted(frame.collect(), key=lambda row: str(row.doc_id))


def test_ranks_follow_the_bytes_of_the_path_without_gaps(spark: SparkSession) -> None:
    """Per dataset and repository, from 0, by UTF-8 bytes and then doc_id; alone without repository."""
    groups = defaultdict(list)
    for dataset, _, doc_id, repository, path, survived in MEMBERS:
        if survived:
            groups[dataset, repository or ("alone", doc_id)].append((path.encode(), doc_id))
    expected = {doc_id: rank for group in groups.values() for rank, (_, doc_id) in enumerate(sorted(group))}
    assert {row.doc_id: row["rank"] for row in run(spark).collect()} == expected


def test_package_is_the_directory_of_the_path(spark: SparkSession) -> None:
    """Null at the top."""
    found = {row.doc_id: row.package for row in run(spark).collect()}
    assert found["00"] == "src"
    assert found["0f"] == "src/deep/er"
    assert found["31"] == "notes"
    assert [found[doc_id] for doc_id in ("02", "30", "33")] == [None, None, None]


def test_rows_fit_the_table(spark: SparkSession) -> None:
    """Columns and types are those declared, and every row passes the blocking checks."""
    frame = run(spark)
    assert frame.dtypes == [(column.name, column.type.replace("long", "bigint")) for column in ORDERED.columns]
    for check in ORDERED.checks:
        assert frame.where(f"not ({check.predicate})").count() == 0


def test_order_is_identical_for_1_2_and_7_partitions(spark: SparkSession) -> None:
    """Neither the number of partitions nor the order of rows shows."""
    plain = by_id(run(spark))
    for partitions in (1, 7):
        assert by_id(run(spark, partitions, order=-1)) == plain

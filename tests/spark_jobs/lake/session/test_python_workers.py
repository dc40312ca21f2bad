"""Python workers have no archive on their path whose directory would be read again before each task."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from headrace.tables.settings import settings_at
from spark_jobs.lake.session.python_workers import without_archives
from spark_jobs.lake.session.session import spark_properties
from tests.tiers import needs_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_archives_of_spark_are_told_from_others() -> None:
    """Jars, and the zips of pyspark and py4j; what a user ships stays, in its order."""
    path = [
        "/spark/python/lib/pyspark.zip",
        "/spark/python/lib/py4j-0.10.9.9-src.zip",
        "/spark/jars/spark-core_2.13-4.1.4.jar",
        "/job/own.zip",
        "",
        "/lib/python3.11",
    ]
    assert without_archives(path) == ["/job/own.zip", "", "/lib/python3.11"]


@needs_spark
def test_workers_import_pyspark_from_where_it_is_installed(spark: SparkSession) -> None:
    """No zip importer of Spark's is left in a worker, and its pyspark is the driver's."""
    import pyspark

    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyspark as theirs

        cached = [entry for entry, finder in sys.path_importer_cache.items() if type(finder).__name__ == "zipimporter"]
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"archives": [cached], "pyspark": [theirs.__file__], "path": [sys.path]})

    rows = spark.range(1).mapInArrow(look, "archives array<string>, pyspark string, path array<string>").collect()
    assert [(row["archives"], row["pyspark"]) for row in rows] == [([], pyspark.__file__)]
    assert rows[0]["path"] == without_archives(rows[0]["path"])


@pytest.mark.parametrize("master", ["local[2]", "spark://host:7077"])
def test_workers_are_started_so_everywhere(tmp_path: Path, master: str) -> None:
    """On a cluster the module comes with the session's code, before the first task."""
    values = spark_properties(settings_at(tmp_path), master)
    assert values["spark.python.daemon.module"] == "spark_jobs.lake.session.python_workers"

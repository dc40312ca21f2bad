"""Archives and packages over increments, with Spark: what landed, what is gone with them, and what returned."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.listing.changes import discover
from tests.spark_jobs.sources.repositories.test_packages import config as packages_config
from tests.spark_jobs.sources.repositories.test_packages import sdist
from tests.spark_jobs.sources.test_archives import zipped
from tests.spark_jobs.sources.test_documents import land

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"), pytest.mark.nightly]
Rows = list[dict[str, Any]]


def reader(
    spark: SparkSession, folder: Path, config: DocumentsConfig, empty_arrivals: pa.Table
) -> Callable[..., tuple[list[str], dict[str, str]]]:
    """Reads the next increment: texts that landed, and status by path of whatever returned or is gone."""
    documents, arrived = Rows(), Rows()
    increment = 0

    def read(files: dict[str, bytes], *deleted: str) -> tuple[list[str], dict[str, str]]:
        nonlocal increment
        for name, data in files.items():
            (folder / name).write_bytes(data)
            os.utime(folder / name, (1000 + increment, 1000 + increment))
        for name in deleted:
            (folder / name).unlink()
        listing = discover(config, pa.Table.from_pylist(arrived, empty_arrivals.schema))
        assert listing is not None
        made = land(spark, config, listing, documents, arrived)
        documents.extend({**row, "increment": increment} for row in made["documents"])
        arrived.extend({**row, "increment": increment} for row in made["arrivals"])
        increment += 1
        told = {row["path"]: row["status"] for row in made["arrivals"] if row["doc_id"]}
        return sorted(row["content"] for row in made["documents"]), told

    return read


def test_a_package_stands_for_the_files_of_its_repository(
    spark: SparkSession, tmp_path: Path, empty_arrivals: pa.Table
) -> None:
    """A newer version takes over file by file; when it goes, those of the older one return; then all are gone."""
    read = reader(spark, tmp_path, packages_config(tmp_path), empty_arrivals)
    one, two = sdist("a", "1", x="x1", y="y1", same="s"), sdist("a", "2", x="x2", same="s")
    assert read({"a-1.tar.gz": one, "b-1.tar.gz": sdist("b", "1", x="b")}) == (["b", "s", "x1", "y1"], {})
    assert read({"a-2.tar.gz": two}) == (["x2"], {"a/y.py": "gone"})
    assert read({}, "a-2.tar.gz") == ([], {"a/x.py": "returned", "a/y.py": "returned"})
    gone = dict.fromkeys(["a/x.py", "a/y.py", "a/same.py"], "gone")
    assert read({"b-1.tar.gz": sdist("b", "1", x="b", y="c")}, "a-1.tar.gz") == (["c"], gone)


def test_members_of_archives_go_and_return(
    spark: SparkSession, tmp_path: Path, files_config: Any, data: Path, empty_arrivals: pa.Table
) -> None:
    """As records of a file do; what damage hides is not gone."""
    read = reader(spark, data, files_config(), empty_arrivals)
    inner = zipped({"i.txt": b"i"})
    assert read({"a.zip": zipped({"x.txt": b"x1", "y.txt": b"y", "in.zip": inner})}) == (["i", "x1", "y"], {})
    assert read({"a.zip": zipped({"x.txt": b"x2", "in.zip": inner})}) == (["x2"], {"a.zip#y.txt": "gone"})
    damaged = zipped({"x.txt": b"x1", "in.zip": inner[:-10]})
    assert read({"a.zip": damaged}) == ([], {"a.zip#x.txt": "returned"})

"""Starts PySpark's Python workers without Spark's archives on their path, named by `spark.python.daemon.module`.

Spark puts the jar it runs from, 5,000 entries, and a zip of pyspark in front of the path of its workers; and a worker
has Python forget what it knows of every archive on the path, and read its directory again, before each task: 0.25 s a
task measured, for nothing, where most tasks of a laptop take less. Where pyspark is installed neither is needed. What a
session ships with a job (`spark.submit.pyFiles`) is put on the path later, and stays.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from pathlib import PurePath


def without_archives(path: list[str]) -> list[str]:
    """The path without jars and without Spark's zips of pyspark and py4j."""
    return [entry for entry in path if not _is_spark_archive(PurePath(entry))]


def _is_spark_archive(entry: PurePath) -> bool:
    is_zip = entry.suffix == ".zip" and entry.name.startswith(("pyspark", "py4j-"))
    return entry.suffix == ".jar" or is_zip


def main() -> None:
    """Clean the path, if pyspark is found without the archives, and be PySpark's daemon."""
    path = without_archives(sys.path)
    if all(PathFinder.find_spec(name, path) for name in ("pyspark", "py4j")):
        for entry in set(sys.path).difference(path):
            sys.path_importer_cache.pop(entry, None)
        sys.path[:] = path
        # Processes that a worker starts inherit it.
        inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join(without_archives(inherited))
    from pyspark.daemon import manager

    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()

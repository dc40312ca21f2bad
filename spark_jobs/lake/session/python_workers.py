"""PySpark's daemon, started without Spark's archives on the path; `spark.python.daemon.module` names this module.

Spark puts the jar that it runs from (5,000 entries) and a zip of pyspark in front of the path of its Python workers.
Before each task a worker invalidates Python's import caches, so the directory of every archive on the path is read
again: 0.25 s a task measured, which is more than most tasks of a laptop take. Where pyspark is installed neither
archive is needed. What a session ships with a job (`spark.submit.pyFiles`) is put on the path later, and stays.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from pathlib import PurePath

from headrace.process.interrupts import heed_interrupts


def without_archives(path: list[str]) -> list[str]:
    """The path without jars and without Spark's zips of pyspark and py4j."""
    return [entry for entry in path if not _is_spark_archive(PurePath(entry))]


def _is_spark_archive(entry: PurePath) -> bool:
    is_zip = entry.suffix == ".zip" and entry.name.startswith(("pyspark", "py4j-"))
    return entry.suffix == ".jar" or is_zip


def main() -> None:
    """Remove the archives from the path, if pyspark is found without them, and run PySpark's daemon."""
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
    heed_interrupts()
    main()

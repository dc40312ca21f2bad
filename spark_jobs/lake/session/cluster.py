"""Run on a cluster: send the code to its executors, and warn when the run gets no cores.

Executors need the driver's version of Python with headrace's dependencies (`requirements.lock`), but not headrace. The
code is sent with the session, as an archive that every executor unpacks into its work folder and puts in front of its
path. Unpacked it is files, in which modules find their own sources and Numba its caches. An executor on which another
version of headrace is installed still runs the driver's code, so rows never depend on which executor made them.
"""

from __future__ import annotations

import logging
import os
import sys
import sysconfig
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from spark_jobs.lake.engine.embedded import is_embedded, persist_in_files

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)

CODE_FOLDER = "headrace-code"
_OWN = ("spark_jobs", "dagster_project", "headrace", "headrace_features")
_SPARKS = frozenset({"pyspark", "py4j"})  # a distribution of Spark has them in a folder of its own
_SITE = frozenset({"site-packages", "dist-packages"})
_WAIT_SECONDS = 15.0
_POLL_SECONDS = 1.0


def is_local(master: str) -> bool:
    """Whether all tasks run on the driver's machine, where the code and the files are."""
    return master.startswith("local")


def checkpointed(frame: DataFrame) -> DataFrame:
    """Compute a DataFrame now and truncate its lineage; else the plan would double in size with every round.

    With `spark.checkpoint.dir` set, the rows are kept there and outlive executors. Without it they are kept in memory
    and on disk, on a cluster by two executors each, so that one executor may be lost at a time.
    """
    if is_embedded(frame):
        return persist_in_files(frame)
    from pyspark import StorageLevel

    conf = frame.sparkSession.conf
    if conf.get("spark.checkpoint.dir", ""):
        return frame.checkpoint()
    here = is_local(conf.get("spark.master") or "")
    return frame.localCheckpoint(storageLevel=StorageLevel.MEMORY_AND_DISK if here else StorageLevel.MEMORY_AND_DISK_2)


def join_cluster(context: SparkContext) -> None:
    """Send the code to the executors of a session and start watching it for cores, once; does nothing in local mode."""
    if is_local(context.master or "") or CODE_FOLDER in context.environment.get("PYTHONPATH", ""):
        return
    _ship_code(context)
    threading.Thread(target=_watch, args=(context,), name="watch-for-cores", daemon=True).start()


def _ship_code(context: SparkContext) -> None:
    """Give executors headrace's code and the user's own, ahead of what is installed there."""
    from pyspark import SparkFiles

    archive = Path(SparkFiles.getRootDirectory()) / f"{CODE_FOLDER}.zip"  # Spark removes this folder with the session
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as into:
        for path in own_code():
            for file in _files(path):
                into.write(file, file.relative_to(path.parent))
    context.addArchive(f"{archive}#{CODE_FOLDER}")
    theirs = context.environment.get("PYTHONPATH")
    context.environment["PYTHONPATH"] = f"{CODE_FOLDER}{os.pathsep}{theirs}" if theirs else CODE_FOLDER


def own_code() -> list[Path]:
    """Folders and files of the top-level modules loaded here that executors cannot be expected to have installed.

    They are headrace's packages, with the tables that users declare in them, and whatever else was loaded from outside
    of site-packages and of Python itself.
    """
    import headrace.kernels  # noqa: F401 - a driver need not have loaded what kernels of its executors import

    ours: dict[Path, None] = {}
    for name in sorted({name.partition(".")[0] for name in list(sys.modules)} - sys.stdlib_module_names - _SPARKS):
        module = sys.modules.get(name)
        folders = list(getattr(module, "__path__", ()))
        file = getattr(module, "__file__", None)
        for place in folders or ([file] if file and not name.startswith("__") else []):
            path = Path(place).absolute()
            if path.exists() and (name in _OWN or not _is_installed(path)):
                ours[path] = None
    return list(ours)


def _is_installed(path: Path) -> bool:
    python = Path(sysconfig.get_path("stdlib")).resolve()
    return not _SITE.isdisjoint(path.parts) or python in path.resolve().parents


def _files(path: Path) -> Iterator[Path]:
    """The file, or all files of a package, without byte code and hidden files."""
    if path.is_file():
        yield path
        return
    for folder, below, names in os.walk(path):
        below[:] = sorted(name for name in below if name != "__pycache__" and not name.startswith("."))
        yield from (Path(folder, name) for name in sorted(names) if not name.startswith("."))


def _watch(context: SparkContext) -> None:
    """Log a warning when no task has run for a while though some are due, and another one when they run again."""
    from py4j.protocol import Py4JError

    tracker, master = context.statusTracker(), context.master
    since, warned = time.monotonic(), False
    while True:
        time.sleep(_POLL_SECONDS)
        try:
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        except (Py4JError, OSError):  # the session has ended
            return
        due = [stage for stage in stages if stage is not None]
        if not due or any(stage.numActiveTasks for stage in due):
            if warned:
                _log.warning("%s: the run has cores again, after %.0f s", master, time.monotonic() - since)
            since, warned = time.monotonic(), False
        elif not warned and time.monotonic() - since >= _WAIT_SECONDS:
            _log.warning(
                "%s: the run waits for cores, %d tasks are due and none runs; other runs hold the cores, no worker is "
                "up, or none has the memory that an executor asks for (HEADRACE_SPARK_CORES bounds what a run takes, "
                "HEADRACE_SPARK_EXECUTOR_MEMORY what an executor asks for)",
                master,
                sum(stage.numTasks - stage.numCompletedTasks for stage in due),
            )
            warned = True

"""A Spark cluster, an S3 store and Postgres as processes of this machine, and what a run costs there.

All lies in one folder and ends with the block. The store is `versitygw` where it is on the PATH, else moto, which
holds every object in memory. What tasks shuffle and spill comes from Spark's event log, memory from the processes too.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from command import MissingError
from cpu_time import anonymous_bytes, tree

from tests.main_path.services import (
    PASSWORD,
    Postgres,
    free_port,
    gateway,
    lake_environment,
    listens,
    postgres,
    wait_until,
)
from tests.main_path.standalone import Standalone, standalone

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_WORKERS = 2
_DISK_SAMPLES = 20  # a walk over the folder for each so many looks at memory
_PEAKS = {"JVMHeapMemory": "heap", "ProcessTreeJVMRSSMemory": "JVM", "ProcessTreePythonRSSMemory": "Python"}


@dataclass(frozen=True)
class Store:
    """An S3 store: its port of loopback, and its process."""

    port: int
    pid: int


@dataclass
class SparkProfile:
    """The services of a run, and the most of what was sampled.

    Attributes:
        folder: of all their files.
        environment: what the driver is told.
        services: processes whose trees count beside the driver's, by what they are.
        sample_seconds: between two looks at memory.
        most: most bytes of each kind of process, and of files.
    """

    folder: Path
    environment: Mapping[str, str]
    services: Mapping[str, list[int]]
    sample_seconds: float = 2  # each takes some 50 ms of a core
    most: dict[str, int] = field(default_factory=lambda: defaultdict[str, int](int))
    _spent: dict[int, tuple[float, float]] = field(default_factory=dict)
    _looks: int = 0
    _read: set[Path] = field(default_factory=set)

    def sample(self, driver: int) -> int:
        """Note what all processes hold; gives the bytes of all together."""
        held = defaultdict[str, int](int)
        self._note_seconds()
        for process in tree(driver):
            held["driver's JVM" if _is_java(process) else "driver"] += anonymous_bytes(process.pid)
        executors = [0], [0]
        for process in (one for root in self.services["workers"] for one in tree(root)):
            if not _is_executor(process):
                continue
            executors[0].append(anonymous_bytes(process.pid))
            executors[1].append(sum(anonymous_bytes(one.pid) for one in tree(process.pid) if one != process))
        for kind in ("store", "Postgres"):
            held[kind] = sum(anonymous_bytes(one.pid) for root in self.services[kind] for one in tree(root))
        together = sum(held.values()) + sum(map(sum, executors))
        held |= {"an executor's JVM": max(executors[0]), "an executor's Python": max(executors[1])}
        if self._looks % _DISK_SAMPLES == 0:
            held |= {f"files of {name}": folder_bytes(self.folder / place) for name, place in _PLACES.items()}
        self._looks += 1
        for kind, value in held.items():
            self.most[kind] = max(self.most[kind], value)
        return together

    def seconds(self) -> tuple[float, float]:
        """Processor seconds of the services so far, user and system."""
        self._note_seconds()
        return sum(one for one, _ in self._spent.values()), sum(one for _, one in self._spent.values())

    def _note_seconds(self) -> None:
        """Note what each process took itself: of executors that end, Python's seconds reach no process above."""
        for process in (one for roots in self.services.values() for root in roots for one in tree(root)):
            with contextlib.suppress(psutil.Error):
                spent = process.cpu_times()
                self._spent[process.pid] = spent.user, spent.system

    def lake_bytes(self, _: Path) -> int:
        """Of all objects; none where the store holds them in memory."""
        return folder_bytes(self.folder / _PLACES["the lake"])

    def catalogue(self, _: Path) -> Catalog:
        """That of the lake."""
        from headrace.tables.settings import load_settings
        from spark_jobs.lake.session.catalogue import open_catalogue

        os.environ.update(self.environment)
        return open_catalogue(load_settings())

    def print_costs(self, documents: int) -> None:
        """Print what the runs since the last call shuffled and spilled, by table, and the most memory."""
        logs = set((self.folder / "events").iterdir()) - self._read
        self._read |= logs
        tables, peaks = event_costs(logs)
        print(f"\n{'table':<36}{'shuffled MB':>12}{'B a document':>14}{'spilled MB':>12}{'core s':>8}")
        for name, cost in sorted(tables.items(), key=lambda named: -named[1]["shuffled"]):
            print(f"{name:<36}{_numbers(cost, documents)}")
        print(f"{'all':<36}{_numbers(_sum(tables.values()), documents)}")
        for name, value in sorted(self.most.items()):
            print(f"most, {name:<30}{value / 2**20:>12,.0f} MiB")
        for name, value in sorted(peaks.items()):
            print(f"most by Spark, {name:<21}{value / 2**20:>12,.0f} MiB", flush=True)
        self.most.clear()


_PLACES = {"executors": "cluster/local", "the lake": "objects"}


def _numbers(cost: Mapping[str, float], documents: int) -> str:
    shuffled, spilled, seconds = cost["shuffled"], cost["spilled"], cost["seconds"]
    return f"{shuffled / 1e6:>12,.1f}{shuffled / documents:>14,.0f}{spilled / 1e6:>12,.1f}{seconds:>8,.0f}"


def _sum(costs: Any) -> dict[str, float]:
    listed = list(costs)
    return {key: sum(cost[key] for cost in listed) for key in ("shuffled", "spilled", "seconds")}


def event_costs(logs: set[Path]) -> tuple[dict[str, dict[str, float]], dict[str, int]]:
    """Bytes shuffled and spilled and seconds of tasks by table, and peaks of executors' memory, from event logs."""
    costs = defaultdict[str, dict[str, float]](lambda: dict.fromkeys(("shuffled", "spilled", "seconds"), 0.0))
    peaks = defaultdict[str, int](int)
    for log in logs:
        table_of = dict[int, str]()
        with log.open() as lines:
            for line in lines:
                if line.startswith('{"Event":"SparkListenerJobStart"'):
                    job = json.loads(line)
                    what = (job.get("Properties") or {}).get("spark.job.description", "other").partition("[")[0]
                    for stage in job["Stage IDs"]:
                        table_of.setdefault(stage, what)
                elif line.startswith('{"Event":"SparkListenerTaskEnd"'):
                    task = json.loads(line)
                    _add_task(costs[table_of.get(task["Stage ID"], "other")], task.get("Task Metrics") or {})
                elif line.startswith('{"Event":"SparkListenerStageExecutorMetrics"'):
                    of_stage = json.loads(line)
                    who = "driver" if of_stage["Executor ID"] == "driver" else "executor"
                    for key, name in _PEAKS.items():
                        kind = f"{who}'s {name}"
                        peaks[kind] = max(peaks[kind], of_stage["Executor Metrics"].get(key, 0))
    return dict(costs), dict(peaks)


def _add_task(cost: dict[str, float], metrics: Mapping[str, Any]) -> None:
    cost["shuffled"] += metrics.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)
    cost["spilled"] += metrics.get("Disk Bytes Spilled", 0)
    cost["seconds"] += metrics.get("Executor Run Time", 0) / 1000


@contextlib.contextmanager
def spark_profile(folder: Path) -> Iterator[SparkProfile]:
    """Start Postgres, a store, a master and two workers of one core.

    Raises:
        MissingError: this machine has no Postgres or no store.
    """
    events = folder / "events"
    events.mkdir(parents=True)
    with contextlib.ExitStack() as running:
        try:
            database: Postgres = running.enter_context(postgres("lake"))
        except pytest.skip.Exception as error:
            raise MissingError(str(error)) from error
        store = running.enter_context(_store(folder))
        cluster: Standalone = running.enter_context(standalone(folder / "cluster"))
        for _ in range(_WORKERS):
            cluster.add_worker()
        options = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": events.as_uri(),
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
            "spark.eventLog.logStageExecutorMetrics": "true",
            "spark.executor.processTreeMetrics.enabled": "true",
            "spark.executor.metrics.pollingInterval": "1s",
        }
        submitted = " ".join(f"--conf {key}={value}" for key, value in options.items())
        environment = {
            **lake_environment(database, store),
            **cluster.environment,
            "HEADRACE_ENGINE": "spark",
            "PYSPARK_SUBMIT_ARGS": f"{submitted} pyspark-shell",
        }
        postmaster = int((database.folder / "data" / "postmaster.pid").read_text().split()[0])
        yield SparkProfile(
            folder, environment, {"workers": cluster.workers, "store": [store.pid], "Postgres": [postmaster]}
        )


@contextlib.contextmanager
def _store(folder: Path) -> Iterator[Store]:
    """A store with the bucket `lake`."""
    objects = folder / _PLACES["the lake"]
    (objects / "lake").mkdir(parents=True)
    program = shutil.which("versitygw")
    if program is not None:
        with gateway(program, objects, PASSWORD) as port:
            yield Store(port, _listener(port))
        return
    moto = Path(sys.executable).with_name("moto_server")
    if not moto.is_file():
        raise MissingError("no S3 store: versitygw is not on the PATH, and moto (extra dev) not installed")
    import boto3

    port = free_port()
    arguments = [moto, "-H", "127.0.0.1", "-p", str(port)]
    with (folder / "store.log").open("wb") as log, subprocess.Popen(arguments, stdout=log, stderr=log) as process:
        try:
            wait_until(lambda: listens(port), "the store")
            keys = {"aws_access_key_id": "lake", "aws_secret_access_key": PASSWORD, "region_name": "us-east-1"}
            boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", **keys).create_bucket(Bucket="lake")
            yield Store(port, process.pid)
        finally:
            process.kill()


def _listener(port: int) -> int:
    """The process below this one that listens at a port."""
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if any(one.laddr.port == port for one in process.net_connections("tcp") if one.status == "LISTEN"):
                return process.pid
    raise MissingError(f"no process listens at {port}")


def folder_bytes(folder: Path) -> int:
    """Of all files below a folder, while others come and go."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(root, name)).st_size
    return total


def _is_java(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.name() == "java"
    return False


def _is_executor(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return any("CoarseGrainedExecutorBackend" in word for word in process.cmdline())
    return False

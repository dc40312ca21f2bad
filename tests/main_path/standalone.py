"""A standalone Spark cluster of this machine: a master and workers as processes that know nothing of the project.

Their home, folder and path hold nothing of headrace; their Python sees the third-party packages alone, since a path is
not searched for the `.pth` file that an editable installation consists of. By hand, until interrupted:

    python -m tests.main_path.standalone FOLDER
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from spark_jobs.lake.session.java import java_home

_START_SECONDS = 600


@dataclass(frozen=True)
class Standalone:
    """A running cluster.

    Attributes:
        folder: where all of it lies.
        master: its address.
        python: program that executors run as Python.
        workers: ids of the processes that start executors.
        secret: what its processes know each other by; empty where they ask for none.
    """

    folder: Path
    master: str
    python: Path
    workers: list[int]
    start: Callable[..., tuple[int, Path]]
    secret: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """What a driver's process has to be told."""
        return {
            "HEADRACE_SPARK_MASTER": self.master,
            "HEADRACE_SPARK_MEMORY": "1g",
            "HEADRACE_SPARK_EXECUTOR_MEMORY": "900m",
            "PYSPARK_PYTHON": str(self.python),
            "SPARK_LOCAL_IP": "127.0.0.1",
            **({"HEADRACE_SPARK_SECRET": self.secret} if self.secret else {}),
        }

    def add_worker(self, cores: int = 1) -> None:
        """Start one more worker and wait until the master knows it."""
        pid, log = self.start("worker.Worker", "--cores", str(cores), "--memory", "1500m", self.master)
        said(log, r"Successfully registered with master (\S+)")
        self.workers.append(pid)

    def executors(self) -> list[psutil.Process]:
        """The executors that run now."""
        below = [one for worker in self.workers for one in psutil.Process(worker).children(recursive=True)]
        found = []
        for one in below:
            with contextlib.suppress(psutil.Error):  # gone, or about to
                if any("CoarseGrainedExecutorBackend" in word for word in one.cmdline()):
                    found.append(one)
        return found


@contextlib.contextmanager
def standalone(folder: Path, secret: str = "") -> Iterator[Standalone]:
    """Start a master below a folder, without workers, with a secret as in compose; all ends with the block."""
    nowhere = folder / "nowhere"
    nowhere.mkdir(parents=True)
    python = folder / "python"
    packages = sysconfig.get_path("purelib")
    interpreter = getattr(sys, "_base_executable", sys.executable)
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {interpreter} "$@"\n')
    python.chmod(0o755)
    spark_home = Path(pyspark.__file__).parent
    environment = {
        "PATH": os.environ["PATH"],
        "JAVA_HOME": str(java_home()),
        "HOME": str(nowhere),
        "SPARK_HOME": str(spark_home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        **({"SPARK_DAEMON_JAVA_OPTS": "-Dspark.authenticate=true", "_SPARK_AUTH_SECRET": secret} if secret else {}),
    }
    with contextlib.ExitStack() as running:

        def start(name: str, *arguments: str) -> tuple[int, Path]:
            log = folder / f"{name}-{uuid.uuid4().hex[:4]}.log"
            command = [str(spark_home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
            command += ["--host", "127.0.0.1", "--webui-port", "0", *arguments]
            with log.open("wb") as into:
                process = subprocess.Popen(
                    command, cwd=nowhere, env=environment, stdout=into, stderr=into, start_new_session=True
                )
            running.callback(process.wait)
            running.callback(process.kill)
            return process.pid, log

        _, log = start("master.Master", "--port", "0")
        yield Standalone(folder, said(log, r"Starting Spark master at (spark://\S+)"), python, [], start, secret)


def said(log: Path, pattern: str) -> str:
    """What a log says, as soon as it does.

    Raises:
        TimeoutError: it does not.
    """
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found is not None:
            return found[1]
        time.sleep(0.2)
    raise TimeoutError(f"{log} does not say {pattern}: {log.read_text(errors='replace')[-2000:]}")


if __name__ == "__main__":
    with standalone(Path(sys.argv[1])) as cluster:
        for _ in range(2):
            cluster.add_worker()
        sys.stdout.write("".join(f"export {name}={value}\n" for name, value in cluster.environment.items()))
        sys.stdout.flush()
        signal.pause()

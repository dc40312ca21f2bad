"""An executor that dies in the middle of near-duplicates costs time, and no row."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.spark_jobs.dedup.near_corpus import found_pairs, near_steps, planted, rows_of

pytestmark = pytest.mark.nightly

_EXECUTOR = "CoarseGrainedExecutorBackend"


def executors() -> list[psutil.Process]:
    """Executors among the descendants of this process."""
    below = psutil.Process().children(recursive=True)
    return [one for one in below if any(_EXECUTOR in word for word in one.cmdline())]


def kill_one_executor() -> None:
    """Wait until there are two, and kill the first that has worked for a while."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        running = executors()
        if len(running) == 2:
            time.sleep(8)
            running[0].kill()
            return
        time.sleep(0.2)


def disturbed(folder: str) -> None:
    """Run the steps on two executors of which one is killed; prints whether the tables are as without that."""
    from headrace.tables.settings import settings_at
    from spark_jobs.lake.session.session import start_session

    extra = {"spark.executor.memory": "900m", "spark.sql.shuffle.partitions": "4"}
    spark = start_session(settings_at(Path(folder)), "local-cluster[2,1,1024]", extra)
    documents = planted(seed=11, originals=60, copies=60)
    near_steps(spark, documents[:10])  # both executors have started
    killer = threading.Thread(target=kill_one_executor)
    killer.start()
    tables = dict(rows_of(near_steps(spark, documents, partitions=8)))
    killer.join()
    again = near_steps(spark, documents, partitions=3)
    assert len(found_pairs(again)) > 10
    sys.stdout.write(f"same {tables == dict(rows_of(again))}\n")
    spark.stop()


def test_a_killed_executor_changes_no_row(tmp_path: Path) -> None:
    """Two executors, one is killed while the steps run: Spark starts another, and every table is the same."""
    command = [sys.executable, "-m", "tests.spark_jobs.dedup.test_lost_executor", str(tmp_path)]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "same True"


if __name__ == "__main__":
    disturbed(sys.argv[1])

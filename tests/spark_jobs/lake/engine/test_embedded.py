"""What Sail makes of files: each is read by its own name, none is one without rows; and what its steps take."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.exceptions import InputError
from spark_jobs.lake.engine import choice, embedded
from spark_jobs.lake.engine.embedded import processor_seconds, read_files
from tests.tiers import sampled, tries

_READ = """
import json, sys
from spark_jobs.lake.engine.embedded import read_files, start_embedded
session = start_embedded()
print(json.dumps([[row.x for row in read_files(session, [path], "x long").collect()] for path in json.load(sys.stdin)]))
"""

_JOIN = """
import sys
from spark_jobs.lake.engine import choice, memory
from spark_jobs.lake.engine.embedded import start_embedded
from spark_jobs.spark_sql import F
memory._LEAST_POOL = 64 << 20
choice._chosen.append(choice.Choice("sail", "", eval(sys.argv[1])))
rows = start_embedded().range(400_000).select("id", F.repeat(F.sha2(F.col("id").cast("string"), 256), 3).alias("text"))
other = rows.select((399_999 - F.col("id")).alias("id"), F.reverse("text").alias("other"))
print(rows.join(other, "id").where("text <> other").count())
"""

_IDLE = """
import sys, time
from spark_jobs.lake.engine import embedded
embedded._SESSION_SECONDS = int(sys.argv[1])
session = embedded.start_embedded()
time.sleep(12)
print(session.range(3).count())
"""


def test_a_path_is_no_pattern_and_has_no_escapes(tmp_path: Path) -> None:
    """Folders and files of random names, in a process of its own, since a process has one engine."""
    pytest.importorskip("pysail")
    draw, paths = random.Random(30), []
    for number in range(tries(200, default=8)):
        folder, file = ("".join(draw.choices([*"%20?*[]{}#&=+;: '\"\\~", "%2F", "é", "水"], k=6)) for _ in range(2))
        paths.append(tmp_path / f"a{folder}" / f"{number}{file}.parquet")
        paths[-1].parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"x": [number]}), paths[-1])
    command, given = [sys.executable, "-c", _READ], json.dumps([str(path) for path in paths])
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == [[number] for number in range(len(paths))]


def test_a_file_that_is_gone_is_refused(tmp_path: Path) -> None:
    """Sail itself would read it as no rows."""
    session: Any = None
    with pytest.raises(InputError, match=rf"{tmp_path}/lost.parquet does not exist; restore it"):
        read_files(session, [f"{tmp_path}/lost.parquet"], "x long")


@sampled()
@pytest.mark.parametrize("joined", [None, 1 << 40])
def test_what_many_operators_hold_goes_to_disk(joined: int | None) -> None:
    """A join of 80 MB with as much in a pool of 64; hashing a side of it, which small runs do, often needs more."""
    pytest.importorskip("pysail")
    environment = {**os.environ, "HEADRACE_EMBEDDED_MEMORY": "128m"}
    command = [sys.executable, "-c", _JOIN, str(joined)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.strip() == "400000", done.stderr[-2000:]


def test_sessions_outlive_the_longest_step() -> None:
    """Of Sail's setting; that it is this one which ends them is tried below."""
    assert int(embedded._server_settings()["SAIL_SPARK__SESSION_TIMEOUT_SECS"]) >= 30 * 24 * 3600


@pytest.mark.nightly
@pytest.mark.parametrize("seconds", [2, embedded._SESSION_SECONDS])
def test_a_session_may_be_idle_beside_a_long_step(seconds: int) -> None:
    """Sail ends those that ask nothing for some time, 15 minutes where nobody says: a step after `pairs` had none."""
    pytest.importorskip("pysail")
    command = [sys.executable, "-c", _IDLE, str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if seconds == 2:
        assert done.returncode and "3" not in done.stdout.split()
    else:
        assert done.stdout.strip() == "3", done.stderr[-2000:]


@pytest.mark.parametrize(
    ("memory", "joined", "careful", "hashed"),
    [
        ("4g", 2_000_000_000, False, True),
        ("4g", 2_000_000_000, True, False),
        ("4g", 20_000_000_000, False, True),
        ("4g", 40_000_000_000, False, False),
        ("4g", None, False, True),
        ("1g", 100 << 20, False, True),
        ("1g", 1 << 30, False, False),
        ("1g", None, False, False),
    ],
)
def test_joins_hash_a_side_where_the_pool_has_its_identities(
    memory: str, joined: int | None, careful: bool, hashed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of 20 GB on a machine with memory to spare does; where nothing is known, the pool decides."""
    monkeypatch.setenv("HEADRACE_EMBEDDED_MEMORY", memory)
    monkeypatch.setattr(choice, "_chosen", [choice.Choice(choice.SAIL, "", joined, careful)])
    assert embedded._server_settings()["SAIL_OPTIMIZER__PREFER_HASH_JOIN"] == str(hashed).lower()


def burn(seconds: float) -> None:
    """Take so much of a processor."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_steps_side_by_side_share_what_the_process_takes() -> None:
    """Each second is counted once: alone it is the one's, at a time half of it is each one's."""
    before = time.process_time()
    with processor_seconds() as first:
        burn(0.1)
        alone = first()
        with processor_seconds() as second:
            burn(0.1)
            inner = second()
        burn(0.05)
        whole = first()
    took = time.process_time() - before
    assert alone >= 0.1 and 0.05 <= inner <= 0.6 * (whole - alone) and whole >= alone + 0.1
    assert inner + whole <= took + 0.001


_UNIONS = """
import json, random, sys
from pathlib import Path
import pyarrow as pa
import pyarrow.parquet as pq
from spark_jobs.lake.engine.embedded import read_files, start_embedded
session, folder, seeds = start_embedded(), Path(sys.argv[1]), int(sys.argv[2])

def leaf(draw):
    files, rows = [], []
    for _ in range(draw.randint(1, 3)):
        values = [(draw.randint(0, 1), draw.randint(0, 9)) for _ in range(3)]
        files.append(str(folder / f"{draw.random()}.parquet"))
        pq.write_table(pa.table({"n": [n for n, _ in values], "m": [m for _, m in values]}), files[-1])
        rows += values
    return read_files(session, files, "n long, m long"), rows

def united(draw, depth):
    if not depth or draw.random() < 0.2:
        return leaf(draw)
    (one, rows), (other, more) = united(draw, depth - 1), united(draw, depth - 1)
    change = draw.choice(["none", "order", "sum", "filter"])
    if change == "order":
        other = other.select("m", "n")
    elif change == "sum":
        other, more = other.selectExpr("n", "m + 1 AS m"), [(n, m + 1) for n, m in more]
    elif change == "filter":
        other, more = other.where("m > 2"), [(n, m) for n, m in more if m > 2]
    return one.unionByName(other), rows + more

wrong = []
for seed in range(seeds):
    frame, rows = united(random.Random(seed), 3)
    expected = sorted((n, m) for n, m in rows if n)
    try:
        answer = sorted((row.n, row.m) for row in frame.where("n <> 0").collect())
    except Exception as error:
        answer = str(error)
    if answer != expected:
        wrong.append([seed, str(answer)[:200]])
print(json.dumps(wrong))
"""


def test_rows_of_files_are_filtered_through_any_unions(tmp_path: Path) -> None:
    """Unions of frames that are unions themselves, by random; a filter over them once missed their columns."""
    pytest.importorskip("pysail")
    command = [sys.executable, "-c", _UNIONS, str(tmp_path), str(tries(200, default=15))]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert json.loads(ran.stdout.splitlines()[-1]) == []

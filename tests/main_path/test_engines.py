"""The law of engines: a table has the same data version whichever engine wrote it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.main_path.many_repositories import FILES, LANGUAGES, REPOSITORIES
from tests.main_path.project import point_at
from tests.main_path.test_one_run import GOLDEN, write
from tests.tiers import is_nightly

_ROOT = Path(__file__).parents[2]
_RUN = """
import json, sys
from pathlib import Path
from tests.main_path.project import run
print(json.dumps(run(Path(sys.argv[1])).versions))
"""


def started(engine: str, root: Path, source: Path) -> subprocess.Popen[str]:
    """A run in a process group of its own, which prints the data versions of all tables in the end."""
    return subprocess.Popen(
        [sys.executable, "-c", _RUN, str(source)],
        env={**os.environ, **point_at(root), "HEADRACE_ENGINE": engine},
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def versions(engine: str, root: Path, source: Path) -> dict[str, str]:
    """Data versions of all tables after a run."""
    process = started(engine, root, source)
    said, complaints = process.communicate()
    assert process.returncode == 0, complaints[-2000:]
    found: dict[str, str] = json.loads(said.splitlines()[-1])
    return found


@pytest.mark.nightly
def test_both_engines_write_the_same_rows(tmp_path: Path) -> None:
    """Of the whole way, then of a lake that one began and the other goes on with, in both orders; of odd names too."""
    pytest.importorskip("pysail")
    tmp_path /= "100%20 #1? é"
    write(tmp_path / "source")
    first = {engine: versions(engine, tmp_path / engine, tmp_path / "source") for engine in ("spark", "sail")}
    assert first["spark"] == first["sail"]
    assert {table: first["sail"][table] for table in GOLDEN} == GOLDEN
    more = [
        json.dumps({"id": 100 + number, "body": f"a later note about the mill {number} " * 9}) for number in range(8)
    ]
    (tmp_path / "source" / "notes" / "1.jsonl").write_text("\n".join(more) + "\n")
    second = {
        root: versions(engine, tmp_path / root, tmp_path / "source")
        for root, engine in (("spark", "sail"), ("sail", "spark"))
    }
    assert second["spark"] == second["sail"] != first["spark"]


_ROUNDS = """
import json, os, sys
from pathlib import Path
from spark_jobs.lake.engine import embedded
from tests.at_once import watch
from tests.main_path.project import point_at, run
embedded.parallelism = lambda: 8
watch()
for number in range(int(sys.argv[3])):
    os.environ.update(point_at(Path(sys.argv[2]) / str(number)))
    outcome = run(Path(sys.argv[1]))
    print(json.dumps([outcome.versions, outcome.failures]), flush=True)
"""


@pytest.mark.nightly
def test_steps_give_the_same_by_eight_tasks_at_once(tmp_path: Path) -> None:
    """The whole way, 20 times in one process, each function of a step by eight threads beside one another as well."""
    pytest.importorskip("pysail")
    write(tmp_path / "source")
    command = [sys.executable, "-c", _ROUNDS, str(tmp_path / "source"), str(tmp_path), "20"]
    environment = {**os.environ, "HEADRACE_ENGINE": "sail"}
    done = subprocess.run(command, env=environment, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rounds = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[{")]
    assert len(rounds) == 20 and all(one == rounds[0] for one in rounds)
    found, failures = rounds[0]
    assert failures == [] and {table: found[table] for table in GOLDEN} == GOLDEN


_CODE = {  # 40 repositories in ten languages; Spark writes the same, which the long tier looks at
    "dependencies": "v2:200:125255005890281189332:b99f6c719d3cc272",
    "dependency_methods": "v2:40:-96443225800007038363:676eecf38afc13b5",
    "ordered": "v2:240:7396220415411220732:5561364d336c52e6",
}


def code_versions(engine: str, root: Path, rounds: int) -> list[dict[str, str]]:
    """What the steps of code make of many repositories by eight tasks at once, in each round."""
    command = [sys.executable, "-m", "tests.main_path.many_repositories", str(root), str(rounds)]
    environment = {**os.environ, "HEADRACE_ENGINE": engine}
    done = subprocess.run(command, env=environment, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[dict[str, str]] = json.loads(done.stdout)
    return found


@pytest.mark.nightly
@pytest.mark.skipif(os.environ.get("HEADRACE_ENGINE") == "spark" and not is_nightly(), reason="runs Sail by itself")
def test_many_repositories_have_their_edges_by_eight_tasks_at_once(tmp_path: Path) -> None:
    """Each of the 40 has all of its five: tasks of Sail are threads, and share nothing of their parsers."""
    pytest.importorskip("pysail")
    rounds = 20 if is_nightly() else 1
    assert len(LANGUAGES) * REPOSITORIES * (FILES - 1) == int(_CODE["dependencies"].split(":")[1])
    assert code_versions("sail", tmp_path, rounds) == [_CODE] * rounds


@pytest.mark.nightly
def test_spark_makes_the_same_of_many_repositories(tmp_path: Path) -> None:
    """So what the default tier compares with is what both engines write."""
    assert code_versions("spark", tmp_path, 1) == [_CODE]


@pytest.mark.nightly
def test_both_engines_make_the_same_of_random_frames(tmp_path: Path) -> None:
    """Of rows of every type that tables have: read, kept, grouped, dealt, joined, summed, ranked."""
    pytest.importorskip("pysail")
    seeds = ",".join(map(str, range(1, 61)))
    found = {}
    for engine in ("spark", "sail"):
        command = [sys.executable, "-m", "tests.main_path.random_frames", str(tmp_path / engine), seeds]
        environment = {**os.environ, "HEADRACE_ENGINE": engine}
        done = subprocess.run(command, env=environment, cwd=_ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        found[engine] = json.loads(done.stdout)
    assert len(found["spark"]) == 60 and found["spark"] == found["sail"]


@pytest.mark.nightly
def test_kills_and_two_runs_at_once_lose_and_double_nothing(tmp_path: Path) -> None:
    """Runs on Sail killed at random moments, then one on each engine in one lake at a time: rows of a quiet lake."""
    pytest.importorskip("pysail")
    write(tmp_path / "source")
    quiet = versions("spark", tmp_path / "quiet", tmp_path / "source")
    draw, kills = random.Random(33), 0
    for _ in range(4):
        process = started("sail", tmp_path / "lake", tmp_path / "source")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=draw.uniform(8, 30))
        kills += process.poll() is None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert kills, "at least one was killed before it ended"
    both = [started(engine, tmp_path / "lake", tmp_path / "source") for engine in ("sail", "spark")]
    for process in both:
        process.communicate()
    assert versions("sail", tmp_path / "lake", tmp_path / "source") == quiet


@pytest.mark.nightly
def test_both_engines_write_the_same_rows_of_rfcs(tmp_path: Path, real_data: Path) -> None:
    """Long texts, near-duplicates among them, and a part of them edited in a later increment."""
    pytest.importorskip("pysail")
    rfcs = pq.read_table(real_data / "rfc.parquet", columns=["number", "text"]).slice(0, 400)
    write(tmp_path / "source")
    notes = tmp_path / "source" / "notes"
    for file in notes.iterdir():
        file.unlink()
    for edited in (False, True):
        texts = rfcs["text"].to_pylist()
        texts = [
            f"{text}\nSee also {number}." if edited and number % 9 == 0 else text for number, text in enumerate(texts)
        ]
        pq.write_table(pa.table({"id": rfcs["number"], "body": texts}), notes / "rfc.parquet")
        made = {engine: versions(engine, tmp_path / engine, tmp_path / "source") for engine in ("spark", "sail")}
        assert made["spark"] == made["sail"]

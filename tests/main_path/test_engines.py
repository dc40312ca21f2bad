"""The law of engines: a table has the same data version whichever engine wrote it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.main_path.project import point_at
from tests.main_path.test_one_run import GOLDEN, write

_ROOT = Path(__file__).parents[2]
_RUN = """
import json, sys
from pathlib import Path
from tests.main_path.project import run
print(json.dumps(run(Path(sys.argv[1])).versions))
"""


def versions(engine: str, root: Path, source: Path) -> dict[str, str]:
    """Data versions of all tables after a run in a process of its own."""
    environment = {**os.environ, **point_at(root), "HEADRACE_ENGINE": engine}
    command = [sys.executable, "-c", _RUN, str(source)]
    done = subprocess.run(command, env=environment, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
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

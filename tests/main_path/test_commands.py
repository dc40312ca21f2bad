"""Every command of `headrace --help` on the production profile: Postgres, an S3 store, a cluster with a secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dagster_project.cli import headrace
from tests.main_path.commands import leaves, told, write_project
from tests.main_path.services import PASSWORD, free_port, lake_environment, object_store, postgres, wait_until
from tests.main_path.standalone import standalone

# Others: test_restore.py, test_workers.py, test_experiments.py (the last trains), explore/, test_cli.py of Blender.
APART = {("serve",), ("ui",), ("demo",), ("relocate",), ("worker",), ("explore",), ("mcp",)}
APART.add(("blend", "prewarm"))
APART.add(("experiment", "show"))
APART |= {("mix", "plan"), ("corpus", "cells")}  # of a corpus with cells: composition/test_mix_plan.py, test_corpus.py
APART.add(("dataset", "reopen"))  # of what a model refused: test_lake_status.py
APART |= {("template", "add"), ("template", "show"), ("corpus", "preview")}  # conversations/test_commands.py
APART |= {words for words in leaves(headrace) if words[0] == "rights"}  # tests/headrace_features/rights
APART.add(("table", "check"))  # of lakes in local files, which Sail reads: test_table_check.py


def test_no_command_is_forgotten() -> None:
    """A command that is new has to be told in the story, or run apart."""
    assert set(leaves(headrace)) == told() | APART


@pytest.fixture(scope="module")
def production(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Environment of a lake in Postgres and S3, computed on a cluster."""
    root = tmp_path_factory.mktemp("commands")
    with (
        postgres("lake") as database,
        object_store(root / "objects") as store,
        standalone(root / "spark", secret=PASSWORD) as cluster,
    ):
        cluster.add_worker()
        yield {**os.environ, **lake_environment(database, store), **cluster.environment, "COLUMNS": "200"}


@pytest.mark.nightly
def test_every_command_ends_well(production: dict[str, str], tmp_path: Path) -> None:
    """Each with its own status 0, and without a trace; what is orphaned in the store is gone after `maintain`."""
    command = [sys.executable, "-m", "tests.main_path.commands", str(tmp_path)]
    environment = {**production, "PYTHONPATH": str(Path.cwd()), "HEADRACE_SPARK_CORES": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"words"')]
    failed = [one for one in lines if one["status"] or "Traceback" in one["said"] or "at org." in one["said"]]
    assert not failed, json.dumps(failed, indent=2)
    assert done.returncode == 0 and lines[-1]["words"].startswith("table delete"), done.stderr[-3000:]
    assert PASSWORD not in done.stdout + done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize(("words", "answers"), [(["serve"], "serving at"), (["ui"], "Serving dagster-webserver")])
def test_servers_start_and_stop(production: dict[str, str], tmp_path: Path, words: list[str], answers: str) -> None:
    """Each says that it serves, and ends when it is asked to."""
    write_project(tmp_path)
    log = tmp_path / "said.txt"
    command = [sys.executable, "-m", "dagster_project.cli", *words, "--port", str(free_port())]
    with log.open("w") as said:
        server = subprocess.Popen(command, cwd=tmp_path, env=production, stdout=said, stderr=said)
    try:
        wait_until(lambda: answers in log.read_text() or server.poll() is not None, log.read_text(), 120)
        server.terminate()
        assert server.wait(timeout=60) in (0, -15), log.read_text()
        assert answers in log.read_text() and "Traceback" not in log.read_text(), log.read_text()
    finally:
        server.kill()

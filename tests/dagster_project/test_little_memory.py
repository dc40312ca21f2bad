"""A run whose engine has too little memory goes on by itself, and one that was killed is named by the next."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dagster_project.cli import run_command

pytestmark = pytest.mark.nightly
_RUN = [sys.executable, "-m", "dagster_project.cli", "run"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh project, whose commands choose their engine."""
    pytest.importorskip("pysail")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADRACE_ENGINE", raising=False)
    for name in [name for name in os.environ if name.startswith("PYICEBERG_CATALOG__LAKE__")]:
        monkeypatch.delenv(name)
    assert run_command(["init", "mill"]) == 0
    return tmp_path / "mill"


def test_a_run_goes_on_where_a_step_has_too_little_memory(project: Path) -> None:
    """In the same command: on Spark, as its first line says; then nothing is left that speaks against Sail."""
    tiny = {**os.environ, "SAIL_RUNTIME__MEMORY_POOL__FAIR__MAX_SIZE": "100000"}
    done = subprocess.run(_RUN, cwd=project, env=tiny, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "engine: Sail" in done.stdout and "needs more memory than Sail may take here)" in done.stdout
    assert "the run goes on in another process" in done.stderr
    assert not list((project / "warehouse" / "logs" / "under-way").iterdir())


def test_a_run_that_was_killed_is_named_by_the_next(project: Path) -> None:
    """The kernel's killer, or somebody: the table, and the other engine; a plan says so too."""
    folder = project / "warehouse" / "logs" / "under-way"
    with subprocess.Popen(_RUN, cwd=project, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        while running.poll() is None and not list(folder.glob("*.json")):
            pass
        running.kill()
    (note,) = folder.glob("*.json")
    planned = subprocess.run([*_RUN, "--dry-run"], cwd=project, capture_output=True, text=True, check=True).stdout
    assert f"engine: Spark (a process that computed {note.stem} on Sail since " in planned
    assert "ended without a word)" in planned

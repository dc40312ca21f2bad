"""The platform as an installed package: a project made and run where no checkout is."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from spark_jobs.lake.session.jars import jar_directory


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel and the packages of this one, but not this checkout."""
    home = tmp_path_factory.mktemp("platform")
    venv.create(home, symlinks=True)
    [site] = home.glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(site)
    for there in (path for folder in sys.path if folder.endswith("site-packages") for path in Path(folder).iterdir()):
        if not there.name.startswith(("_headrace", "headrace", "__pycache__")) and not (site / there.name).exists():
            (site / there.name).symlink_to(there)
    return home / "bin" / "python"


@pytest.mark.nightly
def test_a_project_outside_of_the_checkout_runs(python: Path, tmp_path: Path) -> None:
    """`init`, `doctor` and `run`; the rows are those of the project's own file."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["HEADRACE_JARS"] = str(jar_directory())

    def headrace(folder: Path, *words: str) -> str:
        command = [str(python), "-I", "-m", "dagster_project.cli", *words]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    headrace(tmp_path, "init", "pond")
    assert f"32 tables in {tmp_path}/pond/pond/defs" in headrace(tmp_path / "pond", "doctor")
    assert "notes.texts                                     9 rows" in headrace(tmp_path / "pond", "run", "notes")
    assert headrace(tmp_path / "pond", "run", "notes").count("unchanged") == 10

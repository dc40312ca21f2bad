"""The newest versions that pyproject.toml allows go together: what an installation gets that takes a security fix."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly

# What the tests need that are run there, of any version that goes with the others.
_TESTING = ("pytest", "hypothesis", "cryptography", "googleapis-common-protos", "moto[s3,server]")


@pytest.fixture(scope="module")
def newest(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the platform at its newest."""
    uv = shutil.which("uv") or next((Path(sys.prefix).resolve().parent / ".uv").glob("*/bin/uv"), None)
    if uv is None:
        pytest.skip("no uv on the PATH and none of make setup")
    home = tmp_path_factory.mktemp("newest")
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    install = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--python",
        python,
        f"headrace[platform,s3] @ {wheel.as_uri()}",
        *_TESTING,
    ]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode and "error sending request" in done.stderr:
        pytest.skip(f"no package index answers: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return python


def _run(python: Path, repository: Path, *arguments: str, folder: Path | None = None) -> str:
    """Run a module there on this checkout."""
    paths = str(repository)
    done = subprocess.run(
        [python, "-m", *arguments],
        cwd=folder or repository,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done.stdout


def test_blender_streams_on_the_newest_versions(newest: Path, repository: Path) -> None:
    """Servers and clients pass their own tests of the wire, of who may call, and of what an operator asks."""
    files = ("test_streaming.py", "test_transport.py", "test_rotation.py", "server/test_settings.py", "auth")
    where = [f"tests/blender_service/{file}" for file in files]
    assert " passed" in _run(newest, repository, "pytest", "-q", "-p", "no:cacheprovider", *where)


def test_a_project_runs_on_the_newest_versions(newest: Path, repository: Path, tmp_path: Path) -> None:
    """Dagster loads the project of a new user, says what a run would compute, and computes it."""
    _run(newest, repository, "dagster_project.cli", "init", "project", folder=tmp_path)
    assert "to compute" in _run(newest, repository, "dagster_project.cli", "plan", folder=tmp_path / "project")
    assert "32 computed" in _run(newest, repository, "dagster_project.cli", "run", folder=tmp_path / "project")

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


_FRAMEWORKS = ("lightning", "accelerate", "transformers", "torchdata", "torch", "jax", "grain")


@pytest.fixture(scope="module")
def newest(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the platform at its newest."""
    return _environment(tmp_path_factory.mktemp("newest"), [f"headrace[platform,s3] @ {wheel.as_uri()}", *_TESTING])


@pytest.fixture(scope="module")
def frameworks(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with training frameworks at their newest.

    torchtitan goes first, since it asks for older packages than the others do and would give way; DeepSpeed goes last,
    since it is built where torch is.
    """
    headrace = f"headrace[platform] @ {wheel.as_uri()}"
    home = tmp_path_factory.mktemp("frameworks")
    return _environment(
        home, ["torchtitan"], [*_FRAMEWORKS, headrace, *_TESTING], ["--no-build-isolation", "deepspeed"]
    )


def _environment(home: Path, *requirements: list[str]) -> Path:
    """Make an environment and install requirements, one list after the other; gives its Python."""
    uv = shutil.which("uv") or next((Path(sys.prefix).resolve().parent / ".uv").glob("*/bin/uv"), None)
    if uv is None:
        pytest.skip("no uv on the PATH and none of make setup")
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    for asked in requirements:
        install = [uv, "pip", "install", "--quiet", "--python", python, *asked]
        environment = {**os.environ, "DS_BUILD_OPS": "0"}  # DeepSpeed compiles none of its kernels for GPUs
        done = subprocess.run(install, capture_output=True, text=True, check=False, env=environment)
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


def test_recipes_of_training_frameworks_run_on_their_newest_releases(frameworks: Path, repository: Path) -> None:
    """Each block of docs/feed/frameworks.md trains and goes on, what must be refused is, models are as it says."""
    assert not list(frameworks.parents[1].glob("lib/*/site-packages/torchtitan-0.[012].*")), "older than the recipe"
    files = ("test_frameworks.py", "test_torch_consumers.py", "test_torch_ranks.py", "test_packed_models.py")
    where = [f"tests/blender_service/{file}" for file in files]
    report = _run(frameworks, repository, "pytest", "-q", "-rs", "-m", "", "-p", "no:cacheprovider", *where)
    assert " passed" in report
    assert "skipped" not in report, report

"""A training image installs the wheel without extras, and can do there what a training job needs."""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from blender_service.blend.requests import SourceSpec
from blender_service.client import connect
from blender_service.server.server import start
from tests.blender_service.packed_tables import create_packed, open_lake

MEGABYTE = 1_000_000
# The first and the last row of a read, by a program that has nothing but the client.
READ = """
import json, sys
from blender_service.client import connect
from blender_service.exceptions import BlendNotFoundError
with connect(sys.argv[1]) as client:
    try:
        client.get_blend("nothing")
    except BlendNotFoundError as error:
        assert "nothing" in str(error)
    rows = [row.tolist() for batch in client.read(sys.argv[2], offset=5, rows=300) for row in batch.input_ids]
print(json.dumps(rows))
"""
COMMAND = """
import sys
from importlib.metadata import entry_points
[script] = entry_points(group="console_scripts", name="headrace")
script.load()()
"""


def _link(wheel: Path, site: Path) -> None:
    """Put the wheel and what it requires into an environment, out of the one that the tests run in: no network."""
    zipfile.ZipFile(wheel).extractall(site)
    [metadata] = importlib.metadata.distributions(name="headrace", path=[str(site)])
    waiting, linked = list(metadata.requires or ()), set[str]()
    while waiting:
        requirement = Requirement(waiting.pop())
        if requirement.name in linked or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        linked.add(requirement.name)
        distribution = importlib.metadata.distribution(requirement.name)
        waiting += distribution.requires or ()
        for file in distribution.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                (site / file).symlink_to(distribution.locate_file(file))


def _install(wheel: Path, python: Path, *how: str) -> None:
    """Let uv install the wheel from the index of this machine; it is where `make setup` left it, beside `.venv`."""
    uv = shutil.which("uv") or next((Path(sys.prefix).resolve().parent / ".uv").glob("*/bin/uv"), None)
    if uv is None:
        pytest.skip("no uv on the PATH and none of make setup")
    command = [uv, "pip", "install", "--quiet", "--python", python, *how, wheel]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.fail(f"uv cannot install the wheel and what it requires: {done.stderr.strip()}", pytrace=False)


@pytest.fixture(
    scope="module",
    params=["linked", *(pytest.param(each, marks=pytest.mark.network) for each in ("highest", "lowest-direct"))],
)
def python(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel, without extras, and nothing else.

    Its packages are those of this environment, or what an index gives: the newest, the oldest that are allowed.
    """
    home = tmp_path_factory.mktemp("client")
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    if request.param == "linked":
        _link(wheel, next(home.glob("lib/python*/site-packages")))
    else:
        _install(wheel, python, "--only-binary", ":all:", "--resolution", request.param)
    return python


def _run(python: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program there, far from this checkout."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [python, "-I", "-c", program, *arguments],
        cwd=python.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_installation_without_extras_is_small(python: Path) -> None:
    """gRPC, protobuf, NumPy, what they need, and headrace: less than 100 MB."""
    program = "import importlib.metadata as m; print(*sorted(d.name.lower() for d in m.distributions()))"
    names = _run(python, program).stdout.replace("-", "_").split()
    assert names == ["grpcio", "headrace", "numpy", "protobuf", "typing_extensions"]
    [site] = python.parents[1].glob("lib/python*/site-packages")
    files = (path for path in site.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert sum(path.stat().st_size for path in files) < 100 * MEGABYTE


def test_a_client_alone_reads_a_stream(python: Path, tmp_path: Path) -> None:
    """Rows come as they lie in the table, errors with their class; importing it warns of nothing."""
    done = _run(python, "import warnings; warnings.simplefilter('error'); import blender_service.client")
    assert done.returncode == 0, done.stderr
    lake = open_lake(tmp_path / "warehouse")
    table = create_packed(lake, "main.packed_code_16").append(400, seed=1)
    server = start(lake, port=0)
    try:
        with connect(server.address) as client:
            blend = client.create_blend([SourceSpec(table.identifier)])
            expected = [
                row.tolist() for batch in client.read(blend.blend_id, offset=5, rows=300) for row in batch.input_ids
            ]
        done = _run(python, READ, server.address, blend.blend_id)
    finally:
        server.stop(grace_seconds=1)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == expected
    assert len(expected) == 300


def test_torch_that_is_missing_is_one_line(python: Path) -> None:
    """Torch is the training image's own, or an extra."""
    done = _run(python, "from blender_service.torch import BlendDataset")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "ModuleNotFoundError: blender_service.torch needs torch 2.5 or newer"
    )
    assert "pip install 'headrace[torch]'" in done.stderr.splitlines()[-1]
    assert "During handling" not in done.stderr


def test_command_without_the_platform_is_one_line(python: Path) -> None:
    """The command is there, since one wheel has it all, and says what to install."""
    done = _run(python, COMMAND)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "headrace: click, dagster, pyiceberg, pyspark not found: this is the client alone; "
        "for the commands run: pip install 'headrace[platform]'\n"
    )

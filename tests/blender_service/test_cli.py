"""`headrace blend` works on the lake itself; the client side needs no lake at all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyiceberg.catalog import Catalog

from blender_service.exceptions import BlendNotFoundError, CatalogueError, InvalidBlendError
from dagster_project.cli.blend import blend
from tests.blender_service.packed_tables import PackedFixture


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be in a directory with nothing but ./warehouse, without PyIceberg settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    return tmp_path


def run(*arguments: str) -> str:
    """Run a command and give what it prints."""
    result = CliRunner().invoke(blend, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_create_list_and_show_agree(here: Path, lake: Catalog, code: PackedFixture, prose: PackedFixture) -> None:
    """What create prints as JSON is what list and show print; creating again gives the same id."""
    assert "no blend yet" in run("list")
    arguments = (
        "create",
        "mixed",
        "--source",
        f"{code.identifier}=0.7",
        "--source",
        f"{prose.identifier}=0.3",
        "--json",
    )
    created = json.loads(run(*arguments))
    assert json.loads(run(*arguments)) == created
    assert json.loads(run("list", "--json")) == [created]
    assert json.loads(run("show", "mixed", "--json")) == json.loads(run("show", created["id"][:6], "--json")) == created
    assert created["names"] == ["mixed"]
    assert created["rows"] == 335  # the 101st turn of prose is slot 335: 33 cycles of 10 hold 99, then slots 1 and 5
    assert created["id"] in run("show", "mixed")
    assert "mixed" in run("list")


def test_mistakes_are_blender_errors(here: Path, lake: Catalog, code: PackedFixture) -> None:
    """The main command turns these into one line and exit status 2."""
    with pytest.raises(InvalidBlendError):
        run("create", "--source", "main.nothing=0")
    with pytest.raises(BlendNotFoundError):
        run("show", "nothing")


def test_a_directory_without_a_lake_says_so(here: Path) -> None:
    """No lake is an error that says what to do, and makes no empty one."""
    with pytest.raises(CatalogueError, match="headrace run"):
        run("list")
    assert not (here / "warehouse").exists()


def test_client_needs_neither_lake_nor_compiler() -> None:
    """A training job imports the client without PyIceberg, Arrow, pydantic, numba, Spark or Dagster."""
    root = Path(__file__).parents[2]
    heavy = ["pyiceberg", "pyarrow", "pydantic", "numba", "pyspark", "dagster", "torch"]
    script = (
        f"import sys; sys.path[:0] = [{str(root)!r}, {str(root / 'protos')!r}]\n"
        "import blender_service.client, blender_service.window_layout\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert output.strip() == "[]"

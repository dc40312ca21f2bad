"""A user's project with declarations, and a lake for the commands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from headrace.tables.settings import load_settings, settings_at
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.waiting_lake import land
from tests.kept_folder import KeptFolder

WriteDefs = Callable[[str, str], Path]

PACKAGE = "declared"
_DEFINITIONS = """\
from pathlib import Path

import dagster as dg

from dagster_project.definitions import load_project


@dg.definitions
def definitions():
    return load_project(Path(__file__).parent)
"""


@pytest.fixture
def defs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The empty folder `defs` of a project of its own, which is the working directory."""
    folder = tmp_path / PACKAGE / "defs"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder.parent / "__init__.py").touch()
    (folder.parent / "definitions.py").write_text(_DEFINITIONS)
    (tmp_path / "pyproject.toml").write_text(f'[tool.dg.project]\nroot_module = "{PACKAGE}"\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == PACKAGE]:
        del sys.modules[name]


@pytest.fixture
def declare(defs: Path) -> WriteDefs:
    """Writes `defs/NAME/defs.yaml`."""

    def write(name: str, text: str) -> Path:
        (defs / name).mkdir(exist_ok=True)
        file = defs / name / "defs.yaml"
        file.write_text(text)
        return file

    return write


@pytest.fixture
def lake_env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty lake for the commands, with Dagster's home beside it."""
    root = tmp_path / "lake"
    root.mkdir()
    point_at(root, monkeypatch)
    monkeypatch.setenv("DAGSTER_HOME", str(root / "dagster"))
    monkeypatch.setenv("HEADRACE_DEBUG", "")
    return root


def point_at(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have commands find the lake in a folder."""
    for name, value in settings_at(root).properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)


@pytest.fixture(scope="session")
def kept_waiting(tmp_path_factory: pytest.TempPathFactory) -> KeptFolder:
    """A lake in which two increments of `web` wait."""
    root = tmp_path_factory.mktemp("waiting")
    catalogue = open_catalogue(settings_at(root / "lake"))
    land(catalogue, 0, ["one", "two"])
    land(catalogue, 1, ["three"], malware=1)
    return KeptFolder(root / "lake", root / "kept")


@pytest.fixture
def waiting(lake_env: Path, kept_waiting: KeptFolder, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """The same for the commands."""
    point_at(kept_waiting.again(), monkeypatch)
    return open_catalogue(load_settings())

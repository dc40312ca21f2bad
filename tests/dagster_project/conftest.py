"""A user's folder of declarations, and a lake for the commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import dagster_project.defs
from dagster_project.cli import declarations, project
from spark_jobs.lake.session.settings import settings_at

WriteDefs = Callable[[str, str], Path]


@pytest.fixture
def defs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in place of `dagster_project/defs`."""
    folder = tmp_path / "defs"
    folder.mkdir()
    (folder / "__init__.py").touch()
    # Dagster finds the folder by this module; `headrace dataset add` by DEFS.
    monkeypatch.setattr(dagster_project.defs, "__file__", str(folder / "__init__.py"))
    monkeypatch.setattr(dagster_project.defs, "__path__", [str(folder)])
    monkeypatch.setattr(project, "DEFS", folder)
    monkeypatch.setattr(declarations, "DEFS", folder)
    monkeypatch.chdir(tmp_path)
    return folder


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
    for name, value in settings_at(root).properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    monkeypatch.setenv("DAGSTER_HOME", str(root / "dagster"))
    monkeypatch.setenv("HEADRACE_DEBUG", "")
    return root

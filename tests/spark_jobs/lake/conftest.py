"""A small lake whose numbers have landed."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.lake.run.materialize import Lake, materialize
from tests.conftest import LakeAt
from tests.spark_jobs.lake.steps import FolderConfig, bind, land, numbers


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A source with one file of numbers."""
    land(tmp_path / "source", "a.txt", [1, 2, 3, 12])
    return tmp_path / "source"


@pytest.fixture
def lake(tmp_path: Path, lake_at: LakeAt, folder: Path) -> Lake:
    """A lake whose numbers have landed."""
    opened = lake_at(tmp_path / "lake")
    materialize(opened, bind(numbers, FolderConfig(folder=str(folder))))
    return opened

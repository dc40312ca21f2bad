"""A small lake whose numbers have landed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.run.materialize import Lake, materialize
from tests.conftest import LakeAt
from tests.kept_folder import KeptFolder
from tests.spark_jobs.lake.steps import FolderConfig, bind, land, numbers


class Landed:
    """A lake whose numbers have landed once, in place and as it was then; a source with one file of numbers."""

    def __init__(self, root: Path, lake_at: LakeAt) -> None:
        """Land them."""
        self.root, self.folder = root, root / "now" / "source"
        self.folder.mkdir(parents=True)
        land(self.folder, "a.txt", [1, 2, 3, 12])
        self._lake = lake_at(root / "now" / "lake")
        materialize(self._lake, bind(numbers, FolderConfig(folder=str(self.folder))))
        self._kept = KeptFolder(root / "now", root / "kept")

    def again(self) -> Lake:
        """Both as they were when the numbers had landed; the paths are the same, since tables hold them."""
        self._kept.again()
        return dataclasses.replace(self._lake, ledger=Ledger(self._lake.catalogue))


@pytest.fixture(scope="session")
def landed(tmp_path_factory: pytest.TempPathFactory, lake_at: LakeAt) -> Landed:
    """The lake and its source, made once."""
    return Landed(tmp_path_factory.mktemp("landed"), lake_at)


@pytest.fixture
def folder(landed: Landed, lake: Lake) -> Path:
    """A source with one file of numbers."""
    return landed.folder


@pytest.fixture
def lake(landed: Landed) -> Lake:
    """A lake whose numbers have landed."""
    return landed.again()

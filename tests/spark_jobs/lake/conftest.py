"""A small lake whose numbers have landed."""

from __future__ import annotations

import dataclasses
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.run.materialize import Lake, materialize
from tests.conftest import LakeAt
from tests.spark_jobs.lake.steps import FolderConfig, bind, land, numbers

DATABASE = "catalog.db"


class Landed:
    """A lake whose numbers have landed once, in place and as it was then; a source with one file of numbers."""

    def __init__(self, root: Path, lake_at: LakeAt) -> None:
        """Land them."""
        self.root, self.folder, self._saved = root, root / "now" / "source", root / "saved"
        self.folder.mkdir(parents=True)
        land(self.folder, "a.txt", [1, 2, 3, 12])
        self._lake = lake_at(root / "now" / "lake")
        materialize(self._lake, bind(numbers, FolderConfig(folder=str(self.folder))))
        shutil.copytree(root / "now", self._saved, ignore=shutil.ignore_patterns(f"{DATABASE}*"))
        self._copy_database(root / "now", self._saved)

    def again(self) -> Lake:
        """Both as they were when the numbers had landed; the paths are the same, since tables hold them."""
        for folder in ("source", "lake"):
            for path in (self.root / "now" / folder).iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
                elif not path.name.startswith(DATABASE):
                    path.unlink()
        shutil.copytree(self._saved, self.root / "now", ignore=shutil.ignore_patterns(DATABASE), dirs_exist_ok=True)
        self._copy_database(self._saved, self.root / "now")
        return dataclasses.replace(self._lake, ledger=Ledger(self._lake.catalogue))

    def _copy_database(self, source: Path, target: Path) -> None:
        """By SQLite itself, for Spark and PyIceberg have it open."""
        with (
            closing(sqlite3.connect(source / "lake" / DATABASE)) as read,
            closing(sqlite3.connect(target / "lake" / DATABASE)) as written,
        ):
            read.backup(written)


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

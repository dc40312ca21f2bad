"""What was made once, put back before each test where it was: tables of a lake name their files by whole paths."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

DATABASE = "catalog.db"


class KeptFolder:
    """A folder as it was when it was kept; the database of a lake in it may be open all the time."""

    def __init__(self, folder: Path, kept: Path) -> None:
        """Keep a copy of it in another folder."""
        self.folder, self._kept = folder, kept
        _copy(folder, kept)

    def again(self) -> Path:
        """Put it back; gives the folder."""
        for path in sorted(self.folder.rglob("*"), reverse=True):
            if path.is_dir():
                with contextlib.suppress(OSError):  # one with the database stays
                    path.rmdir()
            elif not path.name.startswith(DATABASE):
                path.unlink()
        _copy(self._kept, self.folder)
        return self.folder


def _copy(source: Path, target: Path) -> None:
    """Databases by SQLite itself, for Spark and PyIceberg have them open."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(f"{DATABASE}*"), dirs_exist_ok=True)
    for database in source.rglob(DATABASE):
        with (
            contextlib.closing(sqlite3.connect(database)) as read,
            contextlib.closing(sqlite3.connect(target / database.relative_to(source))) as written,
        ):
            read.backup(written)

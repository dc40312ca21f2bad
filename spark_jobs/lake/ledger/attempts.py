"""Tables that Sail did not manage: a process ended while it computed one, or had too little memory for it.

    logs/under-way/main.pairs.json of the lake's folder
    {"process": {"host": "worker-3", "pid": 4711, ..}, "began": "2026-11-29 13:02:11 UTC", "failed": false}

The kernel ends a process that takes more memory than its group may have, and nothing tells of it. So a file is there
while Sail computes a table. One whose process is gone says to the next run that it ended without a word, be it for
memory or because somebody killed it. It stays until the table is computed.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from pyiceberg.catalog import Catalog

from spark_jobs.exceptions import StepMemoryError
from spark_jobs.lake.ledger.process import Process, this_process
from spark_jobs.lake.session.settings import LakeSettings

_lock = threading.Lock()
_under_way: set[Path] = set()


@dataclass(frozen=True)
class Unmanaged:
    """A table that Sail did not manage: when it began, and whether it is known that it had too little memory."""

    table: str
    began: str
    failed: bool

    def __str__(self) -> str:
        """As the reason of another choice."""
        if self.failed:
            return f"{self.table} needs more memory than Sail may take here"
        return f"a process that computed {self.table} on Sail since {self.began} ended without a word"


def unmanaged(catalogue: Catalog, tables: Collection[str]) -> Unmanaged | None:
    """The first of some tables that Sail did not manage when it last tried.

    Of a process in another container nothing can be looked up: it counts as gone, which costs the choice of Spark.
    """
    for table in tables:
        try:
            facts = json.loads(_file(catalogue, table).read_text())
            if facts["failed"] or not Process(**facts["process"]).lives():
                return Unmanaged(table, facts["began"], facts["failed"])
        except (OSError, ValueError, KeyError, TypeError):  # none, or cut off by the same end
            continue
    return None


@contextlib.contextmanager
def attempt(catalogue: Catalog, table: str, on_sail: bool) -> Iterator[None]:
    """Note, while the block runs, that Sail computes a table; what another engine computes is managed after it."""
    file = _file(catalogue, table)
    if on_sail:
        _note(file, failed=False)
    try:
        yield
    except StepMemoryError:
        _note(file, failed=True)
        with _lock:
            _under_way.discard(file)
        raise
    except BaseException:
        if on_sail:
            _forget(file)
        raise
    _forget(file)


def forget_attempts() -> None:
    """Take back the notes of this process, which ends in order while tables are under way."""
    with _lock:
        files = list(_under_way)
    for file in files:
        _forget(file)


def _file(catalogue: Catalog, table: str) -> Path:
    warehouse = str(catalogue.properties.get("warehouse", ""))
    return LakeSettings({"warehouse": warehouse}, embedded=False).home / "logs" / "under-way" / f"{table}.json"


def _note(file: Path, failed: bool) -> None:
    began = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    facts = {"process": asdict(this_process()), "began": began, "failed": failed}
    with contextlib.suppress(OSError):  # a note that cannot be written must not end a run
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(facts))
    with _lock:
        _under_way.add(file)


def _forget(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.unlink(missing_ok=True)
    with _lock:
        _under_way.discard(file)

"""Tables beyond an engine's means: Sail's process ended while it computed one, or it had too little memory.

    logs/under-way/main.pairs.json of the lake's folder
    {"process": {"host": "worker-3", "pid": 4711, ..}, "began": "2026-11-29 13:02:11 UTC", "tried": ["sail"]}

The kernel ends a process taking more memory than its group may have, and nothing tells of it. So a file is there
while Sail computes a table. One left without its process says to the next run that it ended without a word, be it for
memory or because somebody killed it. It stays until the table is computed.
"""

from __future__ import annotations

import contextlib
import json
import threading
import traceback
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog

from headrace.tables.settings import LakeSettings
from spark_jobs.credentials import without_secrets
from spark_jobs.exceptions import StepMemoryError
from spark_jobs.lake.engine.choice import SPARK, WAYS, chosen
from spark_jobs.lake.ledger.process import Process, this_process

_lock = threading.Lock()
_under_way: set[Path] = set()


@dataclass(frozen=True)
class Unmanaged:
    """A table beyond an engine's means at its last try.

    Attributes:
        table: identifier.
        began: when the last try began.
        failed: whether it is known that it had too little memory.
        tried: the tried ways, in order, of `WAYS`.
    """

    table: str
    began: str
    failed: bool
    tried: tuple[str, ...]

    def __str__(self) -> str:
        """As the reason of another choice."""
        engine = "Spark" if self.tried[-1] == SPARK else "Sail"
        if self.failed:
            return f"{self.table} needs more memory than {engine} may take here"
        return f"a process that computed {self.table} on {engine} since {self.began} ended without a word"


def unmanaged(catalogue: Catalog, tables: Collection[str]) -> Unmanaged | None:
    """The first of some tables beyond an engine's means at its last try.

    Of a process in another container nothing can be looked up: it counts as gone, which costs the choice of Spark.
    """
    for table in tables:
        facts = _read(_file(catalogue, table))
        if facts and (facts["failed"] or not Process(**facts["process"]).lives()):
            return Unmanaged(table, facts["began"], facts["failed"], tuple(facts["tried"]))
    return None


@contextlib.contextmanager
def attempt(catalogue: Catalog, table: str) -> Iterator[None]:
    """Note, while the block runs, that Sail computes a table, and where an engine had too little memory for it.

    Spark's executors are processes of their own: this one is told of their end.
    """
    file, way = _file(catalogue, table), chosen().way
    tried = _read(file).get("tried", [])
    if way != SPARK:
        _note(file, [*tried, way], failed=False)
    try:
        yield
    except StepMemoryError:
        _note(file, [*tried, way], failed=True)
        with _lock:
            _under_way.discard(file)
        raise
    except BaseException:
        if way != SPARK:
            _forget(file)
        raise
    _forget(file)


def keep_trace(catalogue: Catalog, table: str, error: Exception) -> str:
    """Write all that a failure says into `logs/failed/TABLE.txt` of the lake; gives the file, or why there is none."""
    file = _logs(catalogue) / "failed" / f"{table}.txt"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(without_secrets("".join(traceback.format_exception(error))), errors="surrogateescape")
    except OSError as reason:
        return f"not kept, {reason.strerror}"
    return str(file)


def forget_attempts() -> None:
    """Take back the notes of this process at an orderly end amid tables under way."""
    with _lock:
        files = list(_under_way)
    for file in files:
        _forget(file)


def _logs(catalogue: Catalog) -> Path:
    warehouse = str(catalogue.properties.get("warehouse", ""))
    return LakeSettings({"warehouse": warehouse}, embedded=False).home / "logs"


def _file(catalogue: Catalog, table: str) -> Path:
    return _logs(catalogue) / "under-way" / f"{table}.json"


def _read(file: Path) -> dict[str, Any]:
    """The text of a note; empty without one, or where the end of the process cut it off."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        facts: dict[str, Any] = json.loads(file.read_text())
        Process(**facts["process"])
        if {"began", "failed"} <= facts.keys() and facts["tried"][-1] in WAYS:
            return facts
    return {}


def _note(file: Path, tried: Sequence[str], failed: bool) -> None:
    began = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    facts = {"process": asdict(this_process()), "began": began, "failed": failed, "tried": tried}
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

"""The state of one table's admission in a file of SQLite, so that a start reads only the end of the log.

    state                of the log up to a position: open groups, rows to be written, versions
    answers              what writers were told lately, of those that may ask again
    closed_0, closed_1   published groups, by 64 bits of a hash of their ids

All of it is a fold of the log, so losing the file loses nothing but time. One transaction moves it on: after a kill it
is as before or as after. It is believed where its sums are right and the log has, at its position, the event that it
was made at; else it is removed, with a message, and the log is read from its beginning.

Of published groups the last `GROUPS_KEPT` at least are known, and twice as many at most: when one table of them is full
the other one is emptied. Whoever appends to an older one opens it anew, and its rollouts are `stale` by then: as many
rows have been read. That another group is taken for a published one has a chance of 1 in 5e11 at 3e7 known ones.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from blender_service.arrays import Int64Array
from headrace_features.rollouts.events import Acknowledgement
from headrace_features.rollouts.exceptions import SnapshotError

GROUPS_KEPT: Final = 1 << 24
_FORMAT: Final = 1
_TABLES: Final = ("closed_0", "closed_1")
_BUSY_SECONDS: Final = 10.0
_LOOKED_UP: Final = 100_000  # groups that are looked up one by one before they are added
_SCHEMA: Final = """
    CREATE TABLE IF NOT EXISTS state (id INTEGER PRIMARY KEY CHECK (id = 0), content TEXT, sha256 TEXT);
    CREATE TABLE IF NOT EXISTS answers (writer TEXT, number INTEGER, sequence INTEGER, content TEXT, sum INTEGER,
        PRIMARY KEY (writer, number)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS closed_0 (id INTEGER PRIMARY KEY);
    CREATE TABLE IF NOT EXISTS closed_1 (id INTEGER PRIMARY KEY);
"""
_SUMS: Final = "SELECT count(*), coalesce(sum(id >> 32), 0), coalesce(sum(id & 4294967295), 0) FROM {}"
_ANSWER_SUMS: Final = "SELECT count(*), coalesce(sum(sum >> 32), 0), coalesce(sum(sum & 4294967295), 0) FROM answers"

logger = logging.getLogger(__name__)


class GroupsOnDisk:
    """Published groups: those since the last save in memory, the others in the file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Know those of a file."""
        self._connection = connection
        self._recent = set[int]()
        self._many = list[Int64Array]()

    def add(self, group: str) -> None:
        """Take a group for published."""
        self._recent.add(_hash(group))

    def add_many(self, groups: Iterable[str]) -> None:
        """Take groups for published; they are known once they are saved."""
        self._many.append(np.fromiter(map(_hash, groups), np.int64))

    def __contains__(self, group: object) -> bool:
        """Whether a group is published."""
        key = _hash(str(group))
        if key in self._recent:
            return True
        query = "SELECT 1 FROM closed_0 WHERE id = ?1 UNION ALL SELECT 1 FROM closed_1 WHERE id = ?1"
        return self._connection.execute(query, (key,)).fetchone() is not None

    def unsaved(self) -> list[int]:
        """Hashes of those missing in the file, ascending, as it is quickest to add them."""
        recent = np.fromiter(self._recent, np.int64, len(self._recent))
        return np.unique(np.concatenate([recent, *self._many])).tolist()  # type: ignore[no-any-return]

    @property
    def unknown_count(self) -> int:
        """How many are known only once they are saved."""
        return sum(map(len, self._many))

    def hold(self) -> None:
        """Know all of them without the file, as it cannot be written."""
        self._recent.update(self.unsaved())
        self._many = []

    def saved(self) -> None:
        """Forget those in the file by now."""
        self._recent, self._many = set(), []


class Snapshot:
    """The file of one table; of one thread at a time.

    Attributes:
        groups: that are published.
    """

    def __init__(self, path: Path, log: str) -> None:
        """Open it, made anew where it is not there, is damaged, or is of another log.

        Args:
            path: of the file.
            log: UUID of the folded table.
        """
        self._path, self._log = path, log
        self._open()

    def _open(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._connect(self._path)
        except (OSError, sqlite3.OperationalError) as error:  # it saves time alone, so nothing waits for it
            logger.warning("rollouts: %s: %s; what is known is kept in memory until the next start", self._path, error)
            self._connect(":memory:")
        except sqlite3.DatabaseError as error:
            self.discard(f"damaged: {error}")

    def _connect(self, path: str | Path) -> None:
        self._connection = sqlite3.connect(path, _BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        self._connection.executescript(_SCHEMA)
        self.groups = GroupsOnDisk(self._connection)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def discard(self, why: str) -> None:
        """Remove the file, with a message, and begin an empty one."""
        logger.warning("rollouts: %s: %s; it is removed, and the log is read from its beginning", self._path, why)
        self._connection.close()
        for path in (self._path, self._path.with_name(f"{self._path.name}-journal")):
            path.unlink(missing_ok=True)
        self._open()

    def read(self) -> tuple[dict[str, Any], list[Acknowledgement]] | None:
        """The state and the answers as they were saved, by sequence; None where nothing was.

        Raises:
            SnapshotError: it is damaged, or of another log.
        """
        try:
            with self._transaction("DEFERRED"):
                return self._read()
        except (sqlite3.DatabaseError, ValueError, KeyError, TypeError) as error:
            if getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            raise SnapshotError(f"damaged: {error}") from error

    def _read(self) -> tuple[dict[str, Any], list[Acknowledgement]] | None:
        row = self._connection.execute("SELECT content, sha256 FROM state").fetchone()
        if row is None:
            if any(self._connection.execute(f"SELECT 1 FROM {name}").fetchone() for name in (*_TABLES, "answers")):
                raise SnapshotError("damaged: its state is missing")
            return None
        if _sha256(row[0]) != row[1]:
            raise SnapshotError("damaged: its state has another SHA-256 than it was saved with")
        state: dict[str, Any] = json.loads(row[0])
        if state["format"] != _FORMAT or state["log"] != self._log:
            raise SnapshotError("of another log, or of another version of headrace")
        if state["sums"] != self._sums():
            raise SnapshotError("damaged: its rows are not those that were saved")
        answers = list[Acknowledgement]()
        for *key, content, total in self._connection.execute("SELECT * FROM answers ORDER BY sequence"):
            if _hash(content) != total or json.loads(content)[:3] != key:
                raise SnapshotError("damaged: an answer is not what was saved")
            answers.append(Acknowledgement(*json.loads(content)))
        return state, answers

    def save(self, state: dict[str, Any], answers: Sequence[Acknowledgement], kept: Iterable[tuple[str, int]]) -> None:
        """Move on to a position; where another process has moved the file as far, nothing is done.

        Args:
            state: of the fold, with `next_sequence`, the position.
            answers: that were given since the last save.
            kept: writers, and the first sequence of their kept answers.
        """
        with self._transaction("IMMEDIATE"):
            row = self._connection.execute("SELECT content FROM state").fetchone()
            empty = {"next_sequence": 0, "full": 0, "sums": {name: [0, 0, 0] for name in _TABLES}}
            before = json.loads(row[0]) if row else empty
            if before["next_sequence"] < state["next_sequence"]:
                self._write({**before, **state, "format": _FORMAT, "log": self._log}, answers, kept)
        self.groups.saved()

    def _write(
        self, state: dict[str, Any], answers: Sequence[Acknowledgement], kept: Iterable[tuple[str, int]]
    ) -> None:
        """Write what is new; `sums` and `full`, the number of the growing table, are those of before."""
        run, sums = self._connection.executemany, state["sums"]
        if sums[_TABLES[state["full"]]][0] >= GROUPS_KEPT:
            state["full"] = 1 - state["full"]
            self._connection.execute(f"DELETE FROM {_TABLES[state['full']]}")
            sums[_TABLES[state["full"]]] = [0, 0, 0]
        name = _TABLES[state["full"]]
        keys = self.groups.unsaved()
        if is_small := len(keys) <= _LOOKED_UP:
            keys = [key for key in keys if not self._has(name, key)]  # another process may have added some
            added = np.array(keys, np.int64)
            new = len(keys), int((added >> 32).sum()), int((added & 0xFFFFFFFF).sum())
            sums[name] = [count + more for count, more in zip(sums[name], new, strict=True)]
        run(f"INSERT OR IGNORE INTO {name} VALUES (?)", ((key,) for key in keys))
        if not is_small:
            sums[name] = self._sums_of(_SUMS.format(name))
        rows = [(*answer[:3], content := json.dumps(answer), _hash(content)) for answer in answers]
        run("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", rows)
        run("DELETE FROM answers WHERE writer = ? AND sequence < ?", kept)
        sums["answers"] = self._sums_of(_ANSWER_SUMS)
        content = json.dumps(state)
        self._connection.execute("INSERT OR REPLACE INTO state VALUES (0, ?, ?)", (content, _sha256(content)))

    def _has(self, table: str, key: int) -> bool:
        return self._connection.execute(f"SELECT 1 FROM {table} WHERE id = ?", (key,)).fetchone() is not None

    def _sums_of(self, query: str) -> list[int]:
        return list(self._connection.execute(query).fetchone())

    def _sums(self) -> dict[str, list[int]]:
        """Counts and sums of what the tables hold."""
        sums = {name: self._sums_of(_SUMS.format(name)) for name in _TABLES}
        return {**sums, "answers": self._sums_of(_ANSWER_SUMS)}

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[None]:
        self._connection.execute(f"BEGIN {kind}")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")


def _hash(text: str) -> int:
    """64 bits of a text, as SQLite keeps a number."""
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), signed=True)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

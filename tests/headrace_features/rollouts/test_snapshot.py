"""What a server of rollouts saves of its log, so that a start reads only the end: equal to the log, or not believed."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace_features.rollouts import log_reading, snapshot
from headrace_features.rollouts.admission import Admission
from headrace_features.rollouts.events import Event
from headrace_features.rollouts.exceptions import LogError, SnapshotError
from headrace_features.rollouts.log_reading import apply_many
from headrace_features.rollouts.snapshot import Snapshot
from headrace_features.rollouts.tables import _LOG_COLUMNS, _log_rows
from tests.headrace_features.rollouts.test_admission import WINDOW, _history
from tests.tiers import tries

GROUPS = [f"g{group}" for group in range(40)]


def schema() -> pa.Schema:
    """Of the log."""
    kinds = {"long": pa.int64(), "int": pa.int32(), "double": pa.float64(), "string": pa.string()}
    kinds |= {"binary": pa.binary(), "timestamptz": pa.timestamp("us", "UTC")}
    return pa.schema([(column.name, kinds[str(column.type)]) for column in _LOG_COLUMNS])


def rows_of(events: list[Event]) -> pa.Table:
    """Events as rows of the log."""
    return pa.Table.from_batches([_log_rows(events, schema())])


def facts(admission: Admission) -> tuple[Any, ...]:
    """All that an admission knows."""
    names = ("next_sequence", "next_ordinal", "version", "read_ordinal", "last", "groups", "published", "_writers")
    return *(getattr(admission, name) for name in names), [group in admission._closed for group in GROUPS]


def folded(whole: Admission, end: int) -> Admission:
    """Who applied the first events one by one."""
    admission = Admission(whole._settings, WINDOW)
    for event in whole.new[:end]:
        admission.apply(event)
    return admission


def restored(file: Snapshot, whole: Admission) -> Admission:
    """Who knows what was saved; payloads are those of the log."""
    admission = Admission(whole._settings, WINDOW, file.groups)
    if (saved := file.read()) is not None:
        admission.restore(*saved)
        admission.with_payloads({sequence: whole.new[sequence].payload for sequence in admission.needed})
    return admission


class Killed(BaseException):
    """A process that ends where it is."""


class Killing:
    """A connection whose process ends before a statement."""

    def __init__(self, connection: sqlite3.Connection, at: int) -> None:
        self.connection, self.at = connection, at

    def __getattr__(self, name: str) -> Any:
        def run(*arguments: Any) -> Any:
            self.at -= 1
            if self.at < 0 and arguments and arguments[0] != "ROLLBACK":
                raise Killed
            return getattr(self.connection, name)(*arguments)

        return run


@pytest.mark.parametrize("seed", range(tries(200, 10)))
def test_a_start_knows_what_was_saved_and_what_came_after(seed: int, tmp_path: Path) -> None:
    """Saved at random moments, by processes that end at random statements: equal to the fold of the log each time."""
    whole, _ = _history(seed)
    chance, path, at = random.Random(seed), tmp_path / "rollouts.sqlite", 0
    while at < len(whole.new):
        file = Snapshot(path, "log")
        admission = restored(file, whole)
        assert facts(admission) == facts(folded(whole, admission.next_sequence))
        assert admission.next_sequence <= at
        for _ in range(chance.randrange(1, 4)):
            to = min(len(whole.new), at + chance.randrange(1, 60))
            for event in whole.new[admission.next_sequence : to]:
                admission.apply(event)
            at = to
            killed = chance.random() < 0.3
            if killed:
                file._connection = Killing(file._connection, chance.randrange(10))  # type: ignore[assignment]
            try:
                file.save(*admission.to_save())
                admission.saved()
            except Killed:
                break
        file.close()
    admission = restored(Snapshot(path, "log"), whole)
    assert facts(admission) == facts(folded(whole, admission.next_sequence))


@pytest.mark.parametrize("seed", range(tries(200, 10)))
def test_many_rows_at_once_give_what_each_gives(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the log is cut into parts, and however much of it is in the table."""
    monkeypatch.setattr(log_reading, "MANY", 1)
    whole, _ = _history(seed)
    chance = random.Random(seed)
    file = Snapshot(tmp_path / "rollouts.sqlite", "log")
    admission = Admission(whole._settings, WINDOW, file.groups)
    written = chance.randrange(whole.next_ordinal + 1)
    rows = rows_of(whole.new)
    while admission.next_sequence < len(whole.new):
        apply_many(admission, file.groups, rows.slice(admission.next_sequence, chance.randrange(1, 100)), written)
    file.save(*admission.to_save())
    expected = folded(whole, len(whole.new))
    expected.published = [one for one in expected.published if one.ordinal >= written]
    admission.published = [one for one in admission.published if one.ordinal >= written]
    assert facts(admission) == facts(expected)
    with pytest.raises(LogError, match="comes next"):
        apply_many(admission, file.groups, rows.slice(0, 1), written)


def saved(path: Path, seed: int = 1, log: str = "log") -> Admission:
    """A file of a whole history."""
    whole, _ = _history(seed)
    file = Snapshot(path, log)
    admission = restored(file, whole)
    for event in whole.new:
        admission.apply(event)
    file.save(*admission.to_save())
    file.close()
    return whole


@pytest.mark.parametrize("seed", range(tries(300, 25)))
def test_a_damaged_file_is_known_or_does_not_matter(seed: int, tmp_path: Path) -> None:
    """A byte that is another one, or an end that is missing: what is read is what was saved, or an error."""
    path = tmp_path / "rollouts.sqlite"
    whole = saved(path)
    data, chance = bytearray(path.read_bytes()), random.Random(seed)
    if seed % 5 == 0:
        del data[chance.randrange(len(data)) :]
    else:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    file = Snapshot(path, "log")
    try:
        admission = restored(file, whole)
    except SnapshotError:
        return
    assert admission.next_sequence == 0 or facts(admission) == facts(folded(whole, len(whole.new)))


@pytest.mark.parametrize("query", ["DELETE FROM closed_0 WHERE id % 3 = 0", "DELETE FROM answers WHERE number = 0"])
def test_rows_that_are_missing_are_known(query: str, tmp_path: Path) -> None:
    """Also where the file as such is whole."""
    saved(tmp_path / "rollouts.sqlite")
    file = Snapshot(tmp_path / "rollouts.sqlite", "log")
    file._connection.execute(query)
    with pytest.raises(SnapshotError, match="not those that were saved"):
        file.read()
    with pytest.raises(SnapshotError, match="another log"):
        saved(tmp_path / "other.sqlite", log="other")
        Snapshot(tmp_path / "other.sqlite", "log").read()


def test_processes_that_share_a_file_lose_nothing(tmp_path: Path) -> None:
    """Each saves what it knows; who knows less changes nothing."""
    whole, _ = _history(3)
    files = [Snapshot(tmp_path / "rollouts.sqlite", "log") for _ in range(3)]
    admissions = [restored(file, whole) for file in files]
    chance = random.Random(3)
    for _ in range(60):
        at = chance.randrange(3)
        to = min(len(whole.new), admissions[at].next_sequence + chance.randrange(30))
        for event in whole.new[admissions[at].next_sequence : to]:
            admissions[at].apply(event)
        files[at].save(*admissions[at].to_save())
        admissions[at].saved()
        again = restored(files[0], whole)
        assert facts(again) == facts(folded(whole, again.next_sequence))
        assert again.next_sequence == max(one.next_sequence for one in admissions)


def test_old_groups_are_forgotten_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At least so many are known, and at most twice as many and those of a save."""
    monkeypatch.setattr(snapshot, "GROUPS_KEPT", 100)
    file = Snapshot(tmp_path / "rollouts.sqlite", "log")
    for at in range(50):
        for group in range(10):
            file.groups.add(f"{at}/{group}")
        file.save({"next_sequence": at + 1}, [], [])
        known = [earlier for earlier in range(at + 1) if f"{earlier}/0" in file.groups]
        assert known == list(range(at + 1))[-len(known) :] and min(10, at + 1) <= len(known) <= 20
        assert file.read() is not None


@pytest.fixture
def no_folder(tmp_path: Path) -> Iterator[Path]:
    """A place where no file can be."""
    (tmp_path / "file").touch()
    yield tmp_path / "file" / "rollouts.sqlite"


def test_without_a_place_to_save_all_is_in_memory(no_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Which is told; nothing that is acknowledged needs the file."""
    whole = saved(no_folder)
    assert "kept in memory until the next start" in caplog.text and whole.next_sequence

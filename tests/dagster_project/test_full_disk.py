"""A full disk is one line, whichever part of a run finds it first."""

from __future__ import annotations

import errno
import sqlite3

import pytest
from sqlalchemy.exc import OperationalError

from dagster_project import cli


@pytest.mark.parametrize(
    "cause",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        sqlite3.OperationalError("database or disk is full"),
        sqlite3.OperationalError("disk I/O error"),
    ],
)
def test_a_full_disk_is_one_line(
    cause: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever wraps the cause, the user reads one line that says what to do, and the exit status is 2."""

    def fail(*_: object, **__: object) -> None:
        raise OperationalError("PRAGMA", None, cause) from cause

    monkeypatch.delenv("HEADRACE_DEBUG", raising=False)
    monkeypatch.setattr(cli.headrace, "main", fail)
    assert cli.run_command(["run"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "is full" in said and "free some space" in said

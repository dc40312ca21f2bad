"""Leases: one writer at a time, over threads and processes; a dead one holds nobody up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import text
from sqlalchemy.exc import InterfaceError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from headrace.tables.settings import settings_at
from spark_jobs.exceptions import LeaseError
from spark_jobs.lake.ledger import lease
from spark_jobs.lake.ledger.lease import Leases, table_leases
from spark_jobs.lake.ledger.process import this_process
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.tiers import tries

HOLD = """
import sys, time
from pathlib import Path
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.lake.ledger.lease import table_leases
from headrace.tables.settings import settings_at
with table_leases(open_catalogue(settings_at(Path(sys.argv[1]))), ["a.b"]):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def catalogue(tmp_path: Path) -> SqlCatalog:
    """An embedded catalogue."""
    opened = open_catalogue(settings_at(tmp_path))
    assert isinstance(opened, SqlCatalog)
    return opened


def leases(catalogue: SqlCatalog) -> list[str]:
    """Tables that are held."""
    with catalogue.engine.begin() as connection:
        return sorted(row[0] for row in connection.execute(text("SELECT table_name FROM headrace_leases")))


@contextmanager
def holder(root: Path, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lease of a.b."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(root), str(seconds)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def test_a_lease_is_gone_after_its_block_whatever_happens(catalogue: SqlCatalog) -> None:
    """Also after an error."""
    with table_leases(catalogue, ["a.b", "a.a"]):
        assert leases(catalogue) == ["a.a", "a.b"]
    assert leases(catalogue) == []
    with pytest.raises(ZeroDivisionError), table_leases(catalogue, ["a.b"]):
        raise ZeroDivisionError
    assert leases(catalogue) == []


@pytest.mark.nightly
def test_who_waits_too_long_is_told_who_holds_it(catalogue: SqlCatalog, tmp_path: Path) -> None:
    """One line with the process and what to do; what was taken before is given back."""
    with holder(tmp_path, 60) as process:
        expected = f"a.b: process {process.pid} on .* is writing it; wait"
        with pytest.raises(LeaseError, match=expected) as caught, table_leases(catalogue, ["a.a", "a.b"], 0.2):
            pass
        assert "\n" not in str(caught.value)
        assert leases(catalogue) == ["a.b"]


@pytest.mark.nightly
def test_who_waits_gets_it_when_the_other_is_done(catalogue: SqlCatalog, tmp_path: Path) -> None:
    """The second comes in after the first."""
    with holder(tmp_path, 0.7), table_leases(catalogue, ["a.b"], wait_seconds=600):
        assert leases(catalogue) == ["a.b"]


@pytest.mark.nightly
def test_a_killed_process_holds_nobody_up(catalogue: SqlCatalog, tmp_path: Path) -> None:
    """After kill -9 the lease is taken over at once, long before it expires."""
    with holder(tmp_path, 60) as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with table_leases(catalogue, ["a.b"], wait_seconds=0):
            assert leases(catalogue) == ["a.b"]


def forge(catalogue: SqlCatalog, host: str, expires: int, started: int = 1) -> None:
    """A lease of somebody on another machine."""
    with table_leases(catalogue, ["a.z"]):
        pass
    with catalogue.engine.begin() as connection:
        connection.execute(
            text("INSERT INTO headrace_leases VALUES ('a.b', 'x', :host, 1, :started, :expires)"),
            {"host": host, "expires": expires, "started": started},
        )


def test_a_lease_of_another_machine_counts_until_it_stands_still(
    catalogue: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody here can tell whether its process lives; whatever its clock says, it is watched first."""
    monkeypatch.setattr(lease, "LEASE_SECONDS", 1)
    forge(catalogue, "elsewhere", int(time.time()) + 100)
    with pytest.raises(LeaseError, match="process 1 on elsewhere"), table_leases(catalogue, ["a.b"], wait_seconds=0):
        pass
    with catalogue.engine.begin() as connection:
        connection.execute(text("UPDATE headrace_leases SET expires = 5"))
    with table_leases(catalogue, ["a.b"], wait_seconds=0):
        assert leases(catalogue) == ["a.b"]


@pytest.mark.parametrize("scope", ["{scope}", "", "00000000-another-boot:4026531836", "{boot}:1"])
def test_where_a_process_cannot_be_looked_up_its_renewals_decide(
    catalogue: SqlCatalog, scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row without a start, of a former version, of another boot and of a container with this host's name."""
    monkeypatch.setattr(lease, "LEASE_SECONDS", 1)
    me = this_process()
    host = f"{me.host} {scope.format(scope=me.scope, boot=me.scope.split(':')[0])}".strip()
    forge(catalogue, host, int(time.time()) + 100, started=0 if "{scope}" in scope else 1)
    with pytest.raises(LeaseError, match=f"process 1 on {me.host} is"), table_leases(catalogue, ["a.b"], 0):
        pass
    with catalogue.engine.begin() as connection:
        connection.execute(text("UPDATE headrace_leases SET expires = 5"))
    with table_leases(catalogue, ["a.b"], wait_seconds=0):
        pass


@pytest.mark.nightly
def test_a_lease_is_not_taken_over_from_another_pid_namespace(catalogue: SqlCatalog, tmp_path: Path) -> None:
    """As between two containers with one host name: the holder lives, though no process here has its pid and start."""
    taker = f"""
from pathlib import Path
from spark_jobs.lake.ledger.lease import table_leases
from spark_jobs.lake.session.catalogue import open_catalogue
from headrace.tables.settings import settings_at
with table_leases(open_catalogue(settings_at(Path({str(tmp_path)!r}))), ["a.b"], wait_seconds=1):
    pass
"""
    inside = ["unshare", "-p", "-f", "--mount-proc"]
    if subprocess.run([*inside, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may not make a PID namespace")
    with holder(tmp_path, 60) as process:
        tried = subprocess.run([*inside, sys.executable, "-c", taker], check=False, capture_output=True, text=True)
        assert tried.returncode == 1 and f"process {process.pid} on" in tried.stderr
        assert leases(catalogue) == ["a.b"]


def test_a_held_lease_is_renewed(catalogue: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever works longer than a lease lasts keeps it."""
    monkeypatch.setattr(lease, "LEASE_SECONDS", 2)
    with table_leases(catalogue, ["a.b"]), catalogue.engine.connect() as connection:
        first = connection.execute(text("SELECT expires FROM headrace_leases")).scalar_one()
        connection.rollback()
        while connection.execute(text("SELECT expires FROM headrace_leases")).scalar_one() <= first:
            connection.rollback()
            time.sleep(0.05)
        connection.rollback()


def test_no_error_of_the_database_ends_the_renewal() -> None:
    """As of a connection that a restart closed, or of a pool that was empty for long."""
    errors = [InterfaceError("", None, Exception("connection already closed")), PoolTimeout("QueuePool limit")]
    engine = Mock(begin=Mock(side_effect=errors))
    Leases(engine, "holder").keep(Mock(wait=Mock(side_effect=[False, False, True])))
    assert engine.begin.call_count == 2


def test_of_many_threads_one_is_inside_at_a_time(catalogue: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight threads, two tables named in different orders: no two inside together, and none blocks another for ever."""
    monkeypatch.setattr(lease, "_POLL_SECONDS", 0.05)
    inside: list[int] = []
    most: list[int] = []

    def work(number: int) -> None:
        tables = ["a.a", "a.b"] if number % 2 else ["a.b", "a.a"]
        with table_leases(catalogue, tables, wait_seconds=600):
            inside.append(number)
            most.append(len(inside))
            time.sleep(0.02)
            inside.remove(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert most == [1] * 8
    assert leases(catalogue) == []


@pytest.mark.nightly
def test_processes_may_make_the_lake_at_once(tmp_path: Path) -> None:
    """The catalogue's tables and that of leases come into being once; nobody fails for being second."""
    processes = [
        subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path), "0"], stdout=subprocess.PIPE, text=True)
        for _ in range(tries(4, 2))
    ]
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert [(process.returncode, output) for process, output in zip(processes, outputs, strict=True)] == [
        (0, "held\n")
    ] * len(processes)


def branches() -> dict[str, bool]:
    """Names of branches, and whether their writers count as gone."""
    gone = subprocess.run(
        [sys.executable, "-c", "from spark_jobs.lake.ledger.lease import writer_branch; print(writer_branch())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    prefix, host, _, _, since, number = gone.split("_")
    elsewhere = [f"{prefix}_{'0' * len(host)}_1_7_{moment}_{number}" for moment in (since, int(since) - 8 * 86_400)]
    names = {"mine": lease.writer_branch(), "gone": gone, "elsewhere": elsewhere[0], "long ago": elsewhere[1]}
    names |= {"a user's": "experiment"}
    names |= {"a user's audit": "audit_of_2026", "a user's year": "audit_eu_2026_1_q_final"}
    return {name: lease.is_abandoned(branch) for name, branch in names.items()}


def test_only_branches_of_dead_writers_are_removed() -> None:
    """A writer that lives elsewhere may have lost its lease, as after a pause, and still writes to its branch."""
    kept = [name for name, is_gone in branches().items() if not is_gone]
    assert kept == ["mine", "elsewhere", "a user's", "a user's audit", "a user's year"]

"""Rows of leases in a database in memory, by a clock that the test sets: how long they last, and whose they are."""

from __future__ import annotations

import dataclasses
import random
import threading
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError
from sqlalchemy.pool import StaticPool
from sqlalchemy.schema import CreateTable

from spark_jobs.exceptions import LeaseError
from spark_jobs.lake.ledger import lease
from spark_jobs.lake.ledger.lease import Leases, table_leases
from spark_jobs.lake.ledger.process import Process, this_process
from tests.tiers import sampled

BEGIN = 1_000_000_000


class Clock:
    """A clock that sleeping alone moves."""

    def __init__(self) -> None:
        self.now = float(BEGIN)
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        """Move it."""
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that leases look at."""
    made = Clock()
    times = SimpleNamespace(time=lambda: made.now, monotonic=lambda: made.now - BEGIN, sleep=made.sleep)
    monkeypatch.setattr(lease, "time", times)
    return made


@pytest.fixture
def catalogue(monkeypatch: pytest.MonkeyPatch) -> SqlCatalog:
    """A catalogue of which leases see the database alone."""
    monkeypatch.setattr(lease, "require_own", lambda catalogue, tables: None)
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    return cast(SqlCatalog, Mock(spec=SqlCatalog, engine=engine))


def stored(engine: Engine) -> dict[str, tuple[Any, ...]]:
    """(holder, host, pid, started, expires) by table."""
    with engine.begin() as connection:
        return {row[0]: tuple(row[1:]) for row in connection.execute(text("SELECT * FROM headrace_leases"))}


def insert(engine: Engine, table: str, holder: str = "x", host: str = "elsewhere", expires: int = BEGIN + 60) -> None:
    """The row of another holder, of whom nothing can be looked up."""
    lease._make_table(engine)
    with engine.begin() as connection:
        values = {"table": table, "holder": holder, "host": host, "expires": expires}
        connection.execute(text("INSERT INTO headrace_leases VALUES (:table, :holder, :host, 7, 1, :expires)"), values)


def test_the_table_is_the_one_that_other_versions_write() -> None:
    """Its columns are part of the format of a lake: versions of headrace share it."""
    made = " ".join(str(CreateTable(lease._LEASES).compile(dialect=postgresql.dialect())).split())  # type: ignore[no-untyped-call]
    assert made == (
        "CREATE TABLE headrace_leases ( table_name VARCHAR(255) NOT NULL, holder VARCHAR(64) NOT NULL, "
        "host VARCHAR(255) NOT NULL, pid INTEGER NOT NULL, started BIGINT NOT NULL, expires BIGINT NOT NULL, "
        "PRIMARY KEY (table_name) )"
    )


def test_a_lease_is_the_process_that_holds_it_for_a_minute(catalogue: SqlCatalog, clock: Clock) -> None:
    """Of each table a row: holder, host and what its pids mean something in, pid, start, end; gone after the block."""
    me = this_process()
    with table_leases(catalogue, ["a.c", "a.b"]) as leases:
        assert leases is not None
        row = (leases.holder, f"{me.host} {me.scope}", me.pid, me.start, BEGIN + 60)
        assert stored(catalogue.engine) == {"a.b": row, "a.c": row}
    assert stored(catalogue.engine) == {} and clock.slept == []


def test_tables_are_taken_in_the_order_of_their_names(catalogue: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """And given back by the time that the thread which renews them has ended, which ends no process late."""
    taken: list[str] = []
    monkeypatch.setattr(lease, "_take", lambda engine, table, holder, wait: taken.append(table))
    with table_leases(catalogue, ["a.c", "a.a", "a.b"]):
        assert taken == ["a.a", "a.b", "a.c"]
        assert [one.daemon for one in threading.enumerate() if one.name == "lease-renewal"] == [True]
    assert not [one for one in threading.enumerate() if one.name == "lease-renewal"]


def test_a_catalogue_without_a_database_has_no_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only whether the lake is the one that is open is asked."""
    asked: list[object] = []
    monkeypatch.setattr(lease, "require_own", lambda *arguments: asked.append(arguments))
    with table_leases(catalogue := Mock(spec=[]), ["a.b"]) as leases:
        assert leases is None
    assert asked == [(catalogue, ["a.b"])]


class Holder:
    """The holder of `a.b` on another machine, whose clock is some seconds ahead, seen from a waiter that sleeps."""

    def __init__(self, engine: Engine, clock: Clock, ahead: float) -> None:
        """It begins now."""
        self.engine, self.clock, self.ahead, self.lives = engine, clock, ahead, True
        insert(engine, "a.b", expires=int(clock.now + ahead) + 60)
        self.renewed, self.sleeps = clock.now, clock.sleep

    def sleep(self, seconds: float) -> None:
        """What the waiter's sleep is: the holder renews meanwhile, every ten seconds while it lives."""
        self.sleeps(seconds)
        if self.lives and self.clock.now - self.renewed >= 10:
            self.renewed = self.clock.now
            with self.engine.begin() as connection:
                expires = {"expires": int(self.clock.now + self.ahead) + 60}
                connection.execute(text("UPDATE headrace_leases SET expires = :expires WHERE holder = 'x'"), expires)


@pytest.fixture
def other(catalogue: SqlCatalog, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Holder:
    """A living holder whose clock agrees."""
    holder = Holder(catalogue.engine, clock, 0)
    monkeypatch.setattr(lease.time, "sleep", holder.sleep)
    return holder


def test_who_waits_asks_twice_a_second_for_ten_minutes(
    catalogue: SqlCatalog, clock: Clock, other: Holder, caplog: pytest.LogCaptureFixture
) -> None:
    """And is told once whom it waits for; a lease that is not renewed any more is taken over after its minute."""
    expected = "a.b: process 7 on elsewhere is writing it; wait for that run to end, or stop it"
    with pytest.raises(LeaseError, match=f"^{expected}$"), table_leases(catalogue, ["a.a", "a.b"]):
        pass
    assert clock.slept == [0.5] * 1201
    waited = [record.getMessage() for record in caplog.records if record.name == table_leases.__module__]
    assert waited == ["a.b: waiting for process 7 on elsewhere, which is writing it"]
    assert list(stored(catalogue.engine)) == ["a.b"]
    other.lives, clock.slept = False, []
    with table_leases(catalogue, ["a.b"]):
        assert clock.slept == [0.5] * 120
        assert stored(catalogue.engine)["a.b"][-1] == int(clock.now) + 60


@sampled(3)
@pytest.mark.parametrize("ahead", [*random.Random(6).sample(range(-90, 90), 8), -90, 90, -3600, 3600])
@pytest.mark.parametrize("wait_seconds", [5, 600])
def test_no_two_clocks_are_compared(
    catalogue: SqlCatalog, clock: Clock, other: Holder, ahead: int, wait_seconds: int
) -> None:
    """A living lease is not taken over, however far the holder's clock is off; a dead one is, a minute later.

    Who waits for seconds watches one that looks over, so that it gets it; one that looks alive it leaves.
    """
    with catalogue.engine.begin() as connection:
        connection.execute(text(f"UPDATE headrace_leases SET expires = {BEGIN + ahead + 60}"))
    other.ahead = ahead
    with pytest.raises(LeaseError), table_leases(catalogue, ["a.b"], wait_seconds):
        pass
    assert [row[0] for row in stored(catalogue.engine).values()] == ["x"]
    other.lives, began = False, clock.now
    if wait_seconds < 60:
        clock.now += max(0, ahead) + 60  # until then it looks alive from here
        began = clock.now
    with table_leases(catalogue, ["a.b"], wait_seconds):
        assert clock.now - began == 60


def test_a_renewal_extends_the_leases_of_its_holder_alone(catalogue: SqlCatalog, clock: Clock) -> None:
    """Six times within a minute all of them; before a publish that of the table, unless it is somebody else's."""
    engine = catalogue.engine
    for table, holder in (("a.b", "me"), ("a.c", "me"), ("a.d", "you")):
        insert(engine, table, holder)
    clock.now += 5
    stop = Mock(wait=Mock(side_effect=[False, True]))
    Leases(engine, "me").keep(stop)
    assert [call.args for call in stop.wait.call_args_list] == [(10.0,), (10.0,)]
    assert [row[-1] - BEGIN for row in stored(engine).values()] == [65, 65, 60]
    clock.now += 5
    Leases(engine, "me").require("a.b")
    assert [row[-1] - BEGIN for row in stored(engine).values()] == [70, 65, 60]
    for lost in ("a.d", "a.e"):
        with pytest.raises(LeaseError, match=rf"^{lost}: this run was away for longer than its lease, 60 s, so"):
            Leases(engine, "me").require(lost)


def test_what_another_took_over_is_not_given_back(catalogue: SqlCatalog) -> None:
    """Nor is what it holds of other tables."""
    engine = catalogue.engine
    insert(engine, "a.c")
    with table_leases(catalogue, ["a.a", "a.b"]), engine.begin() as connection:
        connection.execute(text("UPDATE headrace_leases SET holder = 'you' WHERE table_name = 'a.b'"))
    assert {table: row[0] for table, row in stored(engine).items()} == {"a.b": "you", "a.c": "x"}


def test_a_lease_ends_with_its_process_where_that_can_be_looked_up(catalogue: SqlCatalog, clock: Clock) -> None:
    """Long before, or after, it expires."""
    me = this_process()
    insert(catalogue.engine, "a.b", host=f"{me.host} {me.scope}", expires=BEGIN + 10_000)
    with table_leases(catalogue, ["a.b"], wait_seconds=0):  # its pid 7 has another start, or is none
        pass
    with table_leases(catalogue, ["a.b"]):
        clock.now += 1000
        with pytest.raises(LeaseError), table_leases(catalogue, ["a.b"], wait_seconds=1):
            pass
    assert clock.slept == [0.5] * 3


@pytest.mark.parametrize("error", [OperationalError, ProgrammingError, IntegrityError])
def test_who_makes_the_table_second_goes_on(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """The database says that it is there, after it was looked for."""
    create = Mock(side_effect=[error("", None, Exception("there")), None])
    monkeypatch.setattr(lease, "_LEASES", Mock(create=create))
    lease._make_table(engine := Mock())
    assert [call.args for call in create.call_args_list] == [(engine,)] * 2
    assert [call.kwargs for call in create.call_args_list] == [{"checkfirst": True}] * 2


def test_a_branch_names_its_writer(clock: Clock) -> None:
    """Scope, pid, start and moment of this process, and a part of its own."""
    me = this_process()
    first, second = lease.writer_branch(), lease.writer_branch()
    prefix, scope, pid, start, since, own = first.split("_")
    assert (prefix, int(pid), int(start), int(since)) == ("audit", me.pid, me.start, BEGIN)
    assert (len(scope), len(own)) == (8, 12) and first != second
    assert lease.is_of_a_writer(first) and not lease.is_of_a_writer(f"{first}_") and not lease.is_abandoned(first)
    assert not lease.is_abandoned("audit_0123456789ab") and not lease.is_abandoned("audit_of_2026"), "a user made it"


def test_a_branch_of_who_cannot_be_looked_up_is_kept_for_a_week(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the second; one of a process that is gone not at all, one of a living one for ever."""
    me = this_process()
    own = lease.writer_branch()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(lease, "this_process", lambda: Process("there", f"{me.scope}1", me.pid, me.start))
        other = lease.writer_branch()
    with monkeypatch.context() as before:
        before.setattr(lease, "this_process", lambda: dataclasses.replace(me, start=me.start + 1))
        gone = lease.writer_branch()
    names = (own, other, gone)
    for seconds, abandoned in ((0, [False, False, True]), (604_800, [False, False, True]), (1, [False, True, True])):
        clock.now += seconds
        assert [lease.is_abandoned(name) for name in names] == abandoned

"""Two writers of a table, faults of the store at renewals, and pauses: one publishes, and no branch goes too early."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest.mock import Mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import text
from sqlalchemy.exc import InterfaceError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from headrace.tables.settings import settings_at
from spark_jobs.exceptions import LeaseError
from spark_jobs.lake.files.branches import Written, branch_at_head, publish
from spark_jobs.lake.ledger import lease
from spark_jobs.lake.ledger.data_version import DataVersion
from spark_jobs.lake.ledger.lease import LEASE_SECONDS, Leases, table_leases, writer_branch
from spark_jobs.lake.ledger.materialization import Materialization
from spark_jobs.lake.ledger.process import Process, this_process
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.tiers import tries

TABLE = "a.b"
FAULTS = [
    OperationalError("", None, Exception("database is locked")),
    InterfaceError("", None, Exception("connection already closed")),
    ProgrammingError("", None, Exception("no such table")),
    PoolTimeout("QueuePool limit"),
    *(kind("away") for kind in (OSError, ConnectionResetError, TimeoutError, ssl.SSLError, RuntimeError, MemoryError)),
    *(kind() for kind in (KeyError, AttributeError, AssertionError, UnicodeError, RecursionError, StopIteration)),
]


class Writer:
    """A writer on this machine or another one, of a table of one row."""

    def __init__(self, catalogue: SqlCatalog, process: Process) -> None:
        """Nothing is held yet."""
        self.catalogue, self.process = catalogue, process
        self.held = contextlib.ExitStack()
        self.leases: Leases | None = None
        self.written: Written | None = None

    def begin(self) -> None:
        """Take the lease, and write a row to a branch; nothing where somebody else has it."""
        if self.leases is not None:
            return
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lease, "this_process", lambda: self.process)
            try:
                self.leases = self.held.enter_context(table_leases(self.catalogue, [TABLE], 0))
            except LeaseError:
                return
            branch = writer_branch()
        table, base = branch_at_head(self.catalogue, TABLE, branch)
        table.append(pa.table({"n": [1]}), branch=branch)
        made = self.catalogue.load_table(TABLE).snapshot_by_name(branch)
        assert made is not None
        facts = made.snapshot_id, made.sequence_number or 0, str(table.metadata.table_uuid)
        self.written = Written(TABLE, branch, base, *facts, DataVersion(), 1, 1, ())

    def renew(self, fault: Exception | None) -> None:
        """What its thread does once, with a fault of the store or none."""
        if self.leases is not None:
            engine = self.leases.engine if fault is None else Mock(begin=Mock(side_effect=fault))
            Leases(engine, self.leases.holder).keep(Mock(wait=Mock(side_effect=[False, True])))

    def publish(self) -> bool:
        """Try to publish; whether it did. Either way it is done then."""
        if self.leases is None or self.written is None:
            return False
        own = self.leases.holder in holders(self.catalogue)
        row = Materialization(
            TABLE, "", "s", "k", DataVersion(), "1", "{}", {}, *vars_of(self.written), 1, 1, 0.1, "run", None
        )
        try:
            publish(self.catalogue, self.written, row, {}, self.leases)
        except LeaseError:
            assert not own, "it held the lease, so nobody else may have published"
            return False
        finally:
            self.end()
        assert own, "its lease was taken over, so it had to stop"
        return True

    def end(self) -> None:
        """Give back what it holds."""
        self.leases = self.written = None
        self.held.close()


def vars_of(written: Written) -> tuple[int, int, str]:
    """What says which snapshot it is."""
    return written.snapshot_id, written.sequence_number, written.table_uuid


def pass_by(now: list[float]) -> None:
    """Let a minute pass instead of half a second, so that who watches a lease looks at it twice."""
    now[0] += LEASE_SECONDS


def holders(catalogue: SqlCatalog) -> list[str]:
    """Who holds leases."""
    with catalogue.engine.begin() as connection:
        return [row[0] for row in connection.execute(text("SELECT holder FROM headrace_leases"))]


Event = tuple[int, str, float | Exception | None]
AWAY = st.sampled_from([LEASE_SECONDS / 6, LEASE_SECONDS * 1.5, LEASE_SECONDS * 100.0])
BETWEEN: st.SearchStrategy[list[Event]] = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 1), st.just("renew"), st.one_of(st.none(), st.sampled_from(FAULTS))),
        st.tuples(st.just(0), st.just("pass"), AWAY),
    ),
    max_size=3,
)


@st.composite
def stories(draw: st.DrawFn) -> list[Event]:
    """The first writer begins, the second does, each publishes, in any order; between these, faults and pauses."""
    told: list[Event] = [(0, "begin", None), *draw(BETWEEN)]
    rest: list[Event] = [(1, "begin", None), (0, "publish", None), (1, "publish", None), (0, "begin", None)]
    for event in draw(st.permutations(rest)):
        told += [event, *draw(BETWEEN)]
    return told


@settings(max_examples=tries(400, 10))
@given(here=st.sampled_from([(False, False), (False, True), (True, False), (True, True)]), events=stories())
def test_of_two_writers_one_publishes_and_no_branch_goes_under_a_living_one(
    here: tuple[bool, bool], events: list[Event]
) -> None:
    """Whatever the store does to renewals, and however long the writers are away.

    A writer that began before another one published publishes nothing after it. What a renewal raises ends nothing.
    """
    now = [1_000_000_000.0]
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            lease, "time", SimpleNamespace(time=lambda: now[0], monotonic=lambda: now[0], sleep=lambda _: pass_by(now))
        )
        catalogue = open_catalogue(settings_at(Path(folder)))
        assert isinstance(catalogue, SqlCatalog)
        catalogue.create_namespace("a")
        catalogue.create_table(TABLE, pa.schema([("n", pa.int64())])).append(pa.table({"n": [0]}))
        me = this_process()
        others = [Process(f"host-{number}", f"boot-{number}:1", number, 1) for number in range(2)]
        writers = [Writer(catalogue, me if mine else other) for mine, other in zip(here, others, strict=True)]
        began, published = dict[int, int](), 0
        for who, event, what in events:
            one = writers[who]
            if event == "begin" and one.leases is None:
                one.begin()
                began[who] = published
            elif event == "renew":
                one.renew(what if isinstance(what, Exception) else None)
            elif event == "pass" and isinstance(what, float):
                now[0] += what
            elif event == "publish" and one.publish():
                assert began[who] == published, "another writer published since it began"
                published += 1
            refs = catalogue.load_table(TABLE).refs()
            assert all(one.written is None or one.written.branch in refs for one in writers)
        for one in writers:
            one.end()
        assert catalogue.load_table(TABLE).scan().to_arrow().num_rows == 1 + published

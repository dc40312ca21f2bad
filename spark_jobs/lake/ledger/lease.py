"""One writer per table at a time: an advisory lock until the end of its process.

A lease is a row `(table, holder, host, pid, started, expires)` in the catalogue's own database, taken by an INSERT; it
fails when the row is there. The holder renews it from a thread. A second writer waits. It takes the lease over as soon
as the holder's process is gone, if that can be looked up (`process.py`), so nobody waits after a `kill -9`; else, as
from another machine or container, once `expires` has not moved for a minute of the waiter's own monotonic clock. So
clocks of two machines are never compared: `expires`, a moment by the holder's clock, is a counter moved by renewals.
`host` is the name of the host and what its pids mean something in, `dagster-code a62a442d-..:4026531836`.

A writer, its lease taken over meanwhile, as after a pause of its machine, stops before it publishes: the commit
that publishes asks for the lease once more (`Leases.require`), and demands that main is where the writer found it.
Catalogues without a database of their own (REST) have no leases and rely on that demand alone. Each writer has a branch
named for its process, and a branch is removed only if its process is known to be gone.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Engine,
    Integer,
    MetaData,
    RowMapping,
    String,
    Table,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

from headrace.tables.identity import require_own
from spark_jobs.exceptions import LeaseError
from spark_jobs.lake.ledger.process import Process, this_process

_log = logging.getLogger(__name__)

LEASE_SECONDS = 60  # renewed six times in that span, so five renewals in a row may fail
WAIT_SECONDS = 600
_POLL_SECONDS = 0.5
_BRANCH_PREFIX = "audit_"
_BRANCH = re.compile(rf"{_BRANCH_PREFIX}([0-9a-f]{{8}})_(\d+)_(\d+)_(\d+)_[0-9a-f]{{12}}")
_ABANDONED_SECONDS = 7 * 86_400  # of a branch whose process cannot be looked up

_LEASES = Table(
    "headrace_leases",
    MetaData(),
    Column("table_name", String(255), primary_key=True),
    Column("holder", String(64), nullable=False),
    Column("host", String(255), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started", BigInteger, nullable=False),
    Column("expires", BigInteger, nullable=False),
)


@contextlib.contextmanager
def table_leases(catalogue: Catalog, tables: list[str], wait_seconds: float = WAIT_SECONDS) -> Iterator[Leases | None]:
    """Hold the leases of some tables, taken in the order of their names so that two writers cannot block each other.

    Gives the `Leases`, able to check later that they are still held; None where the catalogue has no leases.

    Raises:
        LeaseError: another writer held one of them for longer than `wait_seconds`.
        WrongLakeError: the open files are another lake's, or a table lies outside of its warehouse.
    """
    require_own(catalogue, tables)
    if not isinstance(catalogue, SqlCatalog):
        yield None
        return
    engine = catalogue.engine
    _make_table(engine)
    leases = Leases(engine, uuid.uuid4().hex)
    with contextlib.ExitStack() as leased:
        for table in sorted(tables):
            _take(engine, table, leases.holder, wait_seconds)
            leased.callback(_release, engine, table, leases.holder)
        stop = threading.Event()
        renewal = threading.Thread(target=leases.keep, args=(stop,), name="lease-renewal", daemon=True)
        renewal.start()
        leased.callback(renewal.join)
        leased.callback(stop.set)
        yield leases


@dataclass(frozen=True)
class Leases:
    """The leases of one writer; another writer may have taken them over since.

    Attributes:
        engine: of the catalogue's database.
        holder: what the rows call the writer.
    """

    engine: Engine
    holder: str

    def keep(self, stop: threading.Event) -> None:
        """Extend all of them until `stop` is set."""
        while not stop.wait(LEASE_SECONDS / 6):
            try:
                self._renew(_LEASES.c.holder == self.holder)
            except Exception as error:  # noqa: BLE001 (of any class: the next renewal comes long before the lease ends)
                _log.warning("lease not renewed: %s", (str(error) or type(error).__name__).splitlines()[0])

    def require(self, table: str) -> None:
        """Refuse a table after another writer took over its lease; else extend the lease.

        Raises:
            LeaseError: the lease is lost.
        """
        if not self._renew(_LEASES.c.holder == self.holder, _LEASES.c.table_name == table):
            raise LeaseError(
                f"{table}: this run was away for longer than its lease, {LEASE_SECONDS} s, so another may write the "
                "table; nothing was published, run again"
            )

    def _renew(self, *which: ColumnElement[bool]) -> int:
        """Extend some leases; gives how many rows there are."""
        with self.engine.begin() as connection:
            expires = int(time.time()) + LEASE_SECONDS
            return connection.execute(update(_LEASES).where(*which).values(expires=expires)).rowcount


def writer_branch() -> str:
    """A new name for a branch of this process: its scope, pid and start, the moment, and a random part."""
    me = this_process()
    facts = _digest(me.scope), str(me.pid), str(me.start), str(int(time.time())), uuid.uuid4().hex[:12]
    return _BRANCH_PREFIX + "_".join(facts)


def is_of_a_writer(name: str) -> bool:
    """Whether a branch was made by a writer of headrace, not by a user."""
    return _BRANCH.fullmatch(name) is not None


def is_abandoned(name: str) -> bool:
    """Whether a branch was left by a dead writer, so that it can be removed.

    The process named by the branch is looked up; where it cannot be, a branch counts as abandoned after a week: a lease
    that expired tells nothing, since a writer, away for a while, still writes.
    """
    match = _BRANCH.fullmatch(name)
    if match is None:  # a branch that a user made
        return False
    scope, pid, started, since = match.groups()
    me = this_process()
    alive = Process("", me.scope if scope == _digest(me.scope) else "", int(pid), int(started)).lives()
    return time.time() - int(since) > _ABANDONED_SECONDS if alive is None else not alive


def _digest(scope: str) -> str:
    return hashlib.sha256(scope.encode()).hexdigest()[:8]


def _make_table(engine: Engine) -> None:
    """Make the table of leases where it is not there."""
    try:
        _LEASES.create(engine, checkfirst=True)
    except (OperationalError, ProgrammingError, IntegrityError):  # another process made it after the look
        _LEASES.create(engine, checkfirst=True)


def _take(engine: Engine, table: str, holder: str, wait_seconds: float) -> None:
    """Insert the lease's row, waiting while a living holder has it.

    A lease that nobody can look up, and that looks as if it were over, is watched to its end even if that takes longer
    than `wait_seconds`: else whoever waits shortly would never get the lease of a dead holder.
    """
    deadline = time.monotonic() + wait_seconds
    is_logged, last_marks, since, moved = False, ("", 0), 0.0, False
    me = this_process()
    while True:
        row = {
            "table_name": table,
            "holder": holder,
            "host": f"{me.host} {me.scope}",
            "pid": me.pid,
            "started": me.start,
            "expires": int(time.time()) + LEASE_SECONDS,
        }
        try:
            with engine.begin() as connection:
                connection.execute(insert(_LEASES).values(**row))
            return
        except IntegrityError:
            lease = _held(engine, table)
        if lease is None:
            continue
        now, marks = time.monotonic(), (lease["holder"], lease["expires"])
        if marks != last_marks:
            moved = last_marks != ("", 0)
            last_marks, since = marks, now
        holder_process = _process(lease)
        lives = holder_process.lives()
        if not (now - since < LEASE_SECONDS if lives is None else lives):
            _clear(engine, table, *marks)
            _log.info("%s: took over the lease of %s, which is gone", table, holder_process)
            continue
        watched = lives is None and not moved and lease["expires"] <= time.time()
        if now > deadline and not watched:
            raise LeaseError(f"{table}: {holder_process} is writing it; wait for that run to end, or stop it")
        if not is_logged:
            _log.warning("%s: waiting for %s, which is writing it", table, holder_process)
            is_logged = True
        time.sleep(_POLL_SECONDS)


def _held(engine: Engine, table: str) -> RowMapping | None:
    with engine.begin() as connection:
        return connection.execute(select(_LEASES).where(_LEASES.c.table_name == table)).mappings().first()


def _process(lease: RowMapping) -> Process:
    host, _, scope = lease["host"].partition(" ")
    return Process(host, scope, lease["pid"], lease["started"])


def _clear(engine: Engine, table: str, holder: str, expires: int) -> None:
    """Remove a lease as it was seen: of two takers one does, and none removes a fresh or a renewed one."""
    here = _LEASES.c.table_name == table, _LEASES.c.holder == holder, _LEASES.c.expires == expires
    with engine.begin() as connection:
        connection.execute(delete(_LEASES).where(*here))


def _release(engine: Engine, table: str, holder: str) -> None:
    with engine.begin() as connection:
        connection.execute(delete(_LEASES).where(_LEASES.c.table_name == table, _LEASES.c.holder == holder))

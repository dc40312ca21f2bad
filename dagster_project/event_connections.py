"""Keep the connections to Dagster's databases of events open while this process executes a run.

For each of the dozen events of a step Dagster opens a database anew, an engine of SQLAlchemy included, and waits until
the disk has it. A run cut short by the machine's crash is repeated whatever its last events are, so it is enough
that they are there in order (`synchronous=NORMAL`, consistent, says SQLite, together with its WAL).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import dagster as dg

from dagster_project.dagster_core import SqliteEventLogStorage

if TYPE_CHECKING:
    from sqlalchemy import Connection

_BUSY_SECONDS = 20.0  # for a database that another process writes, as Dagster's own


@contextmanager
def connections_kept(instance: dg.DagsterInstance) -> Iterator[None]:
    """Keep one connection to each database of events until the end; no-op where events are not in SQLite."""
    storage = instance.event_log_storage
    if not isinstance(storage, SqliteEventLogStorage):
        yield
        return
    from sqlalchemy import StaticPool, create_engine, text

    connect = storage._connect
    opened: dict[str, Connection] = {}

    @contextmanager
    def kept(shard: str) -> Iterator[Connection]:
        if shard not in opened:
            with connect(shard):  # makes the database where it is not there
                pass
        with storage._db_lock:
            if shard not in opened:
                address = storage.conn_string_for_shard(shard)
                options = {"timeout": _BUSY_SECONDS, "check_same_thread": False}
                engine = create_engine(address, poolclass=StaticPool, connect_args=options)
                closing.callback(engine.dispose)
                opened[shard] = closing.enter_context(engine.connect())
                opened[shard].execute(text("PRAGMA synchronous=NORMAL"))
                opened[shard].commit()
            with opened[shard].begin():
                yield opened[shard]

    with ExitStack() as closing:
        storage._connect = kept  # type: ignore[method-assign]
        try:
            yield
        finally:
            del storage._connect

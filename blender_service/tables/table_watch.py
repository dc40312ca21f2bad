"""The tables read by streams, each loaded once for all of them; one thread looks at those of open streams.

It asks twice a second which metadata is the current one, and loads what is new (`current_table`).

A stream compares a number (`generation`) before each message and never waits for the catalogue. Where the number has
changed it goes on with the files of now: after an excision those of the snapshot's successor, of a live table those
with the newest rows. While the catalogue does not answer, the tables of the last look stay in force.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Final, NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from blender_service.recently_used import RecentlyUsed
from blender_service.tables.current_table import load_current

LOOK_SECONDS: Final = 0.5
MOST_SHARE: Final = 10  # looks that take a second of a core are followed by a pause of this many
TABLES_AT_HAND: Final = 1024

logger = logging.getLogger(__name__)


class _Load(NamedTuple):
    """When a table was asked for, what was known of it by then, and the answer."""

    began: float
    known: Table | None
    answer: Future[Table | None]


class Follower:
    """What one reader follows; its tables are looked at for as long as this is referenced."""

    __slots__ = ("__weakref__", "tables")

    def __init__(self, tables: frozenset[str]) -> None:
        """Follow tables (namespace.table)."""
        self.tables = tables


class TableWatch:
    """The followed tables, as they were seen last.

    Attributes:
        generation: changes whenever a table has.
    """

    def __init__(self, catalogue: Catalog) -> None:
        """Look in `catalogue`."""
        self._catalogue = catalogue
        self._seen: dict[str, Table | None] = {}
        self._followers: weakref.WeakSet[Follower] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._loading = tuple(threading.Lock() for _ in range(64))
        self._loads: RecentlyUsed[str, _Load] = RecentlyUsed(TABLES_AT_HAND)
        self._thread: threading.Thread | None = None
        self.generation = 0

    def follow(self, tables: Mapping[str, Table | None]) -> Follower:
        """Look at tables from now on; they are given as the reader found them, None where there is none yet."""
        follower = Follower(frozenset(tables))
        with self._lock:
            self._followers.add(follower)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="table-watch", daemon=True)
                try:
                    thread.start()
                    self._thread = thread
                except RuntimeError as error:  # the next reader tries again
                    logger.warning("tables are not looked at: %s", error)
        for identifier, table in tables.items():
            with self._lock:
                earlier = self._seen.setdefault(identifier, table)
                differs = _place_of(earlier) != _place_of(table)
                self.generation += differs
            if differs:  # which of the two is newer only the catalogue knows
                self.look([identifier])
        return follower

    def load(self, identifier: str) -> Table | None:
        """Give a table as the catalogue has it now, None if there is none; raises what the catalogue does.

        However many ask at once, one asks the catalogue, and the others take the answer to a question put after theirs.
        """
        asked_at = time.monotonic()
        with self._loading[hash(identifier) % len(self._loading)]:
            load = self._loads.get(identifier)
            if load is None or load.began <= asked_at:
                before = load.known if load is not None else None
                load = _Load(time.monotonic(), before, Future())
                try:
                    load.answer.set_result(load_current(self._catalogue, identifier, before))
                except Exception as error:  # noqa: BLE001 (whatever it is, those who asked are given it)
                    load.answer.set_exception(error)
                else:
                    load = load._replace(known=load.answer.result())
                self._loads.put(identifier, load)
        return load.answer.result()

    def table(self, identifier: str) -> Table | None:
        """Give a table as it was seen last; None if it was dropped."""
        return self._seen.get(identifier)

    def look(self, tables: Collection[str]) -> None:
        """Look at tables now; raises what the catalogue does."""
        for identifier in tables:
            with self._looking:  # one look after the other, so that none puts an older state over a newer one
                table = self.load(identifier)
                with self._lock:
                    if _place_of(self._seen.get(identifier)) != _place_of(table):
                        self._seen[identifier] = table
                        self.generation += 1

    def _run(self) -> None:
        """Look while anybody follows."""
        while True:
            with self._lock:
                followed = frozenset().union(*(follower.tables for follower in self._followers))
                self._seen = {name: table for name, table in self._seen.items() if name in followed}
                if not followed:
                    self._thread = None
                    return
            started = time.thread_time()  # not of a clock: a catalogue that answers slowly costs nobody anything
            for identifier in followed:
                try:
                    self.look([identifier])
                except Exception as error:  # noqa: BLE001 (whatever it is, the thread goes on)
                    logger.warning("%s cannot be looked at, so what was seen last is served: %s", identifier, error)
            time.sleep(max(LOOK_SECONDS, MOST_SHARE * (time.thread_time() - started)))


def _place_of(table: Table | None) -> str:
    """Give what changes with every commit to a table."""
    return table.metadata_location if table is not None else ""

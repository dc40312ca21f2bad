"""The readers of a namespace's rows, as its dataset or corpus declares it: public, restricted to teams, on_device.

Two more facts of a namespace are declared in the same way: that it is a quarantine (nobody may see its rows until
they are released), and that it holds test data, forbidden in tables of production.

The declarations are recorded in the table `system.visibility`, a row for each namespace but public ones. Whoever
runs the platform writes it; Blender reads it beside its own rules.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import RESTError
from sqlalchemy.exc import SQLAlchemyError

from headrace.tables.catalogue import load_table

VISIBILITY_TABLE: Final = "system.visibility"
KEPT_SECONDS: Final = 30.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Visibility:
    """The readers of rows.

    Attributes:
        kind: `public` (everybody), `restricted` (the teams), `on_device` (nobody over the network) or `quarantine`
            (nobody before a release).
        teams: names of teams; empty where the kind is not `restricted`.
        test: whether the rows are test data.
    """

    kind: str = "public"
    teams: frozenset[str] = frozenset()
    test: bool = False

    @property
    def is_public(self) -> bool:
        """Whether everybody may see the rows."""
        return self.kind == "public"

    def admits(self, teams: Collection[str]) -> bool:
        """Whether a member of these teams may see the rows."""
        return self.is_public or not self.teams.isdisjoint(teams)

    def may_hold(self, other: Visibility) -> bool:
        """Whether a table of this visibility may hold rows of another: it must admit nobody refused there."""
        if other.test and not self.test:
            return False
        if other.kind == "quarantine" or self.kind == "quarantine":
            return self.kind == "quarantine"
        if other.is_public or self.kind == "on_device":
            return True
        return self.kind == other.kind == "restricted" and self.teams <= other.teams

    def narrowed(self, other: Visibility) -> Visibility:
        """The visibility for readers admitted by both."""
        first, second = (replace(each, test=self.test or other.test) for each in (self, other))
        if first.may_hold(second):
            return first
        return second if second.may_hold(first) else Visibility("restricted", first.teams & second.teams, first.test)

    def __str__(self) -> str:
        kind = f"restricted to {', '.join(sorted(self.teams))}" if self.kind == "restricted" else self.kind
        return f"{kind}, test data" if self.test else kind


PUBLIC: Final = Visibility()
QUARANTINE: Final = Visibility("quarantine")


def recorded_visibility(catalogue: Catalog) -> dict[str, Visibility]:
    """The restricted namespaces of a lake, and those with test data."""
    table = load_table(catalogue, VISIBILITY_TABLE)
    rows: list[dict[str, Any]] = [] if table is None else table.scan().to_arrow().to_pylist()
    spaces: dict[str, Visibility] = {}
    for row in rows:  # runs that began at once may each have added one for a namespace: then the narrowest holds
        named = Visibility(row["visibility"], _teams(row["teams"]), row.get("environment") == "test")
        spaces[row["namespace"]] = named.narrowed(spaces.get(row["namespace"], PUBLIC))
    return spaces


def _teams(text: str) -> frozenset[str]:
    return frozenset(filter(None, text.split(",")))


class KnownVisibility:
    """The recorded visibility of all namespaces, about half a minute old at most; safe for many threads.

    Read by the first caller, and from then on in the background, so that no stream waits for the catalogue. While the
    catalogue does not answer, what was read last stays in force.
    """

    def __init__(self, catalogue: Catalog, clock: Callable[[], float] = time.monotonic) -> None:
        """Look in `catalogue`; `clock` gives seconds."""
        self._catalogue = catalogue
        self._clock = clock
        self._lock = threading.Lock()
        self._known: Mapping[str, Visibility] | None = None
        self._asked = float("-inf")
        self.generation = 0

    def get(self) -> Mapping[str, Visibility] | None:
        """The restricted namespaces; None while the lake has never answered."""
        if self._known is None:
            with self._lock:
                if self._known is None:
                    self._read()
        elif self._clock() - self._asked >= KEPT_SECONDS and self._lock.acquire(blocking=False):
            self._asked = self._clock()
            try:
                threading.Thread(target=self._read_and_release, name="visibility", daemon=True).start()
            except RuntimeError as error:  # no thread can be started; tried again after the same time
                self._lock.release()
                logger.error("%s is not read again, %s: %s", VISIBILITY_TABLE, self._consequence(), error)
        return self._known

    def _read_and_release(self) -> None:
        try:
            self._read()
        finally:
            self._lock.release()

    def _read(self) -> None:
        try:
            recorded = recorded_visibility(self._catalogue)
        except (RESTError, SQLAlchemyError, OSError, ValueError, pa.ArrowException) as error:
            logger.error("%s cannot be read, %s: %s", VISIBILITY_TABLE, self._consequence(), error)
            return
        self._asked = self._clock()
        if self._known is not None and recorded != self._known:
            self.generation += 1
        self._known = recorded

    def _consequence(self) -> str:
        return "so nobody may read for now" if self._known is None else "what was read before stays in force"

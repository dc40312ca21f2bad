"""Further stores of the same data files: the quickest is read, another one where it fails.

    HEADRACE_MIRRORS="s3://lake/warehouse=/nvme/warehouse, s3://lake/warehouse=s3://near/warehouse"

says that a file below the first place may as well be read below the second. Data files never change and every read is
checked (checksums of pages, number of rows, ordinals, ids), so the choice changes no row; what a copy lacks, or holds
damaged, comes from the next place.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from blender_service.exceptions import ServerStartError

VARIABLE: Final = "HEADRACE_MIRRORS"
PASSED_OVER_SECONDS: Final = 60.0  # after a failure
PROBE_EVERY: Final = 64  # reads, of which one goes to the place that was not read for longest
_NEWEST: Final = 0.2  # weight of the last read in the mean
_CALL_BYTES: Final = 64 << 10  # what asking for a file costs beside its bytes

logger = logging.getLogger(__name__)


@dataclass
class _PlaceHistory:
    """What is known of a place: mean seconds a byte, when it was read last, until when it is passed over."""

    cost: float = 0.0
    read: float = 0.0
    passed_over_until: float = 0.0


class Mirrors:
    """The places of data files, by what reading there took; safe for many threads."""

    def __init__(
        self, places: Mapping[str, Sequence[str]] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Read what is below each key of `places` as well below its values."""
        self._places = dict(places or {})
        self._clock = clock
        self._known: dict[str, _PlaceHistory] = {}
        self._reads = itertools.count(1)
        self._lock = threading.Lock()

    @classmethod
    def of_environment(cls) -> Mirrors:
        """Those of HEADRACE_MIRRORS.

        Raises:
            ServerStartError: it is malformed.
        """
        places: dict[str, list[str]] = {}
        for pair in filter(None, (part.strip() for part in os.environ.get(VARIABLE, "").split(","))):
            home, equals, copy = (part.strip().rstrip("/") for part in pair.partition("="))
            if not (home and equals and copy) or home == copy:
                raise ServerStartError(f"{VARIABLE}: {pair!r} is no pair; write PLACE=OTHER PLACE, with commas between")
            places.setdefault(home, []).append(copy)
        return cls(places)

    def of(self, path: str) -> list[tuple[str, str]]:
        """The places of a file, as root and path, the one to read first; the file's own among them."""
        home = next((home for home in self._places if path.startswith(f"{home}/")), None)
        if home is None:
            return [("", path)]
        roots = [home, *self._places[home]]
        with self._lock:
            stores = {root: self._known.setdefault(root, _PlaceHistory()) for root in roots}
            now, probes = self._clock(), next(self._reads) % PROBE_EVERY == 0
            if probes:
                roots.sort(key=lambda root: (stores[root].passed_over_until > now, stores[root].read))
            else:
                roots.sort(key=lambda root: (stores[root].passed_over_until > now, stores[root].cost))
        return [(root, root + path.removeprefix(home)) for root in roots]

    def took(self, root: str, seconds: float, byte_count: int) -> None:
        """Note what a read took in its store."""
        if not root:
            return
        with self._lock:
            store, cost = self._known[root], seconds / (byte_count + _CALL_BYTES)
            store.cost = cost if not store.read else (1 - _NEWEST) * store.cost + _NEWEST * cost
            store.read, store.passed_over_until = self._clock(), 0.0

    def failed(self, root: str, path: str, why: BaseException) -> None:
        """Note that a read failed; the place is passed over for a minute, as long as there is another one."""
        if not root:
            return
        with self._lock:
            self._known[root].passed_over_until = self._clock() + PASSED_OVER_SECONDS
        logger.warning("%s cannot be read: %s; reading it elsewhere", path, why)


NO_MIRRORS: Final = Mirrors()

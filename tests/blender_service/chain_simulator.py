"""Chains of updates, walked row by row: explicit queues of ordinals, exact fractions, one slot at a time.

Shares no code with the package but the written-out epochs of `simulator`, which shares none either. A source holds the
ordinals left of its epoch in a list; an update appends to that list, and the walk goes on.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from tests.blender_service.simulator import epoch_order

SimulatedRow = tuple[str, int, int]


class RefusedError(Exception):
    """The update cannot be."""


@dataclass(frozen=True)
class ChainSource:
    """A source of one config; rows None: live."""

    name: str
    weight: int
    rows: int | None
    max_epochs: int = 0
    ends_blend: bool = False


@dataclass(frozen=True)
class ChainConfig:
    """A config of a chain: what holds from an offset on, and how ordinals are shuffled."""

    from_offset: int
    sources: tuple[ChainSource, ...]


@dataclass
class Reader:
    """A source that gives its rows one by one.

    Attributes:
        queue: ordinals left of the epoch, in the order they come.
        epoch: of the last row.
        covered: ordinals that the epoch reaches once the queue is empty.
        rows: N, None while live.
        taken: rows given.
    """

    seed: int
    name: str
    shape: tuple[int, int]
    queue: list[int] = field(default_factory=list)
    epoch: int = -1
    covered: int = 0
    rows: int | None = None
    taken: int = 0

    def adopt(self, rows: int | None) -> None:
        """Take the rows of another config up."""
        if self.taken == 0:
            self.epoch, self.queue, self.covered, self.rows = (0 if rows is None else -1), [], 0, rows
        elif rows != self.rows:
            if rows is not None and rows < self.covered:
                raise RefusedError("shrunk")
            if rows is not None and rows > self.covered:
                fresh = epoch_order(self.seed, self.name, self.epoch, rows - self.covered, *self.shape, self.covered)
                self.queue = self.queue + [self.covered + ordinal for ordinal in fresh]
                self.covered = rows
            self.rows = rows

    def spent(self, max_epochs: int, turn_rows: int = 1) -> bool:
        """Whether there are no rows for a turn left under a bound of epochs."""
        if self.rows is None or max_epochs == 0:
            return False
        if (self.epoch if self.queue else self.epoch + 1) >= max_epochs:
            return True
        return len(self.queue) + (max_epochs - 1 - self.epoch) * self.rows < turn_rows

    def give(self) -> SimulatedRow:
        """Give the next row."""
        self.taken += 1
        if not self.queue and self.rows is None:
            self.covered += 1
            return self.name, self.epoch, self.covered - 1
        if not self.queue:
            self.epoch += 1
            self.queue = list(epoch_order(self.seed, self.name, self.epoch, self.rows or 0, *self.shape))
            self.covered = self.rows or 0
        return self.name, self.epoch, self.queue.pop(0)


class Turns:
    """Whose turn it is: each row of a source has a first and a last slot, the most urgent released one goes."""

    def __init__(self, sources: Sequence[ChainSource]) -> None:
        """Start at place 0."""
        total = sum(source.weight for source in sources)
        self.shares = {source.name: Fraction(source.weight, total) for source in sources}
        self.given = dict.fromkeys(self.shares, 0)
        self.windows = {name: self._window(name) for name in self.shares}

    def _window(self, name: str) -> tuple[int, int]:
        """Give the first and the last slot of a source's next row."""
        spread = 2 * len(self.shares) - 2
        if spread == 0:
            return 0, 0
        j, share = self.given[name] + 1, self.shares[name]
        return math.ceil((1 + (j - 1) * spread) / (share * spread)), math.floor((j * spread - 1) / (share * spread)) + 1

    def peek(self) -> str:
        """Name the source of the next slot."""
        slot = sum(self.given.values()) + 1
        return min((last, name) for name, (first, last) in self.windows.items() if first <= slot)[1]

    def take(self, name: str) -> None:
        """Give the next slot to a source."""
        self.given[name] += 1
        self.windows[name] = self._window(name)


@dataclass
class Walk:
    """What a walk found.

    Attributes:
        rows: (name, epoch, ordinal) of each row.
        ended: whether the blend ended by itself.
        readers: every source that took part, as the walk left it.
        expected: rows that the weights promise each source.
    """

    rows: list[SimulatedRow] = field(default_factory=list)
    ended: bool = False
    readers: dict[str, Reader] = field(default_factory=dict)
    expected: dict[str, Fraction] = field(default_factory=dict)


def path_of(configs: Sequence[ChainConfig]) -> list[ChainConfig]:
    """Leave out what a later update has taken back."""
    path: list[ChainConfig] = []
    for config in configs:
        path = [earlier for earlier in path if earlier.from_offset < config.from_offset]
        path.append(config)
    return path


def walk(seed: int, shape: tuple[int, int], configs: Sequence[ChainConfig], limit: int, turn_rows: int = 1) -> Walk:
    """Walk a chain row by row.

    Args:
        seed: of the blend.
        shape: rows of a block, blocks of a group.
        configs: from the one without parent to the last.
        limit: rows to walk at most, but for the turn that reaches it.
        turn_rows: rows that a source gives at a time.

    Raises:
        RefusedError: a table shrank, or an END source has nothing left where a config starts.
    """
    found = Walk()
    turns: Turns | None = None
    path = path_of(configs)
    stops = [config.from_offset for config in path[1:]] + [limit]
    for config, stop in zip(path, stops, strict=True):
        readers = {}
        for source in config.sources:
            known = found.readers.get(source.name) or Reader(seed, source.name, shape)
            readers[source.name] = copy.deepcopy(known)
            readers[source.name].adopt(source.rows)
        turns = _walk_config(found, config, readers, turns, stop, turn_rows)
    return found


def _walk_config(
    found: Walk, config: ChainConfig, readers: dict[str, Reader], turns: Turns | None, stop: int, turn_rows: int
) -> Turns | None:
    """Walk one config up to the next; give whose turn it is then."""
    started = len(found.rows)
    found.ended = False
    while True:
        spent = [source for source in config.sources if readers[source.name].spent(source.max_epochs, turn_rows)]
        if any(source.ends_blend for source in spent):
            if len(found.rows) == started:
                raise RefusedError("exhausted")
            found.ended = True
            return turns
        active = [source for source in config.sources if source not in spent]
        if not active:
            found.ended = True
            return turns
        fresh = Turns(active)
        if turns is None or list(fresh.shares.items()) != list(turns.shares.items()):
            turns = fresh
        while True:
            if len(found.rows) >= stop:
                return turns
            name = turns.peek()
            if readers[name].spent(next(source.max_epochs for source in active if source.name == name), turn_rows):
                break
            turns.take(name)
            found.rows += [readers[name].give() for _ in range(turn_rows)]
            for other, share in turns.shares.items():
                found.readers[other] = readers[other]
                found.expected[other] = found.expected.get(other, Fraction(0)) + share * turn_rows

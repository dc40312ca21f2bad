"""Random histories of a blend: updates of every kind, each compared row by row with the simulator.

    python -m tests.blender_service.histories 10000 [FIRST]

prints what was tried and ends with an error at the first difference.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from dataclasses import replace

import numpy as np

from blender_service.exceptions import ExhaustedSourceError, ShrunkSourceError
from blender_service.order.resolve import BlendOrder
from blender_service.order.resolved_blend import Head, Update, decode_head, encode_head
from blender_service.order.segments import Pin, Segment, SourceOrder, cut_segments, resolve_segments
from blender_service.wire.rank_slice import Slice
from tests.blender_service.chain_simulator import (
    ChainConfig,
    ChainSource,
    RefusedError,
    SimulatedRow,
    Walk,
    path_of,
    walk,
)

ROWS_AHEAD = 60
SPAN = 90


class HistoryError(AssertionError):
    """The package and the simulator differ, or a law is broken."""


def source_order(source: ChainSource) -> SourceOrder:
    """Give the package's form of a source."""
    pin = Pin("", "", None if source.rows is None else "1", source.rows, "")
    return SourceOrder(source.name, source.weight, pin, source.max_epochs, source.ends_blend)


class History:
    """One blend and its updates, known to both sides."""

    def __init__(self, seed: int) -> None:
        """Draw a first config."""
        self.random = random.Random(seed)
        self.seed = self.random.getrandbits(64)
        self.shape = (self.random.choice([1, 2, 5, 16]), self.random.choice([1, 2, 3]))
        self.turn_rows = random.Random(self.seed).choice([1, 1, 1, 2, 3, 8])
        self.counts: Counter[str] = Counter()
        names = self.random.sample("abcdefgh", self.random.randint(1, 5))
        self.configs = [ChainConfig(0, tuple(self._new_source(name) for name in sorted(names)))]
        try:
            self.walked = self._walk(self.configs)
        except RefusedError:  # a source that ends the blend has no rows for a turn
            self.turn_rows = 1
            self.walked = self._walk(self.configs)
        orders = [source_order(source) for source in self.configs[0].sources]
        self.segments: list[Segment] = resolve_segments(orders, turn_rows=self.turn_rows)
        self.compare(self.segments, self.walked)

    def _new_source(self, name: str) -> ChainSource:
        chance = self.random.random()
        weight = self.random.choice([1, 1, 2, 3, 5, 8, 13])
        if chance < 0.2:
            return ChainSource(name, weight, None)
        ends = self.random.random() < 0.15
        return ChainSource(name, weight, self.random.randint(1, 40), self.random.choice([0, 0, 1, 2, 3]), ends)

    def update(self) -> None:
        """Draw an update and make it on both sides; either both refuse it, or both give the same rows."""
        end = len(self.walked.rows) if self.walked.ended else None
        last = path_of(self.configs)[-1].from_offset
        back = self.random.random() < 0.2
        from_offset = self.random.randint(0, last) if back else self.random.randint(last, last + ROWS_AHEAD)
        if end is not None and (from_offset > end or self.random.random() < 0.1):
            from_offset = end
        from_offset -= from_offset % self.turn_rows
        config = ChainConfig(from_offset, self._changed_sources())
        kept, refusal = cut_segments(self.segments, from_offset), ""
        try:
            orders = [source_order(source) for source in config.sources]
            segments = resolve_segments(orders, kept, from_offset, self.turn_rows)
        except (ExhaustedSourceError, ShrunkSourceError) as error:
            segments, refusal = [], type(error).__name__
        try:
            walked = self._walk([*self.configs, config])
        except RefusedError as error:
            self._expect(not segments, f"only the simulator refuses: {error}")
            self.counts[f"refused: {error}"] += 1
            return
        self._expect(bool(segments) or from_offset == 0, f"only the package refuses: {refusal}")
        self.counts["rewound" if from_offset < last else "updated"] += 1
        self._expect(walked.rows[:from_offset] == self.walked.rows[:from_offset], "the parent's rows changed")
        self.compare(segments, walked)
        self.configs.append(config)
        self.segments, self.walked = segments, walked

    def _changed_sources(self) -> tuple[ChainSource, ...]:
        """Draw what changes: sources go, come, come back, grow, shrink, become live or pinned, weigh more or less."""
        sources = {source.name: source for source in self.configs[-1].sources}
        reweight = self.random.random() < 0.5
        for name, source in list(sources.items()):
            chance = self.random.random()
            if chance < 0.15 and len(sources) > 1:
                del sources[name]
                continue
            covered = self.walked.readers[name].covered if name in self.walked.readers else 0
            changed = replace(source, weight=self.random.choice([1, 2, 3, 5, 7])) if reweight else source
            if chance < 0.4 and (source.rows is None or self.random.random() < 0.75):
                low = max(1, covered - (3 if self.random.random() < 0.1 else 0))
                changed = replace(changed, rows=low + self.random.randint(0, 25))
            elif chance < 0.4:
                changed = replace(changed, rows=None, max_epochs=0, ends_blend=False)
            elif chance < 0.5 and source.rows is not None:
                changed = replace(changed, max_epochs=self.random.choice([0, 1, 2, 4]), ends_blend=chance < 0.42)
            sources[name] = changed
        if self.random.random() < 0.3 and len(sources) < 6:
            name = self.random.choice([name for name in "abcdefgh" if name not in sources])
            sources[name] = self._new_source(name)
        return tuple(sources[name] for name in sorted(sources))

    def _walk(self, configs: list[ChainConfig]) -> Walk:
        return walk(self.seed, self.shape, configs, path_of(configs)[-1].from_offset + SPAN, self.turn_rows)

    def compare(self, segments: list[Segment], walked: Walk) -> None:
        """Compare every row, the end, the stored form, and one elastic run over the rows."""
        order = BlendOrder(self.seed, segments, *self.shape)
        count = len(walked.rows)
        if walked.ended:
            self._expect(order.end == count, f"ends at {order.end}, simulated {count}")
        self._expect(order.end is None or order.end >= count, f"ends at {order.end}, {count} rows were simulated")
        found = rows_of(order, np.arange(count))
        self._expect(found == walked.rows, "a row differs")
        per_epoch = Counter(found)
        self._expect(not per_epoch or max(per_epoch.values()) == 1, "a row comes twice in an epoch")
        turns = (found[at : at + self.turn_rows] for at in range(0, count, self.turn_rows))
        self._expect(all(len({name for name, *_ in turn}) == 1 for turn in turns), "a turn has rows of two sources")
        self.counts["turns"] += count if self.turn_rows > 1 else 0
        head = Head(tuple(segments), (Update("0" * 64, 0),))
        self._expect(decode_head("0" * 64, encode_head(head)) == head, "the stored head is another one")
        self._expect(self._elastic_run(count) == list(range(count)), "an elastic run lost or repeated a row")
        self.counts["rows"] += count

    def _elastic_run(self, count: int) -> list[int]:
        """Consume rows in global steps under changing world sizes, killed at random between steps."""
        consumed: list[int] = []
        offset = 0
        while offset < count:
            world = self.random.choice([1, 2, 3, 7, 13, 64, 97, 1021])
            step = min(world * self.random.choice([1, 2, 5]), count - offset)
            world = min(world, step)
            for rank in range(world):
                part = Slice(step, rank, world, uneven=True)
                consumed += range(offset + part.start, offset + part.start + part.rows)
            offset += step
        return consumed

    def _expect(self, holds: bool, problem: str) -> None:
        if not holds:
            shape = f"seed {self.seed}, shape {self.shape}, turns of {self.turn_rows}"
            raise HistoryError(f"{problem}: {shape}, configs {self.configs}")


def rows_of(order: BlendOrder, offsets: np.ndarray) -> list[SimulatedRow]:
    """Give rows as (name, epoch, ordinal)."""
    resolved = order.resolve(offsets)
    return [(order.names[s], e, o) for s, e, o in zip(*(column.tolist() for column in resolved), strict=True)]


def run_histories(first: int, count: int) -> Counter[str]:
    """Run some histories, and count what happened.

    Raises:
        HistoryError: the first difference, with what repeats it.
    """
    counts: Counter[str] = Counter()
    for seed in range(first, first + count):
        history = History(seed)
        for _ in range(history.random.randint(1, 6)):
            history.update()
        counts += history.counts
        counts["histories"] += 1
    return counts


if __name__ == "__main__":
    started = time.perf_counter()
    totals = run_histories(int(sys.argv[2]) if len(sys.argv) > 2 else 0, int(sys.argv[1]))
    print(f"{dict(totals)} in {time.perf_counter() - started:.0f} s: 0 differences")  # noqa: T201

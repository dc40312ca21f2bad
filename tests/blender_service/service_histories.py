"""Random histories through a real server and client: worlds to 1,024, kills, updates, appends, excisions, replicas.

    python -m tests.blender_service.service_histories 200

Some ranks read the lake without a server. Every row that training ranks consume is compared with the independent walk
of `chain_simulator` and with what was written to its table; prints what was tried and ends with an error at the first
difference.
"""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from blender_service.blend.requests import SourceChange, SourceSpec
from blender_service.client import BlenderClient
from blender_service.exceptions import ExhaustedSourceError, InvalidBlendError, OffsetOutOfRangeError, StateError
from blender_service.server.server import RunningServer, start
from blender_service.wire.rank_slice import Slice
from blender_service.wire.row_batch import RowBatch
from tests.blender_service.chain_simulator import ChainConfig, ChainSource, RefusedError, Walk, path_of, walk
from tests.blender_service.histories import HistoryError
from tests.blender_service.packed_tables import PackedFixture, Row, create_packed, open_lake
from tests.blender_service.rows.test_blend_reader import rows_of

WORLDS = (1, 2, 3, 5, 7, 13, 31)
LARGE_WORLDS = (97, 509, 1021, 1024)
AHEAD = 80
CELLS = {"c": ('{"k":0}',), "d": ('{"k":1}', '{"k":2}')}  # of one table, by source


class ServedHistory:
    """One training run from row 0 on, over everything that may happen to it."""

    def __init__(self, seed: int, folder: Path) -> None:
        """Make a lake of two tables and one of cells that two sources share, a server, and a first blend."""
        self.random = random.Random(seed)
        self.name = f"history {seed}"
        self.counts: Counter[str] = Counter()
        self.catalogue = open_lake(folder / "warehouse")
        self.tables: dict[str, PackedFixture] = {}
        for name in "abc":
            self.tables[name] = create_packed(self.catalogue, f"main.packed_{name}_16", cells=name == "c")
        self.tables["d"] = self.tables["c"]
        for name in "abcd":
            self._append(name, self.random.randint(1, 40))
        self.server: RunningServer = start(self.catalogue)
        self.client = BlenderClient(self.server.address, retry_seconds=30)
        with contextlib.chdir(folder):
            self.lake = BlenderClient("lake:")
        self.seed = self.random.getrandbits(64)
        self.shape = (self.random.choice([1, 2, 5, 16]), self.random.choice([1, 2, 3]))
        names = sorted(self.random.sample("abcd", self.random.randint(1, 4)))
        self.configs = [ChainConfig(0, tuple(self._new_source(name) for name in names))]
        self.turn_rows = random.Random(self.seed).choice([1, 1, 2, 6])
        if not self._has_turns(self.configs[0].sources):
            self.turn_rows = 1
        sources = [
            SourceSpec(
                self._place(source.name),
                str(source.weight),
                source.name,
                max_epochs=None if source.rows is None else source.max_epochs,
                on_exhausted=_on_exhausted(source),
                live=source.rows is None,
            )
            for source in self.configs[0].sources
        ]
        self.blend = self.client.create_blend(
            sources, seed=self.seed, block_rows=self.shape[0], group_blocks=self.shape[1], turn_rows=self.turn_rows
        ).blend_id
        self.offset = 0
        self.consumed: list[tuple[str, int, int]] = []

    def close(self) -> None:
        """Stop clients and server."""
        self.lake.close()
        self.client.close()
        self.server.stop(grace_seconds=0)

    def run(self) -> Counter[str]:
        """Train, and let things happen in between; give what happened."""
        for _ in range(self.random.randint(2, 5)):
            if self.random.random() < 0.6:
                self.update()
            if self.random.random() < 0.2:
                self.excise()
            if self.random.random() < 0.3:
                self.switch_replica()
            if not self.train():
                break
        self._expect(
            self.consumed == self._walk(self.configs, self.offset).rows[: self.offset], "what was consumed changed"
        )
        self.counts["rows"] += self.offset
        return self.counts

    def train(self) -> bool:
        """Take some global steps with some ranks, with a kill now and then; say whether the blend goes on."""
        large = self.random.random() < 0.02
        world = self.random.choice(LARGE_WORLDS if large else WORLDS)
        step_rows = world * self.random.randint(1, 1 if large else 3) + self.random.choice([0, 0, 1])
        steps = self.random.randint(1, 3)
        walked = self._walk(self.configs, self.offset + steps * step_rows)
        if walked.ended:
            steps = min(steps, (len(walked.rows) - self.offset) // step_rows)
        if steps == 0:
            return False
        until = self.offset + steps * step_rows
        late = self._lacking(walked, until)
        appender = threading.Thread(target=self._append_late, args=(late,))
        appender.start()
        killed_rank = self.random.randrange(world) if self.random.random() < 0.4 else -1
        rows: list[tuple[int, str, int, int]] = []
        for rank in range(world):
            part = Slice(step_rows, rank, world, uneven=True)
            rows += self._read_rank(part, steps, kill=rank == killed_rank)
        appender.join()
        self.counts["steps"] += steps
        self.counts["steps of turns"] += steps if self.turn_rows > 1 else 0
        self.counts["large worlds"] += world > WORLDS[-1]
        rows.sort()
        offsets = [row[0] for row in rows]
        self._expect(offsets == list(range(self.offset, until)), f"rows {self.offset} to {until} came as {offsets}")
        self.consumed += [row[1:] for row in rows]
        self._expect(self.consumed[self.offset :] == walked.rows[self.offset : until], "another row was consumed")
        self.offset = until
        return not walked.ended or len(walked.rows) > until

    def _read_rank(self, part: Slice, steps: int, kill: bool) -> Iterator[tuple[int, str, int, int]]:
        """Read one rank's part of some steps."""
        client = self.client if kill or self.random.random() < 0.5 else self.lake
        self.counts["reads without server"] += client is self.lake
        stream = client.read(
            self.blend, self.offset, steps * part.step_rows, part=part, max_batch_rows=2, wait_seconds=30
        )
        for number, batch in enumerate(stream):
            yield from self._checked(batch)
            if kill and number == 0:
                self.counts["kills"] += 1
                self.server.stop(grace_seconds=0)
                self.server = start(self.catalogue, port=self.server.port)

    def _checked(self, batch: RowBatch) -> Iterator[tuple[int, str, int, int]]:
        """Compare the content of rows with what was written; give where they come from."""
        for i, row in enumerate(rows_of(batch)):
            name, ordinal = batch.source_names[batch.sources[i]], int(batch.ordinals[i])
            written: Row = self.tables[name].rows[ordinal]
            self._expect(row == written, f"row {batch.offset + i} is not what {name} holds at {ordinal}")
            yield batch.offset + i, name, int(batch.epochs[i]), self._ordinals(name).index(ordinal)

    def excise(self) -> None:
        """Take a document out of a row, consumed or not, and go on at a server that starts after that."""
        table = self.tables[self.random.choice("abc")]
        several = [ordinal for ordinal, row in enumerate(table.rows) if len(row.segments) > 1]
        if several:
            table.excise(self.random.choice(several))
            self.switch_replica()
            self.counts["excisions"] += 1

    def switch_replica(self) -> None:
        """Go on at another server, which knows nothing but the lake."""
        self.client.close()
        self.server.stop(grace_seconds=0)
        self.server = start(self.catalogue)
        self.client = BlenderClient(self.server.address, retry_seconds=30)
        self.counts["replicas"] += 1

    def update(self) -> None:
        """Update the blend somewhere around where training stands; change over only if the server proves it safe."""
        for name in self.tables:
            if self.random.random() < 0.4:
                self._append(name, self.random.randint(1, 15))
        walked = self._walk(self.configs, self.offset + AHEAD)
        from_offset = max(0, self.offset + self.random.randint(-10, 30))
        if walked.ended:
            from_offset = min(from_offset, len(walked.rows))
        from_offset -= from_offset % self.turn_rows
        sources, changes = self._changes()
        config = ChainConfig(from_offset, sources)
        try:
            found: Walk | None = self._walk([*self.configs, config], max(from_offset, self.offset) + AHEAD)
        except RefusedError:
            found = None
        if not self._has_turns(sources):
            found = None
        try:
            child = self.client.update_blend(self.blend, from_offset, changes).blend_id
        except (InvalidBlendError, ExhaustedSourceError) as error:
            self._expect(found is None or from_offset == 0, f"only the server refuses: {error}")
            self.counts["refused updates"] += 1
            return
        self._expect(found is not None, "only the simulator refuses")
        try:
            self.client.prove_continuation(self.blend, child, self.offset)
        except (OffsetOutOfRangeError, StateError):  # the child may end before the offset
            self._expect(from_offset < self.offset and child != self.blend, "a safe change was refused")
            self.counts["refused changes"] += 1
            return
        self._expect(from_offset >= self.offset or child == self.blend, "an unsafe change was allowed")
        self.blend = child
        self.configs = [*self.configs, config]
        self.counts["updates"] += 1

    def _changes(self) -> tuple[tuple[ChainSource, ...], list[SourceChange]]:
        """Draw what an update does, for both sides."""
        old = {source.name: source for source in self.configs[-1].sources}
        sources: list[ChainSource] = []
        changes: list[SourceChange] = []
        for name in self.tables:
            weight = self.random.choice([1, 2, 3, 5])
            rows = len(self._ordinals(name))
            chance = self.random.random()
            if name not in old:
                if chance < 0.5:
                    source = replace(self._new_source(name), weight=weight)
                    sources.append(source)
                    changes.append(self._change(source, self._place(name), "" if source.rows is None else "main"))
                continue
            if chance < 0.15 and sum(other in old for other in self.tables) > 1 and (sources or name != max(old)):
                changes.append(SourceChange(name, remove=True))
                continue
            source = replace(old[name], weight=weight)
            snapshot = ""
            if chance < 0.35:
                source = replace(source, rows=None, max_epochs=0, ends_blend=False)
            elif chance < 0.7:
                source = replace(source, rows=rows)
                snapshot = "main"
            sources.append(source)
            changes.append(self._change(source, "", snapshot))
        return tuple(sources), changes

    def _change(self, source: ChainSource, table: str, snapshot: str) -> SourceChange:
        live = source.rows is None
        return SourceChange(
            source.name,
            table=table,
            weight=str(source.weight),
            snapshot=snapshot,
            max_epochs=None if live else source.max_epochs,
            on_exhausted=_on_exhausted(source),
            live=live,
        )

    def _new_source(self, name: str) -> ChainSource:
        weight = self.random.choice([1, 1, 2, 3, 5])
        if self.random.random() < 0.3:
            return ChainSource(name, weight, None)
        epochs = self.random.choice([0, 0, 1, 3])
        return ChainSource(name, weight, len(self._ordinals(name)), epochs, self.random.random() < 0.2)

    def _lacking(self, walked: Walk, until: int) -> dict[str, int]:
        """Count the rows that live tables do not have yet, of those that are read next."""
        needed: Counter[str] = Counter()
        for name, _, ordinal in walked.rows[:until]:
            needed[name] = max(needed[name], ordinal + 1 - len(self._ordinals(name)))
        return {name: count for name, count in needed.items() if count > 0}

    def _append_late(self, lacking: dict[str, int]) -> None:
        """Append what readers wait for, a little later."""
        for name, count in sorted(lacking.items()):
            time.sleep(0.2)
            self._append(name, count)
            self.counts["live appends"] += 1

    def _ordinals(self, name: str) -> list[int]:
        """Ordinals of a source's rows in its table, in their order."""
        table, of = self.tables[name], CELLS.get(name)
        return [ordinal for ordinal in range(len(table.rows)) if of is None or table.cells[ordinal] in of]

    def _place(self, name: str) -> str:
        """A source's table, with its cells."""
        return self.tables[name].identifier + {"c": "[k=0]", "d": "[k>=1]"}.get(name, "")

    def _append(self, name: str, count: int) -> None:
        table = self.tables[name]
        if name in CELLS:
            counts = Counter(self.random.choice(CELLS[name]) for _ in range(count))
            table.append_cells(len(table.rows) * 7 + ord(name), len(table.rows), counts, self.random.randint(1, 2))
            self.counts["appended cells"] += 1
            return
        table.append(count, seed=len(table.rows) * 7 + ord(name), increment=len(table.rows))

    def _walk(self, configs: list[ChainConfig], limit: int) -> Walk:
        return walk(self.seed, self.shape, configs, max(limit, path_of(configs)[-1].from_offset), self.turn_rows)

    def _has_turns(self, sources: Sequence[ChainSource]) -> bool:
        """Whether each source has rows for a turn."""
        return all(
            one.rows is None or not one.max_epochs or one.rows * one.max_epochs >= self.turn_rows for one in sources
        )

    def _expect(self, holds: bool, problem: str) -> None:
        if not holds:
            shape = f"seed {self.seed}, shape {self.shape}, turns of {self.turn_rows}"
            raise HistoryError(f"{self.name}: {problem}: {shape}, configs {self.configs}")


def _on_exhausted(source: ChainSource) -> Literal["END", "CONTINUE"] | None:
    if source.rows is None:
        return None
    return "END" if source.ends_blend else "CONTINUE"


def run_served_histories(first: int, count: int, folder: Path) -> Counter[str]:
    """Run some histories, and count what happened.

    Raises:
        HistoryError: the first difference, with what repeats it.
    """
    counts: Counter[str] = Counter()
    for seed in range(first, first + count):
        history = ServedHistory(seed, folder / str(seed))
        try:
            counts += history.run()
        finally:
            history.close()
        counts["histories"] += 1
    return counts


if __name__ == "__main__":
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        totals = run_served_histories(2_000_000, int(sys.argv[1]), Path(scratch))
    print(f"{dict(totals)} in {time.perf_counter() - started:.0f} s: 0 differences")  # noqa: T201

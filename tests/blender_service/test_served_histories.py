"""Random histories through the real lake, server and client: what ranks receive is what the simulator walks."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest
from pyiceberg.catalog import Catalog

from blender_service.client import Blend, BlenderClient, connect
from blender_service.exceptions import InvalidBlendError
from blender_service.server import RunningServer
from blender_service.serving import Blender
from blender_service.slices import Slice
from blender_service.specification import SourceChange, SourceSpec
from tests.blender_service.chain_simulator import ChainConfig, ChainSource, SimulatedRow, path_of, walk
from tests.blender_service.packed_tables import PackedFixture, create_packed
from tests.blender_service.test_reading import rows_of

Serve = Callable[..., RunningServer]
# All 200 that were asked for: HEADRACE_SERVED_HISTORIES=200 pytest tests/blender_service/test_served_histories.py
HISTORIES = int(os.environ.get("HEADRACE_SERVED_HISTORIES", "3"))
SPAN = 90


class ServedHistory:
    """One blend over three tables that grow, updated and read over the wire, through one of two replicas at random."""

    def __init__(self, seed: int, lake: Catalog, clients: list[BlenderClient]) -> None:
        """Make tables and a first blend."""
        self.random = random.Random(seed)
        self.blender = Blender(lake)
        self.clients = clients
        self.tables: dict[str, PackedFixture] = {}
        for name in ("code", "news", "prose"):
            self.tables[name] = create_packed(lake, f"h{seed}.packed_{name}_16").append(
                self.random.randint(5, 40), seed
            )
        self.blend = self.client.create_blend(
            [SourceSpec(t.identifier, self._weight(), n, **self._settings()) for n, t in self.tables.items()],
            seed=seed,
            block_rows=self.random.choice([2, 8]),
            group_blocks=self.random.choice([1, 3]),
        )
        self.configs = [self._config()]

    @property
    def client(self) -> BlenderClient:
        """One of the replicas."""
        return self.random.choice(self.clients)

    def _weight(self) -> str:
        return str(self.random.choice([1, 2, 3, 5]))

    def _settings(self) -> dict[str, object]:
        if self.random.random() < 0.25:
            return {"live": True}
        return {"max_epochs": self.random.choice([0, 0, 2, 4]), "on_exhausted": "CONTINUE"}

    def _config(self) -> ChainConfig:
        """Give the newest blend the simulator's form."""
        config = self.blender.config(self.blend.blend_id)
        sources = [
            ChainSource(s.name, s.weight, s.rows, s.max_epochs or 0, s.on_exhausted == "END") for s in config.sources
        ]
        return ChainConfig(int(config.from_offset or 0), tuple(sources))

    def update(self) -> None:
        """Let tables grow, and change the blend."""
        for seed, table in enumerate(self.tables.values()):
            if self.random.random() < 0.4:
                table.append(self.random.randint(1, 20), seed=len(table.rows) + seed, increment=len(table.rows))
        have = {source.name for source in self.blend.sources}
        changes = []
        for name, table in self.tables.items():
            if name in have and self.random.random() < 0.2 and len(have) > 1:
                changes.append(SourceChange(name, remove=True))
                have.discard(name)
            elif name in have or self.random.random() < 0.6:
                live = self.random.choice([None, None, True, False])
                snapshot = "main" if not live and self.random.random() < 0.7 else ""
                known = next((source for source in self.blend.sources if source.name == name), None)
                if snapshot and live is None and known is not None and known.live:
                    snapshot = ""
                changes.append(
                    SourceChange(name, table=table.identifier, weight=self._weight(), snapshot=snapshot, live=live)
                )
        last = path_of(self.configs)[-1].from_offset
        offset = self.random.randint(max(0, last - 10), last + 40)
        try:
            made: Blend = self.client.update_blend(self.blend.blend_id, offset, changes)
        except InvalidBlendError:
            return  # beyond the end, or a table that is live has fewer rows than were read: rightly refused
        self.blend = made
        self.configs.append(self._config())

    def check(self) -> None:
        """Compare what all ranks of a random world receive with the walk."""
        config = self.blender.config(self.blend.blend_id)
        limit = path_of(self.configs)[-1].from_offset + SPAN
        walked = walk(int(config.seed), (config.block_rows, config.group_blocks), self.configs, limit)
        there = self._rows_there(walked.rows)
        world = self.random.choice([1, 2, 3, 7])
        steps = there // (world * 2)
        received: dict[int, SimulatedRow] = {}
        for rank in range(world if steps else 0):
            part = Slice(world * 2, rank, world)
            for batch in self.client.read(self.blend.blend_id, 0, steps * world * 2, part=part, max_batch_rows=5):
                for i, row in enumerate(rows_of(batch)):
                    name, ordinal = batch.source_names[batch.sources[i]], int(batch.ordinals[i])
                    assert row == self.tables[name].rows[ordinal]
                    assert batch.offset + i not in received
                    received[batch.offset + i] = (name, int(batch.epochs[i]), ordinal)
        assert [received[offset] for offset in sorted(received)] == walked.rows[: steps * world * 2]
        assert sorted(received) == list(range(steps * world * 2))

    def _rows_there(self, rows: list[SimulatedRow]) -> int:
        """Count the rows before the first that a live table does not have yet."""
        missing = (at for at, (name, _, ordinal) in enumerate(rows) if ordinal >= len(self.tables[name].rows))
        return next(missing, len(rows))


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_ranks_receive_what_the_simulator_walks(seed: int, lake: Catalog, serve: Serve) -> None:
    """Appends, updates of every kind, rewinds, two replicas, changing worlds: 0 rows replayed, skipped or reordered."""
    with connect(serve().address) as first, connect(serve().address) as second:
        history = ServedHistory(seed, lake, [first, second])
        history.check()
        for _ in range(4):
            history.update()
            history.check()
        assert len(history.configs) > 1

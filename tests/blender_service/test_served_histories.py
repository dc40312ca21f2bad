"""Whatever happens to a training run, through a real server and client it consumes every row once, in order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from blender_service.client import row_stream
from blender_service.wire.row_batch import RowBatch
from tests.blender_service.histories import HistoryError
from tests.blender_service.service_histories import run_served_histories
from tests.tiers import tries

# All 200 that were asked for: HEADRACE_SERVED_HISTORIES=200 pytest tests/blender_service/test_served_histories.py
HISTORIES = int(os.environ.get("HEADRACE_SERVED_HISTORIES", tries(6, 4)))


@pytest.mark.nightly
def test_no_row_is_replayed_skipped_or_reordered(tmp_path: Path) -> None:
    """Under changing worlds, kills, updates, live appends and replicas the rows are those of the simulator."""
    counts = run_served_histories(0, HISTORIES, tmp_path)
    assert counts["histories"] == HISTORIES
    assert min(counts[name] for name in ("updates", "kills", "replicas", "steps", "reads without server")) > 0


def test_a_client_that_forgets_what_it_handed_out_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The histories can fail: a stream that starts its step again after a kill repeats rows, and they say so."""
    undelivered = row_stream._Position.undelivered

    def forgetful(self: row_stream._Position, batch: RowBatch) -> RowBatch | None:
        self.next_row = min(self.next_row, batch.offset)
        return undelivered(self, batch)

    monkeypatch.setattr(row_stream._Position, "undelivered", forgetful)
    with pytest.raises(HistoryError, match="came as"):
        run_served_histories(0, 40, tmp_path)

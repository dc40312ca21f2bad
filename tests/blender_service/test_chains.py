"""Updates: row for row the parent before, every source goes on where it was after, whatever the history."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blender_service.exceptions import ExhaustedSourceError, ShrunkSourceError
from blender_service.order import epochs, segments
from blender_service.order.epochs import ReadRun, ReadRuns, continue_read_runs, fresh_read_runs
from blender_service.order.interleave import Cycle
from blender_service.order.resolve import BlendOrder
from blender_service.order.segments import Pin, Segment, SourceOrder, cut_segments, resolve_segments
from tests.blender_service.histories import HistoryError, rows_of, run_histories
from tests.blender_service.order.plain_permutation import resolve_with_numpy
from tests.tiers import sampled, tries

GOLDEN = Path(__file__).with_name("chain_golden.json")
# All 10,000 that were asked for: HEADRACE_HISTORIES=10000 pytest tests/blender_service/test_chains.py
HISTORIES = int(os.environ.get("HEADRACE_HISTORIES", tries(200, 48)))
BIG = 10**12

consumed, _segment_at = segments.consumed, segments._segment_at


def source(name: str, weight: int, rows: int | None, max_epochs: int = 0, ends_blend: bool = False) -> SourceOrder:
    """Make a source; rows None: live."""
    return SourceOrder(name, weight, Pin("", "", None, rows, ""), max_epochs, ends_blend)


def order_of(resolved: list[Segment]) -> BlendOrder:
    """Give the order of segments, small blocks."""
    return BlendOrder(17, resolved, 4, 3)


def update(parent: list[Segment], from_offset: int, *sources: SourceOrder) -> list[Segment]:
    """Make an update."""
    return resolve_segments(sources, cut_segments(parent, from_offset), from_offset)


@sampled()
@pytest.mark.parametrize("part", range(4))
def test_random_histories_equal_the_simulator(part: int) -> None:
    """Adds, removals, resumes, new weights, growth, live tables and rewinds give what a row-by-row walk gives.

    Each history also checks that the parent's rows stay, that no row comes twice in an epoch, that refusals agree, that
    the stored head is the computed one, and that a run under changing world sizes consumes every row once.
    """
    share = HISTORIES // 4
    counts = run_histories(part * 1_000_000, share)
    assert counts["histories"] == share
    assert counts["updated"] > counts["histories"]
    assert counts["rewound"] > 0


def _extent_is_a_new_epoch(before: ReadRuns, consumed: int, old_rows: int | None, new_rows: int | None) -> ReadRuns:
    return tuple(
        read_run._replace(epoch=read_run.epoch + 1) if read_run.base else read_run
        for read_run in continue_read_runs(before, consumed, old_rows, new_rows)
    )


def _divide_by_the_new_size(before: ReadRuns, consumed: int, old_rows: int | None, new_rows: int | None) -> ReadRuns:
    return fresh_read_runs(new_rows)


def _exhausted_one_epoch_early(before: ReadRuns, max_epochs: int) -> int | None:
    return epochs.row_limit(before, max_epochs - 1) if max_epochs > 1 else epochs.row_limit(before, max_epochs)


def _forget_removed_sources(kept: list[Segment]) -> dict[str, segments.SourceProgress]:
    return consumed(kept[-1:])


def _sorted_by_ideal_place(weights: tuple[int, ...], turn_rows: int) -> Cycle:
    weights = tuple(weight // turn_rows for weight in weights)
    places = sorted(((j + 0.5) / weight, i, j) for i, weight in enumerate(weights) for j in range(weight))
    _, source, rank = zip(*places, strict=True)
    weights = tuple(weight * turn_rows for weight in weights)
    ranks = np.repeat(rank, turn_rows) * turn_rows + np.tile(np.arange(turn_rows), len(rank))
    return Cycle(weights, np.repeat(np.array(source, dtype=np.uint8), turn_rows), ranks.astype(np.int32))


def _without_phase(start: int, active: Any, taken: Any, limits: Any, before: Segment | None, turn_rows: int) -> Segment:
    return _segment_at(start, active, taken, limits, None, turn_rows)


def _rows_of_part_of_a_turn(rows: int | None, turn_rows: int) -> int | None:
    return rows


@pytest.mark.parametrize(
    ("function", "bug"),
    [
        ("continue_read_runs", _extent_is_a_new_epoch),
        ("continue_read_runs", _divide_by_the_new_size),
        ("row_limit", _exhausted_one_epoch_early),
        ("consumed", _forget_removed_sources),
        ("build_cycle", _sorted_by_ideal_place),
        ("_segment_at", _without_phase),
        ("turns_limit", _rows_of_part_of_a_turn),
    ],
)
def test_planted_bugs_are_found(monkeypatch: pytest.MonkeyPatch, function: str, bug: Callable[..., Any]) -> None:
    """The histories can fail: each of these mistakes, which all look right at a glance, is found within 120 of them."""
    monkeypatch.setattr(segments, function, bug)
    with pytest.raises(HistoryError):
        run_histories(0, 120)


def test_a_table_that_grows_in_mid_epoch_finishes_the_epoch_first() -> None:
    """Old rows keep their order, the new ones follow in the same epoch, then epochs go over all rows."""
    before = fresh_read_runs(4)
    after = continue_read_runs(before, 2, 4, 6)
    assert after == (ReadRun(0, 4, 0, 4, 0), ReadRun(4, 2, 4, 2, 0), ReadRun(6, None, 0, 6, 1))
    parent = resolve_segments([source("a", 1, 4)])
    found = rows_of(order_of(update(parent, 2, source("a", 1, 6))), np.arange(18))
    assert found[:4] == rows_of(order_of(parent), np.arange(4))
    assert sorted(o for _, e, o in found[4:6]) == [4, 5]
    assert [e for _, e, _ in found] == [0] * 6 + [1] * 6 + [2] * 6
    assert sorted(o for _, e, o in found if e == 1) == [0, 1, 2, 3, 4, 5]


def test_a_source_that_is_read_to_its_end_still_reads_what_comes_new() -> None:
    """With max_epochs 1 a table that grew after its last row was read goes on with the new rows."""
    parent = resolve_segments([source("a", 1, 4, 1)])
    assert order_of(parent).end == 4
    child = order_of(update(parent, 4, source("a", 1, 7, 1)))
    assert child.end == 7
    assert sorted(o for _, _, o in rows_of(child, np.arange(7))) == list(range(7))


def test_live_rows_come_in_order_and_are_shuffled_once_pinned() -> None:
    """A live source gives 0, 1, 2, ...; pinned at 10 after four rows, the six left come shuffled in epoch 0."""
    parent = resolve_segments([source("a", 1, None)])
    assert [o for _, _, o in rows_of(order_of(parent), np.arange(BIG, BIG + 3))] == [BIG, BIG + 1, BIG + 2]
    found = rows_of(order_of(update(parent, 4, source("a", 1, 10, 2))), np.arange(20))
    assert [o for _, _, o in found[:4]] == [0, 1, 2, 3]
    assert sorted(o for _, _, o in found[4:10]) == [4, 5, 6, 7, 8, 9]
    assert [e for _, e, _ in found] == [0] * 10 + [1] * 10


def test_updates_that_change_nothing_keep_the_phase() -> None:
    """1:1 updated after every row stays 1:1; if each update began a new cycle, one source would get all rows."""
    resolved = resolve_segments([source("a", 1, 10_000), source("b", 1, 10_000)])
    for offset in range(1, 200):
        resolved = update(resolved, offset, source("a", 1, 10_000), source("b", 1, 10_000))
    assert [name for name, _, _ in rows_of(order_of(resolved), np.arange(200))] == ["a", "b"] * 100


def test_read_runs_stay_few_however_long_the_chain() -> None:
    """Runs of reads of finished epochs are dropped at each update, so a thousand growths leave a handful."""
    resolved = resolve_segments([source("a", 1, 10), source("b", 2, 7)])
    for step in range(1, 1001):
        resolved = update(resolved, step * 9, source("a", 1 + step % 3, 10 + step // 4), source("b", 2, 7 + step // 5))
    assert max(len(part.read_runs) for segment in resolved for part in segment.parts) < 60
    assert len(rows_of(order_of(resolved), np.arange(9000))) == 9000


def test_a_table_that_shrank_below_what_was_read_is_refused() -> None:
    """What an epoch has promised cannot be taken back: naming rows that are gone, or skipping some, are both wrong."""
    parent = resolve_segments([source("a", 1, 10)])
    with pytest.raises(ShrunkSourceError, match="new name"):
        update(parent, 3, source("a", 1, 9))
    assert update(parent, 0, source("a", 1, 9))  # nothing was read yet


def test_an_end_source_with_nothing_left_refuses_the_update() -> None:
    """The child would end where it starts; the message names the ways out."""
    parent = resolve_segments([source("a", 1, 3, 1), source("b", 1, 50)])
    with pytest.raises(ExhaustedSourceError, match=r"source a .* raise its max_epochs, remove it, or set on_exhausted"):
        update(parent, 10, source("a", 1, 3, 1, ends_blend=True), source("b", 1, 50))


def test_compiled_rows_of_a_chain_equal_numpy() -> None:
    """Runs of reads of every kind, near and far, in any order of offsets."""
    resolved = resolve_segments([source("a", 3, 40), source("b", 2, None), source("c", 1, 9, 2)])
    resolved = update(resolved, 50, source("a", 3, 55), source("b", 2, 60), source("c", 1, 9, 2))
    resolved = update(resolved, 90, source("a", 1, 70), source("b", 2, None), source("d", 5, 1000))
    order = order_of(resolved)
    offsets = np.random.default_rng(3).permutation(np.concatenate([np.arange(300), BIG + np.arange(300)]))
    for compiled, plain in zip(order.resolve(offsets), resolve_with_numpy(order, offsets), strict=True):
        assert np.array_equal(compiled, plain)


def golden_values() -> dict[str, object]:
    """Compute what the golden file pins."""
    parent = resolve_segments([source("a", 5, 7), source("b", 3, 40, 1), source("c", 2, None)])
    grown = update(parent, 13, source("a", 5, 11), source("b", 3, 40, 1), source("c", 2, None))
    reweighted = update(grown, 20, source("a", 1, 11), source("b", 4, 40, 1), source("c", 1, 30, 1))
    removed = update(reweighted, 31, source("b", 4, 44, 1), source("c", 1, 30, 1))
    resumed = update(removed, 40, source("a", 2, 12), source("b", 1, None), source("c", 1, 30, 1))
    chains = {"parent": parent, "grown": grown, "reweighted": reweighted, "removed": removed, "resumed": resumed}
    return {"order_version": 1} | {
        name: [f"{n}:{e}:{o}" for n, e, o in rows_of(order_of(chain), np.arange(start, start + 20))]
        for (name, chain), start in zip(chains.items(), (0, 13, 20, 31, 40), strict=True)
    }


def test_golden_chains_never_change() -> None:
    """The committed file pins how updates are resolved: a run in progress must read the same rows after any upgrade."""
    assert golden_values() == json.loads(GOLDEN.read_text())

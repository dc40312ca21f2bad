"""How often rows are read by an offset: counted in closed form, and one by one."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from blender_service.order.offsets import reads_before
from blender_service.order.resolve import BlendOrder
from blender_service.order.segments import Pin, SourceOrder, resolve_segments
from tests.blender_service.histories import History, rows_of
from tests.tiers import tries


@pytest.mark.parametrize("seed", range(tries(500, 50)))
def test_counts_equal_those_of_the_rows(seed: int) -> None:
    """Of blends with updates of every kind: sources that grow, go live, are pinned, leave, come back, weigh more."""
    history = History(seed)
    for _ in range(random.Random(seed).randint(0, 8)):
        history.update()
    order = BlendOrder(history.seed, history.segments, *history.shape)
    end = min(order.end if order.end is not None else 600, 600)
    found = rows_of(order, np.arange(end))
    ordinals = np.arange(200)
    for offset in {0, 1, end, *random.Random(seed).choices(range(end + 1), k=6)} if end else {0}:
        counts = Counter((name, ordinal) for name, _, ordinal in found[:offset])
        for name in order.names:
            wanted = [counts[name, ordinal] for ordinal in ordinals]
            assert reads_before(order, name, offset, ordinals).tolist() == wanted, (seed, offset, name)


def test_far_offsets_cost_no_more_than_near_ones() -> None:
    """After 10^12 rows every row was read as often as another, or once less; some rows alone may be asked for."""
    pin = Pin("", "", "1", 3_000, "")
    segments = resolve_segments([SourceOrder("a", 1, pin, 0, True)])
    order, offset = BlendOrder(5, segments, 64, 4), 10**12 + 1_234
    counts = reads_before(order, "a", offset, np.arange(3_000))
    assert counts.sum() == offset and counts.max() - counts.min() == 1
    some = np.array([2_999, 7, 7])
    assert reads_before(order, "a", offset, some).tolist() == counts[some].tolist()

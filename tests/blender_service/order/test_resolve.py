"""The row order: equal to a slow simulator, complete, the same in every version."""

from __future__ import annotations

import hashlib
import itertools
import json
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blender_service.order.interleave import reduce_weights
from blender_service.order.offsets import offsets_of
from blender_service.order.resolve import BlendOrder, ResolvedRows, source_key
from blender_service.order.segments import Pin, SourceOrder, cut_segments, resolve_segments
from tests.blender_service.order.plain_permutation import resolve_with_numpy, shuffle, tweak
from tests.blender_service.simulator import SimulatedSource, simulate
from tests.tiers import tries

GOLDEN = Path(__file__).parents[1] / "order_golden.json"
BIG = 10**12


class Shape(NamedTuple):
    """A pinned source without its name."""

    weight: int
    rows: int
    max_epochs: int
    ends_blend: bool


source_orders = st.builds(
    Shape,
    weight=st.integers(1, 12),
    rows=st.integers(1, 60),
    max_epochs=st.integers(0, 3),
    ends_blend=st.booleans(),
)


def named(shapes: list[Shape]) -> list[SourceOrder]:
    """Name sources a, b, c, ..."""
    return [
        SourceOrder(chr(97 + i), weight, Pin("", "", "", rows, ""), max_epochs, ends_blend)
        for i, (weight, rows, max_epochs, ends_blend) in enumerate(shapes)
    ]


def build(shapes: list[Shape], seed: int = 17, block_rows: int = 8, group_blocks: int = 3) -> BlendOrder:
    """Build the order of sources named a, b, c, ..."""
    return BlendOrder(seed, resolve_segments(named(shapes)), block_rows, group_blocks)


def as_tuples(resolved: ResolvedRows) -> list[tuple[str, int, int]]:
    """Write resolved rows as (name, epoch, ordinal)."""
    return [(chr(97 + s), e, o) for s, e, o in zip(*(column.tolist() for column in resolved), strict=True)]


@given(
    st.lists(source_orders, min_size=1, max_size=6), st.integers(0, 2**64 - 1), st.integers(1, 20), st.integers(1, 5)
)
@settings(max_examples=tries(60))
def test_order_equals_a_row_by_row_simulator(
    sources: list[Shape], seed: int, block_rows: int, group_blocks: int
) -> None:
    """Closed forms and kernels give what a walk over explicit lists gives, END, CONTINUE and over-sampling included."""
    limit = 200
    order = build(sources, seed, block_rows, group_blocks)
    weights = reduce_weights([Fraction(source.weight) for source in sources])
    simulated = [
        SimulatedSource(chr(97 + i), Fraction(w), s.rows, s.max_epochs, "END" if s.ends_blend else "CONTINUE")
        for i, (s, w) in enumerate(zip(sources, weights, strict=True))
    ]
    expected, ended = simulate(seed, simulated, block_rows, group_blocks, limit)
    end = limit if order.end is None else min(order.end, limit)
    assert as_tuples(order.resolve(np.arange(end))) == expected
    if ended:
        assert order.end == len(expected)


@given(
    st.lists(source_orders, min_size=1, max_size=5),
    st.lists(source_orders, min_size=1, max_size=5),
    st.integers(1, 300),
    st.integers(1, 20),
    st.integers(1, 5),
)
@settings(max_examples=tries(60))
def test_offsets_of_a_row_are_those_that_resolve_to_it(
    before: list[Shape], after: list[Shape], at: int, block_rows: int, group_blocks: int
) -> None:
    """The inverse finds every read of every row, across epochs, sources that run out, updates and growth."""
    limit = 400
    segments = resolve_segments(named(before))
    grown = [shape._replace(rows=shape.rows + (before[i].rows if i < len(before) else 0), max_epochs=0)
             for i, shape in enumerate(after)]  # fmt: skip
    if segments and (segments[-1].end is None or segments[-1].end > at):
        segments = resolve_segments(named(grown), cut_segments(segments, at), at)
    order = BlendOrder(17, segments, block_rows, group_blocks)
    expected: dict[tuple[int, int], list[tuple[int, int]]] = {}
    resolved = order.resolve(np.arange(limit if order.end is None else min(order.end, limit)))
    for offset, (source, epoch, ordinal) in enumerate(zip(*(column.tolist() for column in resolved), strict=True)):
        expected.setdefault((source, ordinal), []).append((offset, epoch))
    for source, name in enumerate(order.names):
        rows = max(part.pin.rows or 0 for segment in segments for part in segment.parts if part.name == name)
        for ordinal in range(rows):
            found = list(itertools.takewhile(lambda read: read[0] < limit, offsets_of(order, name, ordinal)))
            assert found == expected.get((source, ordinal), [])


@pytest.mark.nightly
@given(st.lists(source_orders, min_size=1, max_size=5), st.lists(st.integers(0, 10**15), min_size=1, max_size=40))
@settings(max_examples=tries(60))
def test_compiled_order_equals_numpy_in_any_order_of_offsets(sources: list[Shape], offsets: list[int]) -> None:
    """The kernel and the NumPy form agree bit for bit, however far and in whatever order the offsets are."""
    order = build([source._replace(max_epochs=0) for source in sources])
    asked = np.array(offsets, dtype=np.int64)
    for compiled, plain in zip(order.resolve(asked), resolve_with_numpy(order, asked), strict=True):
        assert np.array_equal(compiled, plain)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 80), st.integers(1, 3)), min_size=1, max_size=6))
@settings(max_examples=tries(80))
def test_continue_reads_every_row_of_every_epoch_once(shapes: list[tuple[int, int, int]]) -> None:
    """With CONTINUE everywhere, the blend holds each row exactly max_epochs times, once an epoch."""
    order = build([Shape(weight, rows, epochs, False) for weight, rows, epochs in shapes])
    assert order.end == sum(rows * epochs for _, rows, epochs in shapes)
    found = as_tuples(order.resolve(np.arange(order.end)))
    assert len(set(found)) == len(found)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=8))
@settings(max_examples=tries(60))
def test_weights_equal_to_rows_read_all_in_one_segment(rows: list[int]) -> None:
    """A source is exhausted at the first slot it cannot fill, so END loses no row of an even blend."""
    sources = [Shape(count, count, 1, True) for count in rows]
    segments = resolve_segments(named(sources))
    assert len(segments) == 1
    assert segments[0].end == sum(rows)


def test_a_blend_of_endless_sources_has_no_end() -> None:
    """max_epochs 0 everywhere: every offset below 2**62 is valid."""
    order = build([Shape(2, 10, 0, True), Shape(1, 3, 0, False)])
    assert order.end is None
    far = order.resolve(np.arange(2**61, 2**61 + 30))
    assert np.bincount(far.source).tolist() == [20, 10]


@pytest.mark.parametrize(("rows", "end"), [(2**62 - 1, 2**62 - 1), (2**62, None)])
def test_a_blend_of_2_to_the_62_rows_has_no_end(rows: int, end: int | None) -> None:
    """Offsets are below it, so that an offset and the rows of a read fit an int64."""
    assert build([Shape(1, rows, 1, True)]).end == end


def test_a_blend_without_segments_has_no_row() -> None:
    """As one whose sources are all removed; nothing is asked of it, and nothing found."""
    order = BlendOrder(17, [], 8, 3)
    assert (order.end, order.names) == (0, ())
    assert [column.size for column in order.resolve(np.zeros(0, dtype=np.int64))] == [0, 0, 0]
    assert list(offsets_of(order, "a", 0)) == []


def test_small_tables_reach_every_order_about_as_often() -> None:
    """All 24 orders of 4 rows over 24,000 epochs: chi-square (23 degrees of freedom) below its 99.99% point of 58."""
    epochs = 24_000
    ordinals = build([Shape(1, 4, 0, True)]).resolve(np.arange(4 * epochs)).ordinal.reshape(epochs, 4)
    _, counts = np.unique(ordinals, axis=0, return_counts=True)
    assert counts.size == 24
    assert np.square(counts - epochs / 24).sum() / (epochs / 24) < 58


def test_dropped_source_leaves_the_others_in_proportion() -> None:
    """After a source runs out under CONTINUE, the rest goes on with its own weights reduced."""
    order = build([Shape(2, 4, 1, False), Shape(2, 1000, 1, True), Shape(4, 1000, 1, True)])
    first, second = order.segments
    assert [(part.name, part.weight, part.first_row) for part in first.parts] == [("a", 1, 0), ("b", 1, 0), ("c", 2, 0)]
    assert [(part.name, part.weight, part.first_row) for part in second.parts] == [("b", 1, 4), ("c", 2, 9)]
    assert (
        first.end == second.origin == second.start == 17
    )  # cycle cabc: slot 17 is the fifth of a, which has four rows


def golden_values() -> dict[str, object]:
    """Compute what the golden file pins."""
    word = tweak(source_key(17, "a"), 0, 0, 0)
    at_most = 4 * 3
    shuffles = {
        str(size): shuffle(np.arange(min(size, 20), dtype=np.uint64), word, size, 4, 3).tolist()
        for size in (at_most - 1, at_most, at_most + 1, 5 * at_most + 2)
    }
    three = build([Shape(5, 7, 0, True), Shape(3, 40, 0, True), Shape(2, 1000, 0, True)])
    dropping = build([Shape(1, 3, 1, False), Shape(1, 5, 2, False), Shape(2, 9, 1, True)])
    large = build(
        [Shape(5, 10**6, 0, True), Shape(3, 70_001, 0, True), Shape(2, 99, 0, True)], block_rows=2048, group_blocks=16
    )
    return {
        "order_version": 1,
        "shuffle_blocks_of_4_groups_of_3": shuffles,
        "three_sources_first_20": as_tuples(three.resolve(np.arange(20))),
        "dropping_sources": as_tuples(dropping.resolve(np.arange(dropping.end or 0))),
        "sha256_of_100000_rows_at_0": digest(large.resolve(np.arange(100_000))),
        "sha256_of_100000_rows_at_1000000000000": digest(large.resolve(np.arange(BIG, BIG + 100_000))),
    }


def digest(resolved: ResolvedRows) -> str:
    """Hash (source, epoch, ordinal) as little-endian int64, row after row."""
    return hashlib.sha256(np.column_stack(resolved).astype("<i8").tobytes()).hexdigest()


def test_golden_order_never_changes() -> None:
    """The committed file pins order version 1: a run in progress must read the same rows after any upgrade."""
    assert json.loads(json.dumps(golden_values())) == json.loads(GOLDEN.read_text())


@pytest.mark.parametrize("offset", [0, BIG])
def test_golden_digests_hold_for_the_numpy_form(offset: int) -> None:
    """The readable form gives the digests that the compiled one is pinned to (on 2,000 of their rows)."""
    large = build([Shape(5, 10**6, 0, True), Shape(3, 70_001, 0, True)], block_rows=2048, group_blocks=16)
    rows = np.arange(offset, offset + 2000)
    assert digest(large.resolve(rows)) == digest(resolve_with_numpy(large, rows))

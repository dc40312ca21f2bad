"""What a blend keeps to and others do not, and how it ends: against its rows, read one by one."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from blender_service.blend.config import BlendConfig, Source
from blender_service.blend.describe import ending_lines, source_ends
from blender_service.order.epochs import distinct_rows
from blender_service.order.interleave import build_cycle, parse_weight, reduce_weights
from blender_service.order.resolve import BlendOrder
from blender_service.order.resolved_blend import Head
from blender_service.order.segments import Pin, SourceOrder, resolve_segments
from headrace.tables.window_facts import WindowFacts
from tests.blender_service.histories import History, rows_of

WINDOW = WindowFacts(
    window_tokens=16, tokenizer_sha256="0" * 64, vocabulary_size=300, end_of_document_id=1, padding_id=0
)


def config_of(sources: Sequence[tuple[str, int, int, int, str]], seed: int = 0) -> BlendConfig:
    """A blend of sources (name, weight, rows, max_epochs, on_exhausted), ascending by name."""
    return BlendConfig(
        seed=str(seed), block_rows=4, group_blocks=2, window=WINDOW,
        sources=tuple(
            Source(name=name, table="main.packed_a_16", table_uuid=name, snapshot_id="1", rows=rows, generation="g",
                   weight=weight, max_epochs=epochs, on_exhausted=then)
            for name, weight, rows, epochs, then in sources
        ),
    )  # fmt: skip


def orders(seed: int, epochs: int, rows: int) -> list[list[tuple[str, int]]]:
    """(source, ordinal) of each row of each epoch of a blend of two sources, 1 : 1."""
    pins = [Pin("", name, "1", rows, "") for name in "ab"]
    segments = resolve_segments([SourceOrder(pin.table_uuid, 1, pin, 0, True) for pin in pins])
    found = rows_of(BlendOrder(seed, segments, 4, 2), np.arange(2 * rows * epochs))
    return [[(name, ordinal) for name, _, ordinal in found[2 * rows * e : 2 * rows * (e + 1)]] for e in range(epochs)]


sources = st.lists(
    st.tuples(st.integers(1, 9), st.integers(1, 30), st.integers(1, 3), st.sampled_from(["END", "CONTINUE"])),
    min_size=1,
    max_size=5,
).map(lambda drawn: [(name, *values) for name, values in zip("abcde", drawn, strict=False)])


@given(sources, st.integers(0, 2**64 - 1))
def test_a_blend_says_its_end(drawn: list[tuple[str, int, int, int, str]], seed: int) -> None:
    """Read to its end: who has no further row when its turn comes, and which rows nobody read."""
    config = config_of(drawn, seed)
    head = config.resolve()
    order, ends = config.order(head), source_ends(config, head)
    assert order.end is not None
    found = rows_of(order, np.arange(order.end))
    for name, _, rows, max_epochs, _ in drawn:
        mine = [(offset, ordinal) for offset, (source, _, ordinal) in enumerate(found) if source == name]
        assert ends[name].unread_rows == rows - len({ordinal for _, ordinal in mine})
        out = ends[name].runs_out_at
        assert (out is not None) == (len(mine) == rows * max_epochs)
        assert out is None or out > mine[-1][0]
    for out in {ends[name].runs_out_at for name, *_ in drawn} - {None}:
        # One of those without a row left there, given one epoch more, has its turn exactly there.
        without = [name for name, *_ in drawn if ends[name].runs_out_at == out]
        longer = ([(n, w, r, e + (n == name), then) for n, w, r, e, then in drawn] for name in without)
        turns = [rows_of(config_of(more, seed).order(), np.array([out]))[0][0] for more in longer]
        assert any(turn == name for turn, name in zip(turns, without, strict=True))
    lines = ending_lines(ends, order.end)
    assert sum(f"row {order.end:,}: the blend ends" in line for line in lines) >= 1
    assert ("every row of every source is read" in lines) == (not any(end.unread_rows for end in ends.values()))


@given(st.integers(0, 2**32))
def test_unread_rows_are_counted_through_updates(seed: int) -> None:
    """Sources that grow, go live, are pinned again, leave and come back: the rows read at least once, at any place."""
    history = History(seed)
    for _ in range(6):
        history.update()
    order = BlendOrder(history.seed, history.segments, *history.shape)
    end = min(order.end if order.end is not None else 400, 400)
    found = rows_of(order, np.arange(end))
    head = Head(tuple(history.segments), ())
    for segment in head.segments:
        stop = min(end, segment.end if segment.end is not None else end)
        if segment.start > stop:
            continue
        for part, rows in zip(segment.parts, segment.rows_at(stop), strict=True):
            mine = {ordinal for name, _, ordinal in found[:stop] if name == part.name}
            assert distinct_rows(part.read_runs, rows) == len(mine)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_two_seeds_differ_in_every_epoch(one: int, other: int) -> None:
    """A peer's later epochs know no seed."""
    if one == other:
        return
    mine, others = orders(one, 6, 40), orders(other, 6, 40)
    assert all(a != b for a, b in zip(mine, others, strict=True))
    assert len({tuple(epoch) for epoch in mine}) == 6


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(1, 5))
def test_another_epoch_changes_nothing_of_the_order_of_sources(seed: int, other: int, epoch: int) -> None:
    """Nor does another seed: at each prefix of each epoch the mix is as exact as in the first."""
    first, later = orders(seed, 6, 40)[0], orders(other, 6, 40)[epoch]
    assert [name for name, _ in first] == [name for name, _ in later]


@given(st.lists(st.integers(1, 99), min_size=1, max_size=8))
def test_a_weight_as_a_decimal_or_a_percentage_gives_one_cycle(percent: list[int]) -> None:
    """.62 or 62: a peer turns each into other whole numbers."""
    decimals = reduce_weights([parse_weight(f".{one:02d}") for one in percent])
    whole = reduce_weights([parse_weight(str(one)) for one in percent])
    assert decimals == whole == reduce_weights([Fraction(one, 100) for one in percent])
    assert np.array_equal(build_cycle(decimals).source, build_cycle(whole).source)

"""What a read holds between messages is bounded and may be taken back at any moment; its rows stay the same."""

from __future__ import annotations

import itertools
import random
import threading

import pytest
from pyiceberg.catalog import Catalog

from blender_service.blend.requests import BlendSpec, SourceSpec
from blender_service.rows.blend_reader import BlendReader
from blender_service.rows.held_rows import HeldRows
from blender_service.rows.row_limits import Bounds, ReadRows
from blender_service.server.blender import Blender
from blender_service.server.limits import StreamLimits
from blender_service.wire.rank_slice import Slice
from blender_service.wire.row_batch import decode
from tests.blender_service.packed_tables import PackedFixture
from tests.tiers import sampled

KIB = 1 << 10


@pytest.fixture
def endless(lake: Catalog, code: PackedFixture, prose: PackedFixture) -> BlendReader:
    """Rows of two tables without end."""
    blender, sources = Blender(lake), tuple(SourceSpec(one.identifier, max_epochs=0) for one in (code, prose))
    return blender.open(blender.create(BlendSpec(sources, block_rows=64)).blend_id)


@pytest.mark.nightly
def test_streams_that_wait_hold_the_share_of_now(endless: BlendReader) -> None:
    """What one holds from when it was alone it lets go when thousands came, and goes on with the rows that follow."""
    limits = StreamLimits(5000, 5000)
    limits.take("the first")
    with limits.holding() as held:
        messages = (decode(one.message) for one in endless.read_messages(0, bounds=limits.bounds, kept=held))
        batches = list(itertools.islice(messages, 20))
        before = held.byte_count
        for _ in range(2000):
            limits.take("the others")
        assert held.byte_count == 0 < 2 * limits.bounds().held_bytes < before
        batches += itertools.islice(messages, 200)
        assert held.byte_count <= limits.bounds().held_bytes
    rows = [row for batch in batches for row in batch.input_ids.tolist()]
    assert rows == [row for batch in endless.read(0, len(rows)) for row in batch.input_ids.tolist()]


@sampled()
@pytest.mark.parametrize("part", [None, Slice(24, 1, 3), Slice(7, 2, 3, uneven=True), Slice(5000, 0, 1)])
def test_rows_are_the_same_whenever_something_is_let_go(endless: BlendReader, part: Slice | None) -> None:
    """By another thread all the time, and with limits that change before each message."""
    step = part.step_rows if part else 1
    offset, rows = 1000 * step, 6000 // step * step or step
    batches = list(endless.read(offset, rows, part))
    plain = [row for batch in batches for row in zip(batch.ordinals.tolist(), batch.input_ids, strict=True)]
    dice, held, ended = random.Random(0), HeldRows(), threading.Event()

    def bounds() -> Bounds:
        return Bounds(dice.randrange(1, 4 * KIB), dice.randrange(1, 64 * KIB), dice.randrange(1, 4096))

    def let_go() -> None:
        while not ended.wait(1e-5):
            held.let_go()

    thread = threading.Thread(target=let_go)
    thread.start()
    reader, number = endless._begin(lambda piece: piece.batch, held, bounds, offset, rows, part, 0, 0, bool), 0
    for batch in reader:
        for ordinal, ids in zip(batch.ordinals.tolist(), batch.input_ids, strict=True):
            assert (ordinal, ids.tolist()) == (plain[number][0], plain[number][1].tolist())
            number += 1
    ended.set()
    thread.join()
    assert number == len(plain) > 1000


def test_rows_of_a_read_are_numbered() -> None:
    """They are those of the parts of its steps, and what is left of a part stands one after the other."""
    for part in (Slice(6), Slice(6, 1, 3), Slice(7, 1, 2, uneven=True)):
        rows = ReadRows(100, part, 3)
        listed = [100 + step * part.step_rows + part.start + row for step in range(3) for row in range(part.rows)]
        assert (
            [rows.offset_of(number) for number in range(rows.total)] == listed == rows.offsets(0, rows.total).tolist()
        )
        assert rows.offsets(2, 5).tolist() == listed[2:5]
        assert [rows.left_of_part(number) for number in range(part.rows)] == [*range(part.rows, 0, -1)]


def test_facts_of_short_windows_count(endless: BlendReader) -> None:
    """Windows of 16 tokens have more bytes of segments than of ids; messages and copies keep their bounds."""
    held, sizes = HeldRows(), []
    bounds = Bounds(message_bytes=16 * KIB, copied_bytes=64 * KIB, rows_ahead=512)
    for message in itertools.islice(endless.read_messages(0, bounds=lambda: bounds, kept=held), 200):
        sizes.append((len(message.message), held.byte_count))
    most, most_held = (max(column) for column in zip(*sizes, strict=True))
    assert 10 * KIB < most < 1.6 * 16 * KIB, "rows differ, and those of the copy before are measured"
    assert most_held < 1.2 * bounds.held_bytes

"""The head of a blend is read as it was written, and says up to where two blends hold the same rows."""

from __future__ import annotations

import hashlib
import json
import zlib

from hypothesis import given
from hypothesis import strategies as st

from blender_service.order.epochs import ReadRun
from blender_service.order.resolved_blend import Head, Update, decode_head, encode_head
from blender_service.order.segments import Part, Pin, Segment

numbers = st.integers(0, 2)
runs = st.builds(ReadRun, numbers, st.none() | numbers, numbers, numbers, numbers)
pins = st.builds(
    Pin, st.sampled_from(["a.b", "c.d"]), st.just("uuid"), st.none() | st.just("7"), st.none() | numbers, st.just("g")
)
parts = st.builds(
    Part,
    st.sampled_from("xyz"),
    st.integers(1, 3),
    numbers,
    st.none() | numbers,
    st.lists(runs, max_size=2).map(tuple),
    pins,
)
segments = st.builds(Segment, numbers, numbers, st.none() | numbers, st.lists(parts, max_size=3).map(tuple))
updates = st.builds(Update, st.sampled_from("pqr"), st.integers(0, 9))
heads = st.builds(Head, st.lists(segments, max_size=3).map(tuple), st.lists(updates, min_size=1, max_size=3).map(tuple))


@given(heads)
def test_a_head_is_read_as_it_was_written(head: Head) -> None:
    """Segments and lineage; names, pins and runs of reads that repeat are written once."""
    content = encode_head(head)
    assert decode_head(head.lineage[-1].blend_id, content) == head
    stored = json.loads(zlib.decompress(content.partition(b"\n")[2]))
    every = [part for segment in head.segments for part in segment.parts]
    assert len(stored["names"]) == len({part.name for part in every})
    assert len(stored["pins"]) == len({part.pin for part in every})
    assert len(stored["legs"]) == len({part.read_runs for part in every})


@given(heads)
def test_the_last_segment_ends_a_blend_and_the_last_update_names_it(head: Head) -> None:
    """Without a segment it has no row; of the pins of a source the latest counts."""
    assert head.end == ([0, *(segment.end for segment in head.segments)][-1])
    assert head.blend_id == head.lineage[-1].blend_id
    expected = {}
    for segment in head.segments:
        expected.update({part.name: part.pin for part in segment.parts})
    assert head.pins() == expected


def test_a_head_that_is_damaged_or_of_another_blend_or_version_is_none() -> None:
    """So that it is computed again: a changed byte, no digest, another id, another version."""
    head = Head((), (Update("first", 0), Update("mine", 5)))
    content = encode_head(head)
    assert decode_head("mine", content) == head
    assert decode_head("first", content) is None
    assert decode_head("mine", content[:-1]) is None
    assert decode_head("mine", b"") is None
    body = zlib.compress(
        json.dumps(json.loads(zlib.decompress(content.partition(b"\n")[2])) | {"head_version": 2}).encode()
    )
    other = hashlib.sha256(body).hexdigest().encode() + b"\n" + body
    assert decode_head("mine", other) is None


@given(
    st.lists(updates, min_size=1, max_size=4),
    st.lists(updates, max_size=3),
    st.lists(updates, max_size=3),
    st.booleans(),
)
def test_two_blends_share_their_rows_until_another_update_decides_one(
    common: list[Update], tail: list[Update], other_tail: list[Update], related: bool
) -> None:
    """The last update that begins at or before an offset decides it; nothing is shared without a common ancestor."""
    first, second = [*common, *tail], [*common, *other_tail]
    if not related:
        second = [Update("unrelated", 0), *second]
    heads_of = [Head((), tuple(lineage)) for lineage in (first, second)]

    def decider(lineage: list[Update], offset: int) -> int:
        return max((at for at, update in enumerate(lineage) if update.from_offset <= offset), default=-1)

    def same(offset: int) -> bool:
        at, other_at = decider(first, offset), decider(second, offset)
        return first[: at + 1] == second[: other_at + 1]

    if not related:
        assert heads_of[0].shares_rows_until(heads_of[1]) == 0
        return
    differing = [offset for offset in range(11) if not same(offset)]
    found = heads_of[0].shares_rows_until(heads_of[1])
    assert found == heads_of[1].shares_rows_until(heads_of[0])
    assert found == (differing[0] if differing else None)

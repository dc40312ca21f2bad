"""Messages that a client writes and reads by hand, against the classes that protobuf generates."""

from __future__ import annotations

from typing import Any

import pytest
from headrace.blender.v1 import blends_pb2, rows_pb2
from hypothesis import given
from hypothesis import strategies as st

from blender_service.client_messages import (
    Continuation,
    ReadRequest,
    blend_of,
    continuation_of,
    continuation_request,
    get_request,
)
from blender_service.exceptions import MalformedMessageError
from blender_service.slices import Slice
from blender_service.window import ExpectedWindow

COUNT = st.integers(0, 2**32 - 1)
OFFSET = st.integers(0, 2**62)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PARTS = st.none() | st.builds(Slice, COUNT, COUNT, COUNT, st.booleans())
WINDOWS = st.none() | st.builds(ExpectedWindow, COUNT, TEXT, COUNT, st.sampled_from([0, 2, 4]))
SOURCES = st.builds(
    blends_pb2.BlendSource,
    name=TEXT,
    table=TEXT,
    table_uuid=TEXT,
    snapshot_id=st.integers(0, 2**64 - 1),
    rows=OFFSET,
    weight=COUNT,
    max_epochs=COUNT,
    on_exhausted=st.sampled_from([0, 1, 2]),
    live=st.booleans(),
)
BLENDS = st.builds(
    blends_pb2.Blend,
    id=TEXT,
    names=st.lists(TEXT, max_size=3),
    config_json=TEXT,
    window=st.builds(
        blends_pb2.WindowFacts,
        window_tokens=COUNT,
        tokenizer_sha256=TEXT,
        vocabulary_size=COUNT,
        end_of_document_id=COUNT,
        padding_id=COUNT,
    ),
    sources=st.lists(SOURCES, max_size=3),
    seed=st.integers(0, 2**64 - 1),
    end=st.none() | OFFSET,
    parent=TEXT,
    from_offset=st.integers(-(2**63), 2**63 - 1),
)


@given(
    st.builds(
        ReadRequest,
        TEXT,
        OFFSET,
        OFFSET,
        PARTS,
        WINDOWS,
        COUNT,
        st.floats(0, 1e9, allow_nan=False, allow_infinity=False),
    )
)
def test_a_read_request_says_what_protobuf_would_say(request: ReadRequest) -> None:
    """Every field comes back from the generated class as it was put in; what is None is not there."""
    message = rows_pb2.ReadBlendRequest.FromString(request.encode())
    assert (message.blend, message.offset, message.rows) == (request.blend, request.offset, request.rows)
    assert (message.max_batch_rows, message.wait_seconds) == (request.max_batch_rows, request.wait_seconds)
    found = message.slice
    part = Slice(found.step_rows, found.rank, found.world_size, found.uneven) if message.HasField("slice") else None
    assert part == request.part
    wanted = message.expected
    facts = (wanted.window_tokens, wanted.tokenizer_sha256, wanted.vocabulary_size, wanted.token_bytes)
    assert (ExpectedWindow(*facts) if message.HasField("expected") else None) == request.expected


@given(BLENDS)
def test_a_blend_is_read_as_protobuf_reads_it(message: Any) -> None:
    """All fields of blend, window and sources, in the width and sign that the proto gives them."""
    blend = blend_of(message.SerializeToString())
    assert (blend.blend_id, list(blend.names), blend.config_json) == (message.id, message.names, message.config_json)
    assert (blend.seed, blend.parent, blend.from_offset) == (message.seed, message.parent, message.from_offset)
    assert blend.end == (message.end if message.HasField("end") else None)
    for name in ("window_tokens", "tokenizer_sha256", "vocabulary_size", "end_of_document_id", "padding_id"):
        assert getattr(blend, name) == getattr(message.window, name)
    assert len(blend.sources) == len(message.sources)
    for source, sent in zip(blend.sources, message.sources, strict=True):
        for name in ("name", "table", "table_uuid", "snapshot_id", "rows", "weight", "max_epochs", "live"):
            assert getattr(source, name) == getattr(sent, name)
        assert source.on_exhausted == {0: "", 1: "END", 2: "CONTINUE"}[sent.on_exhausted]


@given(TEXT, TEXT, OFFSET, st.none() | OFFSET)
def test_small_messages_agree_with_protobuf(first: str, second: str, offset: int, differs_from: int | None) -> None:
    """The requests for a blend and for a proof, and the proof."""
    assert blends_pb2.GetBlendRequest.FromString(get_request(first)).blend == first
    asked = blends_pb2.ProveContinuationRequest.FromString(continuation_request(first, second, offset))
    assert (asked.from_blend, asked.to_blend, asked.offset) == (first, second, offset)
    sent = blends_pb2.Continuation(from_id=first, to_id=second, offset=offset, differs_from=differs_from)
    assert continuation_of(sent.SerializeToString()) == Continuation(first, second, offset, differs_from)


def test_a_message_that_breaks_off_is_refused() -> None:
    """A blend cut inside a field is an error, not a blend with less in it."""
    content = blends_pb2.Blend(id="a" * 64).SerializeToString()
    with pytest.raises(MalformedMessageError, match="ends at"):
        blend_of(content[:-1])

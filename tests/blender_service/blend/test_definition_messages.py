"""What a client makes of the messages of `blends.proto`."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from blender_service.blend.definition_messages import Continuation, blend_of, continuation_of
from headrace.blender.v1 import blends_pb2

COUNT = st.integers(0, 2**32 - 1)
OFFSET = st.integers(0, 2**62)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
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


@given(BLENDS)
def test_a_blend_has_what_its_message_says(message: Any) -> None:
    """All fields of blend, window and sources; what is not set is None."""
    blend = blend_of(message)
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
def test_a_proof_has_what_its_message_says(first: str, second: str, offset: int, differs_from: int | None) -> None:
    """An offset of 0 and one that is not set are told apart."""
    sent = blends_pb2.Continuation(from_id=first, to_id=second, offset=offset, differs_from=differs_from)
    assert continuation_of(sent) == Continuation(first, second, offset, differs_from)

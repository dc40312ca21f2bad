"""Requests that define blends, and what describes them. Needs protobuf; reading does not, see `client_messages`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.blender.v1 import blends_pb2

from blender_service.client_messages import Blend, blend_of
from blender_service.specification import OnExhausted, SourceChange, SourceSpec, Stage

ON_EXHAUSTED: Final[Mapping[blends_pb2.OnExhausted, OnExhausted]] = {
    blends_pb2.ON_EXHAUSTED_END: "END",
    blends_pb2.ON_EXHAUSTED_CONTINUE: "CONTINUE",
}


@dataclass(frozen=True)
class SourceDescription:
    """A source of a blend at an offset, as the server tells it.

    Attributes:
        name: its identity.
        table: identifier in the catalogue.
        rows: rows read of it.
        tokens: tokens of those rows, padding included.
        expected_rows: rows that its weights promise.
        share: of all rows read.
        expected_share: of all rows, as the weights promise.
        epochs: passes done, as a fraction; None for a live source.
        runs_out_at: first offset with a slot that it cannot fill, None if there is none.
        active: whether it takes part where the blend goes on from the offset.
        live: whether it is followed as it grows.
        excised_documents: documents taken out of its table, None if that is not known.
    """

    name: str
    table: str
    rows: int
    tokens: int
    expected_rows: float
    share: float
    expected_share: float
    epochs: float | None
    runs_out_at: int | None
    active: bool
    live: bool
    excised_documents: int | None


@dataclass(frozen=True)
class SegmentDescription:
    """Offsets [start, end) with constant weights; end None: without end."""

    start: int
    end: int | None
    weights: dict[str, int]


@dataclass(frozen=True)
class BlendDescription:
    """The rows [0, offset) of a blend, as the server tells it: per source, and the segments of the whole blend."""

    blend: Blend
    offset: int
    tokens: int
    sources: tuple[SourceDescription, ...]
    segments: tuple[SegmentDescription, ...]


def create_request(
    sources: Sequence[SourceSpec],
    seed: int,
    name: str,
    block_rows: int,
    group_blocks: int,
    schedule: Sequence[Stage],
    allow_repeat: bool,
) -> bytes:  # one parameter per field of the message
    """Write the request that creates a blend."""
    return blends_pb2.CreateBlendRequest(
        sources=[source_message(source) for source in sources],
        seed=seed,
        name=name,
        block_rows=block_rows,
        group_blocks=group_blocks,
        schedule=[stage_message(stage) for stage in schedule],
        allow_repeat=allow_repeat,
    ).SerializeToString()


def update_request(parent: str, first: Stage, name: str, allow_repeat: bool, schedule: Sequence[Stage]) -> bytes:
    """Write the request that updates a blend."""
    return blends_pb2.UpdateBlendRequest(
        parent=parent,
        from_offset=first.from_offset,
        changes=[change_message(change) for change in first.changes],
        align=first.align,
        name=name,
        allow_repeat=allow_repeat,
        schedule=[stage_message(stage) for stage in schedule],
    ).SerializeToString()


def describe_request(blend: str, offset: int | None) -> bytes:
    """Write the request that describes a blend."""
    return blends_pb2.DescribeBlendRequest(blend=blend, offset=offset).SerializeToString()


def list_request(page_token: str) -> bytes:
    """Write the request for a page of blends."""
    return blends_pb2.ListBlendsRequest(page_token=page_token).SerializeToString()


def page_of(content: bytes) -> tuple[list[Blend], str]:
    """Read a page of blends, and the token of the next one."""
    page = blends_pb2.ListBlendsResponse.FromString(content)
    return [blend_of(blend.SerializeToString()) for blend in page.blends], page.next_page_token


def stage_message(stage: Stage) -> blends_pb2.Stage:
    """Give a stage of a schedule the form of the wire."""
    return blends_pb2.Stage(
        from_offset=stage.from_offset,
        changes=[change_message(change) for change in stage.changes],
        align=stage.align,
    )


def change_message(change: SourceChange) -> blends_pb2.SourceChange:
    """Give a change the form of the wire."""
    return blends_pb2.SourceChange(
        name=change.name,
        remove=change.remove,
        table=change.table,
        weight=change.weight,
        snapshot=change.snapshot,
        max_epochs=change.max_epochs,
        on_exhausted=on_exhausted_message(change.on_exhausted),
        live=change.live,
    )


def source_message(source: SourceSpec) -> blends_pb2.SourceSpec:
    """Give a source the form of the wire."""
    return blends_pb2.SourceSpec(
        table=source.table,
        name=source.name,
        weight=source.weight,
        snapshot=source.snapshot,
        max_epochs=source.max_epochs,
        on_exhausted=on_exhausted_message(source.on_exhausted),
        live=source.live,
    )


def description_of(content: bytes) -> BlendDescription:
    """Read what a blend has read at an offset."""
    message = blends_pb2.BlendDescription.FromString(content)
    return BlendDescription(
        blend=blend_of(message.blend.SerializeToString()),
        offset=message.offset,
        tokens=message.tokens,
        sources=tuple(_source_description_of(source) for source in message.sources),
        segments=tuple(
            SegmentDescription(
                segment.start,
                segment.end if segment.HasField("end") else None,
                dict(zip(segment.names, segment.weights, strict=True)),
            )
            for segment in message.segments
        ),
    )


def _source_description_of(source: blends_pb2.SourceDescription) -> SourceDescription:
    return SourceDescription(
        name=source.name,
        table=source.table,
        rows=source.rows,
        tokens=source.tokens,
        expected_rows=source.expected_rows,
        share=source.share,
        expected_share=source.expected_share,
        epochs=source.epochs if source.HasField("epochs") else None,
        runs_out_at=source.runs_out_at if source.HasField("runs_out_at") else None,
        active=source.active,
        live=source.live,
        excised_documents=source.excised_documents if source.HasField("excised_documents") else None,
    )


def on_exhausted_message(text: str | None) -> blends_pb2.OnExhausted:
    """Give what happens at the end of a source the form of the wire."""
    return next((value for value, known in ON_EXHAUSTED.items() if known == text), blends_pb2.ON_EXHAUSTED_UNSPECIFIED)

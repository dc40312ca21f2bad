"""Convert the server's values to messages of `blends.proto`, and requests to values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from blender_service.blend.config import BlendConfig, Source
from blender_service.blend.definition_messages import ON_EXHAUSTED, Description, on_exhausted_message, values_of
from blender_service.blend.requests import (
    DEFAULT_BLOCK_ROWS,
    DEFAULT_GROUP_BLOCKS,
    BlendSpec,
    SourceChange,
    SourceSpec,
    Stage,
    TextSpec,
    UpdateSpec,
)
from blender_service.order.resolved_blend import Head
from headrace.blender.v1 import blends_pb2
from headrace.tables.cells import parse_choice

SEGMENTS_SHOWN: Final = 1000  # as documented in blends.proto


def blend_message(config: BlendConfig, head: Head, names: Sequence[str], warnings: Sequence[str]) -> blends_pb2.Blend:
    """Describe a blend to a client."""
    chosen = {name: parse_choice(pin.cells).length_class for name, pin in head.pins().items() if pin.cells}
    return blends_pb2.Blend(
        id=config.blend_id,
        names=sorted(names),
        config_json=config.canonical_json().decode(),
        window=blends_pb2.WindowFacts(**config.window.model_dump()),
        sources=[_source_message(source) for source in config.sources],
        seed=int(config.seed),
        end=head.end,
        parent=config.parent or "",
        from_offset=int(config.from_offset or 0),
        warnings=warnings,
        turn_rows=config.turn_rows or 1,
        length_classes={name: length for name, length in chosen.items() if length is not None},
        windows=[
            blends_pb2.WindowSpan(
                from_offset=int(span.from_offset), window_tokens=span.window_tokens, leave_off=span.leave_off or ()
            )
            for span in config.windows or ()
        ],
    )


def description_message(
    blend: blends_pb2.Blend, description: Description, excised: Mapping[str, int], evals: Mapping[str, str]
) -> blends_pb2.BlendDescription:
    """Describe a blend at an offset to a client."""
    return blends_pb2.BlendDescription(
        blend=blend,
        offset=description.offset,
        tokens=description.tokens,
        sources=[
            blends_pb2.SourceDescription(
                **vars(source) | {"excised_documents": excised.get(source.name), "evals": evals.get(source.name, "")}
            )
            for source in description.sources
        ],
        segments=[
            blends_pb2.SegmentDescription(
                start=segment.start,
                end=segment.end,
                names=segment.weights.keys(),
                weights=segment.weights.values(),
            )
            for segment in description.segments[:SEGMENTS_SHOWN]
        ],
    )


def spec_of(request: blends_pb2.CreateBlendRequest) -> BlendSpec:
    """Read a request to create a blend."""
    read = {
        "sources": tuple(_source_spec_of(source) for source in request.sources),
        "block_rows": request.block_rows or DEFAULT_BLOCK_ROWS,
        "group_blocks": request.group_blocks or DEFAULT_GROUP_BLOCKS,
        "schedule": tuple(_stage_of(stage) for stage in request.schedule),
        "turn_rows": request.turn_rows or 1,
        "texts": _texts_of(request.texts) if request.HasField("texts") else None,
    }
    return BlendSpec(**values_of(request) | read)


def update_of(request: blends_pb2.UpdateBlendRequest) -> UpdateSpec:
    """Read a request to update a blend."""
    first = _stage_of(request)
    return UpdateSpec(
        parent=request.parent,
        stages=(first, *(_stage_of(stage) for stage in request.schedule)),
        name=request.name,
        allow_repeat=request.allow_repeat,
        evals=request.evals,
    )


def _source_message(source: Source) -> blends_pb2.BlendSource:
    fields = source.model_dump(exclude={"generation", "dropped", "runs", "unread", "unread_rows"})
    return blends_pb2.BlendSource(
        **fields
        | {"snapshot_id": int(source.snapshot_id or 0), "on_exhausted": on_exhausted_message(source.on_exhausted)}
    )


def _source_spec_of(source: blends_pb2.SourceSpec) -> SourceSpec:
    read = {"weight": source.weight or "1", "on_exhausted": ON_EXHAUSTED.get(source.on_exhausted)}
    return SourceSpec(**values_of(source) | read)


def _texts_of(texts: blends_pb2.TextSpec) -> TextSpec:
    return TextSpec(**{"tokenizer": "", **{name: value for name, value in values_of(texts).items() if value}})


def _stage_of(stage: blends_pb2.Stage | blends_pb2.UpdateBlendRequest) -> Stage:
    changes = tuple(_change_of(change) for change in stage.changes)
    return Stage(stage.from_offset, changes, stage.align, stage.window_tokens, tuple(stage.leave_off))


def _change_of(change: blends_pb2.SourceChange) -> SourceChange:
    return SourceChange(**values_of(change) | {"on_exhausted": ON_EXHAUSTED.get(change.on_exhausted)})

"""Between configs and the messages of `blends.proto`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from headrace.blender.v1 import blends_pb2

from blender_service.config import BlendConfig
from blender_service.order import BlendOrder
from blender_service.specification import DEFAULT_BLOCK_ROWS, DEFAULT_GROUP_BLOCKS, BlendSpec, SourceSpec


def blend_message(config: BlendConfig, order: BlendOrder, names: Sequence[str]) -> blends_pb2.Blend:
    """Describe a blend to a client."""
    window = config.window
    return blends_pb2.Blend(
        id=config.blend_id,
        names=sorted(names),
        config_json=config.canonical_json().decode(),
        window=blends_pb2.WindowFacts(
            window_tokens=window.window_tokens,
            tokenizer_sha256=window.tokenizer_sha256,
            vocabulary_size=window.vocabulary_size,
            end_of_document_id=window.end_of_document_id,
            padding_id=window.padding_id,
        ),
        sources=[
            blends_pb2.BlendSource(
                name=source.name,
                table=source.table,
                table_uuid=source.table_uuid,
                snapshot_id=int(source.snapshot_id),
                rows=source.rows,
                weight=source.weight,
                max_epochs=source.max_epochs,
                on_exhausted=(
                    blends_pb2.ON_EXHAUSTED_END if source.on_exhausted == "END" else blends_pb2.ON_EXHAUSTED_CONTINUE
                ),
            )
            for source in config.sources
        ],
        seed=int(config.seed),
        end=order.end,
    )


def spec_of(request: blends_pb2.CreateBlendRequest) -> BlendSpec:
    """Read what a client asks for."""
    return BlendSpec(
        sources=tuple(_source_spec_of(source) for source in request.sources),
        seed=request.seed,
        name=request.name,
        block_rows=request.block_rows or DEFAULT_BLOCK_ROWS,
        group_blocks=request.group_blocks or DEFAULT_GROUP_BLOCKS,
    )


def _source_spec_of(source: blends_pb2.SourceSpec) -> SourceSpec:
    on_exhausted: Literal["END", "CONTINUE"] = (
        "CONTINUE" if source.on_exhausted == blends_pb2.ON_EXHAUSTED_CONTINUE else "END"
    )
    return SourceSpec(
        table=source.table,
        weight=source.weight or "1",
        name=source.name,
        snapshot=source.snapshot,
        max_epochs=source.max_epochs if source.HasField("max_epochs") else 1,
        on_exhausted=on_exhausted,
        live=source.live,
    )

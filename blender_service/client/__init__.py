"""The Blender client: what a training job imports. Needs grpcio, protobuf and NumPy, nothing of the lake."""

from blender_service.blend.definition_messages import Blend, BlendDescription, BlendSource, Continuation
from blender_service.blend.requests import SourceChange, SourceSpec, Stage, TextSpec
from blender_service.client.blender_client import LIVE_WAIT_SECONDS, BlenderClient, connect
from blender_service.client.identity import Identity
from blender_service.client.row_stream import RowStream
from blender_service.wire.expected_window import ExpectedWindow
from blender_service.wire.rank_slice import Slice
from blender_service.wire.row_batch import RowBatch

__all__ = [
    "LIVE_WAIT_SECONDS",
    "Blend",
    "BlendDescription",
    "BlendSource",
    "BlenderClient",
    "Continuation",
    "ExpectedWindow",
    "Identity",
    "RowBatch",
    "RowStream",
    "Slice",
    "SourceChange",
    "SourceSpec",
    "Stage",
    "TextSpec",
    "connect",
]

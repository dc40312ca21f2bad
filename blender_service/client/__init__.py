"""The Blender client: what a training job imports. Needs grpcio, protobuf and NumPy, nothing of the lake."""

from blender_service.blend.definition_messages import Blend, BlendDescription, BlendSource
from blender_service.client.blender_client import LIVE_WAIT_SECONDS, BlenderClient, connect
from blender_service.client.channel import Identity

__all__ = [
    "LIVE_WAIT_SECONDS",
    "Blend",
    "BlendDescription",
    "BlendSource",
    "BlenderClient",
    "Identity",
    "connect",
]

"""Objectives are blended in the same lakes as texts."""

from tests.blender_service.conftest import lake, serve

__all__ = ["lake", "serve"]

"""Blender: streams deterministic weighted blends of packed tables to training jobs.

Read in this order: `order` (the row at an offset), `tables` (where its bytes are), `blend` (what a blend is and
how it is created), `rows` and `wire` (how rows become messages), `server` and `auth` (who is served, within which
limits), `client` and `torch` (what a training job imports; they need no lake).
"""

from blender_service.exceptions import BlenderError

__all__ = ["BlenderError"]

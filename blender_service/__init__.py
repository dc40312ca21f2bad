"""Blender: streams deterministic weighted blends of packed tables to training jobs.

Read in this order: `config` (what a blend is), `cycle`, `permutation`, `segments` and `order` (which row stands at an
offset), `packed_table` and `blocks` (where its bytes are), `creation` and `store` (how a blend comes to be), `wire`,
`service` and `server` (how rows travel), `interceptor`, `access` and `visibility` (who may see what), `operation`,
`audit`, `metrics` and `runs` (how it is run), `client` and `torch` (what a training job imports; they need no lake).
"""

from blender_service.exceptions import BlenderError

__all__ = ["BlenderError"]

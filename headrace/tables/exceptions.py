"""The errors of opening a lake and of reading its tables' facts.

LakeError                  the base: every message says what, where and how to mend it
+-- CatalogueError         the catalogue cannot be reached or its settings make no sense
|   +-- WrongLakeError     the open catalogue and warehouse are not of one lake
+-- PackedTableError       a packed table breaks its contract
+-- CellsError             a choice of cells cannot be read, or chooses nothing

Those of `spark_jobs` derive from the base. Blender raises errors of its own in their place (`lake_errors`), since its
clients have none of this package.
"""

from __future__ import annotations


class LakeError(Exception):
    """Base of all errors raised on purpose."""


class CatalogueError(LakeError):
    """The catalogue cannot be reached or its settings make no sense."""


class WrongLakeError(CatalogueError):
    """The open catalogue and warehouse are not of one lake, or files lie outside of it."""


class PackedTableError(LakeError):
    """A packed table breaks its contract: an array of windows with an explicit dense index."""


class CellsError(LakeError):
    """A choice of cells cannot be read, or chooses nothing."""

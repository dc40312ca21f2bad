"""Names of the policies to order files; a module of its own, so that configs load without compiled code."""

from __future__ import annotations

from typing import Literal

Policy = Literal["dependencies_first", "two_level", "depth_first", "path", "random"]

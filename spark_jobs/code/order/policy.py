"""Names of the policies that order the files of a repository; here alone, so that config needs no compiled code."""

from __future__ import annotations

from typing import Literal

Policy = Literal["dependencies_first", "two_level", "depth_first", "path", "random"]

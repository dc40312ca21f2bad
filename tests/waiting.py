"""Wait for what another thread or process will do, without a bound: pyproject.toml ends a test that hangs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

_POLL_SECONDS = 0.02


def until(condition: Callable[[], Any]) -> Any:
    """Look again and again until something is true; gives what was found."""
    while not (found := condition()):
        time.sleep(_POLL_SECONDS)
    return found

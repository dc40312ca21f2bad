"""What takes long is told as it begins, on a logger of its own, which the command `headrace` prints."""

from __future__ import annotations

import logging
from typing import Final

PROGRESS: Final = "headrace.progress"


def tell(text: str) -> None:
    """Say in one line what takes long now."""
    logging.getLogger(PROGRESS).info("%s", text)

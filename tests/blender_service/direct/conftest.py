"""No test may leave a receiver behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.blender_service.http2.made_service import until


def receivers() -> int:
    """Count the threads that receive."""
    return sum(thread.name == "blend-receiver" for thread in threading.enumerate())


@pytest.fixture(autouse=True)
def _leaves_nothing() -> Iterator[None]:
    yield
    until(lambda: receivers() == 0)

"""What the packaging tests share: where the repository is."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of this checkout."""
    return Path(__file__).resolve().parents[2]

"""What the tests of formats share: the child that parses ends with each module."""

from collections.abc import Iterator

import pytest

from spark_jobs.child_processes import end_idle_children


@pytest.fixture(scope="module", autouse=True)
def no_child_is_left() -> Iterator[None]:
    """One child for the tests of a module."""
    yield
    end_idle_children()

"""What the tests of formats share: the child that parses ends with each module."""

from collections.abc import Iterator

import pytest

from spark_jobs.sources.opening import parser_process


@pytest.fixture(scope="module", autouse=True)
def no_child_is_left() -> Iterator[None]:
    """One child for the tests of a module."""
    yield
    parser_process.stop()

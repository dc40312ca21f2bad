"""How much a test tries in each tier: the default run ends while one waits, the nightly run looks further.

Hypothesis's profile `default` draws the same examples every time; `make test-all` takes `nightly` instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import settings

Test = TypeVar("Test", bound=Callable[..., Any])

# For tests whose subject is Spark's side of a seam: session, writer, arrangement, errors. In the default tier they run
# on Spark as well as on Sail; all others run on Spark in the long tier alone.
on_spark = pytest.mark.spark


def needs_spark(test: Test) -> Test:
    """Mark a test of Spark alone."""
    is_sail = os.environ.get("HEADRACE_ENGINE") == "sail"
    return on_spark(pytest.mark.skipif(is_sail, reason="asks Spark itself")(test))


def sampled(cases: int = 1) -> pytest.MarkDecorator:
    """Mark a parametrised test: so many of its cases, spread evenly, run in the default tier; in the long one all."""
    return pytest.mark.sampled(cases)


def leave_cases_out(items: list[pytest.Item]) -> None:
    """Mark the cases as nightly that `sampled` leaves out of the default tier: 4 of 0 to 8 keep 0, 2, 4 and 6."""
    by_test: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled") is not None and item.get_closest_marker("nightly") is None:
            by_test.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in by_test.values():
        mark = cases[0].get_closest_marker("sampled")
        count = mark.args[0] if mark is not None else 0
        kept = {len(cases) * number // count for number in range(count)}
        for number, case in enumerate(cases):
            if number not in kept:
                case.add_marker(pytest.mark.nightly)


DEFAULT_EXAMPLES = 6

# A loaded machine is no reason for an example to fail, so neither profile has a deadline.
settings.register_profile("default", max_examples=DEFAULT_EXAMPLES, derandomize=True, deadline=None)
settings.register_profile("nightly", max_examples=100, print_blob=True, deadline=None)


def use_default_tier() -> None:
    """Take the profile of the default run."""
    settings.load_profile("default")


def is_nightly() -> bool:
    """Whether the long tier runs: `--hypothesis-profile=nightly` was given."""
    return settings.get_current_profile_name() == "nightly"


def tries(nightly: int, default: int = DEFAULT_EXAMPLES) -> int:
    """How many random tries a test makes: `nightly` in the long tier, otherwise `default` at most."""
    return nightly if is_nightly() else min(nightly, default)

"""How much a test tries in each tier: the default run ends while one waits, the nightly run looks further.

Hypothesis's profile `default` draws the same examples every time; `make test-all` takes `nightly` instead.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

needs_spark = pytest.mark.skipif(os.environ.get("HEADRACE_ENGINE") == "sail", reason="asks Spark itself")

DEFAULT_EXAMPLES = 25

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

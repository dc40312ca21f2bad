"""What is said of a document that a selection left out, whatever of value and bound the selection gave."""

from __future__ import annotations

import pytest

from dagster_project.inspect.documents.selection_findings import failed_rule


@pytest.mark.parametrize(
    ("value", "threshold", "said"),
    [
        (None, None, "shouts"),
        (4.0, None, "shouts (4)"),
        (None, 3.0, "shouts (the bound is 3)"),
        (4.5, 3.0, "shouts (4.5, the bound is 3)"),
        (0.0, 0.0, "shouts (0, the bound is 0)"),
    ],
)
def test_a_failed_rule_says_what_there_is(value: float | None, threshold: float | None, said: str) -> None:
    """Both may be missing, each by itself; 0 is a number."""
    assert failed_rule({"rule": "shouts", "value": value, "threshold": threshold}) == said

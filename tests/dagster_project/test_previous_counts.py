"""A run that computes nothing reads no rows for the notices of its tables: Dagster has their counts already."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import dagster as dg

from dagster_project.metadata import previous_counts
from spark_jobs.lake.declare.tables import Notice
from spark_jobs.lake.ledger.materialization import Materialization
from spark_jobs.sources.documents import ARRIVALS

NOTICE = cast(Notice, ARRIVALS.notice)
LATEST = cast(Materialization, SimpleNamespace(step_key="k"))


def metadata(**values: Any) -> dict[str, Any]:
    """Metadata as Dagster gives it back."""
    return {name: dg.MetadataValue.json(value) if isinstance(value, dict) else dg.MetadataValue.text(value)
            for name, value in values.items()}  # fmt: skip


def test_counts_of_the_same_increment_are_known() -> None:
    """Counts of an increment with the same step key hold; no such metadata means that no row was rejected."""
    counts = {"binary": 2, "too_large": 1}
    assert previous_counts(NOTICE, metadata(step_key="k", **{NOTICE.called: counts}), LATEST) == counts
    assert previous_counts(NOTICE, metadata(step_key="k"), LATEST) == {}


def test_counts_of_another_increment_must_be_read() -> None:
    """Without a materialization of the newest increment in Dagster, the rows are asked."""
    assert previous_counts(NOTICE, metadata(step_key="other"), LATEST) is None
    assert previous_counts(NOTICE, {}, LATEST) is None
    assert previous_counts(NOTICE, metadata(step_key="k"), None) is None

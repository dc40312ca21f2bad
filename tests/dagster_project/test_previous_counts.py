"""A run that computes nothing reads no rows for the notices of its tables: Dagster has their counts already."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import dagster as dg
import pytest

from dagster_project import asset_checks
from dagster_project.metadata import notice_metadata, previous_counts
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


def test_what_the_source_does_not_take_is_counted_and_no_warning() -> None:
    """Files of other kinds stand behind the faults, in a count of their own; a fault more than before warns."""
    counts = {"other_kind": 7, "binary": 1, "hidden": 2}
    shown = notice_metadata(NOTICE, "r.arrivals", counts, 9)
    assert shown["notice"].startswith(
        "1 of 10 rejected: binary 1; 9 left out: other_kind 7, hidden 2; look: headrace table"
    )
    assert (shown["rejected"], shown["rejected_share"]) == (counts, 0.1)
    assert notice_metadata(NOTICE, "r.arrivals", {"hidden": 2}, 9)["notice"].startswith("2 left out: hidden 2; look:")
    assert {"other_kind", "hidden", "unknown_format"} <= set(NOTICE.expected) and "binary" not in NOTICE.expected


@pytest.mark.parametrize(
    ("counts", "passed"), [({"hidden": 2, "other_kind": 1}, True), ({"hidden": 2, "binary": 1}, False)]
)
def test_only_faults_warn(monkeypatch: pytest.MonkeyPatch, counts: dict[str, int], passed: bool) -> None:
    """In a first run, before which there were none of either."""
    monkeypatch.setattr(asset_checks, "load_table", lambda *_: None)
    monkeypatch.setattr(asset_checks, "notice_counts", lambda *_: counts)
    outcome = cast(Any, SimpleNamespace(identifier="r.arrivals", latest=LATEST))
    _, check = asset_checks.notice_result(ARRIVALS, NOTICE, outcome, 9, {}, cast(Any, None))
    assert check.passed is passed

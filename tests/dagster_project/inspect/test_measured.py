"""A share of nothing is none: what shows shares says so, and no zero, one or empty text stands for it."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_project.cli.data import corpora, thresholds
from dagster_project.cli.output import print_table
from dagster_project.cli.quality import policy
from dagster_project.inspect.corpora import funnel
from dagster_project.inspect.corpora.funnel import FunnelStage
from dagster_project.inspect.corpora.policy_preview import DocumentVolume, Preview
from dagster_project.inspect.documents.failed_documents import _distance
from dagster_project.inspect.lake import corpus_facts
from dagster_project.inspect.measured import NOT_MEASURED, share_of, share_text

THRESHOLDS = ("exact_removed", "near_removed", "repository_removed", "kept", "member", "component")


@given(part=st.integers(0, 10**12), more=st.integers(0, 10**12))
def test_a_share_is_of_something(part: int, more: int) -> None:
    """None of nothing, otherwise between 0 and 1; the text of none is no number."""
    share = share_of(part, part + more)
    assert (share is None) == (part + more == 0)
    assert share is None or 0 <= share <= 1
    assert (share_text(share) == NOT_MEASURED) == (share is None)


def _threshold_row() -> None:
    counts = {f"{name}_count": 0 for name in THRESHOLDS}
    sizes = {"kept_byte_count": 0, "removed_byte_count": 0, "largest_component": 0, "threshold": 0.8}
    print_table([thresholds._readable({**counts, **sizes})])


def _preview() -> None:
    nothing = DocumentVolume(0, 0, 0)
    policy._print(Preview("notes", "strict@1", "", nothing, nothing, 4.0, False, ()))


def _funnel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "lake_catalogue", lambda: None)
    monkeypatch.setattr(corpus_facts, "find_corpus", lambda *_: None)
    monkeypatch.setattr(funnel, "funnel", lambda *_: [FunnelStage("documents", 0, 0, 0, 0)])
    corpora._print_funnel("main", False)


SHOWN: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "corpus show --thresholds of no member": lambda patch: _threshold_row(),
    "policy preview of no document": lambda patch: _preview(),
    "corpus show of no token": _funnel,
}


@pytest.mark.parametrize("what", SHOWN)
def test_a_command_says_that_a_share_was_not_measured(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no percentage beside it."""
    monkeypatch.setenv("COLUMNS", "200")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        SHOWN[what](monkeypatch)
    assert NOT_MEASURED in out.getvalue() and "%" not in out.getvalue()


def test_a_value_that_was_not_measured_is_far_from_its_bound() -> None:
    """Documents nearest to a threshold come first; one without a value is the last."""
    distances = [_distance({"value": value, "threshold": 4.0}) for value in (3.0, 400.0, None)]
    assert distances == sorted(distances) and len(set(distances)) == 3

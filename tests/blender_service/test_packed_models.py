"""The page of frameworks says of each model which call keeps the documents of a window apart."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is in the extra torch")
pytest.importorskip("transformers", reason="transformers is in the extra transformers")

from tests.blender_service.packed_models import TABLE, Outcome, is_measurable, measure_all, safe_call, tiny
from tests.tiers import sampled

PAGE = (Path(__file__).parents[2] / "docs" / "feed" / "frameworks.md").read_text("utf-8")


_ROWS = {call: re.search(rf"^\| {re.escape(call)} \|(.*)\|$", PAGE, re.MULTILINE) for call in TABLE}
STATED = {name: call for call, row in _ROWS.items() if row for name in re.findall(r"`([^`]+)`", row[1])}
QUICK = ("llama", "mistral", "gpt_oss", "mamba")


@functools.cache
def measured_of(model_type: str) -> dict[str, Outcome]:
    """What each call of a tiny model leaks, for all tests once."""
    return measure_all(tiny(model_type))


@sampled()
@pytest.mark.parametrize(
    "model_type", [*QUICK, *(pytest.param(name, marks=pytest.mark.nightly) for name in STATED if name not in QUICK)]
)
def test_the_page_names_the_call_that_keeps_documents_apart(model_type: str) -> None:
    """The first of the table's calls by which a document has the logits that it has alone, whatever comes before."""
    measured = measured_of(model_type)
    assert is_measurable(measured), measured
    assert safe_call(measured) == STATED[model_type], measured


@sampled()
@pytest.mark.parametrize("model_type", QUICK)
def test_every_call_leaks_where_nothing_is_said(model_type: str) -> None:
    """Positions with a cache, or beside a mask of ones, keep nothing apart, as the page warns."""
    measured = measured_of(model_type)
    assert min(measured[name].leak for name in ("cached", "ones", "nothing")) > 0.1

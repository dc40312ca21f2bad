"""What patterns find of personal data that is made from public rules, whatever stands around it."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from headrace_features.privacy.personal_data.find import score
from tests.headrace_features.privacy.personal_data.public_formats import MAKERS, negative, planted
from tests.tiers import tries


@pytest.mark.parametrize("kind", MAKERS)
def test_values_by_public_rules_are_found_in_any_company(kind: str) -> None:
    """Formats, separators and neighbours of all scripts, labels of fifteen languages: .95 by exact span and kind."""
    rng = random.Random(f"public {kind}")
    cases = [planted(rng, kind) for _ in range(tries(8000, 500))]
    found = score(pa.array([text for text, _ in cases]))["spans"].to_pylist()
    right = 0
    for (_, truth), spans in zip(cases, found, strict=True):
        right += truth[0] in {(span["start"], span["end"], span["kind"]) for span in spans}
    others = sum(map(len, found)) - right
    assert right >= 0.95 * len(cases) and others <= 0.02 * len(cases)


def test_what_only_has_such_forms_is_left_alone() -> None:
    """Versions, ISBNs, timestamps, hashes, paths of pictures and ids: fewer than 1 line in 500 has a finding."""
    rng = random.Random(19)
    lines = [negative(rng) for _ in range(tries(50_000, 4000))]
    assert sum(map(len, score(pa.array(lines))["spans"].to_pylist())) <= len(lines) / 500

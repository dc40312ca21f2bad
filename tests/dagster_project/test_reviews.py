"""What people decide of removed documents: recorded and counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from scipy.stats import binomtest

from dagster_project.exceptions import CommandError
from dagster_project.inspect.corpora import reviews
from headrace.tables.settings import settings_at
from spark_jobs.filters.verdicts import VERDICTS
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.session.catalogue import ensure_table, open_catalogue

COUNT = 40


@pytest.fixture
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A lake with verdicts: every second document failed `digits`, every third `words`."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    settings = settings_at(tmp_path / "lake")
    for name, value in settings.properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    opened = open_catalogue(settings)
    verdicts = []
    for number in range(COUNT):
        failed = [{"rule": "digits", "value": number / COUNT, "threshold": 0.5}] if number % 2 == 0 else []
        failed += [{"rule": "words", "value": None, "threshold": None}] if number % 3 == 0 else []
        place = {"increment": number % 2, "shard": 0, "doc_id": f"{number:032x}"}
        verdicts.append({**place, "kept": not failed, "failed": failed})
    table = ensure_table(opened, "web.verdicts", VERDICTS, {})
    table.append(pa.Table.from_pylist(verdicts, schema=table.schema().as_arrow()))
    return opened


def decided(number: int, decision: str) -> dict[str, Any]:
    """A decision on one of the documents."""
    return {"doc_id": f"{number:032x}", "rule": "digits", "value": 0.6, "threshold": 0.5, "decision": decision}


def test_decisions_are_recorded_and_the_newest_of_a_person_counts(catalogue: Catalog) -> None:
    """Two persons, one changes her mind; where they disagree a document counts as unsure."""

    def decide(person: str, *said: str) -> None:
        rows = [decided(2 * place, one) for place, one in enumerate(said)]
        assert reviews.record(catalogue, "web.verdicts", rows, person) == len(said)

    decide("ann", "wrong", "right", "right", "unsure")
    decide("ann", "right")
    decide("bob", "right", "wrong")
    found = reviews.precision("digits", reviews.decisions(catalogue, "web")["digits"].values())
    assert (found.right, found.wrong, found.unsure) == (2, 0, 2)
    assert str(found) == "1.00 (0.34 to 1.00) of 2, 2 unsure"
    assert Ledger.fresh(catalogue).places("web.reviews") == {}, "rows that people append are no foreign writer's"


def test_decisions_in_memory_are_those_of_the_table(catalogue: Catalog) -> None:
    """Whoever writes, here or elsewhere; the same again is not written, and one that was taken back is none."""
    here, elsewhere = reviews.Reviews(catalogue, "web"), reviews.Reviews(catalogue, "web")
    failures = [{"doc_id": str(n), "rule": "digits", "value": 0.6, "threshold": 0.5} for n in range(3)]
    right, wrong, undone = (reviews.Said(word, None) for word in ("right", "wrong", "undone"))
    assert not here.decide("web.verdicts", failures[0], "ann", undone)
    assert here.decide("web.verdicts", failures[0], "ann", right)
    assert not here.decide("web.verdicts", failures[0], "ann", right)
    assert not elsewhere.decide("web.verdicts", failures[0], "ann", right)
    assert elsewhere.decide("web.verdicts", failures[0], "bob", wrong)
    assert here.decide("web.verdicts", failures[1], "ann", right._replace(note="a list"))
    assert here.decide("web.verdicts", failures[2], "ann", wrong)
    assert here.decide("web.verdicts", failures[2], "ann", undone)
    expected = {"0": {"ann": right, "bob": wrong}, "1": {"ann": right._replace(note="a list")}}
    assert here.of_rule("web.verdicts", "digits") == elsewhere.of_rule("web.verdicts", "digits") == expected
    assert reviews.decisions(catalogue, "web") == {"digits": {"0": "unsure", "1": "right"}}
    assert len(catalogue.load_table("web.reviews").scan().to_arrow()) == 5


@pytest.mark.parametrize(("hits", "count"), [(0, 1), (1, 1), (3, 7), (49, 50), (500, 1000)])
def test_intervals_are_wilsons(hits: int, count: int) -> None:
    """As SciPy computes them."""
    expected = binomtest(hits, count).proportion_ci(method="wilson")
    assert reviews.wilson_interval(hits, count) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_mistakes_are_told(catalogue: Catalog) -> None:
    """A table that is not there, a decision that is none; nothing is recorded."""
    for verdicts, row, what in (
        ("web.verdicts", {"doc_id": "1", "decision": "right"}, "decision 1: rule: "),
        ("web.verdicts", decided(1, "maybe"), "'right', 'wrong', 'unsure' or 'undone'"),
        ("web.verdicts", {**decided(1, "right"), "value": "1"}, "value: Input should be a valid num"),
        ("web.verdicts_x", decided(1, "right"), "this lake does not have it"),
    ):
        with pytest.raises(CommandError, match=what):
            reviews.record(catalogue, verdicts, [row], "ann")
    assert not catalogue.table_exists("web.reviews")

"""What people decide of removed documents: drawn, shown, recorded and counted."""

from __future__ import annotations

import json
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.catalog import Catalog
from scipy.stats import binomtest

from dagster_project.cli.quality.review import review
from dagster_project.exceptions import CommandError
from dagster_project.inspect.corpora import reviews
from spark_jobs.filters.verdicts import VERDICTS
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.session.catalogue import ensure_table, open_catalogue
from spark_jobs.lake.session.settings import settings_at
from spark_jobs.text.texts import TEXTS

COUNT = 40


@pytest.fixture
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A lake with verdicts: every second document failed `digits`, every third `words`; one text is markup."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    settings = settings_at(tmp_path / "lake")
    for name, value in settings.properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    opened = open_catalogue(settings)
    verdicts, texts = [], []
    for number in range(COUNT):
        failed = [{"rule": "digits", "value": number / COUNT, "threshold": 0.5}] if number % 2 == 0 else []
        failed += [{"rule": "words", "value": None, "threshold": None}] if number % 3 == 0 else []
        place = {"increment": number % 2, "shard": 0, "doc_id": f"{number:032x}"}
        verdicts.append({**place, "kept": not failed, "failed": failed})
        content = f"<script>alert({number})</script> & \u202e text {number}" * (1 + 2000 * (number == 6))
        texts.append({**place, "kind": "prose", "content": content, "edits": []})
    for declared, rows in ((VERDICTS, verdicts), (TEXTS, texts)):
        table = ensure_table(opened, f"web.{declared.name}", declared, {})
        table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    return opened


def test_a_sample_is_drawn_by_hash_and_grows(catalogue: Catalog) -> None:
    """The same seed draws the same documents, more of them with a larger count; another seed others."""
    few = reviews.sample(catalogue, "web.verdicts", "digits", 5, near_threshold=False, seed=0)
    more = reviews.sample(catalogue, "web.verdicts", "digits", 99, near_threshold=False, seed=0)
    assert more[:5] == few and {int(row.doc_id, 16) for row in more} == set(range(0, COUNT, 2))
    assert reviews.sample(catalogue, "web.verdicts", "digits", 5, near_threshold=False, seed=1) != few
    every = reviews.sample(catalogue, "web.verdicts", None, 99, near_threshold=False, seed=0)
    assert {row.rule for row in every} == {"digits", "words"}


def test_the_nearest_to_the_threshold_come_first(catalogue: Catalog) -> None:
    """By the distance of the value; rules without a number have none."""
    found = reviews.sample(catalogue, "web.verdicts", None, 3, near_threshold=True, seed=0)
    assert [int(row.doc_id, 16) for row in found] == [20, 18, 22]


def test_decisions_are_recorded_and_the_newest_of_a_person_counts(catalogue: Catalog, tmp_path: Path) -> None:
    """Two persons, one changes her mind; where they disagree a document counts as unsure."""
    path, runner = tmp_path / "sample.json", CliRunner()
    sampled = runner.invoke(review, ["sample", "web", "--rule", "digits", "--count", "4", "--to", str(path)])
    assert sampled.exit_code == 0 and "/datasets/web/review?rule=digits" in sampled.output
    given = json.loads(path.read_text())
    facts = given["decisions"]
    assert {fact["decision"] for fact in facts} == {None} and len(facts) == 4
    assert reviews.record(catalogue, "web", given, "ann") == 0, "what is not decided is not recorded"

    def decide(person: str, *decisions: str) -> None:
        rows = [{**fact, "decision": one, "note": None} for fact, one in zip(facts, decisions, strict=False)]
        (tmp_path / "decisions.json").write_text(json.dumps({**given, "decisions": rows}))
        done = runner.invoke(review, ["record", "web", str(tmp_path / "decisions.json"), "--by", person])
        assert done.exit_code == 0, done.output

    decide("ann", "wrong", "right", "right", "unsure")
    decide("ann", "right")
    decide("bob", "right", "wrong")
    (found,) = reviews.precisions(catalogue, "web")
    assert (found.rule, found.right, found.wrong, found.unsure) == ("digits", 2, 0, 2)
    assert Ledger.fresh(catalogue).places("web.reviews") == {}, "rows that people append are no foreign writer's"
    with dg.DagsterInstance.get() as instance:
        (seen, *_) = instance.fetch_observations(dg.AssetKey(["web", "verdicts"]), limit=9).records
    assert seen.asset_observation is not None
    assert "| digits | 1.00 (0.34 to 1.00) of 2, 2 unsure |" in str(seen.asset_observation.metadata["reviewed_rules"])
    shown = runner.invoke(review, ["show", "web", "--json"])
    assert json.loads(shown.output)[0]["precision"] == 1.0


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


def test_mistakes_are_told(catalogue: Catalog, tmp_path: Path) -> None:
    """A rule, a table, a file that are not there or not right."""
    with pytest.raises(CommandError, match="did you mean 'digits'"):
        reviews.sample(catalogue, "web.verdicts", "digit", 1, near_threshold=False, seed=0)
    with pytest.raises(CommandError, match=r"run it first: headrace run web\.verdicts_x"):
        reviews.sample(catalogue, "web.verdicts_x", None, 1, near_threshold=False, seed=0)
    decided = {"doc_id": "1", "rule": "digits", "decision": "right"}
    for given, what in (
        ({}, "verdicts"),
        ({"verdicts": "other.verdicts", "decisions": []}, "not a table of web"),
        ({"verdicts": "web.verdicts", "decisions": [{"doc_id": "1", "decision": "maybe"}]}, "decision 1 .* rule: "),
        (
            {"verdicts": "web.verdicts", "decisions": [{**decided, "decision": "maybe"}]},
            "'right', 'wrong', 'unsure' or 'undone'",
        ),
        ({"verdicts": "web.verdicts", "decisions": [{**decided, "value": "1"}]}, "value: Input should be a valid num"),
        ({"verdicts": "web.verdicts_x", "decisions": [decided]}, "which this lake does not have"),
    ):
        with pytest.raises(CommandError, match=what):
            reviews.record(catalogue, "web", given, "ann")
    assert not catalogue.table_exists("web.reviews")
    (tmp_path / "bad.json").write_text("[")
    assert CliRunner().invoke(review, ["record", "web", str(tmp_path / "bad.json")]).exit_code != 0

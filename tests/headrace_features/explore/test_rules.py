"""The pages of rules: what they say of every threshold is what a count by hand says, and what a preview says."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from starlette.testclient import TestClient

from blender_service.auth.visibility import VISIBILITY_TABLE
from dagster_project.inspect.corpora.policy_preview import preview
from dagster_project.inspect.corpora.rule_curve import find_rule, rule_curve
from dagster_project.inspect.corpora.rule_inputs import read_documents
from dagster_project.restrictions import RECORD
from headrace.tables.catalogue import load_table
from headrace.tables.settings import settings_at
from spark_jobs.filters.policy_registry import policy_finder
from spark_jobs.filters.policy_resolution import resolve
from spark_jobs.lake.ledger.acts import AUDIT_TABLE
from spark_jobs.lake.session.catalogue import ensure_table, open_catalogue
from tests.dagster_project.conftest import WriteDefs
from tests.headrace_features.explore.judged_lake import POLICY, judged_rows, make, pages
from tests.tiers import sampled

ROWS = judged_rows()


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A lake with a judged dataset."""
    opened = open_catalogue(settings_at(tmp_path_factory.mktemp("lake")))
    make(opened, ROWS)
    return opened


@pytest.fixture(scope="module")
def client(catalogue: Catalog, tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """Its pages."""
    made = pages(catalogue, tmp_path_factory.mktemp("pages"))
    assert made.get("/datasets/notes/facets").status_code == 200, "which waits for the index"
    return made


def fails_others(row: dict[str, object], but: str) -> bool:
    """Whether a row fails another rule than one, said once more in plain Python."""
    digits, words = row["digit_fraction"], row["word_count"]
    assert isinstance(words, int) and (digits is None or isinstance(digits, float))
    found = {
        "prose.too_few_words": row["kind"] == "prose" and words < 20,
        "code.too_few_words": row["kind"] == "code" and words < 5,
        "too_many_digits": digits is not None and digits > 0.3,
        "generated": row["generated_marker"] is not None,
    }
    return any(failed for name, failed in found.items() if name != but)


@sampled(2)
@pytest.mark.parametrize("threshold", [-1, 0, 3, 19.5, 20, 21, 39, 99])
def test_every_threshold_is_counted_as_by_hand(client: TestClient, threshold: float) -> None:
    """Documents and bytes kept, documents that fail, and those nearest on both sides, of equals the lowest ids."""
    place = "/datasets/notes/rules/prose.too_few_words.json"
    shown = client.get(place, params={"threshold": threshold}).json()
    prose = [row for row in ROWS if row["kind"] == "prose"]
    failing = [row for row in prose if row["word_count"] < threshold]
    passing = [row for row in prose if row["word_count"] >= threshold]
    kept = [row for row in ROWS if row not in failing and not fails_others(row, "prose.too_few_words")]
    assert (shown["drops"], shown["judged"]) == (len(failing), len(prose))
    assert shown["kept"]["documents"] == len(kept)
    assert shown["kept"]["bytes"] == sum(row["byte_count"] for row in kept)
    for side, rows in (("failing", failing), ("passing", passing)):
        nearest = sorted(rows, key=lambda row: (abs(row["word_count"] - threshold), row["doc_id"]))[:10]
        assert [one["doc_id"] for one in shown[side]] == [row["doc_id"] for row in nearest]
        assert [one["path"] for one in shown[side]] == [row["path"] for row in nearest]
    assert sum(shown["counts"]) == len(prose) and sum(shown["failed"]) == len(failing)


@sampled()
@pytest.mark.parametrize("threshold", [0, 0.3, 0.31, 0.5, 1])
def test_a_rule_above_and_values_that_are_missing(catalogue: Catalog, threshold: float) -> None:
    """As a preview of the policy with that threshold says; what has no value passes at every threshold."""
    curve = rule_curve(read_documents(catalogue, "notes", [POLICY]), POLICY, find_rule(POLICY, "too_many_digits"))
    other = resolve(POLICY, changed={"too_many_digits": threshold})
    assert curve.kept(threshold) == preview(read_documents(catalogue, "notes", [other]), other).kept


def test_the_list_of_rules_is_the_preview(catalogue: Catalog, client: TestClient) -> None:
    """Each rule with its counts, those behind every policy too; and where its threshold comes from."""
    found = preview(read_documents(catalogue, "notes", [POLICY]), POLICY)
    shown = client.get("/datasets/notes/rules.json").json()
    assert shown["counted"] and shown["kept"]["documents"] == found.kept.documents
    assert [(one["rule"], one["judged"], one["drops"], one["alone"]) for one in shown["rules"]] == [
        (one.rule, one.judged, one.drops, one.alone) for one in found.rules
    ]
    assert [one["reference"] for one in shown["rules"]][:4] == [
        "prose.too_few_words", "code.too_few_words", "too_many_digits", "generated",
    ]  # fmt: skip
    assert shown["rules"][0]["why"] == "a sentence"
    page = client.get("/datasets/notes/rules").text
    assert 'href="/datasets/notes/rules/code.too_few_words"' in page


def test_a_document_leads_to_its_rules(client: TestClient) -> None:
    """Each that holds for it with value and threshold, those that it fails first, then the nearest; all but others."""
    for row in ROWS[:20]:
        page = client.get(f"/documents/{row['doc_id']}/rules")
        said = client.get(f"/documents/{row['doc_id']}/rules.json").json()["rules"]
        words = {"prose": ("prose.too_few_words", 20), "code": ("code.too_few_words", 5)}[row["kind"]]
        expected = {
            words[0]: (row["word_count"], row["word_count"] < words[1]),
            "too_many_digits": (row["digit_fraction"], (row["digit_fraction"] or 0) > 0.3),
            "generated": (None, row["generated_marker"] is not None),
        }
        assert {one["reference"]: (one["has"], one["fails"]) for one in said} == expected
        assert [one["fails"] for one in said] == sorted((one["fails"] for one in said), reverse=True)
        passed = [one["near"] for one in said if not one["fails"]]
        assert passed == sorted(passed, reverse=True) and all(0 <= one <= 1 for one in passed)
        place = f"/datasets/notes/rules/{words[0]}?threshold={float(row['word_count'])}"
        assert f'href="{place}"' in page.text
        assert row["doc_id"] in [one["doc_id"] for one in client.get(place.replace("?", ".json?")).json()["passing"]]


def test_pages_of_rules_show_texts_as_they_are(client: TestClient) -> None:
    """Of a rule with a number, of one without; no text becomes markup."""
    for rule in ("too_many_digits", "generated"):
        page = client.get(f"/datasets/notes/rules/{rule}").text
        assert "text 1" in page and "<script>alert" not in page and "\u202e" not in page
    generated = client.get("/datasets/notes/rules/generated.json").json()
    assert generated["drops"] == sum(row["generated_marker"] is not None for row in ROWS) > 10
    assert len(generated["failing"]) == 10 and generated["threshold"] is None


def test_texts_that_are_hidden_are_not_shown(catalogue: Catalog, tmp_path: Path) -> None:
    """Paths and values stay."""
    client = pages(catalogue, tmp_path, lambda dataset: False)
    client.get("/datasets/notes/facets")
    page = client.get("/datasets/notes/rules/too_many_digits").text
    assert "texts are not shown" in page and "text 1" not in page and ".txt" in page


@pytest.mark.nightly
def test_sums_follow_a_slider_and_texts_its_rest(tmp_path: Path) -> None:
    """Of a restricted dataset: a move shows sums alone and leaves no row of the audit, its rest shows texts and one."""
    restricted = open_catalogue(settings_at(tmp_path))
    make(restricted, ROWS)
    table = ensure_table(restricted, VISIBILITY_TABLE, RECORD, {})
    row = {"namespace": "notes", "visibility": "restricted", "teams": "speech", "environment": None}
    table.append(pa.Table.from_pylist([row], schema=table.schema().as_arrow()))
    client = pages(restricted, tmp_path)
    client.get("/datasets/notes/facets")

    def audited() -> int:
        audit = load_table(restricted, AUDIT_TABLE)
        return 0 if audit is None else len(audit.scan().to_arrow())

    for rule in ("prose.too_few_words", "generated"):
        place, before = f"/datasets/notes/rules/{rule}", audited()
        for threshold in (3, 7, 19) if rule != "generated" else ("", "", ""):
            whole, moved = (
                client.get(f"{place}.json?threshold={threshold}", headers={"x-live": live}).json()
                for live in ("rest", "moving")
            )
            page = client.get(f"{place}?threshold={threshold}", headers={"x-live": "moving"}).text
            assert whole.pop("failing") and moved.pop("failing") == [] == moved.pop("passing")
            whole.pop("passing")
            assert whole == moved and "text 1" not in page and ".txt" not in page and 'id="sides"' not in page
        assert audited() == before + 3


def test_a_threshold_is_saved_as_a_new_version(client: TestClient, catalogue: Catalog, declare: WriteDefs) -> None:
    """The file gives the policy with that threshold alone; the same again is no other, another content is refused."""
    declared = declare("notes", "type: headrace.Dataset\nattributes: {name: notes, source: {kind: files, path: x}}\n")
    place = "/datasets/notes/rules/code.too_few_words"
    given = {"threshold": "7.5", "name": "careful", "version": "2"}
    saved = client.post(f"{place}/save", data=given)
    assert saved.status_code == 303 and client.post(f"{place}/save", data=given).status_code == 303
    made = resolve(str(declared.parent / "careful_2.yaml"), policy_finder(lambda: catalogue))
    changed = {"code.too_few_words": 7.5, "data.too_few_words": 7.5}
    assert made.label == "careful@2"
    by_kind = [
        {(rule.rule, kind): rule.threshold for rule in one.rules for kind in rule.judged_kinds}
        for one in (made, resolve(POLICY, changed=changed))
    ]
    assert by_kind[0] == by_kind[1] and by_kind[0]["prose.too_few_words".partition(".")[2], "prose"] == 20
    page = client.get(saved.headers["location"]).text
    assert f"headrace policy preview notes {declared.parent / 'careful_2.yaml'}" in page
    refused = client.post(f"{place}/save", data={**given, "threshold": "8"})
    assert refused.status_code == 404 and "with other rules" in refused.text
    for wrong, said in (
        ({"name": "headrace"}, "choose another name"),
        ({"version": "../2"}, "names a file"),
        ({"threshold": "nan"}, "no such number"),
        ({"threshold": "many"}, "no number"),
        ({"name": "careful", "version": "1"}, "careful@1"),
    ):
        assert said in client.post(f"{place}/save", data={**given, **wrong}).text
    assert sorted(file.name for file in declared.parent.iterdir()) == ["careful_2.yaml", "defs.yaml"]


def test_a_policy_is_not_saved_by_another_site(client: TestClient) -> None:
    """A form of another origin with the reader's cookie writes nothing."""
    other = {"authorization": "", "cookie": "headrace_explore=ann", "origin": "http://evil.example"}
    answer = client.post("/datasets/notes/rules/too_many_digits/save", data={"threshold": "1"}, headers=other)
    assert answer.status_code == 403
    assert client.get("/datasets/notes/rules").headers["referrer-policy"] == "same-origin", (
        "or own forms have no Origin"
    )

"""A review: the queue is the list, a decision is recorded once, two people do not see each other's until done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from scipy.stats import binomtest
from starlette.testclient import TestClient

from dagster_project.inspect.corpora import reviews
from headrace.tables.settings import settings_at
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.headrace_features.explore.judged_lake import judged_rows, make, pages
from tests.tiers import sampled

ROWS = judged_rows(60)
PLACE = "/datasets/notes/review"
LISTS = (
    {"rule": "too_many_digits", "sort": "distance"},
    {"rule": "too_few_words", "sort": "distance", "way": "down", "kind": "prose"},
    {"rule": "generated", "sort": "distance"},
    {"rule": "too_few_words", "byte_count.min": "1000", "sort": "digit_fraction"},
    {"rule": "too_few_words", "seed": "3"},
    {"rule": "generated"},
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A lake with a judged dataset."""
    opened = open_catalogue(settings_at(tmp_path_factory.mktemp("lake")))
    make(opened, ROWS)
    return opened


@pytest.fixture
def catalogue(lake: Catalog) -> Catalog:
    """The same without a decision."""
    if lake.table_exists("notes.reviews"):
        lake.drop_table("notes.reviews")
    return lake


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where its indexes are."""
    return tmp_path_factory.mktemp("pages")


@pytest.fixture
def client(catalogue: Catalog, folder: Path) -> TestClient:
    """Its pages, whose index is whole."""
    made = pages(catalogue, folder)
    assert made.get("/datasets/notes/facets").status_code == 200
    return made


def seen(client: TestClient, place: str, who: str = "ann") -> dict[str, Any]:
    """What a page says to somebody."""
    path, _, query = place.partition("?")
    found: dict[str, Any] = client.get(f"{path}.json?{query}", headers={"Authorization": f"Bearer {who}"}).json()
    return found


def decide(client: TestClient, page: dict[str, Any], decision: str, who: str = "ann", note: str = "") -> str:
    """Send the form of a page; gives the address of the next."""
    state = page["list"].partition("?")[2]
    fields = {"state": state, "doc_id": page["row"]["doc_id"], "decision": decision, "note": note}
    sent = client.post(f"{PLACE}/decide", data=fields, headers={"Authorization": f"Bearer {who}"})
    assert sent.status_code == 303, sent.text
    return str(sent.headers["location"])


@sampled()
@pytest.mark.parametrize("query", LISTS, ids=str)
def test_the_queue_is_the_list(client: TestClient, query: dict[str, str]) -> None:
    """Skipping through the queue shows the rows of the list in their order, and so does going back."""
    listed = [row["doc_id"] for row in client.get("/datasets/notes/documents.json", params=query).json()["rows"]]
    assert 3 < len(listed) < 50
    page = client.get(f"{PLACE}.json", params=query).json()
    walked = [page["row"]["doc_id"]]
    while page["next"]:
        page = client.get(f"{PLACE}.json", params={**query, "doc": page["next"]}).json()
        walked.append(page["row"]["doc_id"])
    assert walked == listed and page["total"] == len(listed)
    while page["previous"]:
        walked.pop()
        page = client.get(f"{PLACE}.json", params={**query, "doc": page["previous"]}).json()
        assert page["row"]["doc_id"] == walked[-1]
    assert len(walked) == 1


def test_decisions_lead_on_and_count(client: TestClient, catalogue: Catalog) -> None:
    """Each is recorded with value and threshold, a form sent twice once; the interval is Wilson's; undo takes back."""
    place = f"{PLACE}?rule=too_many_digits&sort=distance"
    first = seen(client, place)
    places = [decide(client, first, "wrong", note="a table"), decide(client, first, "wrong", note="a table")]
    assert places[0] == places[1]
    second = seen(client, places[0])
    assert (second["row"]["doc_id"], second["last"]) == (first["next"], first["row"]["doc_id"])
    third = seen(client, decide(client, second, "right"))
    expected = binomtest(1, 2).proportion_ci(method="wilson")
    assert (third["decided"], third["precision"]["right"], third["precision"]["wrong"]) == (2, 1, 1)
    assert (third["precision"]["low"], third["precision"]["high"]) == pytest.approx(
        (expected.low, expected.high), abs=1e-6
    )
    back = seen(client, decide(client, {**second, "row": second["row"]}, "undone"))
    assert (back["row"]["doc_id"], back["decided"], back["mine"]) == (second["row"]["doc_id"], 1, None)
    rows = catalogue.load_table("notes.reviews").scan().to_arrow().sort_by("reviewed_at").to_pylist()
    assert [(row["decision"], row["note"], row["person"]) for row in rows] == [
        ("wrong", "a table", "ann"), ("right", None, "ann"), ("undone", None, "ann"),
    ]  # fmt: skip
    by_id = {row["doc_id"]: row for row in ROWS}
    assert all(row["value"] == by_id[row["doc_id"]]["digit_fraction"] and row["threshold"] == 0.3 for row in rows)
    assert seen(client, place)["row"]["doc_id"] == second["row"]["doc_id"], "it goes on where no decision is"
    assert reviews.decisions(catalogue, "notes") == {"too_many_digits": {first["row"]["doc_id"]: "wrong"}}


@pytest.mark.nightly
def test_two_people_see_each_other_when_they_are_done(client: TestClient) -> None:
    """Until then neither figures nor decisions of the other; then both, and where they disagree."""
    place = f"{PLACE}?rule=too_many_digits&sort=distance&kind=prose"
    page = seen(client, place)
    total = page["total"]
    for _ in range(total):
        page = seen(client, decide(client, page, "right", note="ann's own"))
    assert page["all_done"] and total > 2 and list(page["everybody"]["persons"]) == ["ann"]
    page = seen(client, place, "bob")
    first = page["row"]["doc_id"]
    for number in range(total):
        assert page["decided"] == number and page["everybody"] is None and page["said"] is None
        assert "ann" not in client.get(place, headers={"Authorization": "Bearer bob"}).text
        page = seen(client, decide(client, page, "wrong" if number == 0 else "right", "bob"), "bob")
    assert page["everybody"]["disagree"] == [first]
    assert (page["everybody"]["together"]["right"], page["everybody"]["together"]["unsure"]) == (total - 1, 1)
    shown = seen(client, f"{place}&doc={first}", "bob")
    assert {who: one["decision"] for who, one in shown["said"].items()} == {"ann": "right", "bob": "wrong"}


def test_mistakes_and_strangers_are_refused(client: TestClient, catalogue: Catalog, tmp_path: Path) -> None:
    """A document of another list, another word, another site, texts that are hidden; nothing is recorded."""
    page = seen(client, f"{PLACE}?rule=too_many_digits&sort=distance")
    state = page["list"].partition("?")[2]
    kept = next(row["doc_id"] for row in ROWS if row["digit_fraction"] is None)
    good = {"state": state, "doc_id": page["row"]["doc_id"], "decision": "right"}
    for wrong, said in (
        ({"doc_id": kept}, "not in this list"),
        ({"doc_id": "x"}, "not in this list"),
        ({"decision": "maybe"}, "write one of right, wrong, unsure"),
        ({"state": state.replace("too_many_digits", "too_few_words")}, "not in this list"),
        ({"state": "q=text&rule=generated"}, "a search has no queue"),
    ):
        assert said in client.post(f"{PLACE}/decide", data={**good, **wrong}).text
    other = {"authorization": "", "cookie": "headrace_explore=ann", "origin": "http://evil.example"}
    assert client.post(f"{PLACE}/decide", data=good, headers=other).status_code == 403
    assert client.get(f"{PLACE}/decide").status_code in (404, 405)
    hidden = pages(catalogue, tmp_path / "hidden", lambda dataset: False)
    hidden.get("/datasets/notes/facets")
    assert "texts are not shown" in hidden.post(f"{PLACE}/decide", data=good).text
    assert "text 1" not in hidden.get(f"{PLACE}?rule=too_many_digits").text
    assert not catalogue.table_exists("notes.reviews")


def test_a_page_of_a_review_shows_texts_as_they_are(client: TestClient) -> None:
    """No text becomes markup; without a rule one is asked for; keys are on the buttons."""
    page = client.get(f"{PLACE}?rule=too_many_digits").text
    assert "<script>alert" not in page and "&lt;script&gt;" in page and "\u202e" not in page
    for key in "rwu":
        assert f'data-hotkey="{key}"' in page
    chosen = client.get(f"{PLACE}.json").json()["rules"]
    listed = {"too_few_words", "too_many_digits", "generated"}
    assert {rule for rule, _ in chosen} == listed
    assert "review these" in client.get("/datasets/notes/documents?rule=generated").text

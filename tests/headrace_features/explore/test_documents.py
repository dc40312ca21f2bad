"""The pages of a dataset and of a document, over HTTP."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from headrace_features.explore.row_index import PAGE
from headrace_features.explore.texts import WINDOW
from spark_jobs.lake.ledger.acts import AUDIT
from spark_jobs.lake.session.catalogue import load_table
from tests.headrace_features.explore.planted import ODD, KeptLake, Planted, drawn, plant
from tests.tiers import sampled

ROWS = drawn(120, seed=3)
ID = ROWS[0]["doc_id"]
SCRIPT = "</mark><script>alert(1)</script>"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> KeptLake:
    """A dataset whose texts are shown."""

    def fill(lake: Planted) -> None:
        lake.add("notes", ROWS, odd=True)
        lake.index()

    return KeptLake(tmp_path_factory.mktemp("lake"), fill)


@pytest.fixture
def lake(kept: KeptLake) -> Planted:
    """The same for each test."""
    return kept.again()


def test_a_list_leads_through_all_rows(lake: Planted) -> None:
    """By the addresses of its pages alone, each row once, at the snapshot of the first."""
    client, seen = lake.client(), []
    page = client.get("/datasets/notes/documents.json?sort=mean_word_length&way=down").json()
    while page["next"]:
        seen += [row["doc_id"] for row in page["rows"]]
        assert f"at={page['at']}" in page["next"]
        page = client.get(page["next"]).json()
    seen += [row["doc_id"] for row in page["rows"]]
    assert sorted(seen) == sorted(row["doc_id"] for row in ROWS)


@sampled(2)
@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"nothing": "1"}, "nothing is no field of this list"),
        ({"sort": "x"}, "has no column x"),
        ({"sort": "distance"}, "needs a rule"),
        ({"byte_count.min": "many"}, "byte_count.min=many is no number"),
        ({"after": "x"}, "no place in this list"),
        ({"after": '[{"a": 1}, "00"]'}, "no place in this list"),
        ({"after": f'[{10**40}, "00"]', "sort": "byte_count"}, ""),
        ({"after": '["x", "zz"]'}, "no place in this list"),
        ({"at": "x"}, "no version of a dataset"),
        ({"at": "1-2-3-4"}, "not in the lake any more"),
    ],
)
def test_an_address_that_means_nothing_is_told_in_one_line(lake: Planted, query: dict[str, str], said: str) -> None:
    """Never as a failure of the server, and as JSON too."""
    for path in ("/datasets/notes/documents", "/datasets/notes/documents.json"):
        answer = lake.client().get(f"{path}?{urlencode(query)}")
        assert answer.status_code == (404 if said else 200), answer.text
        assert said in answer.text


@sampled()
@pytest.mark.parametrize("value", [SCRIPT, '"><img src=x onerror=alert(1)>', "\0\u202e", "'; DROP TABLE rows; --"])
def test_what_an_address_holds_is_inert(lake: Planted, value: str) -> None:
    """In fields, chips, links and messages."""
    for name in ("kind", "path", "rule", "seed", "sort", "q", "at", "after", value):
        page = lake.client().get(f"/datasets/notes/documents?{urlencode({name: value})}")
        assert page.status_code in (200, 404)
        assert "<script>alert" not in page.text and "<img" not in page.text
    for path in ("/find", "/datasets/notes/facets", f"/documents/{ID}"):
        page = lake.client().get(f"{path}?{urlencode({'q': value})}")
        assert page.status_code in (200, 404) and "<script>alert" not in page.text and "<img" not in page.text


@sampled(2)
@pytest.mark.parametrize("name", ODD)
def test_a_signal_of_any_name_can_be_sorted_by(lake: Planted, name: str) -> None:
    """Words of SQL, quotes, per cent, other scripts: in lists, counts and jumps."""
    client = lake.client()
    query = urlencode({"sort": name, f"{name}.min": "0.5"})
    rows = client.get(f"/datasets/notes/documents.json?{query}").json()["rows"]
    assert {row["doc_id"] for row in rows} <= {r["doc_id"] for r in ROWS if r.get("scores", {}).get(name) == 1.5}
    assert rows and client.get(f"/datasets/notes/documents?{query}").status_code == 200
    facets = client.get(f"/datasets/notes/facets.json?{query}").json()
    assert name in facets["histograms"]
    jumped = client.get(f"/datasets/notes/jump?{query}&quantile=0.9")
    assert jumped.status_code == 303 and client.get(jumped.headers["location"]).status_code == 200


def test_a_jump_leads_to_the_value_of_the_quantile(lake: Planted) -> None:
    """Up and down: the first row there has it."""
    values = sorted(row["byte_count"] for row in ROWS)
    for way, at in (("", int(0.3 * len(values))), ("down", int((1 - 0.3) * len(values)))):
        to = lake.client().get(f"/datasets/notes/jump?sort=byte_count&quantile=0.3&way={way}").headers["location"]
        path, _, query = to.partition("?")
        assert lake.client().get(f"{path}.json?{query}").json()["rows"][0]["byte_count"] == values[at]


def test_an_infinite_value_is_json(lake: Planted) -> None:
    """Which has no sign for it; readers of JSON in other languages refuse Python's."""
    import json

    lake.add("far", [{"doc_id": "f" * 32, "scores": {"mean_word_length": float("inf")}, "content": ""}])
    lake.index("far")
    page = lake.client().get("/datasets/far/documents.json?sort=mean_word_length")
    rows = json.loads(page.text, parse_constant=pytest.fail)["rows"]
    assert [row["mean_word_length"] for row in rows] == ["Infinity"]


def test_hostile_documents_are_shown_as_they_are(lake: Planted) -> None:
    """Paths and texts that would be elements, attributes, orders of letters, or nothing."""
    texts = {
        "a" * 32: SCRIPT * 3,
        "b" * 32: "",
        "c" * 32: "x" * 2_000_000,
        "d" * 32: "ab" * 100_000,
        "e" * 32: "\u202e\0\x1b",
    }
    rows = [{"doc_id": one, "path": f"{text[:40]}.txt", "content": text} for one, text in texts.items()]
    lake.add("notes", rows, increment=1)
    lake.index()
    client = lake.client()
    listed = client.get("/datasets/notes/documents")
    assert "<script>alert" not in listed.text and "\u202e" not in listed.text and "\0" not in listed.text
    for one, text in texts.items():
        page = client.get(f"/documents/{one}?q=ab")
        assert page.status_code == 200 and "<script>alert" not in page.text
        assert "\u202e" not in page.text and "\0" not in page.text
        assert client.get(f"/documents/{one}.json").json()["text"] == text[:WINDOW]
        kept = client.get(f"/documents/{one}/text")
        assert kept.text == text and kept.headers["content-type"] == "text/plain; charset=utf-8"
        assert kept.headers["content-disposition"].startswith("attachment")
    found = client.get(f"/documents/{'d' * 32}.json?q=ab&from=70000").json()
    assert found["hits"] == 100_000 and found["start"] == WINDOW and found["kinds"] == ["hit"]


def test_the_field_of_every_page_finds_a_document(lake: Planted) -> None:
    """By id, by its first digits, by path; several are a list; none is told."""
    client = lake.client()
    for name in (ID, ID[:10], ID.upper(), ROWS[0]["path"]):
        assert client.get("/find", params={"q": f" {name} "}).headers["location"] == f"/documents/{ID}"
    twins = [{"doc_id": f"{'12345678' + digit:0<32}", "path": "same.txt"} for digit in "ab"]
    lake.add("more", twins)
    for name in ("12345678", "same.txt"):
        page = client.get("/find", params={"q": name})
        assert page.status_code == 200 and all(f"/documents/{one['doc_id']}" in page.text for one in twins)
    assert client.get("/find.json", params={"q": "same.txt"}).json()["count"] == 2
    for name in ("nothing.txt", "123", "f" * 32):  # no document is named so, and none has the words
        assert client.get("/find.json", params={"q": name}).json()["documents"] == []
    assert client.get("/find").status_code == 404


LISTS = st.fixed_dictionaries(
    {},
    optional={
        "sort": st.sampled_from(["path", "byte_count", "mean_word_length"]),
        "way": st.just("down"),
        "kind": st.sampled_from(["prose", "code"]),
        "rule": st.just("too_long"),
        "seed": st.sampled_from(["1", "7"]),
        "q": st.sampled_from(["text 1", "nothing"]),
    },
)


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """Pages of documents whose failed rules have numbers."""

    def fill(lake: Planted) -> None:
        numbers = {"value": 1.0, "threshold": 3.0}
        lake.add("notes", [{**row, "failed": [one | numbers for one in row.get("failed", ())]} for row in ROWS])
        lake.index()

    return KeptLake(tmp_path_factory.mktemp("listed"), fill).again().client()


@pytest.mark.nightly
@given(LISTS)
def test_a_document_has_neighbours_in_its_list(listed: TestClient, query: dict[str, str]) -> None:
    """Whatever the filters and the order: those beside it there; at the ends none, and the way back to the list."""
    client = listed
    place = f"/datasets/notes/documents?{urlencode(query)}"
    page = client.get(place.replace("?", ".json?")).json()
    ids = [row["doc_id"] for row in page["rows"]]
    for at in {0, 1, len(ids) // 2, len(ids) - 1} & {*range(len(ids))}:
        there = client.get(f"/documents/{ids[at]}.json?{urlencode({'list': place})}").json()
        assert there["before"] == (ids[at - 1] if at else None)
        if at + 1 < len(ids) or not page["next"]:
            assert there["behind"] == (ids[at + 1] if at + 1 < len(ids) else None)
    if ids:
        whole, shown = client.get(place).text, client.get(f"/documents/{ids[0]}?{urlencode({'list': place})}").text
        assert f"/documents/{ids[0]}?" in whole and "list=%2Fdatasets" in whole and ">the list</a>" in shown


@sampled()
@pytest.mark.parametrize("query", [{"q": "words"}, {"q": "text", "kind": "code"}, {"q": "text 1"}], ids=str)
def test_hits_have_neighbours_on_other_pages(listed: TestClient, query: dict[str, str]) -> None:
    """The last of a page leads to the first of the next, and back, whichever page the list was opened at."""
    ids, places, page = list[str](), list[str](), f"/datasets/notes/documents?{urlencode(query)}"
    while page:
        shown = listed.get(page.replace("documents?", "documents.json?")).json()
        ids += [row["doc_id"] for row in shown["rows"]]
        places += [page] * len(shown["rows"])
        page = (shown["next"] or "").replace(".json", "")
    borders = {at for at in range(1, len(ids)) if places[at] != places[at - 1]}
    assert borders or len(ids) <= PAGE
    for at in {0, len(ids) - 1, *borders, *(border - 1 for border in borders)}:
        for place in {places[at], places[0]}:
            there = listed.get(f"/documents/{ids[at]}.json?{urlencode({'list': place})}").json()
            assert there["before"] == (ids[at - 1] if at else None)
            assert there["behind"] == (ids[at + 1] if at + 1 < len(ids) else None)


@pytest.mark.nightly
def test_documents_without_a_value_have_the_neighbours_of_their_list(tmp_path: Path, lake_env: Path) -> None:
    """Where no document has a value of the sorted column, the first has none before it."""
    planted = plant(tmp_path)
    rows = [{**row, "scores": {"mean_word_length": None}, "failed": []} for row in ROWS[:4]]
    planted.add("notes", rows)
    client = planted.client()
    for way in ("", "down"):
        place = f"/datasets/notes/documents?{urlencode({'sort': 'mean_word_length', 'way': way})}"
        ids = [row["doc_id"] for row in client.get(place.replace("?", ".json?")).json()["rows"]]
        assert len(ids) == 4
        for at, doc_id in enumerate(ids):
            there = client.get(f"/documents/{doc_id}.json?{urlencode({'list': place})}").json()
            assert [there["before"], there["behind"]] == [[None, *ids][at], [*ids, None][at + 1]]


def test_counts_beside_a_search_say_what_they_are_of(listed: TestClient) -> None:
    """They are those of the filters alone, which only a search makes worth a sentence."""
    said = "with and without the words"
    assert said in listed.get("/datasets/notes/facets?q=text").text
    assert said not in listed.get("/datasets/notes/facets?kind=code").text


@sampled(4)
@pytest.mark.parametrize("number", ["nan", "-nan", "inf", "-inf", "-5", "1e30", "x", "٣"])
@pytest.mark.parametrize(
    "address", ["documents?q=text&from=", "jump?sort=byte_count&quantile=", "documents?byte_count.min="]
)
def test_an_odd_number_is_answered(listed: TestClient, address: str, number: str) -> None:
    """By a list, or by a sentence that says which field; never by a page that failed."""
    assert listed.get(f"/datasets/notes/{address}{number}").status_code in (200, 303, 404)


@sampled()
@pytest.mark.parametrize(
    "place",
    ["//evil.example", "/datasets/theirs/documents", "javascript:x", "/datasets/notes/documents?sort=x", "/find"],
)
def test_a_list_that_cannot_be_read_has_no_neighbours(lake: Planted, place: str) -> None:
    """Whatever the address says; no link leads out."""
    page = lake.client().get(f"/documents/{ID}", params={"list": place})
    assert page.status_code == 200 and ">next document<" not in page.text
    assert 'href="//evil' not in page.text and 'href="javascript' not in page.text


def test_hidden_texts_are_nowhere(lake: Planted) -> None:
    """Of a dataset that does not say `samples: text`: not in lists, pages, files, searches, nor after a change."""
    secret = "a very private sentence"
    lake.add("held", [{"doc_id": "9" * 32, "path": "p", "content": secret}])
    lake.shown.add("held")
    explorer = lake.explorer()
    assert explorer.index("held").wait_for_texts(60)
    lake.shown.remove("held")
    client = lake.client()
    for path in (
        "/datasets/held/documents",
        f"/documents/{'9' * 32}",
        f"/documents/{'9' * 32}/text",
        "/datasets/held/facets",
        "/datasets/held",
        "/find?q=private",
        f"/documents/{'9' * 32}?list=%2Fdatasets%2Fheld%2Fdocuments%3Fq%3Dprivate",
    ):
        for ending in ("", ".json") if not path.endswith("/text") else ("",):
            where, mark, fields = path.partition("?")
            page = client.get(where + ending + mark + fields)
            assert secret not in page.text and page.status_code in (200, 403)
    assert "texts are not shown" in client.get("/datasets/held/documents?q=private").text
    later = lake.explorer()  # one that was asked a moment ago still says what the declaration said then
    assert not later.index("held").texts.previews(later.index("held").rows(_all()))


def _all():
    from headrace_features.explore.row_query import RowQuery

    return RowQuery()


def test_a_dataset_of_others_is_not_there(lake: Planted) -> None:
    """Neither its pages nor its name, nor its documents by id, prefix or path; reading it leaves no trace."""
    other = "7" * 32
    lake.add("theirs", [{"doc_id": other, "path": "their.txt", "content": "their text"}])
    lake.forbidden.add("theirs")
    client = lake.client()
    for path in (
        "/datasets/theirs/documents",
        "/datasets/theirs/facets",
        "/datasets/theirs/jump?sort=byte_count",
        f"/documents/{other}",
        f"/documents/{other[:8]}",
        f"/documents/{other}/text",
        f"/documents/{other}/reads",
    ):
        for ending in ("", ".json"):
            if ending and path.endswith("/text"):
                continue
            where, _, query = path.partition("?")
            page = client.get(f"{where}{ending}?{query}")
            assert page.status_code == 404 and "their text" not in page.text
            assert "increment" not in page.text and "theirs is in" not in page.text
    for words in (other, "their.txt", "their text"):
        page = client.get("/find.json", params={"q": words})
        assert page.json()["count"] == 0 and "theirs" not in page.text
    assert "theirs" not in client.get("/").text
    acts = load_table(lake.catalogue, f"system.{AUDIT.name}")
    assert acts is None or acts.current_snapshot() is None

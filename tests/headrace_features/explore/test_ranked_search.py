"""Search over all datasets by the field at the top of every page, beside BM25 in plain Python."""

from __future__ import annotations

import math
import random
import unicodedata
from collections import Counter
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from headrace_features.explore.explorer import Explorer
from headrace_features.explore.pages import find
from headrace_features.explore.pages.find import rank
from spark_jobs.lake.ledger.acts import AUDIT
from spark_jobs.lake.session.catalogue import load_table
from tests.headrace_features.explore.planted import KeptLake, Planted

WORDS = ("mill", "race", "river", "stone", "wheel", "water")
SECRET = "a secret of others about the mill"


def drawn(dataset: str, count: int) -> list[dict[str, Any]]:
    """Documents of chance: few words, so that many texts have the same ones."""
    chance = random.Random(dataset)
    return [
        {
            "doc_id": f"{chance.getrandbits(128):032x}",
            "shard": number % 2,
            "path": f"{dataset}/{number}.txt",
            "kind": chance.choice(["prose", "code"]),
            "language": chance.choice([None, "English", "C"]),
            "licence": None,
            "byte_count": 7,
            "content": " ".join(chance.choices(WORDS, [9, 4, 2, 2, 1, 1], k=chance.randrange(1, 30))),
            "failed": chance.choice([[], [{"rule": "too_short", "value": 1.0, "threshold": 2.0}]]),
        }
        for number in range(count)
    ]


ROWS = {"notes": drawn("notes", 90), "more": drawn("more", 60)}
OTHERS = {"theirs": [{"doc_id": "7" * 32, "path": "their.txt", "content": SECRET}],
          "held": [{"doc_id": "9" * 32, "path": "held.txt", "content": SECRET}]}  # fmt: skip


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """Two datasets with texts, one of others, one whose texts are hidden."""

    def fill(made: Planted) -> None:
        for name, rows in {**ROWS, **OTHERS}.items():
            made.add(name, rows)
            assert made.index(name).words.wait(60)

    made = KeptLake(tmp_path_factory.mktemp("lake"), fill).again()
    made.shown |= {"more", "theirs"}
    made.forbidden.add("theirs")
    return made


@pytest.fixture(scope="module")
def explorer(lake: Planted) -> Explorer:
    """What its pages share."""
    return lake.explorer()


@pytest.fixture(scope="module")
def client(lake: Planted) -> TestClient:
    """Its pages."""
    return lake.client()


def has(text: str, unit: str) -> bool:
    """Whether a text has a word, or the words of a phrase one after the other."""
    return f" {unit} " in f" {text} "


def bm25(rows: list[dict[str, Any]], text: str, units: list[str]) -> float:
    """The rank of a text among those of its dataset, the lower the better, as FTS5's documentation has it."""
    mean = sum(len(row["content"].split()) for row in rows) / len(rows)
    score = 0.0
    for unit in units:
        holding = sum(has(row["content"], unit) for row in rows)
        idf = max(math.log((len(rows) - holding + 0.5) / (holding + 0.5)), 1e-6)
        tokens, parts = text.split(), unit.split()
        often = sum(tokens[at : at + len(parts)] == parts for at in range(len(tokens)))
        score += idf * often * 2.2 / (often + 1.2 * (0.25 + 0.75 * len(text.split()) / mean))
    return -score


UNITS = st.lists(st.sampled_from([*WORDS, "mill race", "river stone", "nothing"]), min_size=1, max_size=3, unique=True)
FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.sampled_from(["prose", "code"]),
        "language": st.sampled_from(["English", "Welsh"]),
        "verdict": st.sampled_from(["kept", "rejected"]),
        "dataset": st.sampled_from(["notes", "more", "theirs", "held"]),
    },
)


def matching(units: list[str], filters: dict[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """The documents of a search, each with its dataset."""
    met = []
    for dataset, rows in ROWS.items():
        for row in rows:
            facts = {"dataset": dataset, "verdict": "rejected" if row["failed"] else "kept", **row}
            if all(facts[name] == value for name, value in filters.items()):
                met += [(dataset, facts)] if all(has(row["content"], unit) for unit in units) else []
    return met


@given(UNITS, FILTERS)
def test_a_search_ranks_and_counts_as_plain_python_does(
    explorer: Explorer, units: list[str], filters: dict[str, str]
) -> None:
    """Words and phrases under filters: the same documents, by BM25 in each dataset, with facets of all of them."""
    query = {"q": " ".join(f'"{unit}"' if " " in unit else unit for unit in units), **filters}
    ranking, met = rank(explorer, "ada", query), matching(units, filters)
    assert ranking.total == len(met) == len(ranking.hits)
    for name in ("dataset", "kind", "language", "verdict"):
        assert dict(ranking.facets[name]) == Counter(row[name] for _, row in met if row[name] is not None)
    ranks = {row["doc_id"]: bm25(ROWS[dataset], row["content"], units) for dataset, row in met}
    ids = [explorer.index(dataset).texts.numbered([number])[number]["doc_id"] for dataset, number in ranking.hits]
    assert sorted(ids) == sorted(ranks)
    assert [ranks[one] for one in ids] == pytest.approx(sorted(ranks.values()), rel=1e-6)


def test_a_page_of_hits_has_excerpts_and_leads_on(client: TestClient) -> None:
    """Twenty a page, each once, the words marked; every document leads to its neighbours in the ranking and back."""
    page, ids = client.get("/find.json?q=mill+race").json(), list[str]()
    while True:
        ids += [row["doc_id"] for row in page["documents"]]
        if not page["next"]:
            break
        page = client.get(page["next"]).json()
    met = {row["doc_id"] for _, row in matching(["mill", "race"], {})}
    assert len(ids) == len(set(ids)) == page["count"] == len(met) > 40 and set(ids) == met
    text = client.get("/find?q=mill+race").text
    assert '<mark class="hit">' in text and "rejected" in text and f"/documents/{ids[0]}" in text
    for at in (0, 1, 20, len(ids) - 1):
        place = urlencode({"list": "/find?q=mill+race"})
        there = client.get(f"/documents/{ids[at]}.json?{place}").json()
        assert there["before"] == (ids[at - 1] if at else None)
        assert there["behind"] == (ids[at + 1] if at + 1 < len(ids) else None)


def test_a_search_tells_nothing_of_what_a_reader_may_not_see(client: TestClient, lake: Planted) -> None:
    """Neither counts, paths nor texts; a hidden dataset is named as left out, another is not named at all."""
    for query in ("secret", "mill", '"secret of others"', "their.txt"):
        for path in ("/find", "/find.json"):
            page = client.get(path, params={"q": query})
            assert page.status_code == 200 and "of others about" not in page.text
            assert "their.txt" not in page.text.replace(query, "") and "theirs" not in page.text
            assert "held.txt" not in page.text
    page = client.get("/find.json?q=secret").json()
    assert page["count"] == 0 and "texts are not shown" in page["late"]["held"]
    acts = load_table(lake.catalogue, f"system.{AUDIT.name}")
    subjects = acts.scan().to_arrow()["subject"].to_pylist() if acts is not None else []
    assert not any("theirs" in str(subject) or "held" in str(subject) for subject in subjects)


def test_words_that_are_being_read_are_told(lake: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """With how far that is, on a page that opens itself again."""
    monkeypatch.setattr("headrace_features.explore.word_index.WordIndex.wait", lambda index, seconds: False)
    page = lake.client().get("/find?q=mill")
    assert page.status_code == 200 and "notes is left out: its words are being read, 0%" in page.text
    assert "data-reload" in page.text


@pytest.mark.parametrize("words", ['"', '" "', "...", "\0", "\u202e", "-"])
def test_signs_alone_are_no_search(client: TestClient, words: str) -> None:
    """In one line; whatever SQLite's language of searches would make of them."""
    page = client.get("/find", params={"q": words})
    assert page.status_code == 404 and ("has no word" in page.text or "say what to find" in page.text)


@pytest.mark.parametrize(
    "words", ["mill OR", 'NEAR(mill, "race', "mi* ^mill", "content:mill", "mill'; DROP TABLE words"]
)
def test_a_search_has_no_language(client: TestClient, words: str) -> None:
    """What is an operator elsewhere is a word here."""
    assert client.get("/find", params={"q": words}).status_code == 200


def test_hits_beyond_the_last_are_counted(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand can be listed; here ten."""
    whole = rank(explorer, "ada", {"q": "mill"})
    monkeypatch.setattr(find, "MOST", 10)
    some = rank(explorer, "ada", {"q": "mill"})
    assert some.total == whole.total and some.hits == whole.hits[:10] and some.facets == whole.facets


APART = "mill\u0301 \u1112\u1161\u11ab\u1100\u116e\u11a8\u110b\u1165"
"""A word with an accent, and one of Korean, as some keyboards write them: letter by letter."""


@given(
    st.lists(
        st.sampled_from([*APART.split(), "\0", "NEAR(", "*", '"', "content:", "-", "^", "mi\0ll", "\x00"]), min_size=1
    )
)
def test_words_are_found_however_they_are_written(odd_client: TestClient, pieces: list[str]) -> None:
    """Letters and accents apart, a NUL, whatever is syntax elsewhere: a list, or a sentence that says what to write."""
    answered = odd_client.get(f"/find.json?{urlencode({'q': ' '.join(pieces)})}")
    assert answered.status_code in (200, 404), answered.text
    if {*pieces} <= {*APART.split()}:
        assert [row["path"] for row in answered.json()["documents"]] == ["odd.txt"]


@pytest.fixture(scope="module")
def odd_client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """Pages of a document with the words, composed as a run writes texts."""

    def fill(made: Planted) -> None:
        text = unicodedata.normalize("NFC", f"{APART} near content")
        made.add("notes", [{"doc_id": "5" * 32, "path": "odd.txt", "content": text, "kind": "prose"}])
        assert made.index("notes").words.wait(60)

    return KeptLake(tmp_path_factory.mktemp("odd"), fill).again().client()

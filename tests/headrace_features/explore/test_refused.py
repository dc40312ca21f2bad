"""The list of refused files, and the page of a dataset, beside the planted arrivals counted in plain Python."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from spark_jobs.lake.ledger.acts import AUDIT
from spark_jobs.lake.session.catalogue import load_table
from spark_jobs.sources.documents import ARRIVALS
from spark_jobs.sources.refusals import Reason
from tests.headrace_features.explore.planted import KeptLake, Planted, drawn

SCRIPT = "<script>alert(1)</script>"
REASONS = [Reason.BINARY, Reason.TOO_LARGE, Reason.HIDDEN, Reason.NOT_INSTALLED]


def arrivals(count: int) -> list[dict[str, Any]]:
    """Files of chance, most of them refused; a path and a sentence that would be elements."""
    chance = random.Random(1)
    rows = []
    for number in range(count):
        refused = chance.random() < 0.8
        rows.append(
            {
                "increment": chance.randrange(3),
                "location": f"/data/{chance.choice(['web', SCRIPT, 'Ä'])}/{number}.bin",
                "status": "rejected" if refused else "landed",
                "reason": str(chance.choice(REASONS)) if refused else None,
                "detail": chance.choice([None, f"it is {SCRIPT}", "a null character at byte 7"]) if refused else None,
                "byte_count": chance.choice([None, 0, 10**9]),
            }
        )
    return rows


ROWS = arrivals(170)
REFUSED = sorted((row for row in ROWS if row["reason"]), key=lambda row: (-row["increment"], row["location"]))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """A dataset with documents and arrivals, and one of others."""

    def fill(made: Planted) -> None:
        made.add("notes", drawn(40))
        made.add("theirs", drawn(3))
        for increment in range(3):
            rows = [row for row in ROWS if row["increment"] == increment]
            made.write("notes", ARRIVALS, increment, rows)
        made.write("theirs", ARRIVALS, 0, [{**REFUSED[0], "location": "/theirs/secret.bin"}])
        made.index()

    made = KeptLake(tmp_path_factory.mktemp("lake"), fill).again()
    made.forbidden.add("theirs")
    return made


@pytest.fixture(scope="module")
def client(lake: Planted) -> TestClient:
    """Its pages."""
    return lake.client()


def expected(query: dict[str, str], without: str = "") -> list[dict[str, Any]]:
    """The refusals that filters leave, but for one of these."""
    kept = {name: value for name, value in query.items() if name != without}
    words = kept.pop("q", "").lower()
    return [
        row
        for row in REFUSED
        if all(str(row[name]) == value for name, value in kept.items())
        and (words in row["location"].lower() or words in (row["detail"] or "").lower())
    ]


FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "reason": st.sampled_from([*map(str, REASONS), "nothing"]),
        "increment": st.sampled_from(["0", "2", "7", "x"]),
        "q": st.sampled_from(["web", "NULL", "<script>", "1", "ä/", ".*", "nothing"]),
    },
)


@pytest.mark.nightly
@given(FILTERS)
def test_refusals_are_listed_in_pages_and_counted(client: TestClient, query: dict[str, str]) -> None:
    """Under any filters: each once, the newest increment first; counts of a facet heed all other filters."""
    page, seen = client.get(f"/datasets/notes/refused.json?{urlencode(query)}").json(), list[dict[str, Any]]()
    for name in ("reason", "increment"):
        counts = Counter(str(row[name]) for row in expected(query, name))
        assert dict(page["facets"][name]) == counts
    assert (page["total"], page["selected"]) == (len(REFUSED), len(expected(query)))
    while True:
        seen += page["rows"]
        if not page["next"]:
            break
        page = client.get(page["next"]).json()
    columns = ("increment", "location", "byte_count", "reason", "detail")
    assert seen == [{name: row[name] for name in columns} for row in expected(query)]


def test_what_was_refused_is_shown_as_text(client: TestClient) -> None:
    """Paths and sentences are escaped; a file that is left out on purpose is no fault."""
    page = client.get("/datasets/notes/refused").text
    assert "<script>alert" not in page and "left out, no fault" in page and 'data-page="next"' in page
    assert client.get("/datasets/notes/refused?from=x&reason=binary").status_code == 200


def test_the_page_of_a_dataset_has_its_figures(client: TestClient, lake: Planted) -> None:
    """Documents, refusals by reason with links, tables with rows and sizes; sums alone leave no row of the audit."""
    page = client.get("/datasets/notes.json").json()
    assert page["card"]["documents"] == 40 and dict(page["card"]["stages"])["landed"] == 40
    assert dict(page["refused"]) == Counter(row["reason"] for row in REFUSED)
    tables = {table["table"]: table for table in page["tables"]}
    assert {"documents", "texts", "signals", "verdicts", "arrivals"} <= tables.keys()
    assert tables["arrivals"]["records"] == len(ROWS) and tables["documents"]["files-size"] > 0
    text = client.get("/datasets/notes").text
    assert "/datasets/notes/refused?reason=binary" in text and "/datasets/notes/facets" in text
    assert client.get("/go/notes").headers["location"] == "/datasets/notes"
    acts = load_table(lake.catalogue, f"system.{AUDIT.name}")
    assert acts is None or acts.current_snapshot() is None


@pytest.mark.parametrize("page", ["/datasets/theirs", "/datasets/theirs/refused", "/datasets/notess"])
def test_a_dataset_of_others_has_no_page(client: TestClient, page: str) -> None:
    """As one that is not there: 404, and nothing of it is told."""
    for path in (page, f"{page}.json"):
        answer = client.get(path)
        assert answer.status_code == 404 and "secret" not in answer.text and "binary" not in answer.text

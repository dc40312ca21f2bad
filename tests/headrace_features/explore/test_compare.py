"""The page that compares: two states, two policies; what it says is what inspect says, with texts."""

from __future__ import annotations

import html
import re
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from pyiceberg.catalog import Catalog
from starlette.testclient import TestClient

from dagster_project.inspect.corpora import policy_preview
from dagster_project.inspect.corpora.rule_inputs import read_documents
from dagster_project.inspect.corpora.snapshot_diff import dataset_diff, find_state
from headrace.tables.settings import settings_at
from spark_jobs.filters.policy_registry import record_policy
from spark_jobs.filters.policy_resolution import resolve
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.conftest import WriteDefs
from tests.headrace_features.explore.judged_lake import POLICY, judged_rows, make, pages
from tests.tiers import sampled

ROWS = judged_rows(40)
OTHER = resolve(POLICY, changed={"prose.too_few_words": 30, "too_many_digits": "off"}).model_copy(
    update={"version": "2"}
)


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """Two datasets: the second has half of the first's documents, and others at the paths of some that it lacks."""
    opened = open_catalogue(settings_at(tmp_path_factory.mktemp("lake")))
    make(opened, ROWS)
    newer = [{**row, "doc_id": row["doc_id"][::-1], "content": f"newer {row['content']}"} for row in ROWS[20:24]]
    make(opened, [*ROWS[:20], *newer], "later")
    record_policy(opened, OTHER)
    return opened


@pytest.fixture(scope="module")
def client(catalogue: Catalog, tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """Their pages, whose indexes are whole."""
    made = pages(catalogue, tmp_path_factory.mktemp("pages"))
    for dataset in ("notes", "later"):
        made.get(f"/datasets/{dataset}/facets")
    return made


def test_two_states_show_what_came_and_went(client: TestClient, catalogue: Catalog) -> None:
    """The counts of the diff, and the first words of its examples, as they are."""
    place = "/compare.json?first=notes&second=later"
    shown = client.get(place).json()
    found = asdict(dataset_diff(catalogue, find_state(catalogue, "notes"), find_state(catalogue, "later")))
    examples = found.pop("examples")
    assert {name: shown[name] for name in found} == found
    assert (shown["kind"], shown["added"], shown["removed"], shown["changed"]) == ("dataset", 4, 20, 4)
    by_id = {row["doc_id"]: row for row in ROWS}
    for name, ids in examples.items():
        assert [one["doc_id"] for one in shown["examples"][name]] == ids
    assert {one["preview"] for one in shown["examples"]["removed"]} == {
        by_id[one]["content"] for one in examples["removed"]
    }
    page = client.get(place.replace(".json", "")).text
    assert "newer text 2" in page and "<script>alert" not in page
    same = client.get("/compare.json?first=notes&second=notes").json()
    assert (same["added"], same["removed"], same["newly_failed"]) == (0, 0, {})


@sampled()
@pytest.mark.parametrize("way", ["newly_failed", "newly_passed"])
def test_a_count_of_moved_verdicts_leads_to_their_documents(
    client: TestClient, catalogue: Catalog, way: str, tmp_path: Path
) -> None:
    """Each rule's count is a link to a list with just those documents and their texts, in pages, to be filtered."""
    changed = [{**row, "word_count": (row["word_count"] * 7) % 40, "digit_fraction": 0.29} for row in ROWS[:30]]
    name = f"moved_{way}"
    make(catalogue, changed, name)
    client.get(f"/datasets/{name}/facets")
    had, has = ({row["doc_id"]: failed_rules(row) for row in rows} for rows in (ROWS[:30], changed))
    page, place = client.get(f"/compare?first=notes&second={name}").text, f"/compare.json?first=notes&second={name}"
    counts = client.get(place).json()[way]
    assert counts
    links = {html.unescape(link) for link in re.findall(r'href="(/datasets/[^"]+since=[^"]+)"', page)}
    for rule, count in counts.items():
        field, first, second = ("rule", had, has) if way == "newly_failed" else ("passed", has, had)
        (link,) = (one for one in links if dict(parse_qsl(one.partition("?")[2])).get(field) == rule)
        listed = client.get(link.replace("/documents?", "/documents.json?")).json()["rows"]
        expected = {one for one in had if rule in second[one] and rule not in first[one]}
        assert {row["doc_id"] for row in listed} == expected and len(listed) == count
        assert all("text " in row["excerpt"] for row in listed) and f">{count}</a>" in page
        facets = client.get(link.replace("/documents?", "/facets.json?") + "&kind=prose").json()
        assert facets["selected"] == sum(row["kind"] == "prose" for row in ROWS[:30] if row["doc_id"] in expected)
    sure = pages(catalogue, tmp_path, reader=lambda principal: lambda table: not table.startswith("notes."))
    answer = sure.get(link)
    assert answer.status_code == 404 and "notes is not here" in answer.text


@sampled()
@pytest.mark.parametrize("damage", [None, b"", b"junk" * 99])
def test_moved_documents_are_looked_up_anew(catalogue: Catalog, tmp_path: Path, damage: bytes | None) -> None:
    """Where somebody deleted their file, as indexes may be at any time, or it is damaged, while the pages are open."""
    name = "anew_deleted" if damage is None else f"anew_{len(damage)}"
    make(catalogue, [{**row, "word_count": 0} for row in ROWS], name)
    client, link = pages(catalogue, tmp_path), f"/datasets/{name}/documents.json"
    fields = {"since": "notes", "until": name, "rule": "too_few_words"}
    client.get(link.replace("documents", "facets"))
    before = client.get(link, params=fields).json()["rows"]
    (file,) = (tmp_path / "explore").glob("*.moved.sqlite")
    file.unlink()
    if damage is not None:
        file.write_bytes(damage)
        assert "built anew" in client.get(link, params=fields).text
    for _ in range(50):  # the rows that were asked with it are built anew too
        again = client.get(link, params=fields)
        if "rows" in again.json() and again.json()["rows"] == before:
            break
        assert again.status_code < 500
        threading.Event().wait(0.1)
    assert before and again.json()["rows"] == before


def failed_rules(row: dict[str, Any]) -> set[str]:
    """The names of the rules that a document fails by its signals."""
    bounds = {"prose": 20, "code": 5}
    failed = {"too_few_words"} if row["word_count"] < bounds[row["kind"]] else set()
    failed |= {"too_many_digits"} if (row["digit_fraction"] or 0) > 0.3 else set()
    return failed | ({"generated"} if row["generated_marker"] else set())


@pytest.mark.nightly
def test_a_changed_document_stands_beside_what_it_was(client: TestClient, catalogue: Catalog) -> None:
    """Of two increments with other texts at the same paths; words that differ are marked."""
    make(catalogue, ROWS[:3], "grown")
    before = catalogue.load_table("grown.documents").current_snapshot()
    assert before is not None
    changed = {
        **ROWS[0],
        "doc_id": ROWS[0]["doc_id"][::-1],
        "content": ROWS[0]["content"].replace("text 0", "text new"),
    }
    make(catalogue, [changed], "grown", increment=1)
    client.get("/datasets/grown/facets")
    place = f"/compare.json?first=grown@{before.snapshot_id}&second=grown"
    shown = client.get(place).json()
    assert (shown["before"], shown["after"], shown["changed"]) == (3, 3, 1)
    (one,) = shown["changes"]
    assert (one["doc_id"], one["before"]) == (changed["doc_id"], ROWS[0]["doc_id"])
    assert [(row["left"], row["right"]) for row in one["rows"]] == [(ROWS[0]["content"], changed["content"])]
    page = client.get(place.replace(".json", "")).text
    assert '<mark class="gone">0</mark>' in page and '<mark class="kept">new</mark>' in page


def test_two_policies_show_who_keeps_what(client: TestClient, catalogue: Catalog, declare: WriteDefs) -> None:
    """As the comparison of previews; of files those beside the declaration alone are read."""
    parts = read_documents(catalogue, "notes", [POLICY, OTHER])
    found = policy_preview.compare(parts, POLICY, OTHER)
    shown = client.get("/compare.json?dataset=notes&second=careful@2").json()
    assert shown["first"] == "careful@1" and shown["labels"] == ["careful@1", "careful@2"]
    assert {name: size["documents"] for name, size in shown["kept_by"].items()} == {
        name: size.documents for name, size in found.kept_by.items()
    }
    assert shown["lost"] == found.lost and shown["gained"] == found.gained and sum(found.gained.values()) > 0
    for side, ids in found.examples.items():
        assert [one["doc_id"] for one in shown["examples"][side]] == list(ids)
        assert all(one["preview"].startswith("text ") for one in shown["examples"][side])
    declared = declare("notes", "type: headrace.Dataset\nattributes: {name: notes, source: {kind: files, path: x}}\n")
    (declared.parent / "third.yaml").write_text("name: third\nversion: 1\nextends: [careful@1]\n")
    assert client.get("/compare.json?dataset=notes&second=third.yaml").json()["kept_by"]["first"]["documents"] == 0
    outside = client.get(f"/compare?dataset=notes&second={declared.parent / 'third.yaml'}")
    assert outside.status_code == 404 and "name of a file beside" in outside.text


def test_what_cannot_be_compared_is_told(client: TestClient) -> None:
    """A name that is not there, a time before all; the empty form offers what there is."""
    assert "did you mean" in client.get("/compare?first=note&second=notes").text
    assert "had no table yet" in client.get("/compare?first=notes@2001-01-01&second=notes").text
    offered = client.get("/compare").text
    assert '<option value="later">' in offered and "compare</button>" in offered


def test_texts_that_are_hidden_are_not_compared(catalogue: Catalog, tmp_path: Path) -> None:
    """Paths stay."""
    client = pages(catalogue, tmp_path, lambda dataset: False)
    for dataset in ("notes", "later"):
        client.get(f"/datasets/{dataset}/facets")
    page = client.get("/compare?first=notes&second=later").text
    assert "text 2" not in page and ".txt" in page

"""A repository's page shows its files in their order, why, and the cycles among them."""

from __future__ import annotations

import html
import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from starlette.testclient import TestClient

from dagster_project.inspect.corpora.repository_files import cycles_of
from spark_jobs.code.dependencies import DEPENDENCIES
from spark_jobs.code.ordered import ORDERED
from spark_jobs.dedup.membership.members import MEMBERS
from spark_jobs.sources.documents import DOCUMENTS, REPOSITORIES
from tests.blender_service.packed_tables import open_lake
from tests.dagster_project.inspect.test_lake_status import put
from tests.headrace_features.explore.served import asked, pages
from tests.tiers import tries

NAME = "group/tool"
PATHS = ["util.py", "left.py", "right.py", "main.py", "lost.py"]
EDGES = [("left.py", "right.py"), ("right.py", "left.py"), ("left.py", "util.py"), ("main.py", "left.py")]


def doc_id(path: str) -> str:
    """An id of 32 digits."""
    return path.encode().hex().ljust(32, "0")[:32]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """A repository of five files, of which the last did not survive, and two hundred and fifty files of another."""
    folder = tmp_path_factory.mktemp("repositories")
    catalogue: Catalog = open_lake(folder)
    files = [(NAME, path) for path in PATHS] + [("many", f"{number:03}.py") for number in range(250)]
    rows = [{"doc_id": doc_id(path), "path": path, "repository": of, "byte_count": 7} for of, path in files]
    put(catalogue, "code", DOCUMENTS, 0, rows)
    put(catalogue, "code", REPOSITORIES, 0, [{"repository": one, "licence": "<MIT>"} for one in (NAME, "many")])
    edges = [
        {"repository": NAME, "doc_id": doc_id(a), "path": a, "needed_doc_id": doc_id(b), "needed_path": b,
         "kind": "import", "evidence": f"import <{b}>"}
        for a, b in EDGES
    ]  # fmt: skip
    put(catalogue, "code", DEPENDENCIES, 0, edges)
    ranks = [(NAME, path, at) for at, path in enumerate(PATHS[:4])]
    ranks += [("many", f"{number:03}.py", 249 - number) for number in range(250)]
    put(catalogue, "main", MEMBERS, 0, [{"doc_id": "a"}], config=json.dumps({"datasets": ["code"]}))
    ordered = [{"dataset": "code", "repository": of, "doc_id": doc_id(path), "rank": at} for of, path, at in ranks]
    put(catalogue, "main", ORDERED, 0, ordered)
    return pages(catalogue, folder)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)).filter(lambda pair: pair[0] != pair[1]), max_size=14))
@settings(max_examples=tries(60))
def test_cycles_are_files_that_reach_each_other(edges: list[tuple[int, int]]) -> None:
    """Compared with the closure of the edges."""
    reach = {(a, b) for a, b in edges}
    for middle, a, b in itertools.product(range(7), repeat=3):
        if {(a, middle), (middle, b)} <= reach:
            reach.add((a, b))
    found = cycles_of(sorted({(str(a), str(b)) for a, b in edges}))
    for a, b in itertools.combinations(range(7), 2):
        together = str(a) in found and found.get(str(a)) == found.get(str(b))
        assert together == ({(a, b), (b, a)} <= reach)


def test_files_stand_in_their_order_with_what_they_need(client: TestClient) -> None:
    """Ranks of the corpus, edges with evidence, the cycle of two; what did not survive comes last."""
    found = asked(client, f"/datasets/code/repositories/{NAME}")
    assert [one["path"] for one in found["files"]] == PATHS
    assert [one["rank"] for one in found["files"]] == [0, 1, 2, 3, None]
    assert [one["needed_by"] for one in found["files"]] == [1, 2, 1, 0, 0]
    assert [one["cycle"] for one in found["files"]] == [None, 1, 1, None, None]
    needs = {(one["path"], need["needed_path"]): need for one in found["files"] for need in one["needs"]}
    assert set(needs) == set(EDGES)
    later = {pair for pair, need in needs.items() if need["is_later"]}
    assert later == {("left.py", "right.py")}, "one of a cycle has to come first"
    page = client.get(f"/datasets/code/repositories/{NAME}").text
    assert "import &lt;util.py&gt;" in page
    assert f'href="/documents/{doc_id("util.py")}"' in page


def test_a_large_repository_is_read_page_by_page(client: TestClient) -> None:
    """Every file once, by rank."""
    path, ranks = "/datasets/code/repositories/many", []
    while path:
        found = asked(client, path)
        ranks += [one["rank"] for one in found["files"]]
        path = (found["next"] or "").replace(".json", "")
    assert ranks == list(range(250))


def test_the_list_is_searched_by_name(client: TestClient) -> None:
    """A name with a slash leads to its page."""
    assert [one["repository"] for one in asked(client, "/datasets/code/repositories")["repositories"]] == [NAME, "many"]
    found = asked(client, "/datasets/code/repositories?q=TOOL")
    assert (found["found"], found["total"]) == (1, 2)
    page = client.get("/datasets/code/repositories").text
    assert "&lt;MIT&gt;" in page
    assert 'href="/datasets/code/repositories/group%2Ftool"' in page
    assert client.get("/datasets/code/repositories/group%2Ftool").status_code == 200


def test_mistakes_are_told_in_one_line(client: TestClient, tmp_path: Path) -> None:
    """An unknown dataset, repository or corpus."""
    for path, said in (
        ("/datasets/cod/repositories", "cod is not here"),
        ("/datasets/code/repositories/nothing", "repository nothing has no document in code"),
        (f"/datasets/code/repositories/{NAME}?corpus=other", "orders no files of code; choose among main"),
    ):
        answer = client.get(path)
        assert answer.status_code == 404
        assert said in html.unescape(answer.text)

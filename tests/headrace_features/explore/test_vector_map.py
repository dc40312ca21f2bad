"""A map of vectors: the same each time, and a rectangle is the list of the documents in it."""

from __future__ import annotations

import random
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest
from pyiceberg.catalog import Catalog
from starlette.testclient import TestClient

from headrace.tables.settings import settings_at
from headrace_features.explore.vector_map import map_file
from headrace_features.models.vectors import vectors
from spark_jobs.lake.declare.step import renamed
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.waiting_lake import publish
from tests.headrace_features.explore.judged_lake import judged_rows, make, pages

ROWS = judged_rows(60)
PLACE = "/datasets/notes"
MAPPED = [at for at in range(len(ROWS)) if at % 9 and at != 1]
BOXES = (
    *("", "vectors_mini", "x", "vectors_mini:1,2,3", "vectors_mini:a,b,c,d", "documents:1,2,3,4", "../x:1,2,3,4"),
    *("vectors_none:1,2,3,4", "vectors_mini:1,2,3,4,5", "'; DROP:1,2,3,4"),
)


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A lake whose documents have vectors around three middles, but for a few without one, or one of length 0."""
    opened = open_catalogue(settings_at(tmp_path_factory.mktemp("lake")))
    make(opened, ROWS)
    draw = np.random.default_rng(3)
    middles = draw.normal(size=(3, 16)) * 900
    rows = [
        {
            "shard": 0, "doc_id": row["doc_id"], "kind": row["kind"], "encoder": "0" * 64,
            "reason": "too_long" if at % 9 == 0 else None,
            "vector": None if at % 9 == 0 else (middles[at % 3] + draw.normal(size=16) * 50).astype("<i2").tobytes(),
        }
        for at, row in enumerate(ROWS)
    ]  # fmt: skip
    rows[1]["vector"] = bytes(32)
    publish(opened, "notes", renamed(vectors, "vectors_mini").table, 0, rows)
    return opened


@pytest.fixture(scope="module")
def client(catalogue: Catalog, tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """Its pages."""
    return pages(catalogue, tmp_path_factory.mktemp("pages"))


def places(catalogue: Catalog, folder: Path) -> dict[str, tuple[float, float]]:
    """Where documents are on the map, read from its file."""
    import sqlite3

    head = catalogue.load_table("notes.vectors_mini").current_snapshot()
    assert head is not None
    with sqlite3.connect(map_file(catalogue, "notes", "vectors_mini", head.snapshot_id, folder)) as opened:
        return {doc_id.hex(): (x, y) for doc_id, x, y in opened.execute("SELECT doc_id, x, y FROM docs")}


def test_a_map_is_a_function_of_the_vectors(catalogue: Catalog, tmp_path: Path) -> None:
    """Computed twice it is the same; documents of one middle lie together; those without a vector are not on it."""
    first, second = (places(catalogue, tmp_path / name) for name in ("a", "b"))
    assert first == second and len(first) == len(MAPPED)
    groups = [
        np.array([first[row["doc_id"]] for at, row in enumerate(ROWS) if at % 3 == n and at in MAPPED])
        for n in range(3)
    ]
    apart = min(np.linalg.norm(groups[a].mean(axis=0) - groups[b].mean(axis=0)) for a, b in ((0, 1), (0, 2), (1, 2)))
    assert apart > 3 * max(np.linalg.norm(group - group.mean(axis=0), axis=1).mean() for group in groups)


@pytest.mark.nightly
def test_a_rectangle_is_a_list_that_can_be_tagged(client: TestClient, catalogue: Catalog, tmp_path: Path) -> None:
    """Of chance, against a look at each document; what is drawn is there as a form too."""
    there, draw = places(catalogue, tmp_path), random.Random(5)
    shown = client.get(f"{PLACE}/map.json").json()
    assert shown["count"] == shown["drawn"] == len(there)
    left, right, low, high = shown["bounds"]
    for number in range(12):
        x = sorted(draw.uniform(left, right) for _ in "ab")
        y = sorted(draw.uniform(low, high) for _ in "ab")
        inside = {d for d, (a, b) in there.items() if x[0] <= a <= x[1] and y[0] <= b <= y[1]}
        query = {"map": "vectors_mini:" + ",".join(map(str, (*x[:: 1 if number % 2 else -1], *y)))}
        page = client.get(f"{PLACE}/documents.json", params=query).json()
        assert {row["doc_id"] for row in page["rows"]} == inside
        state = {"state": urlencode(query), "all": "1", "tag": f"box{number}", "act": "tag"}
        assert client.post(f"{PLACE}/tag", data=state).status_code == 303
        assert client.get(f"{PLACE}/tags.json").json()["tags"].get(f"box{number}", 0) == len(inside)
        both = client.get(f"{PLACE}/documents.json", params={**query, "tag": f"box{number}"}).json()
        assert {row["doc_id"] for row in both["rows"]} == inside


@pytest.mark.parametrize("box", BOXES)
def test_other_rectangles_are_refused(client: TestClient, box: str) -> None:
    """By one line; an empty one is none."""
    page = client.get(f"{PLACE}/documents", params={"map": box})
    assert page.status_code == (200 if not box else 404)


def test_a_dataset_without_vectors_says_so(client: TestClient) -> None:
    """As a table does that is none of vectors."""
    assert "has no documents" in client.get(f"{PLACE}/map", params={"table": "documents"}).text
    assert client.get("/datasets/nothing/map").status_code == 404

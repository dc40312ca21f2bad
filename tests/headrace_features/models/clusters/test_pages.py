"""Clusters are listed and drawn with size and loss; the documents of one come nearest first, each once."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from pyiceberg.catalog import Catalog
from starlette.testclient import TestClient

from headrace_features.models.clusters.centroids import CENTROIDS
from headrace_features.models.clusters.cluster_losses import CLUSTER_LOSSES
from headrace_features.models.clusters.clusters import CLUSTERS
from spark_jobs.dedup.membership.members import MEMBERS
from spark_jobs.sources.documents import DOCUMENTS
from tests.blender_service.packed_tables import open_lake
from tests.dagster_project.inspect.test_lake_status import put
from tests.headrace_features.explore.served import asked, pages

SIZES, LOSSES = [120, 5, 3], [2.0, 3.5, None]
DISTANCES = np.random.default_rng(4).integers(0, 40, 120) / 40  # many are equal


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """Three clusters in two coarse ones; the last was too small to measure."""
    catalogue = open_lake(tmp_path_factory.mktemp("clusters"))
    put(catalogue, "notes", DOCUMENTS, 0, [{"doc_id": "d000", "path": "a.txt"}])
    named = [{"dataset": "notes", "doc_id": f"d{at:03}", "path": f"<{at}>.txt"} for at in range(120)]
    put(catalogue, "main", MEMBERS, 0, named, config=json.dumps({"datasets": ["notes"]}))
    centroids = [{"coarse": coarse, "document_count": 128, "vector": b"", "label": ["all"]} for coarse in (0, 1)]
    centroids += [
        {"coarse": cluster % 2, "cluster": cluster, "document_count": size, "vector": b"", "typical": ["d001"],
         "label": ["<b>", f"word{cluster}"]}
        for cluster, size in enumerate(SIZES)
    ]  # fmt: skip
    put(catalogue, "main", CENTROIDS, 0, centroids)
    losses = [
        {"cluster": at, "document_count": 10 * SIZES[at], "loss": one, "loss_before": one and one + 1, "slope": one}
        for at, one in enumerate(LOSSES)
    ]
    put(catalogue, "main", CLUSTER_LOSSES, 0, losses)
    rows = [{"dataset": "notes", "doc_id": f"d{at:03}", "coarse": 0, "cluster": 0, "distance": distance}
            for at, distance in enumerate(DISTANCES.tolist())]  # fmt: skip
    put(catalogue, "main", CLUSTERS, 0, rows)
    return catalogue


@pytest.fixture(scope="module")
def client(lake: Catalog, tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """Its pages."""
    return pages(lake, tmp_path_factory.mktemp("pages"))


def test_clusters_are_listed_and_drawn(client: TestClient) -> None:
    """By size, loss or number; those without a loss are listed last and not drawn; words are escaped."""
    found = asked(client, "/clusters/main")
    assert [(one["cluster"], one["size"], one["loss"]) for one in found["clusters"]] == [
        (0, 1200, 2.0), (1, 50, 3.5), (2, 30, None)
    ]  # fmt: skip
    by_loss = asked(client, "/clusters/main?sort=loss")["clusters"]
    assert [one["cluster"] for one in by_loss] == [1, 0, 2]
    assert [one["cluster"] for one in asked(client, "/clusters/main?coarse=1")["clusters"]] == [1]
    page = client.get("/clusters/main").text
    places = {
        int(number): (float(x), float(y))
        for number, x, y in re.findall(
            r'clusters/main/(\d)" aria-label.*?<path class="dot c\d" d="M([\d.]+) ([\d.]+)h0"', page
        )
    }
    assert places.keys() == {0, 1}
    assert places[0][0] > places[1][0], "the larger stands to the right"
    assert places[0][1] > places[1][1], "the lower loss stands lower"
    assert "&lt;b&gt; word0" in page


def test_documents_of_a_cluster_come_nearest_first(client: TestClient) -> None:
    """Every one once over the pages, whatever distances are equal."""
    path, seen = "/clusters/main/0", []
    while path:
        found = asked(client, path)
        seen += [(one["distance"], one["doc_id"]) for one in found["documents"]]
        assert all(one["path"] == f"<{int(one['doc_id'][1:])}>.txt" for one in found["documents"])
        path = (found["next"] or "").replace(".json", "")
    assert seen == sorted((distance, f"d{at:03}") for at, distance in enumerate(DISTANCES.tolist()))


def test_words_are_hidden_where_texts_are(lake: Catalog, tmp_path: Path) -> None:
    """For they are of the texts."""
    hidden = pages(lake, tmp_path, shown=lambda dataset: False)
    for path in ("/clusters/main", "/clusters/main/0"):
        page = hidden.get(path).text
        assert "word" not in re.sub(r"passwords?", "", page).split("<main", 1)[1].replace("words", "")
        assert "samples: text" in page


def test_mistakes_are_told_in_one_line(client: TestClient) -> None:
    """What is wrong, on a page."""
    for path, said in (
        ("/clusters/mian", "mian is not here"),
        ("/clusters/main/9", "has no cluster 9; it has 0..2"),
        ("/clusters/main?sort=x", "sort=x is no order"),
        ("/clusters/main/0?after=x", "after=x is no place"),
    ):
        answer = client.get(path)
        assert answer.status_code == 404
        assert said in answer.text

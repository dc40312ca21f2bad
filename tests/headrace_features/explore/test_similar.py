"""Similar documents are those that a comparison of all bags finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from headrace.tables.settings import settings_at
from spark_jobs.dedup.bags.bags import BAGS
from spark_jobs.dedup.sketches.signatures import SIGNATURES, SignaturesConfig, _sign
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.waiting_lake import publish
from tests.headrace_features.explore.judged_lake import make, pages
from tests.headrace_features.explore.test_duplicates import BY_ID, DISTINCT, FIRST, ROWS, corpus_tables, similarity
from tests.tiers import sampled


def hashed(word: str) -> int:
    """A number for a word, which no other has."""
    return int.from_bytes(word.encode().ljust(8, b"_")[:8], "big")


def bags() -> list[dict[str, Any]]:
    """Bags of the distinct documents, each word of weight 10."""
    return [
        {
            "dataset": "notes", "shard": 0, "kind": "prose", "doc_id": row["doc_id"], "place": row["place"],
            "token_count": len(row["words"]), "total_weight": 10 * len(row["words"]), "increment": row["increment"],
            "token_hashes": np.sort([hashed(word) for word in row["words"]]).astype("<u8").tobytes(),
            "units": bytes([10] * len(row["words"])), "levels": bytes([1] * len(row["words"])),
        }
        for row in DISTINCT
    ]  # fmt: skip


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """Pages of a corpus with bags and signatures, and a dataset in no corpus."""
    folder: Path = tmp_path_factory.mktemp("lake")
    opened = open_catalogue(settings_at(folder))
    make(opened, ROWS)
    make(opened, [{**ROWS[0], "doc_id": "e" * 32}], "alone")
    for declared, rows, config, inputs in corpus_tables():
        for increment in (0, 1):
            publish(
                opened, "main", declared, increment, [r for r in rows if r["increment"] == increment], config, inputs
            )
    rows = bags()
    batch = pa.RecordBatch.from_pylist([{k: v for k, v in row.items() if k != "increment"} for row in rows])
    (signed,) = _sign([batch], SignaturesConfig(), b"", b"")
    for increment in (0, 1):
        here = [at for at, row in enumerate(rows) if row["increment"] == increment]
        publish(opened, "main", BAGS, increment, [rows[at] for at in here])
        publish(opened, "main", SIGNATURES, increment, [signed.slice(at, 1).to_pylist()[0] for at in here])
    return pages(opened, folder)


@sampled()
@pytest.mark.parametrize("row", ROWS[::3], ids=lambda row: str(row["doc_id"][:8]))
def test_every_similar_document_is_listed(client: TestClient, row: dict[str, Any]) -> None:
    """With the exact J of its words, an estimate near it, equal texts first; also of a document that was removed."""
    shown = client.get(f"/documents/{row['doc_id']}/similar.json").json()["corpora"]["main"]
    listed = {one["doc_id"]: one for one in shown["documents"]}
    others = [one for one in ROWS if one["doc_id"] != row["doc_id"]]
    wanted = {
        one["doc_id"]: float(similarity(row, one))
        for one in others
        if similarity(row, one) == 1 or (FIRST[one["doc_id"]] == one["doc_id"] and similarity(row, one) > 0.2)
    }
    assert wanted.keys() <= listed.keys() and row["doc_id"] not in listed
    for doc_id, one in listed.items():
        assert one["exact"] == pytest.approx(float(similarity(row, BY_ID[doc_id])))
        assert abs(one["estimated"] - one["exact"]) < 0.15, "five standard deviations of 256 values"
    assert [one["exact"] for one in shown["documents"]] == sorted(
        (one["exact"] for one in shown["documents"]), reverse=True
    )
    page = client.get(f"/documents/{row['doc_id']}/similar")
    assert page.status_code == 200 and "<script>alert" not in page.text


def test_without_a_signature_the_page_says_so(client: TestClient) -> None:
    """Of a dataset in no corpus; nothing is computed for it."""
    shown = client.get(f"/documents/{'e' * 32}/similar")
    assert shown.status_code == 200 and "No corpus with signatures" in shown.text
    assert client.get(f"/documents/{'f' * 32}/similar").status_code == 404

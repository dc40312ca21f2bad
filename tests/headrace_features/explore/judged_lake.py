"""A lake with one dataset that was judged, made by PyIceberg and the ledger alone; and its pages."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from starlette.testclient import TestClient

from headrace_features.explore.app import make_app
from headrace_features.explore.explorer import Explorer
from spark_jobs.filters.judge import failed_of
from spark_jobs.filters.policy import Policy
from spark_jobs.filters.policy_registry import record_policy
from spark_jobs.filters.verdicts import VERDICTS
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.sources.documents import DOCUMENTS
from spark_jobs.text.signals import SIGNALS
from spark_jobs.text.texts import TEXTS
from tests.dagster_project.waiting_lake import append

POLICY = Policy.model_validate(
    {
        "name": "careful",
        "version": "1",
        "rules": [
            {"rule": "too_few_words", "signal": "word_count", "below": 20, "kinds": ["prose"], "why": "a sentence"},
            {"rule": "too_few_words", "signal": "word_count", "below": 5, "kinds": ["code", "data"]},
            {"rule": "too_many_digits", "signal": "digit_fraction", "above": 0.3},
            {"rule": "generated", "signal": "generated_marker", "is": "present"},
        ],
    }
)
HOSTILE = "</mark><script>alert(1)</script>\u202e"
Rows = list[dict[str, Any]]


def judged_rows(count: int = 120, seed: int = 5) -> Rows:
    """Signals of documents as a flat dictionary each: many of equal values, some without one."""
    draw = random.Random(seed)
    rows = []
    for number in range(count):
        rows.append(
            {
                "doc_id": hashlib.sha256(f"{seed} {number}".encode()).hexdigest()[:32],
                "path": f"p{number}.txt",
                "kind": draw.choice(["prose", "prose", "code"]),
                "word_count": draw.randrange(40),
                "digit_fraction": draw.choice([None, 0.0, 0.3, round(draw.random(), 2)]),
                "generated_marker": draw.choice([None, None, None, "do not edit"]),
                "byte_count": draw.randrange(1, 5000),
                "content": f"text {number} {HOSTILE}",
            }
        )
    return rows


def make(catalogue: Catalog, rows: Rows, dataset: str = "notes", increment: int = 0) -> None:
    """Write an increment of the tables of a dataset."""
    place = {"shard": 0}
    signals = pa.RecordBatch.from_pylist(
        rows,
        pa.schema(
            [
                ("kind", pa.string()),
                ("word_count", pa.int64()),
                ("digit_fraction", pa.float64()),
                ("generated_marker", pa.string()),
            ]
        ),
    )
    failed = failed_of(signals, POLICY.rules).to_pylist()
    counts = dict.fromkeys(("character_count", "line_count", "max_line_length"), 1)
    sha256, facts = "0" * 64, {"encoding": "utf-8", "metadata": [], "repository": None}
    columns = {field.name for field in signals.schema} | {"doc_id"}
    documents = [
        {
            **place,
            **facts,
            "content_sha256": sha256,
            **{k: row[k] for k in ("doc_id", "path", "kind", "byte_count", "content")},
        }
        for row in rows
    ]
    texts = [{**place, "edits": [], **{k: row[k] for k in ("doc_id", "kind", "content")}} for row in rows]
    measured = [{**place, **counts, **{k: row[k] for k in columns}} for row in rows]
    verdicts = [
        {**place, "doc_id": row["doc_id"], "kept": not one, "failed": one}
        for row, one in zip(rows, failed, strict=True)
    ]
    tables = ((DOCUMENTS, documents), (TEXTS, texts), (SIGNALS, measured))
    recorded = [append(catalogue, dataset, table, increment, some) for table, some in tables]
    recorded += [append(catalogue, dataset, VERDICTS, increment, verdicts, {"policy": POLICY.model_dump(mode="json")})]
    Ledger(catalogue).record(recorded)
    record_policy(catalogue, POLICY)


def pages(
    catalogue: Catalog,
    folder: Path,
    shown: Callable[[str], bool] = lambda dataset: True,
    reader: Callable[[str], Any] = lambda principal: None,
) -> TestClient:
    """The pages of a lake, as `ann`; another person is whom the token names."""
    # Tests wait, however busy the machine.
    explorer = Explorer(catalogue, folder / "explore", shown, reader, patience=100)
    app = make_app(explorer, frozenset({"testserver"}), lambda token: token)
    return TestClient(app, headers={"Authorization": "Bearer ann"}, follow_redirects=False)  # type: ignore[arg-type]

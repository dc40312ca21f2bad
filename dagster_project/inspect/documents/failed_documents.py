"""Failed documents of a rule, the nearest to its threshold first."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import In

from dagster_project.exceptions import CommandError
from spark_jobs.exceptions import did_you_mean
from spark_jobs.lake.files.lookups import read_batches, read_rows


def failed_documents(catalogue: Catalog, table: str, rule: str, count: int) -> list[dict[str, Any]]:
    """The failed documents of a rule in a table of verdicts: doc_id, path, value seen and threshold.

    The distance of a value is its share of the threshold; a rule without a number has none, and no order.

    Args:
        catalogue: of the lake.
        table: of verdicts.
        rule: its name.
        count: most documents.

    Raises:
        CommandError: no document failed such a rule; the message names a rule with failed documents.
    """
    rules: set[str] = set()

    def failing() -> Iterator[dict[str, Any]]:
        for batch in read_batches(catalogue, table, ("doc_id", "failed")):
            for row in batch.to_pylist():
                rules.update(fault["rule"] for fault in row["failed"])
                yield from ({"doc_id": row["doc_id"], **fault} for fault in row["failed"] if fault["rule"] == rule)

    nearest = heapq.nsmallest(count, failing(), key=lambda row: (_distance(row), row["doc_id"]))
    if not nearest:
        raise CommandError(f"{table}: no document failed {rule!r}{did_you_mean(rule, sorted(rules))}")
    documents = f"{table.partition('.')[0]}.documents"
    rows = read_rows(catalogue, documents, ("doc_id", "path"), In("doc_id", {row["doc_id"] for row in nearest}))
    paths = {row["doc_id"]: row["path"] for row in rows}
    return [
        {
            "doc_id": row["doc_id"],
            "path": paths.get(row["doc_id"], ""),
            "value": row["value"],
            "bound": row["threshold"],
        }
        for row in nearest
    ]


def _distance(failed: dict[str, Any]) -> float:
    value, threshold = failed["value"], failed["threshold"]
    return math.inf if value is None or threshold is None else abs(value - threshold) / max(abs(threshold), 1e-9)

"""A dataset at a glance: its increments, what was refused and why, and its first documents."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import NotNull

from dagster_project.inspect.documents.counted import count_documents, documents_that_count
from dagster_project.printable import printable
from spark_jobs.lake.files.lookups import read_batches
from spark_jobs.lake.files.wide_values import read_wide_values
from spark_jobs.lake.ledger.ledger import Ledger

_FIRST_CHARACTERS = 60
_SHOWN_INCREMENTS = 10


@dataclass(frozen=True)
class DatasetView:
    """Increments and refusals of a dataset, as rows of tables.

    Attributes:
        documents: the counted ones.
        byte_count: of their texts.
        landed: all that ever landed.
        increments: the newest ten, in order: documents that landed, those of them that count, the bytes of the texts of
            these, when it was recorded.
        refused: by reason: how many files and records, and one of them.
    """

    documents: int
    byte_count: int
    landed: int
    increments: list[dict[str, Any]]
    refused: list[dict[str, Any]]


def dataset_view(catalogue: Catalog, name: str) -> DatasetView:
    """The increments and refusals of a dataset; both are empty where it was not run."""
    ledger = Ledger.fresh(catalogue)
    rows, landed = ledger.increments(f"{name}.documents"), ledger.first_recorded(f"{name}.documents")
    counts = count_documents(catalogue, name)
    increments = [
        {
            "increment": number,
            "came": row.row_count,
            "documents": counts.increments.get(number, (0, 0))[0],
            "bytes": counts.increments.get(number, (0, 0))[1],
            "landed": f"{landed[row.place]:%Y-%m-%d %H:%M}" if row.place in landed else "",
        }
        for number, row in sorted(rows.items())[-_SHOWN_INCREMENTS:]
    ]
    reasons: Counter[str] = Counter()
    examples: dict[str, str] = defaultdict(str)
    for batch in read_batches(catalogue, f"{name}.arrivals", ("location", "reason"), NotNull("reason")):
        for row in batch.to_pylist():
            reasons[row["reason"]] += 1
            examples[row["reason"]] = examples[row["reason"]] or row["location"]
    refused = [
        {"refused for": reason, "count": count, "e.g.": examples[reason]} for reason, count in reasons.most_common()
    ]
    return DatasetView(counts.documents, counts.byte_count, counts.landed, increments, refused)


def first_documents(catalogue: Catalog, name: str, count: int, with_text: bool) -> list[dict[str, Any]]:
    """Some counted documents of a dataset, the first in its tables: doc_id, path, kind, bytes, first words."""
    columns = ("doc_id", "path", "kind", "byte_count")
    first = documents_that_count(catalogue, name, columns).slice(0, count).select(columns)
    rows: list[dict[str, Any]] = first.rename_columns([*columns[:-1], "bytes"]).to_pylist()
    ids = {row["doc_id"] for row in rows}
    texts = read_wide_values(catalogue, f"{name}.texts", "content", ids) if with_text else {}
    for row in rows if with_text else ():
        beginning = " ".join(texts.get(row["doc_id"], "")[: 4 * _FIRST_CHARACTERS].split())
        row["begins"] = printable(beginning[:_FIRST_CHARACTERS])
    return rows

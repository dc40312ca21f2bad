"""Warnings of a run about its datasets and corpora, a line each: few documents kept, doubtful near-duplicates, .."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo, In

from dagster_project.inspect.lake.removed_documents import (
    MOST_DOUBTED,
    MOST_REMOVED,
    look_at_removed,
    rows_by_dataset,
)
from headrace.tables.catalogue import tables_in
from spark_jobs.lake.files.lookups import read_batches, read_columns
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.plan.reads import taken_increments

LEAST_KEPT = 0.1
"""Share of the documents below which a user is asked to look."""
_LEAST_DOCUMENTS = 10
_SHOWN = 3


def few_kept(ledger: Ledger, namespaces: Collection[str]) -> Iterator[str]:
    """A line for each dataset of whose newest increment less than a tenth was kept, by verdicts or as members.

    Args:
        ledger: refreshed.
        namespaces: datasets and corpora to look at.
    """
    few = set()
    for name in sorted(namespaces):
        for table in tables_in(ledger.catalogue, name):
            if not table.startswith(f"{name}.verdicts") or not (numbers := ledger.increments(table)):
                continue
            kept, total, rules = _judged(ledger.catalogue, table, max(numbers))
            if _is_few(kept, total):
                few.add(name)
                yield (
                    f"{table} keeps {kept:,} of {total:,} documents of increment {max(numbers)} ({rules}); "
                    "look: headrace doc why DOC, headrace policy preview"
                )
    for name in sorted(namespaces):
        numbers = ledger.increments(f"{name}.members")
        newest = max(numbers, default=0)
        for dataset, theirs in taken_increments(ledger, f"{name}.increments").get(newest, {}).items():
            landed = ledger.increments(f"{dataset}.documents")
            total = sum(landed[number].row_count for number in theirs if number in landed)
            if not numbers or dataset in few or not _is_few(0, total):
                continue
            members = rows_by_dataset(ledger.catalogue, f"{name}.members", newest)[dataset]
            if _is_few(members, total):
                yield (
                    f"{name}.members has {members:,} of {total:,} documents of {dataset} in increment {newest}; "
                    f"look: headrace corpus show {name}"
                )


def much_removed(ledger: Ledger, namespaces: Collection[str]) -> Iterator[str]:
    """A line for each dataset most of which went as near-duplicates, and for each corpus where these are doubtful."""
    for name in sorted(namespaces):
        removed = look_at_removed(ledger, name)
        for line, *_ in removed.findings(MOST_REMOVED, MOST_DOUBTED, _LEAST_DOCUMENTS) if removed is not None else ():
            yield f"{name}.removals: {line}"


def left_and_returned(ledger: Ledger, namespaces: Collection[str]) -> Iterator[str]:
    """A line for each corpus with documents that left it, are at their source again, and are in no window."""
    for name in sorted(namespaces):
        left = read_columns(ledger.catalogue, f"{name}.revisions", ("dataset", "doc_id"), EqualTo("leaves", True))
        if left is None or not len(left):
            continue
        back = sorted(
            doc_id
            for dataset in sorted(set(left["dataset"].to_pylist()))
            for doc_id in returned(
                ledger.catalogue, dataset, set(left.filter(pc.equal(left["dataset"], dataset))["doc_id"].to_pylist())
            )
        )
        if back:
            yield (
                f"{name}: {len(back):,} documents that left are at their source again and in no window, first "
                f"{back[0]}; a new generation takes them in: {new_generation(name)}"
            )


def returned(catalogue: Catalog, dataset: str, doc_ids: Collection[str]) -> set[str]:
    """The documents, among some, back at their source by the newest event of each."""
    condition = In("status", {"gone", "returned"})
    rows = read_columns(catalogue, f"{dataset}.arrivals", ("increment", "doc_id", "status"), condition)
    last: dict[str, tuple[int, str]] = {}
    for row in rows.filter(pc.is_valid(rows["doc_id"])).to_pylist() if rows is not None else ():
        if row["doc_id"] in doc_ids:
            last[row["doc_id"]] = max(last.get(row["doc_id"], (-1, "")), (row["increment"], row["status"]))
    return {doc_id for doc_id, (_, status) in last.items() if status == "returned"}


def new_generation(corpus: str) -> str:
    """The commands to begin a new generation of a corpus and compute it."""
    return f"headrace corpus refresh {corpus}, then headrace run {corpus}"


def _is_few(kept: int, total: int) -> bool:
    return total >= _LEAST_DOCUMENTS and kept < LEAST_KEPT * total


def _judged(catalogue: Catalog, table: str, increment: int) -> tuple[int, int, str]:
    """Kept and all documents of an increment, and its most failed rules."""
    rules: Counter[str] = Counter()
    kept = total = 0
    for batch in read_batches(catalogue, table, ("kept", "failed.element.rule"), EqualTo("increment", increment)):
        total += len(batch)
        kept += pc.sum(batch.column("kept")).as_py() or 0
        counted = pc.value_counts(pc.struct_field(pc.list_flatten(batch.column("failed")), "rule"))
        rules.update({value["values"]: value["counts"] for value in counted.to_pylist()})
    return kept, total, ", ".join(f"{rule} {count:,}" for rule, count in rules.most_common(_SHOWN))

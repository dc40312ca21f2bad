"""Code without an answer to the search for its dependencies, and repositories ordered by path alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression, EqualTo

from headrace.tables.catalogue import load_table
from spark_jobs.lake.files.lookups import read_batches
from spark_jobs.lake.ledger.ledger import Ledger

METHODS = "dependency_methods"
_COLUMNS = ("repository", "method", "language", "file_count", "unread", "unordered")
_SHOWN = 5


def unread_code(ledger: Ledger, namespaces: Collection[str]) -> Iterator[str]:
    """Lines for each dataset whose newest increment has code without an answer, or repositories ordered by path alone.

    Args:
        ledger: refreshed.
        namespaces: datasets to look at; corpora among them have no line.
    """
    for name in sorted(namespaces):
        numbers = ledger.increments(f"{name}.{METHODS}")
        where = EqualTo("increment", max(numbers, default=0))
        files, first = 0, ""
        reasons, by_path = Counter[str](), Counter[str]()
        for row in repositories(ledger.catalogue, name, where) if numbers else ():
            files += row["file_count"]
            reasons.update(reasons_of(row))
            first = first or next(
                (f"{row['repository']} {file['path']}: {file['reason']}" for file in row["unread"]), ""
            )
            if row["method"] == "path" and row["language"] is not None and row["file_count"] > 1:
                by_path[why_by_path(row)] += 1
        if reasons:
            such = f"; such as {first}" if first else ""
            counts = f"{reasons.total():,} of {files:,} files of increment {max(numbers)}"
            yield (
                f"{name}.dependencies: {counts} had no answer ({counted(reasons)}){such}; look: headrace doc why DOC"
            )
        if by_path:
            yield f"{name}.dependencies: repositories ordered by path alone: {by_path.total():,} ({counted(by_path)})"


def repositories(catalogue: Catalog, dataset: str, where: BooleanExpression) -> Iterator[dict[str, Any]]:
    """Rows of `dependency_methods`; what a table lacks that was made before is null or empty."""
    table = load_table(catalogue, f"{dataset}.{METHODS}")
    names = () if table is None else tuple(name for name in _COLUMNS if name in table.schema().column_names)
    for batch in read_batches(catalogue, f"{dataset}.{METHODS}", names, where) if names else ():
        for row in batch.to_pylist():
            yield {"language": None, **row, "unordered": row.get("unordered") or []}


def reasons_of(row: Mapping[str, Any]) -> Counter[str]:
    """How many files of a repository had no answer, by the reason."""
    reasons = Counter(file["reason"].partition(":")[0] for file in row["unread"])
    return reasons + Counter({no_order(code["language"]): code["file_count"] for code in row["unordered"]})


def no_order(language: str) -> str:
    """The line for a language without rules of imports or symbols here."""
    return f"{language} has no order of its own"


def why_by_path(row: Mapping[str, Any]) -> str:
    """Why a repository is ordered by path alone."""
    if row["language"] is None:
        return "it has no code"
    if row["language"] in {code["language"] for code in row["unordered"]}:
        return no_order(row["language"])
    return f"no file of {row['language']} is seen to need another"


def counted(reasons: Mapping[str, int]) -> str:
    """Reasons with their counts, the most frequent first."""
    ordered: Iterable[tuple[str, int]] = sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0]))
    shown = [f"{reason}: {count:,}" for reason, count in ordered]
    return ", ".join([*shown[:_SHOWN], *([f"{len(shown) - _SHOWN} more reasons"] if len(shown) > _SHOWN else [])])

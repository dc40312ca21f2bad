"""The place of a document in the list that a reader came from: the documents before and after it, and the list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from headrace_features.explore.row_index import PAGE, RowIndex
from headrace_features.explore.row_query import RowQuery

Places = tuple[str | None, str | None]
Hit = TypeVar("Hit")


def beside(index: RowIndex, wanted: RowQuery, row: Mapping[str, Any], behind: bool) -> str | None:
    """The document after a row of a list, or the one before it."""
    if wanted.seed:
        return among([one["doc_id"] for one in index.rows(wanted, PAGE)], row["doc_id"])[behind]
    descending = wanted.descending if behind else not wanted.descending
    after = (row["sort_key"], row["doc_id"])
    rows = index.rows(replace(wanted, descending=descending, after=after), 1)
    if wanted.sort and not behind:  # documents without a value are last in both directions
        if row["sort_key"] is None and not rows:
            rows = index.rows(replace(wanted, descending=descending), 1)
        elif row["sort_key"] is not None and rows and rows[0]["sort_key"] is None:
            return None
    return str(rows[0]["doc_id"]) if rows else None


def among(hits: Sequence[Hit], hit: Hit) -> tuple[Hit | None, Hit | None]:
    """The hits before and after one of them; None where there is none."""
    if hit not in hits:
        return None, None
    at = hits.index(hit)
    return (hits[at - 1] if at else None), (hits[at + 1] if at + 1 < len(hits) else None)

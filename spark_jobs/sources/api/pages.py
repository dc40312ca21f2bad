"""List the pages that were fetched and have not arrived, as rows of the listing; no server is asked."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.exceptions import InputError
from spark_jobs.sources.api.api_config import PAGE_MARK, PagedSource
from spark_jobs.sources.api.checkpoints import Checkpoints, StoredPage
from spark_jobs.sources.source_config import DocumentsConfig


def discover_pages(
    config: DocumentsConfig, source: PagedSource, arrivals: pa.Table, reread: bool, store: Checkpoints | None
) -> pa.Table | None:
    """List the pages that were fetched and have not arrived; see `listing.discover`.

    Raises:
        InputError: no lake is given that could hold pages.
    """
    from spark_jobs.sources.listing import LISTING

    if store is None:
        raise InputError(
            f"dataset {config.dataset}: pages of an API are kept in a lake; write to a table, not to files"
        )
    arrived = set() if reread else set(pc.unique(arrivals["location"]).to_pylist())
    rows = []
    for endpoint, pages in store.all_pages().items():
        for page in pages:
            location = f"{source.address(endpoint)}{PAGE_MARK}{page.sequence}"
            if location not in arrived:
                rows.append(_row(source, endpoint, location, page))
    if not rows:
        return None
    rows.sort(key=lambda row: row["location"])
    for rank, row in enumerate(sorted(rows, key=lambda row: -row["byte_count"])):
        row["size_rank"] = rank
    return pa.Table.from_pylist(rows, LISTING)


def _row(source: PagedSource, endpoint: str, location: str, page: StoredPage) -> dict[str, Any]:
    from spark_jobs.sources.listing import LISTING

    refusal = page.refusal
    facts = {
        "location": location,
        "path": endpoint,
        "kind": source.record_kind,
        "media_type": "text/plain",
        "reader": None if refusal else "page",
        "byte_count": page.byte_count,
        "modified": page.fetched,
        "object": page.object,
        "reason": refusal and str(refusal.reason),
        "detail": refusal and refusal.detail,
    }
    flags = {"unchanged": False, "gone": False, "size_rank": 0, "version": page.sequence}
    return {**dict.fromkeys(LISTING.names), **facts, **flags}

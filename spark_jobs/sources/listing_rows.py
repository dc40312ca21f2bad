"""The columns of a listing, common to every kind of source before it is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.sources.refusals import Reason, Refusal

LISTING = pa.schema(
    [
        pa.field("location", pa.string(), nullable=False),  # absolute path or URI; unique
        pa.field("repository", pa.string()),
        pa.field("path", pa.string()),  # of the document, below the root of its repository or source; see _gone_rows
        pa.field("revision", pa.string()),
        pa.field("licence", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("language", pa.string()),
        pa.field("media_type", pa.string()),
        pa.field("reader", pa.string()),  # one of `reading.built_in.READERS`, one of a package, or null
        pa.field("byte_count", pa.int64()),
        pa.field("modified", pa.timestamp("us", "UTC")),
        pa.field("unchanged", pa.bool_(), nullable=False),
        pa.field("gone", pa.bool_(), nullable=False),  # it arrived before, and is not at the source any more
        pa.field("content_sha256", pa.string()),  # hash of an unchanged file when it was read; of a file
        # to read the hashes, joined by spaces, with which it was deleted and does not land again
        pa.field("object", pa.string()),  # where its bytes are kept since they landed, which are read instead
        pa.field("reason", pa.string()),  # why it will not be read, or was refused when it was
        pa.field("detail", pa.string()),
        pa.field("size_rank", pa.int32(), nullable=False),  # 0 = largest file to be read: tasks take turns by it
        pa.field("repository_facts", pa.string()),  # JSON, on one file of each repository that may have a row
        pa.field("blob", pa.string()),  # object id, for files of git repositories; see `git.listing`
        pa.field("version", pa.int32()),  # its place among the versions of its path there
        pa.field("past", pa.bool_()),  # whether the path has a later one, or none any more
    ]
)


def listing_row(**fields: object) -> dict[str, Any]:
    """A row of the listing with these columns; the others are null or false."""
    return dict.fromkeys(LISTING.names) | {"unchanged": False, "gone": False, "size_rank": 0} | fields


def why(refusal: Refusal | None) -> dict[str, str | None]:
    """The columns `reason` and `detail` of a refusal; null without one."""
    return {"reason": str(refusal.reason) if refusal else None, "detail": refusal.detail if refusal else None}


def without_superseded(arrivals: pa.Table) -> pa.Table:
    """Arrivals without the rows `unchanged` older than another row of their location."""
    is_deleted = pc.fill_null(pc.equal(arrivals["reason"], str(Reason.DELETED)), False)
    same = pc.and_not(pc.equal(arrivals["status"], "unchanged"), is_deleted).to_numpy()
    if not same.any():
        return arrivals
    locations = arrivals["location"].combine_chunks().dictionary_encode()
    at, increments = locations.indices.to_numpy(), arrivals["increment"].to_numpy()
    newest = np.full(len(locations.dictionary), -1, increments.dtype)
    np.maximum.at(newest, at, increments)
    return arrivals.filter(pa.array(~same | (increments == newest[at])))

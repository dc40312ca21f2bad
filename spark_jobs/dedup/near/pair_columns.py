"""Names of the columns of candidates and verified pairs, and of those of a bag."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

Pairs = Iterator[pa.RecordBatch]
BAG = ("token_hashes", "units", "levels")
ENDS = ("dataset", "doc_id", "increment", "place", "kind")
"""Columns of either document of a pair."""
SIDES = ("left", "right")
_END_TYPES = (pa.string(), pa.string(), pa.int32(), pa.int64(), pa.string())
PAIRS_SCHEMA = pa.schema(
    [
        *(pa.field(f"{side}_{name}", kind) for side in SIDES for name, kind in zip(ENDS, _END_TYPES, strict=True)),
        *(pa.field(name, pa.int64()) for name in ("shared_weight", "united_weight")),
    ]
)

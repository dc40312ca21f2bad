"""A bounded sample of documents: those with the smallest hashes, as many as fit a number of bytes.

It depends neither on partitions nor on the order of rows. A first pass sums bytes by bucket of hashes (65,536 numbers
for the driver) and finds the bucket where the sample ends; whoever takes the sample sorts it by hash and cuts it there.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from spark_jobs.exceptions import InputError
from spark_jobs.spark_sql import Column, DataFrame, F

_BUCKETS: Final = 1 << 16


def smallest_hashes(documents: DataFrame, sample_bytes: int, refusal: str | None = None) -> DataFrame:
    """The documents with the smallest hashes whose texts have at least so many bytes; all where they have less.

    Args:
        documents: rows with `hash`, 64 bits, and `content`.
        sample_bytes: bytes of UTF-8.
        refusal: what is said where no document has any text; None gives all that there are.

    Raises:
        InputError: no document has any text, and that is refused.
    """
    size = F.sum(F.octet_length("content"))
    rows = documents.groupBy(_bucket().alias("bucket")).agg(size.alias("bytes")).toArrow()
    buckets = rows.column("bucket").to_numpy()
    order = np.argsort(buckets)
    used = np.cumsum(rows.column("bytes").to_numpy()[order])
    if not len(used) or used[-1] == 0:
        if refusal is None:
            return documents
        raise InputError(refusal)
    reached = np.flatnonzero(used >= sample_bytes)
    last = int(buckets[order][reached[0]]) if len(reached) else _BUCKETS
    return documents.where(_bucket() <= last)


def _bucket() -> Column:
    """The bucket of a hash: its upper 16 bits, ascending with the hash."""
    return F.shiftright("hash", 48)

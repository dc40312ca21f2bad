"""A sample of documents of a bounded size: those with the smallest hashes, up to a number of bytes.

It depends neither on partitions nor on the order of rows. A first pass sums bytes by bucket of hashes (65,536 numbers
for the driver) and finds the bucket where the sample ends; the caller sorts by hash and cuts inside that bucket.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from spark_jobs.exceptions import InputError
from spark_jobs.spark_sql import Column, DataFrame, F

_BUCKETS: Final = 1 << 16


def smallest_hashes(documents: DataFrame, sample_bytes: int, refusal: str | None = None) -> DataFrame:
    """The documents with the smallest hashes, enough for at least `sample_bytes` of text; all where there is less.

    Args:
        documents: rows with `hash`, 64 bits, and `content`.
        sample_bytes: bytes of UTF-8.
        refusal: message of the error where no document has any text; None: no error, and all documents are returned.

    Raises:
        InputError: no document has any text, and `refusal` is given.
    """
    sizes = documents.select("hash", F.octet_length("content").alias("size"))
    return with_smallest_hashes(documents, sizes, sample_bytes, refusal)


def with_smallest_hashes(
    documents: DataFrame, sizes: DataFrame, sample_bytes: int, refusal: str | None = None
) -> DataFrame:
    """The same of documents whose lengths are known apart, as where only some of them may be in the sample.

    Args:
        documents: rows with `hash`; those of other documents than `sizes` has are for the caller to leave out.
        sizes: rows with `hash` and `size`, bytes of UTF-8.
        sample_bytes: bytes of UTF-8.
        refusal: as above.

    Raises:
        InputError: as above.
    """
    total = F.sum("size").alias("bytes")
    rows = sizes.groupBy(_bucket().alias("bucket")).agg(total).toArrow()
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

"""A sample of a dataset's texts that depends neither on partitions nor on the order of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

_HASH_BITS = 20


def sampled(texts: DataFrame, sample_bytes: int) -> DataFrame:
    """Texts of the smallest hashes of their ids, as few as hold so many bytes of UTF-8; all, where they hold less.

    Hashes are cut into 2^20 buckets, and the last bucket is taken whole: of ten terabytes it holds ten megabytes.

    Args:
        texts: rows with `doc_id` and `content`.
        sample_bytes: bytes that the sample holds at least.
    """
    from pyspark.sql import functions as F

    size = F.sum(F.octet_length("content"))
    sizes = texts.groupBy(_bucket().alias("bucket")).agg(size.alias("bytes")).toArrow()
    buckets = sizes.column("bucket").to_numpy()
    order = np.argsort(buckets)
    reached = np.flatnonzero(np.cumsum(sizes.column("bytes").to_numpy()[order]) >= sample_bytes)
    return texts.where(_bucket() <= int(buckets[order][reached[0]])) if len(reached) else texts


def _bucket() -> SparkColumn:
    from pyspark.sql import functions as F

    return F.shiftright(F.xxhash64("doc_id"), 64 - _HASH_BITS)

"""The check of the masks and rows of tokens (`tokens.MASKED_TOKENS`), over Arrow batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.arrays import BoolArray


def rows_are_trained(documents: pa.RecordBatch) -> BoolArray:
    """(D,) whether each document passes the check `every_row_is_trained`."""
    counts = documents.column("token_count").to_numpy()
    starts, masks = documents.column("row_starts"), documents.column("trainable")
    sizes = pc.list_value_length(masks).to_numpy()
    document = np.append(np.arange(len(counts)), pc.list_parent_indices(starts).to_numpy())
    order = np.argsort(document, kind="stable")
    document, begins = document[order], np.append(np.zeros(len(counts), np.int64), starts.flatten())[order]
    ends = np.where(np.diff(document, append=-1) == 0, np.append(begins[1:], 0), counts[document] + 1)
    trained_before = np.append(0, np.cumsum(masks.flatten().to_numpy(zero_copy_only=False)))
    offsets = (np.cumsum(sizes) - sizes)[document]
    first, last = (trained_before.take(offsets + at, mode="clip") for at in (begins, ends))
    wrong = (ends <= begins) | (begins >= counts[document]) | (first == last)
    is_empty = (counts == 0) & (pc.list_value_length(starts).to_numpy() == 0)
    is_right: BoolArray = is_empty | (np.bincount(document[wrong], minlength=len(counts)) == 0)
    is_right &= sizes == counts + 1
    return is_right

"""Checks of the masks of tokens (`tokens.MASKED_TOKENS`), over Arrow batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.arrays import BoolArray, Int64Array


def masks_are_of_tokens(rows: pa.RecordBatch) -> BoolArray:
    """(D,) whether each document passes the check `mask_is_of_tokens`."""
    sizes = pc.list_value_length(rows.column("trainable")).to_numpy()
    is_equal: BoolArray = sizes == rows.column("token_count").to_numpy() + 1
    return is_equal


def row_starts_ascend(rows: pa.RecordBatch) -> BoolArray:
    """(D,) whether each document passes the check `row_starts_ascend`."""
    starts, document = _row_starts(rows)
    before = np.where(np.diff(document, prepend=-1) > 0, 0, np.roll(starts, 1))
    wrong = (starts <= before) | (starts >= rows.column("token_count").to_numpy()[document])
    are_ascending: BoolArray = np.bincount(document[wrong], minlength=rows.num_rows) == 0
    return are_ascending


def rows_are_trained(rows: pa.RecordBatch) -> BoolArray:
    """(D,) whether each document passes the check `every_row_is_trained`."""
    starts, document = _row_starts(rows)
    masks = rows.column("trainable")
    trained = np.append(masks.flatten().to_numpy(zero_copy_only=False), False)
    sizes = pc.list_value_length(masks).to_numpy().astype(np.int64)
    document = np.append(np.arange(rows.num_rows), document)
    order = np.argsort(document, kind="stable")
    document, starts = document[order], np.append(np.zeros(rows.num_rows, np.int64), starts)[order]
    begins = np.minimum((np.cumsum(sizes) - sizes)[document] + starts, len(trained) - 1)  # some may break other checks
    without = ~np.logical_or.reduceat(trained, begins) if len(begins) else np.zeros(0, np.bool_)
    is_trained: BoolArray = np.bincount(document[without], minlength=rows.num_rows) == 0
    is_trained |= rows.column("token_count").to_numpy() == 0
    return is_trained


def _row_starts(rows: pa.RecordBatch) -> tuple[Int64Array, Int64Array]:
    """(R,) where the further rows of documents begin, and (R,) the document of each."""
    lists = rows.column("row_starts")
    return lists.flatten().to_numpy().astype(np.int64), pc.list_parent_indices(lists).to_numpy().astype(np.int64)

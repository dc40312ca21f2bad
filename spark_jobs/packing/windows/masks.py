"""Masks on their way through packing: an id and whether it is trained on are one number, id * 2 + trained.

    tokens   input_ids 5 6 7   trainable f t t | t      10 13 15 | 1        the last value is of the end token, id 0
    windows  10 13 15 1 2 2   ->   input_ids 5 6 7 0 1 1   trainable f t t t f f      of a window of 6, padding 1

So masks are cut, shuffled and proved as ids are, and nothing but the two ends of the way knows of them. The end token
of a document comes with its ids, since its value is the document's.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_jobs.arrays import Int32Array, Int64Array
from spark_jobs.exceptions import TableMismatchError
from spark_jobs.packing.windows.window_facts import WindowForm

TRAINABLE = "trainable"


def masked_documents(ids: pa.ListArray, masks: pa.ListArray, facts: WindowForm) -> tuple[Int32Array, Int64Array]:
    """Numbers of the tokens of D documents and their end tokens, and (D + 1,) where each document begins in them.

    Raises:
        TableMismatchError: a mask is not one value longer than its document.
    """
    trained = masks.flatten().to_numpy(zero_copy_only=False)
    offsets = masks.offsets.to_numpy().astype(np.int64)
    offsets -= offsets[0]
    if not np.array_equal(np.diff(offsets), np.diff(ids.offsets.to_numpy()) + 1):
        raise TableMismatchError(
            "packed: a mask in tokens has not one value more than its document has tokens: materialize tokens again"
        )
    is_end = np.zeros(len(trained), dtype=np.bool_)
    is_end[offsets[1:] - 1] = True
    numbers = trained.astype(np.int32)
    numbers[is_end] += np.int32(facts.end_of_document_id)
    numbers[~is_end] += 2 * ids.flatten().to_numpy()
    return numbers, offsets


def masked_ids(windows: pa.RecordBatch) -> Int32Array:
    """Numbers of all tokens of windows with masks."""
    ids, trained = (windows.column(name).flatten().to_numpy(zero_copy_only=False) for name in ("input_ids", TRAINABLE))
    numbers: Int32Array = 2 * ids + trained
    return numbers


def with_masks_apart(windows: pa.RecordBatch) -> pa.RecordBatch:
    """Windows of numbers as windows of ids, with the column `trainable`."""
    lists = windows.column("input_ids")
    numbers = lists.values.to_numpy()
    ids, trained = (pa.ListArray.from_arrays(lists.offsets, pa.array(v)) for v in (numbers >> 1, (numbers & 1) != 0))
    at = windows.schema.get_field_index("input_ids")
    return windows.set_column(at, "input_ids", ids).append_column(TRAINABLE, trained)

"""The checks of the masks and rows of tokens (`tokens.MASKED_TOKENS`), over Arrow batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.arrays import BoolArray
from spark_jobs.lake.declare.tables import Check


def rows_are_trained(documents: pa.RecordBatch, wholly_masked: bool = False) -> BoolArray:
    """(D,) whether each document passes the check `every_row_is_trained`; with `wholly_masked` that of its rows."""
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
    wrong = (ends <= begins) | (begins >= counts[document]) | ((first == last) & ~np.bool_(wholly_masked))
    is_empty = (counts == 0) & (pc.list_value_length(starts).to_numpy() == 0)
    is_right: BoolArray = is_empty | (np.bincount(document[wrong], minlength=len(counts)) == 0)
    is_right &= sizes == counts + 1
    return is_right


def rules_fit(rows: pa.RecordBatch) -> BoolArray:
    """(N,) whether each row of a table passes the check `rules_are_masks`."""
    trained, rules = (rows.column(name) for name in ("trainable", "mask_rule"))
    sizes, others = (np.diff(lists.offsets.to_numpy()) for lists in (trained, rules))
    is_fit: BoolArray = sizes == others
    bits, numbers = (lists.filter(pa.array(is_fit)).flatten() for lists in (trained, rules))
    wrong = bits.to_numpy(zero_copy_only=False) != (numbers.to_numpy() == 0)
    is_fit[np.repeat(np.arange(len(sizes)), sizes * is_fit)[wrong]] = False
    return is_fit


RULES_ARE_MASKS = Check(
    "rules_are_masks",
    "trainable = transform(mask_rule, rule -> rule = 0)",
    "each token without loss has a rule, and no other",
    rules_fit,
)

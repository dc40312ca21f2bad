"""Masks on their way through packing: an id and the code of its mask are one number, id * codes + code.

    tokens   input_ids 5 6 7   trainable f t t | t      10 13 15 | 1        the last value is of the end token, id 0
    windows  10 13 15 1 2 2   ->   input_ids 5 6 7 0 1 1   trainable f t t t f f      of a window of 6, padding 1

    tokens   input_ids 5 6 7   mask_rule 2 0 0 | 0      643 769 897 | 1     by rule 2, 128 codes; trainable follows
    windows  643 769 897 1 128 128   ->   input_ids 5 6 7 0 1 1   trainable f t t t f f   mask_rule 2 0 0 0 -1 -1

A code is 0 for what has no loss, 1 for a trained token, and where rules are named 1 + n for rule n, 0 for padding.
So masks are cut, shuffled and proved as ids are, and nothing but the two ends of the way knows of them. The end token
of a document comes with its ids, since its value is the document's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.tables.window_facts import mask_rules
from spark_jobs.arrays import Int32Array, Int64Array
from spark_jobs.exceptions import TableMismatchError
from spark_jobs.packing.windows.window_facts import RULE_CODES, WindowForm

TRAINABLE = "trainable"
MASK_RULE = "mask_rule"


def rule_names(properties: Mapping[str, str]) -> list[str]:
    """The name of each number in `mask_rule`; empty for 0, and for the last, that of padding."""
    return ["", *mask_rules(properties), ""]


def mask_codes(columns: Collection[str]) -> int:
    """Codes of the masks of a table: 1 where it has none."""
    return RULE_CODES if MASK_RULE in columns else 2 if TRAINABLE in columns else 1


def mask_column(facts: WindowForm) -> str:
    """The column with the codes of masks."""
    return MASK_RULE if facts.codes == RULE_CODES else TRAINABLE


def masked_documents(ids: pa.ListArray, masks: pa.ListArray, facts: WindowForm) -> tuple[Int32Array, Int64Array]:
    """Numbers of the tokens of D documents and their end tokens, and (D + 1,) where each document begins in them.

    Raises:
        TableMismatchError: a mask is not one value longer than its document.
    """
    numbers = _codes(masks)
    offsets = masks.offsets.to_numpy().astype(np.int64)
    offsets -= offsets[0]
    if not np.array_equal(np.diff(offsets), np.diff(ids.offsets.to_numpy()) + 1):
        raise TableMismatchError(
            "packed: a mask in tokens has not one value more than its document has tokens: materialize tokens again"
        )
    is_end = np.zeros(len(numbers), dtype=np.bool_)
    is_end[offsets[1:] - 1] = True
    numbers[is_end] += np.int32(facts.end_of_document_id)
    numbers[~is_end] += facts.codes * ids.flatten().to_numpy()
    return numbers, offsets


def masked_ids(windows: pa.RecordBatch, facts: WindowForm) -> Int32Array:
    """Numbers of all tokens of windows with masks."""
    numbers: Int32Array = facts.codes * windows.column("input_ids").flatten().to_numpy()
    numbers += _codes(windows.column(mask_column(facts)))
    return numbers


def with_masks_apart(windows: pa.RecordBatch, facts: WindowForm) -> pa.RecordBatch:
    """Windows of numbers as windows of ids, with the column `trainable`, and `mask_rule` where rules are named."""
    lists = windows.column("input_ids")
    numbers = lists.values.to_numpy()
    ids, codes = numbers >> (facts.codes.bit_length() - 1), numbers & (facts.codes - 1)

    def like_ids(values: np.ndarray[Any, Any]) -> pa.ListArray:
        return pa.ListArray.from_arrays(lists.offsets, pa.array(values))

    at = windows.schema.get_field_index("input_ids")
    apart = windows.set_column(at, "input_ids", like_ids(ids)).append_column(TRAINABLE, like_ids(codes == 1))
    return apart.append_column(MASK_RULE, like_ids(codes - 1)) if facts.codes == RULE_CODES else apart


def _codes(masks: pa.ListArray) -> Int32Array:
    """Codes of the values of a mask, 0 and 1 for false and true, or of numbers of rules from -1 on."""
    values = masks.flatten().to_numpy(zero_copy_only=False)
    codes: Int32Array = values.astype(np.int32)
    return codes if values.dtype == np.bool_ else codes + 1

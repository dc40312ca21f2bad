"""Leave tokens of some rules off rows when they are served, such as headers in the cooldown of a run.

    tokens     h h a a a EOS  h h b b EOS  PAD        h: of the header, by its rule
    served     a a a EOS  b b EOS  PAD PAD PAD PAD PAD

Rows stay where they are in the order; only what they hold moves up.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyiceberg.schema import Schema

from blender_service.tables.block import RowBlock, Segments
from blender_service.tables.token_columns import MASK_RULE, TokenColumn
from headrace.tables.window_facts import WindowFacts

NOTHING = "none"  # in an update: nothing is left off any more


class LeftOff(NamedTuple):
    """Rules whose tokens the rows of a table lack: their numbers, and the column that has these."""

    rules: tuple[int, ...]
    column: TokenColumn


def left_off_of(rules: Sequence[str], schema: Schema, names: Collection[str]) -> LeftOff | None:
    """The rules of some names that a table has at a snapshot; None where it has none of them.

    Args:
        rules: names of the rules 1, 2, .. of that snapshot (`mask_rules`).
        schema: of that snapshot.
        names: of rules whose tokens are left off.
    """
    numbers = tuple(number for number, rule in enumerate(rules, start=1) if rule in names)
    if not numbers or MASK_RULE not in schema.column_names:
        return None
    return LeftOff(numbers, TokenColumn(MASK_RULE, "<i4", schema.find_field(MASK_RULE).field_id))


def leave_off(block: RowBlock, rules: Sequence[int], window: WindowFacts) -> RowBlock:
    """Give a block without the tokens of some rules; the rules' numbers are its last column, which goes too."""
    *columns, numbers = block.columns
    segments, width = block.segments, window.window_tokens
    kept = ~np.isin(numbers, rules) & (np.arange(width) < segments.row_tokens[:, np.newaxis])
    before = np.zeros((block.rows, width + 1), dtype=np.int32)
    np.cumsum(kept, axis=1, out=before[:, 1:])
    rows, places = np.nonzero(kept)
    targets = before[rows, places]

    def moved(values: NDArray[Any], padding: Any) -> NDArray[Any]:
        served = np.full(values.shape, padding, dtype=values.dtype)
        served[rows, targets] = values[rows, places]
        return served

    of_row = np.repeat(np.arange(block.rows), np.diff(segments.starts))
    first = before[of_row, segments.window_starts]
    counts = before[of_row, segments.window_starts + segments.token_counts] - first
    there = np.flatnonzero(counts)
    begins = of_row[there] * width + segments.window_starts[there]
    skipped = places[np.searchsorted(rows * width + places, begins)] - segments.window_starts[there]
    lengths = np.diff(segments.doc_id_starts)
    bytes_there = np.repeat(counts > 0, lengths)
    served = Segments(
        row_tokens=before[:, -1].copy(),
        starts=np.searchsorted(of_row[there], np.arange(block.rows + 1)).astype(np.int64),
        doc_ids=segments.doc_ids[bytes_there],
        doc_id_starts=np.cumsum(np.append(0, lengths[there]), dtype=np.int64),
        document_starts=segments.document_starts[there] + skipped,
        token_counts=counts[there].astype(np.int32),
        window_starts=first[there].astype(np.int32),
    )
    of_columns = tuple(moved(values, -1 if values.dtype == np.int32 else 0) for values in columns)
    return RowBlock(block.start, moved(block.input_ids, window.padding_id), served, of_columns)

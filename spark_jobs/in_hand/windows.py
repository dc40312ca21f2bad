"""Pack token ids in hand into windows, by the plan of the step `packed`: best fit, neighbours together where cheap.

documents   5 5 5 | 7 7 | 9          ids and lengths, in an order
windows     5 5 5 7 7 9 . .          the fewest that hold all tokens, nearly; the rest of a window is padding
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.arrays import BoolArray, Int64Array
from spark_jobs.exceptions import InputError
from spark_jobs.packing.packed_table import PackedConfig

if TYPE_CHECKING:
    from spark_jobs.packing.plan.best_fit import SlotTable
    from spark_jobs.packing.plan.units import Pieces

_SEGMENTS = pa.list_(
    pa.struct(
        [
            pa.field("row", pa.int64(), nullable=False),
            pa.field("document_start", pa.int64(), nullable=False),
            pa.field("window_start", pa.int32(), nullable=False),
            pa.field("token_count", pa.int32(), nullable=False),
        ]
    )
)


@dataclass(frozen=True)
class PackedWindows:
    """W windows of L tokens.

    Attributes:
        windows: a table of `input_ids` (L int32 each), `token_count` (of them no padding) and `segments`: the row that
            each comes from, its first token there, its place in the window, its tokens, an end of document among them.
        utilisation: share of all positions that hold a token.
        cut_count: documents that are in several windows.
    """

    windows: pa.Table
    utilisation: float
    cut_count: int

    def __len__(self) -> int:
        return len(self.windows)

    def __repr__(self) -> str:
        return f"{len(self):,} windows, {self.utilisation:.2%} of them tokens, {self.cut_count:,} documents cut"


def pack(
    ids: Any,
    window_tokens: int,
    *,
    order: Any = None,
    end_of_document: int | None = None,
    padding: int = 0,
    seed: int = 0,
) -> PackedWindows:
    """Pack documents of token ids into windows of one length; no token is lost, none comes twice.

    Args:
        ids: (N,) lists of ids, as `tokenize` gives them; null and empty ones are in no window.
        window_tokens: L. A longer document is cut into the fewest pieces.
        order: (N,) values such as paths, by which documents are neighbours; these share windows where that costs little
            room. Without it each document stands alone.
        end_of_document: id that ends each document; none by default.
        padding: id of the positions after the last segment.
        seed: of the order of the windows, which is random; another seed, another order of the same windows.

    Raises:
        InputError: ids are no lists of integers, or `order` has another length.
    """
    from spark_jobs.packing.plan.shuffle_at_rest import permutation_key, permute
    from spark_jobs.packing.windows.token_loops import copy_slices

    if window_tokens < 1:
        raise InputError(f"pack: window_tokens {window_tokens}: it is at least 1")
    lists = _lists(ids)
    rows = _order(order, len(lists))
    values, offsets = lists.values.to_numpy(zero_copy_only=False), lists.offsets.to_numpy().astype(np.int64)
    counts = np.diff(offsets)[rows]
    pieces = _pieces(counts + (counts > 0) * (end_of_document is not None), window_tokens)
    starts, plan = _planned(pieces, len(rows), window_tokens, order is not None)
    windows, positions = _places(pieces.length, starts, plan, window_tokens)
    if len(windows):
        windows = permute(windows, plan.window_count, permutation_key("in hand", 0, seed))
    by_place = np.lexsort((positions, windows))
    tokens, documents = pieces.length[by_place], rows[pieces.document[by_place]]
    sources = offsets[documents] + pieces.start[by_place]
    begins = windows[by_place] * window_tokens + positions[by_place]
    filled = np.full(plan.window_count * window_tokens, padding, np.int32)
    if end_of_document is None:
        copy_slices(values, sources, tokens, filled, begins)
    else:
        is_last = pieces.ends[by_place]
        copy_slices(values, sources, tokens - is_last, filled, begins)
        filled[(begins + tokens - 1)[is_last]] = end_of_document
    segments = pa.StructArray.from_arrays(
        [
            pa.array(documents),
            pa.array(pieces.start[by_place]),
            pa.array(positions[by_place].astype(np.int32)),
            pa.array(tokens.astype(np.int32)),
        ],
        fields=list(_SEGMENTS.value_type),
    )
    ends = np.searchsorted(windows[by_place], np.arange(plan.window_count + 1)).astype(np.int32)
    held = np.bincount(windows, weights=pieces.length, minlength=plan.window_count).astype(np.int32)
    table = pa.table(
        {
            "input_ids": pa.FixedSizeListArray.from_arrays(pa.array(filled), window_tokens),
            "token_count": pa.array(held),
            "segments": pa.ListArray.from_arrays(pa.array(ends), segments).cast(_SEGMENTS),
        }
    )
    total = plan.window_count * window_tokens
    several = int(np.count_nonzero(np.bincount(pieces.document) > 1))
    return PackedWindows(table, int(held.sum()) / total if total else 0.0, several)


def _lists(ids: Any) -> pa.ListArray:
    """Ids as one array of lists; null lists are empty."""
    if isinstance(ids, Sequence) and not isinstance(ids, str | bytes):
        try:
            ids = pa.array(ids, pa.list_(pa.int32()))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InputError(f"pack: these are no lists of token ids: {error}; give what tokenize gives") from error
    array = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
    if hasattr(array, "to_arrow"):
        array = array.to_arrow()
    if not isinstance(array, pa.Array) or not (
        pa.types.is_list(array.type) or pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type)
    ):
        raise InputError(f"pack: a {type(ids).__name__} is no column of lists of token ids; give what tokenize gives")
    try:
        whole = array.cast(pa.large_list(pa.int32()))
    except pa.ArrowInvalid as error:
        raise InputError(f"pack: these are no token ids: {error}; give what tokenize gives") from error
    tokens = whole.flatten()
    if tokens.null_count or (len(tokens) and pc.min(tokens).as_py() < 0):
        raise InputError("pack: an id is missing or below 0; give what tokenize gives")
    lengths = pc.fill_null(pc.list_value_length(whole), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return pa.LargeListArray.from_arrays(pa.array(offsets), tokens)


def _order(order: Any, count: int) -> Int64Array:
    """(N,) rows by the order's values; rows of equal values as they come."""
    if order is None:
        return np.arange(count)
    values = order if isinstance(order, pa.Array | pa.ChunkedArray) else pa.array(order)
    if len(values) != count:
        raise InputError(f"pack: order has {len(values):,} values for {count:,} documents; give one for each")
    places = pa.table({"value": values, "row": np.arange(count)})
    rows: Int64Array = places.sort_by([("value", "ascending"), ("row", "ascending")])["row"].to_numpy()
    return rows


def _pieces(lengths: Int64Array, window_tokens: int) -> Pieces:
    """The fewest pieces of at most L tokens of documents of these lengths."""
    from spark_jobs.packing.plan.units import pieces_between

    counts = -(-lengths // window_tokens)
    document = np.repeat(np.arange(len(lengths), dtype=np.int64), counts)
    number = np.arange(len(document), dtype=np.int64) - (np.cumsum(counts) - counts)[document]
    return pieces_between(document, number * window_tokens, lengths, 0)


def _planned(pieces: Pieces, document_count: int, window_tokens: int, joins: bool) -> tuple[BoolArray, SlotTable]:
    """Which pieces begin a unit, and the plan of the units."""
    from spark_jobs.packing.plan.affinity import choose_plan
    from spark_jobs.packing.plan.repository_runs import ALONE, EVERY_RUN, THETA_PERCENTS, join_runs, unit_lengths

    alone = np.ones(document_count, np.bool_)
    runs = join_runs(pieces, np.arange(document_count) == 0 if joins else alone, window_tokens)
    thetas = (*THETA_PERCENTS, ALONE) if joins else (ALONE,)
    histograms = dict[tuple[int, int], dict[int, int]]()
    for theta in (EVERY_RUN, *thetas) if joins else thetas:
        lengths, units = np.unique(unit_lengths(pieces.length, runs.unit_starts(theta)), return_counts=True)
        histograms[theta, 0] = dict(zip(lengths.tolist(), units.tolist(), strict=True))
    target = PackedConfig.model_fields["target_utilisation"].default
    chosen = choose_plan(histograms, thetas, 1, window_tokens, target)
    return runs.unit_starts(chosen.theta), chosen.plans[0]


def _places(
    lengths: Int64Array, starts: BoolArray, plan: SlotTable, window_tokens: int
) -> tuple[Int64Array, Int64Array]:
    """(P,) window of each piece, and (P,) position of its first token."""
    from spark_jobs.packing.plan.placement import take_slots
    from spark_jobs.packing.plan.repository_runs import unit_lengths

    if not len(lengths):
        return lengths, lengths
    units = unit_lengths(lengths, starts)
    next_slots = np.zeros(window_tokens + 1, np.int64)
    distinct, firsts = plan.first_slots()
    next_slots[distinct] = firsts
    windows, unit_starts = plan.look_up(take_slots(units, next_slots), units)
    unit = np.cumsum(starts) - 1
    before = np.cumsum(lengths) - lengths
    return windows[unit], unit_starts[unit] + before - before[starts][unit]

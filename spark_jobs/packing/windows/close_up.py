"""Remove documents from windows: the other segments move left to close the gap, and padding fills the end.

    segments  a b c, b removed         [a a b b b c P]  ->  [a a c P P P P]

Each sequence of a window closes up by itself. A window of such documents alone becomes all padding, without segments;
it keeps its ordinal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.packing.windows.assemble import SEGMENT_FIELDS, sequences_of
from spark_jobs.packing.windows.masks import MASK_RULE, TRAINABLE


def excise_windows(
    windows: Iterable[pa.RecordBatch], doc_ids: Collection[str], window_tokens: int, padding_id: int
) -> Iterator[pa.RecordBatch]:
    """Remove documents from windows.

    Args:
        windows: rows with token_count, input_ids and segments, perhaps masks; all other columns are kept.
        doc_ids: the documents to remove.
        window_tokens: L.
        padding_id: token after the last segment.
    """
    removed = pa.array(sorted(doc_ids), pa.string())
    for batch in windows:
        if not batch.num_rows:
            continue
        lists = batch.column("segments")
        segments = lists.flatten()
        row = np.repeat(np.arange(batch.num_rows), pc.list_value_length(lists).to_numpy())
        stays = ~pc.is_in(segments.field("doc_id"), value_set=removed).to_numpy(zero_copy_only=False)
        kept, row = segments.filter(pa.array(stays)), row[stays]
        counts = kept.field("token_count").to_numpy().astype(np.int64)
        token_counts = np.bincount(row, weights=counts, minlength=batch.num_rows).astype(np.int64)
        segment_counts = np.bincount(row, minlength=batch.num_rows)
        before = np.cumsum(counts) - counts
        sources = row * window_tokens + kept.field("window_start").to_numpy()
        sequence = sequences_of(batch, window_tokens)[row]
        first = sources // sequence * sequence  # L is a multiple of it, so sequences never cross rows
        _, firsts, within = np.unique(first, return_index=True, return_inverse=True)
        starts = first - row * window_tokens + before - before[firsts][within]
        targets = row * window_tokens + starts
        within = np.arange(int(counts.sum())) - np.repeat(before, counts)
        to, at = np.repeat(targets, counts) + within, np.repeat(sources, counts) + within
        parts = pa.StructArray.from_arrays(
            [
                kept.field("doc_id"),
                kept.field("document_start"),
                kept.field("token_count"),
                pa.array(starts.astype(np.int32)),
            ],
            fields=SEGMENT_FIELDS,
        )
        bounds = np.concatenate([[0], np.cumsum(segment_counts)]).astype(np.int32)
        rows = np.arange(batch.num_rows + 1, dtype=np.int32) * np.int32(window_tokens)
        changed = {
            "token_count": pa.array(token_counts.astype(np.int32)),
            "segments": pa.ListArray.from_arrays(pa.array(bounds), parts),
        }
        names = batch.schema.names
        of_padding = {"input_ids": np.int32(padding_id), TRAINABLE: np.False_, MASK_RULE: np.int32(-1)}
        for name, padding in of_padding.items():
            if name in names:
                values = np.full(batch.num_rows * window_tokens, padding)
                values[to] = batch.column(name).flatten().to_numpy(zero_copy_only=False)[at]
                changed[name] = pa.ListArray.from_arrays(pa.array(rows), pa.array(values))
        yield pa.RecordBatch.from_arrays([changed.get(name, batch.column(name)) for name in names], names=names)

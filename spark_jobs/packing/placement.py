"""Documents in metadata order take places: each unit the next slot of its length, each slot a place in a window."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.packing.histogram_plan import SlotTable
from spark_jobs.packing.permutation import permute
from spark_jobs.packing.units import BucketRanks, cut_documents

Int64Array = npt.NDArray[np.int64]

PLACEMENTS_SCHEMA = pa.schema(
    [
        pa.field("increment", pa.int32()),
        pa.field("shard", pa.int32()),
        pa.field("doc_id", pa.string()),
        pa.field("ordinal", pa.int64()),
        pa.field("window_start", pa.int32()),
        pa.field("document_start", pa.int64()),
        pa.field("own_tokens", pa.int32()),
        pa.field("ends", pa.bool_()),
    ]
)


def take_slots(lengths: Int64Array, next_slots: Int64Array) -> Int64Array:
    """Give each unit the next free slot of its length, in order.

    Args:
        lengths: (N,) lengths of units in metadata order.
        next_slots: (L + 1,) next free slot of each length; moved on by the units.

    Returns:
        (N,) slots: what a loop `slot[i] = next_slots[lengths[i]]; next_slots[lengths[i]] += 1` gives.
    """
    order = np.argsort(lengths, kind="stable")
    by_length = lengths[order]
    distinct, starts, counts = np.unique(by_length, return_index=True, return_counts=True)
    within = np.arange(len(lengths)) - np.repeat(starts, counts)
    slots = np.empty(len(lengths), dtype=np.int64)
    slots[order] = next_slots[by_length] + within
    next_slots[distinct] += counts
    return slots


@dataclass(frozen=True)
class Placer:
    """What a task needs to place the documents of its order buckets.

    Attributes:
        plan: slots of every length.
        ranks: first slots of every order bucket.
        base: ordinal of the increment's first row.
        key: of the permutation from windows to ordinals.
    """

    plan: SlotTable
    ranks: BucketRanks
    base: int
    key: int

    def place_batches(self, documents: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Place documents; buckets come whole and one after the other, each in metadata order.

        Args:
            documents: rows (bucket, increment, shard, doc_id, token_count), token_count > 0.

        Yields:
            Batches of `PLACEMENTS_SCHEMA`, one row per unit.
        """
        current = -1
        next_slots = np.zeros(0, dtype=np.int64)
        for batch in documents:
            buckets = batch.column("bucket").to_numpy()
            starts = np.flatnonzero(np.diff(buckets, prepend=-1))
            bounds = [0, *starts[starts > 0].tolist(), len(buckets)]
            for start, end in itertools.pairwise(bounds):
                if start == end:
                    continue
                if buckets[start] != current:
                    current = int(buckets[start])
                    next_slots = self.ranks.of_bucket(current, self.plan.window_tokens)
                yield self._place(batch.slice(start, end - start), next_slots)

    def _place(self, documents: pa.RecordBatch, next_slots: Int64Array) -> pa.RecordBatch:
        """Place documents of one bucket."""
        token_counts = documents.column("token_count").to_numpy().astype(np.int64)
        units = cut_documents(token_counts, self.plan.window_tokens)
        windows, window_starts = self.plan.place(take_slots(units.length, next_slots), units.length)
        ordinals = self.base + permute(windows, self.plan.window_count, self.key)
        ends = units.document_start + units.length > token_counts[units.document]
        document = pa.array(units.document)
        return pa.RecordBatch.from_arrays(
            [
                *(documents.column(name).take(document) for name in ("increment", "shard", "doc_id")),
                pa.array(ordinals),
                pa.array(window_starts.astype(np.int32)),
                pa.array(units.document_start),
                pa.array((units.length - ends).astype(np.int32)),
                pa.array(ends),
            ],
            schema=PLACEMENTS_SCHEMA,
        )

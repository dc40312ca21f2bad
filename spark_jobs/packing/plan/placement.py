"""Make units of documents in metadata order, and give each unit the next slot of its length in a window.

Two passes over the same rows (`packed._arranged`), each bucket in one task and in metadata order:

    count   units per (bucket, length), for every tried theta     -> the plan and each bucket's first slots
    place   unit -> slot -> (ordinal, window_start) -> its pieces

Batches of rows end anywhere, so the rows of a repository are put into one batch first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.arrays import BoolArray, Int64Array
from spark_jobs.exceptions import TableMismatchError
from spark_jobs.packing.plan.best_fit import SlotTable
from spark_jobs.packing.plan.repository_runs import ALONE, CUTS_IN_ROWS, GreedyRuns, join_runs, unit_lengths
from spark_jobs.packing.plan.units import BucketRanks, Cuts, Pieces, cut_documents
from spark_jobs.packing.plan.window_order import ONE_CELL, CellOrder, PlanNumbers, WindowOrder

EMPTY_DOCUMENTS = -2
COUNTS_SCHEMA = pa.schema(
    [
        pa.field("theta", pa.int32()),
        pa.field("bucket", pa.int32()),
        pa.field("length", pa.int32()),
        pa.field("units", pa.int64()),
    ]
)
PLACEMENTS_SCHEMA = pa.schema(
    [
        pa.field("data_file", pa.string()),
        pa.field("data_row", pa.int64()),
        pa.field("ordinal", pa.int64()),
        pa.field("window_start", pa.int32()),
        pa.field("document_start", pa.int64()),
        pa.field("own_tokens", pa.int32()),
        pa.field("begins", pa.bool_()),
        pa.field("ends", pa.bool_()),
        pa.field("cell", pa.int32()),
    ]
)


@dataclass(frozen=True)
class UnitRules:
    """How documents become units.

    Attributes:
        window_tokens: L.
        leading: 1 where documents have a beginning-of-document token, else 0.
        thetas: the least fills of a run for which units are counted, in percent of L (see `GreedyRuns.unit_starts`).
        masked: whether documents are cut where their rows begin; then longer rows are counted.
        classes: lengths that documents are cut into, descending; none where they are cut every L tokens.
    """

    window_tokens: int
    leading: int = 0
    thetas: tuple[int, ...] = (ALONE,)
    masked: bool = False
    classes: tuple[int, ...] = ()


@dataclass(frozen=True)
class PlanShard:
    """One shard's plan, with the first slots of its order buckets.

    Attributes:
        plan: slots of every length.
        ranks: first slots of the shard's order buckets.
        first_window: number of its first window in the increment.
    """

    plan: SlotTable
    ranks: BucketRanks
    first_window: int


@dataclass(frozen=True)
class Placer:
    """Places the units of a task's order buckets.

    Attributes:
        rules: with the chosen theta as `thetas[0]`.
        shards: plans by number of the shard.
        bucket_count: order buckets; bucket b is of shard `b * len(shards) // bucket_count`.
        order: from windows to ordinals.
        numbers: of the plans.
    """

    rules: UnitRules
    shards: tuple[PlanShard, ...]
    bucket_count: int
    order: WindowOrder | CellOrder
    numbers: PlanNumbers = ONE_CELL

    def place_batches(self, documents: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Place documents; the buckets come one after another, each complete and in metadata order.

        Args:
            documents: rows (bucket, data_file, data_row, doc_id, repository, token_count, cuts).

        Yields:
            Batches of `PLACEMENTS_SCHEMA`, one row per piece.
        """
        current = -1
        next_slots = np.zeros(0, dtype=np.int64)
        for bucket, rows in bucket_parts(whole_repositories(documents)):
            shard = plan_shard_of(bucket, len(self.shards) // self.numbers.class_count, self.bucket_count)
            if bucket != current:
                current = bucket
                plans = self.numbers.of(np.array(shard), np.array(self.numbers.classes or [0])).tolist()
                # A length is in one plan of the bucket alone, so that all others count 0 of it.
                slots = [self.shards[plan].ranks.of_bucket(bucket, self.rules.window_tokens) for plan in plans]
                next_slots = np.sum(slots, axis=0)
            yield self._place(rows, shard, next_slots)

    def _place(self, rows: pa.RecordBatch, shard: int, next_slots: Int64Array) -> pa.RecordBatch:
        """Place documents of one bucket, and advance `next_slots`."""
        pieces = pieces_of(rows, self.rules)
        starts = _runs(rows, pieces, self.rules).unit_starts(self.rules.thetas[0])
        lengths = unit_lengths(pieces.length, starts)
        slots, plans = take_slots(lengths, next_slots), self.numbers.of(np.array(shard), lengths)
        windows, unit_starts = np.empty_like(lengths), np.empty_like(lengths)
        for number in np.unique(plans).tolist():
            of, there = self.shards[number], plans == number
            windows[there], unit_starts[there] = of.plan.look_up(slots[there], lengths[there])
            windows[there] += of.first_window
        unit = np.cumsum(starts) - 1
        before = np.cumsum(pieces.length) - pieces.length
        window_starts = unit_starts[unit] + before - before[starts][unit]
        ordinals = self.order.ordinals(windows)[unit]
        return placements(rows, pieces, ordinals, window_starts, (plans // self.numbers.cell_shards)[unit])


def plan_shard_of(bucket: int, shard_count: int, bucket_count: int) -> int:
    """The plan of an order bucket: neighbouring buckets share one."""
    return bucket * shard_count // bucket_count


def placements(
    rows: pa.RecordBatch, pieces: Pieces, ordinals: Int64Array, starts: Int64Array, cell: Int64Array | int
) -> pa.RecordBatch:
    """Rows of `PLACEMENTS_SCHEMA`.

    Args:
        rows: documents with data_file and data_row.
        pieces: their pieces.
        ordinals: (N,) ordinal of each piece's window.
        starts: (N,) position of each piece's first token in its window.
        cell: number of their cell, or (N,) of each piece's.
    """
    document = pa.array(pieces.document)
    return pa.RecordBatch.from_arrays(
        [
            *(rows.column(name).take(document) for name in ("data_file", "data_row")),
            pa.array(ordinals),
            pa.array(starts.astype(np.int32)),
            pa.array(pieces.document_start),
            pa.array(pieces.own_tokens.astype(np.int32)),
            pa.array(pieces.begins),
            pa.array(pieces.ends),
            pa.array(np.full(len(ordinals), cell, dtype=np.int32)),
        ],
        schema=PLACEMENTS_SCHEMA,
    )


def take_slots(lengths: Int64Array, next_slots: Int64Array) -> Int64Array:
    """Give each unit the next free slot of its length, in order.

    Args:
        lengths: (N,) lengths of units in metadata order.
        next_slots: (L + 1,) next free slot of each length, updated.

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


def count_batches(documents: Iterable[pa.RecordBatch], rules: UnitRules) -> Iterator[pa.RecordBatch]:
    """Count units by (theta, bucket, length); the buckets come one after another, each complete and in metadata order.

    Args:
        documents: rows as `Placer.place_batches` takes them.
        rules: how they become units.

    Yields:
        Batches of `COUNTS_SCHEMA`, each of one bucket; empty documents count as units of length 0 under the theta
        EMPTY_DOCUMENTS, and cuts inside of rows under CUTS_IN_ROWS.
    """
    for bucket, parts in groupby(bucket_parts(whole_repositories(documents)), key=itemgetter(0)):
        counts = {theta: _LengthCounts(rules.window_tokens) for theta in rules.thetas}
        empty = inside = 0
        for _, rows in parts:
            pieces = pieces_of(rows, rules)
            empty += rows.num_rows - int(pieces.first.sum())
            inside += int((~pieces.first).sum()) - len(rows.column("cuts").flatten())
            runs = _runs(rows, pieces, rules)
            for theta, counter in counts.items():
                counter.add(unit_lengths(pieces.length, runs.unit_starts(theta)))
        for theta, counter in counts.items():
            yield _counted(theta, bucket, *counter.totals())
        yield count_row(EMPTY_DOCUMENTS, bucket, 0, empty)
        if rules.masked:
            yield count_row(CUTS_IN_ROWS, bucket, 0, inside)


def pieces_of(rows: pa.RecordBatch, rules: UnitRules) -> Pieces:
    """Cut documents at their `cuts`, or without any every L tokens.

    Raises:
        TableMismatchError: a document of `ordered` is not in `tokens`.
    """
    if rows.column("token_count").null_count:
        row = pc.index(pc.is_null(rows.column("token_count")), True).as_py()
        raise TableMismatchError(
            f"packed: document {rows.column('doc_id')[row]} survived and is in ordered, but tokens has no row of it; "
            "materialize tokens again"
        )
    token_counts = rows.column("token_count").to_numpy().astype(np.int64)
    lists = rows.column("cuts")
    document = np.repeat(np.arange(rows.num_rows), pc.fill_null(pc.list_value_length(lists), 0).to_numpy())
    cuts = Cuts(document, lists.flatten().to_numpy())
    return cut_documents(token_counts, rules.window_tokens, rules.leading, cuts, rules.classes)


def whole_repositories(documents: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put all rows of a repository into one batch.

    Args:
        documents: rows with bucket and repository, those of one repository side by side.

    Yields:
        Batches beginning where a repository does; memory is one input batch and the largest repository's rows.
    """
    waiting: list[pa.RecordBatch] = []
    for batch in documents:
        if not batch.num_rows:
            continue
        if waiting and _same_repository(waiting[-1].slice(waiting[-1].num_rows - 1), batch.slice(0, 1)):
            starts = np.flatnonzero(group_starts(batch)[1:]) + 1
            if not starts.size:
                waiting.append(batch)
                continue
            yield _joined([*waiting, batch.slice(0, int(starts[0]))])
            batch_rows = batch.slice(int(starts[0]))
        else:
            batch_rows = batch
            if waiting:
                yield _joined(waiting)
        last = int(np.flatnonzero(group_starts(batch_rows))[-1])
        if last:
            yield batch_rows.slice(0, last)
        waiting = [batch_rows.slice(last)]
    if waiting:
        yield _joined(waiting)


def group_starts(rows: pa.RecordBatch) -> BoolArray:
    """(D,) whether a document begins a group: the first of its repository, or one without repository."""
    repository, bucket = rows.column("repository"), rows.column("bucket").to_numpy()
    starts = np.ones(rows.num_rows, dtype=np.bool_)
    same = pc.fill_null(pc.equal(repository[1:], repository[:-1]), False).to_numpy(zero_copy_only=False)
    starts[1:] = ~same | (bucket[1:] != bucket[:-1])
    return starts


def _same_repository(left: pa.RecordBatch, right: pa.RecordBatch) -> bool:
    """Whether two rows are of one repository."""
    return not bool(group_starts(_joined([left, right]))[1])


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def bucket_parts(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Cut batches where the bucket changes; yields (bucket, rows).

    Raises:
        TableMismatchError: a document has no cell; such rows have a negative bucket, and come first.
    """
    for batch in batches:
        if not batch.num_rows:
            continue
        buckets = batch.column("bucket").to_numpy()
        if buckets[0] < 0:
            raise TableMismatchError(
                f"packed: document {batch.column('doc_id')[0]} has tokens and no cell; materialize cells again"
            )
        bounds = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist(), len(buckets)]
        for start, end in pairwise(bounds):
            yield int(buckets[start]), batch.slice(start, end - start)


def _runs(rows: pa.RecordBatch, pieces: Pieces, rules: UnitRules) -> GreedyRuns:
    """The runs of the pieces; where ALONE is the only theta, each piece by itself."""
    if rules.thetas == (ALONE,):
        each = np.ones(len(pieces.length), dtype=np.bool_)
        return GreedyRuns(pieces.length, each, each, pieces.length, rules.window_tokens)
    return join_runs(pieces, group_starts(rows), rules.window_tokens)


class _LengthCounts:
    """Counts units by length: it lists the lengths while they are few, then keeps an array indexed by length."""

    def __init__(self, window_tokens: int) -> None:
        self._dense: Int64Array | None = None
        self._waiting: list[Int64Array] = []
        self._waiting_count = 0
        self._size = window_tokens + 1

    def add(self, lengths: Int64Array) -> None:
        """Count some lengths."""
        self._waiting.append(lengths)
        self._waiting_count += len(lengths)
        if self._waiting_count > self._size:
            counts = np.bincount(np.concatenate(self._waiting), minlength=self._size)
            self._dense = counts if self._dense is None else self._dense + counts
            self._waiting, self._waiting_count = [], 0

    def totals(self) -> tuple[Int64Array, Int64Array]:
        """Distinct lengths, ascending, and the count of each."""
        waiting = np.concatenate([*self._waiting, np.zeros(0, dtype=np.int64)])
        if self._dense is None:
            return np.unique(waiting, return_counts=True)
        dense = self._dense + np.bincount(waiting, minlength=self._size)
        lengths = np.flatnonzero(dense)
        return lengths, dense[lengths]


def count_row(theta: int, bucket: int, length: int, count: int) -> pa.RecordBatch:
    """One row of `COUNTS_SCHEMA`."""
    return _counted(theta, bucket, np.array([length], dtype=np.int64), np.array([count], dtype=np.int64))


def _counted(theta: int, bucket: int, lengths: Int64Array, counts: Int64Array) -> pa.RecordBatch:
    """Rows of `COUNTS_SCHEMA` of one bucket under one theta."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.full(len(lengths), theta, dtype=np.int32)),
            pa.array(np.full(len(lengths), bucket, dtype=np.int32)),
            pa.array(lengths.astype(np.int32)),
            pa.array(counts.astype(np.int64)),
        ],
        schema=COUNTS_SCHEMA,
    )

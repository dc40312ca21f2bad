"""The proofs of `removals` in one process: by numbers and sorted keys, where Spark joins.

Rows stay in mapped files, and identities are numbered in the order of their names. The code shares with the computation
how it numbers them and takes rows, and nothing else: it looks at pairs and removals as written, in whatever order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa

from spark_jobs.arrays import BoolArray, Int32Array, Int64Array
from spark_jobs.dedup.graph.dense_graph import numbered
from spark_jobs.dedup.near.comparison import taken_in_batches


def kept_pair_batches(pairs: pa.Table, removed: pa.Table, thresholds: Sequence[Fraction]) -> Iterator[pa.RecordBatch]:
    """Pairs of two documents that are both kept at a threshold the pair reaches: (threshold, doc_id, better_doc_id).

    Args:
        pairs: columns doc_id, better_doc_id, shared_weight, united_weight and leaves (which reaches each threshold).
        removed: columns threshold and doc_id.
        thresholds: each as the fraction that its decimals write.
    """
    ends = ("doc_id", "better_doc_id")
    ids, (worse, better, gone) = numbered([*(pairs[name] for name in ends), removed["doc_id"]])
    shared, united = (pairs[name].to_numpy() for name in ("shared_weight", "united_weight"))
    leaves, at = pairs["leaves"].to_numpy(), removed["threshold"].to_numpy()
    for threshold in thresholds:
        is_gone = np.zeros(len(ids), np.bool_)
        is_gone[gone[at == float(threshold)]] = True
        reached = leaves | (shared * threshold.denominator >= united * threshold.numerator)
        rows = np.flatnonzero(reached & ~is_gone[worse] & ~is_gone[better])
        for part in taken_in_batches(pairs.select(ends), rows):
            yield from _at(float(threshold), part)


def unjustified_batches(landed: pa.Table, pairs: pa.Table, removed: pa.Table) -> Iterator[pa.RecordBatch]:
    """Removals whose witness is removed, or has no pair of these weights: (threshold, doc_id, witness_doc_id).

    Args:
        landed: columns threshold, dataset, doc_id, witness_dataset, witness_doc_id, shared_weight, united_weight.
        pairs: the same columns but the threshold.
        removed: columns threshold and doc_id.
    """
    ends = ("doc_id", "witness_doc_id")
    columns = [rows[name] for rows in (landed, pairs) for name in ends]
    ids, (worse, witness, pair_worse, pair_witness, gone) = numbered([*columns, removed["doc_id"]])
    at, gone_at = (rows["threshold"].to_numpy() for rows in (landed, removed))
    justified = _have_pair((worse, witness), (pair_worse, pair_witness), landed, pairs, len(ids))
    for threshold in np.unique(at):
        is_gone = np.zeros(len(ids), np.bool_)
        is_gone[gone[gone_at == threshold]] = True
        rows = np.flatnonzero((at == threshold) & (~justified | is_gone[witness]))
        for part in taken_in_batches(landed.select(ends), rows):
            yield from _at(float(threshold), part)


def _have_pair(
    ends: tuple[Int32Array, Int32Array],
    pair_ends: tuple[Int32Array, Int32Array],
    landed: pa.Table,
    pairs: pa.Table,
    id_count: int,
) -> BoolArray:
    """(R,) whether each removal has a pair of equal ends, datasets and weights; no two pairs have the same ends."""
    keys, pair_keys = (_keys(both, id_count) for both in (ends, pair_ends))
    if not len(pair_keys):
        return np.zeros(len(keys), np.bool_)
    order = np.argsort(pair_keys)
    row = order[np.minimum(np.searchsorted(pair_keys, keys, sorter=order), len(order) - 1)]
    justified: BoolArray = pair_keys[row] == keys
    for name in ("dataset", "witness_dataset"):
        written, stored = numbered([landed[name], pairs[name]])[1]
        justified &= stored[row] == written
    for name in ("shared_weight", "united_weight"):
        justified &= pairs[name].to_numpy()[row] == landed[name].to_numpy()
    return justified


def _keys(ends: tuple[Int32Array, Int32Array], id_count: int) -> Int64Array:
    """One number for two documents."""
    keys: Int64Array = ends[0].astype(np.int64) * id_count + ends[1]
    return keys


def _at(threshold: float, rows: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from rows.add_column(0, "threshold", pa.repeat(threshold, rows.num_rows)).combine_chunks().to_batches()

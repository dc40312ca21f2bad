"""The step `agreement`: how far a judge agrees with itself, and what it says of the dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from spark_jobs.arrays import Int64Array
from spark_jobs.lake.declare.step import Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.engine.arrangement import grouped
from spark_jobs.spark_sql import DataFrame

AGREEMENT = Table(
    name="agreement",
    comment="One row: how far the judge agrees with itself on texts that it was asked about twice.",
    columns=(
        Column("sampled_count!", "long", "documents that were sampled"),
        Column("scored_count!", "long", "of these, how many have a score"),
        Column("reasons!", "string", "why the others have none, with counts, most first"),
        Column("mean_score", "double", "mean score over the dataset: by weight, of those that have one"),
        Column("twice_count!", "long", "documents that have two scores"),
        Column("same_count!", "long", "of these, how many have the same score twice"),
        Column("same_share", "double", "share of these; null without any"),
        Column("weighted_kappa", "double", "Cohen's kappa with quadratic weights; null where all scores are one"),
    ),
    checks=(
        Check("same_share_in_bounds", "coalesce(same_share, 0) between 0 and 1", "same_share is a fraction"),
        Check("kappa_in_bounds", "coalesce(weighted_kappa, 0) between -1 and 1.000001", "kappa is at most 1"),
    ),
)
_DDL: Final = (
    "sampled_count bigint, scored_count bigint, reasons string, mean_score double, twice_count bigint, "
    "same_count bigint, same_share double, weighted_kappa double"
)
_READ: Final = ("doc_id", "score", "reason", "second_score", "weight")


@step(version="1", scope=Scope.WHOLE, tables=(AGREEMENT,))
def agreement(judged: DataFrame) -> DataFrame:
    """Compare the two scores of documents with two, and average the first ones; one row."""
    return grouped(judged.select(*_READ), [], ["doc_id"]).map(_compared, _DDL).to_frame()


def weighted_kappa(first: Int64Array, second: Int64Array) -> float | None:
    """Agreement of two scores beyond chance, where a distance counts by its square; None where all are one score.

    1 is agreement, 0 what independent scores with the same frequencies have. Source: Cohen 1968, "Weighted kappa".

    Args:
        first: (N,) scores.
        second: (N,) scores of the same texts.
    """
    differences = int(((first - second) ** 2).sum()) * len(first)
    by_chance = int(len(first) * ((first**2).sum() + (second**2).sum()) - 2 * first.sum() * second.sum())
    return 1 - differences / by_chance if by_chance else None


def _compared(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    listed = list(batches)
    if not listed:
        return
    rows = pa.Table.from_batches(listed)
    scored = rows.filter(rows["score"].is_valid())
    both = scored.filter(scored["second_score"].is_valid())
    first, second = (both[name].to_numpy().astype(np.int64) for name in ("score", "second_score"))
    counts = Counter(reason for reason in sorted(filter(None, rows["reason"].to_pylist())))
    weights = scored["weight"].to_numpy()
    same = int((first == second).sum())
    columns = {
        "sampled_count": pa.array([len(rows)], pa.int64()),
        "scored_count": pa.array([len(scored)], pa.int64()),
        "reasons": pa.array([", ".join(f"{reason} {count:,}" for reason, count in counts.most_common())]),
        "mean_score": _doubles(np.average(scored["score"].to_numpy(), weights=weights) if len(scored) else None),
        "twice_count": pa.array([len(both)], pa.int64()),
        "same_count": pa.array([same], pa.int64()),
        "same_share": _doubles(same / len(both) if len(both) else None),
        "weighted_kappa": _doubles(weighted_kappa(first, second) if len(both) else None),
    }
    yield pa.RecordBatch.from_pydict(columns)


def _doubles(value: float | None) -> pa.Array:
    return pa.array([value], pa.float64())

"""The step `cell_statistics`: documents, bytes, tokens, and the mean of each measure, by dataset and cell.

Means are of exact sums: a double is a whole number times a power of two, and whole numbers add up alike in any order.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.tables.cells import CELL_COLUMN
from headrace_features.composition.cells import measured, value_column
from headrace_features.composition.config import CellsConfig
from headrace_features.composition.picture import draw_cells
from spark_jobs.arrays import Float64Array
from spark_jobs.lake.declare.step import Plot, Scope, Step, step, with_inputs
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.spark_sql import DataFrame, F

_UNIT: Final = 1074 + 53  # sums are whole numbers of 2^-1127: of the last bit of the least double
_DDL: Final = "dataset string, cell string, totals array<bigint>, counts array<bigint>, sums array<string>"
_SCHEMA: Final = pa.schema(
    {
        "dataset": pa.string(),
        "cell": pa.string(),
        "totals": pa.list_(pa.int64()),
        "counts": pa.list_(pa.int64()),
        "sums": pa.list_(pa.string()),
    }
)
_TOTALS: Final = ("documents", "bytes", "tokens")

CELL_STATISTICS = Table(
    name="cell_statistics",
    comment="One row per dataset and cell of the increment: what it holds.",
    columns=(
        Column("dataset!", "string", "dataset that the documents came from"),
        Column("cell!", "string", "value of each dimension, as JSON by name"),
        Column("documents!", "long", "documents that go on to packing"),
        Column("bytes!", "long", "bytes of their files"),
        Column("tokens!", "long", "tokens, without special ones"),
        Column(
            "means!", "map<string, double>", "mean of each measure by dimension; null where no document has a value"
        ),
    ),
    key=("dataset", "cell"),
    partition=("increment",),
    sort=("dataset", "cell"),
    checks=(Check("not_empty", "documents >= 1", "a cell has a document"),),
)


def exact_sum(values: Float64Array) -> int:
    """The sum of (N,) finite doubles, in units of 2^-1127."""
    mantissas, powers = np.frexp(values)
    whole, total = (mantissas * 2.0**53).astype(np.int64), 0
    for power in np.unique(powers).tolist():
        of_power = whole[powers == power]
        halves = int((of_power >> 26).sum()), int((of_power & ((1 << 26) - 1)).sum())  # or 2^11 of them would overflow
        total += ((halves[0] << 26) + halves[1]) << (power + 1074)
    return total


@dataclass
class _Sums:
    """What the documents of a cell add up to."""

    totals: list[int]
    counts: list[int]
    sums: list[int] = field(default_factory=list)

    def add(self, totals: Iterable[int], counts: Iterable[int], sums: Iterable[int]) -> None:
        """Add those of other documents."""
        self.totals = [one + other for one, other in zip(self.totals, totals, strict=True)]
        self.counts = [one + other for one, other in zip(self.counts, counts, strict=True)]
        self.sums = [one + other for one, other in zip(self.sums, sums, strict=True)]


def _statistics(
    cells: DataFrame, members: DataFrame, tokens: DataFrame, config: CellsConfig, **tables: DataFrame
) -> DataFrame:
    """Add up what each cell of an increment holds; one row per dataset and cell."""
    binned = config.binned
    names = list(binned.by) if binned is not None else []
    values = [*map(value_column, names)]
    rows = cells.select("dataset", "doc_id", CELL_COLUMN)
    rows = rows.join(members.select("doc_id", F.col("byte_count").alias("bytes")), "doc_id", "left")
    rows = rows.join(tokens.select("doc_id", F.col("token_count").alias("tokens")), "doc_id", "left")
    if binned is not None:
        rows = measured(rows, {"members": members, "tokens": tokens, **tables}, binned)
    add = functools.partial(_added, measures=tuple(values))
    parts = rows.select("dataset", CELL_COLUMN, "bytes", "tokens", *values).mapInArrow(add, _DDL).toArrow()
    sums = dict[tuple[str, str], _Sums]()
    for row in parts.to_pylist():
        of_cell = sums.setdefault((row["dataset"], row["cell"]), _none(len(names)))
        of_cell.add(row["totals"], row["counts"], map(int, row["sums"]))
    means = pa.array([_means(names, one) for one in sums.values()], pa.map_(pa.string(), pa.float64()))
    columns = {name: pa.array([one.totals[at] for one in sums.values()], pa.int64()) for at, name in enumerate(_TOTALS)}
    keys = {name: pa.array([key[at] for key in sums], pa.string()) for at, name in enumerate(("dataset", "cell"))}
    return cells.sparkSession.createDataFrame(pa.table({**keys, **columns, "means": means}))


def _none(measures: int) -> _Sums:
    return _Sums([0] * len(_TOTALS), [0] * measures, [0] * measures)


def _means(names: list[str], sums: _Sums) -> list[tuple[str, float | None]]:
    return [
        (name, float(Fraction(total, count << _UNIT)) if count else None)
        for name, count, total in zip(names, sums.counts, sums.sums, strict=True)
    ]


def _added(batches: Iterable[pa.RecordBatch], measures: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """One row for each dataset and cell of a task: its totals, and count and sum of each measure's finite values."""
    sums = dict[tuple[str, str], _Sums]()
    for batch in batches:
        keys = pa.StructArray.from_arrays([batch.column("dataset"), batch.column(CELL_COLUMN)], ["dataset", "cell"])
        places = keys.to_pylist()
        order: dict[tuple[str, str], list[int]] = {}
        for at, key in enumerate(places):
            order.setdefault((key["dataset"], key["cell"]), []).append(at)
        for key, rows in order.items():
            part = batch.take(pa.array(rows))
            values = [part.column(name).drop_null().to_numpy(zero_copy_only=False) for name in measures]
            finite = [of_measure[np.isfinite(of_measure)] for of_measure in values]
            totals = [len(rows), *(pc.sum(part.column(name)).as_py() or 0 for name in ("bytes", "tokens"))]
            of_cell = sums.setdefault(key, _none(len(measures)))
            of_cell.add(totals, map(len, finite), map(exact_sum, finite))
    rows_ = [
        {"dataset": key[0], "cell": key[1], "totals": one.totals, "counts": one.counts, "sums": [*map(str, one.sums)]}
        for key, one in sums.items()
    ]
    yield pa.RecordBatch.from_pylist(rows_, schema=_SCHEMA)


def statistics_step(tables: Iterable[str] = ()) -> Step:
    """The step `cell_statistics`, with tables of values among its inputs."""
    declare = step(
        version="2",
        scope=Scope.INCREMENT,
        tables=(CELL_STATISTICS,),
        name=CELL_STATISTICS.name,
        config=CellsConfig,
        plot=Plot("Tokens by cell", ("cell", "tokens"), draw_cells),
    )
    return declare(with_inputs(_statistics, [name for name in tables if name not in ("members", "tokens")]))


cell_statistics = statistics_step()

"""The steps `cell_bounds` and `cells`: the cell of each document that goes on to packing.

Bounds are frozen with the generation, and the cell of a document depends on it, on them and on what its increment
brought: later increments move none. A document without a value has null in that dimension.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.tables.cells import CELL_COLUMN, Value, cell_text
from headrace_features.composition.config import CellsConfig, Dimension, Place
from headrace_features.composition.copies import copies_of
from headrace_features.composition.quantiles import quantile_bounds
from spark_jobs.arrays import Float64Array, Int64Array
from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.step import ArrowRows, Output, Scope, Step, step, with_inputs
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.packing.cells import CELLS
from spark_jobs.selection.kept import KEYS
from spark_jobs.spark_sql import Column as SparkColumn
from spark_jobs.spark_sql import DataFrame, F

_DDL: Final = "dataset string, shard int, doc_id string, cell string"
DUPLICATES: Final = ("exact_duplicates", "removals", "members")
"""Tables of the corpus by which copies are counted."""
_COPIES: Final = "copies"
# Engines differ in what else is a number: to Spark 7f and 12d are, as in Java.
_NUMBER: Final = r"^[ \t\r\n]*[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?[ \t\r\n]*$|^[+-]?(?i:inf|infinity)$"

CELL_BOUNDS = Table(
    name="cell_bounds",
    comment="One row per bound of a dimension: where a bin begins.",
    columns=(
        Column("dimension!", "string", "name of the dimension"),
        Column("number!", "int", "number of the bin that begins here, from 1"),
        Column("bound!", "double", "least value of the bin; a value is in as many bins as there are bounds up to it"),
    ),
    key=("dimension", "number"),
    partition=("increment",),
    sort=("dimension", "number"),
    checks=(Check("from_one", "number >= 1", "bin 0 has no bound"),),
)


def measured(documents: DataFrame, frames: Mapping[str, DataFrame], config: CellsConfig) -> DataFrame:
    """Append a column `by_NAME` for each dimension but copies: what is binned is double, booleans are texts.

    Args:
        documents: rows with doc_id.
        frames: tables with values.
        config: the dimensions.
    """
    for table in config.tables:
        columns = [
            _value(place, config.by[name], dict(frames[table].dtypes)).alias(value_column(name))
            for name, place in config.places.items()
            if place.table == table
        ]
        documents = documents.join(frames[table].select("doc_id", *columns), "doc_id", "left")
    return documents


def value_column(dimension: str) -> str:
    """Column of a dimension's values; the dimension itself may have the name of any other column."""
    return f"by_{dimension}"


def _value(place: Place, dimension: Dimension, kinds: Mapping[str, str]) -> SparkColumn:
    value = F.col(place.column) if place.key is None else F.col(place.column).getItem(place.key)
    if dimension.is_binned:
        return value.cast("double") if place.key is None else F.when(value.rlike(_NUMBER), value.try_cast("double"))
    return value.cast("string") if kinds[place.column] == "boolean" else value


def _bounds(survivors: DataFrame, config: CellsConfig, **tables: DataFrame) -> DataFrame:
    """Find the bounds of each dimension by bounds or quantiles; one row per bound."""
    parts = {name: one.quantiles for name, one in config.by.items() if one.quantiles is not None}
    bounds = {name: np.array(one.bounds) for name, one in config.by.items() if one.bounds is not None}
    if parts:
        values = measured(survivors.select(*KEYS), tables, config)
        bounds |= quantile_bounds(values.select(*(F.col(value_column(name)).alias(name) for name in parts)), parts)
    rows = [(name, at + 1, float(bound)) for name in sorted(bounds) for at, bound in enumerate(bounds[name])]
    return survivors.sparkSession.createDataFrame(rows, "dimension string, number int, bound double")


def _cells(
    survivors: DataFrame,
    config: CellsConfig,
    cell_bounds: DataFrame | None = None,
    exact_duplicates: DataFrame | None = None,
    removals: DataFrame | None = None,
    members: DataFrame | None = None,
    **tables: DataFrame,
) -> Output:
    """Give each document that goes on to packing its cell; one row per document."""
    of_corpus = {"exact_duplicates": exact_duplicates, "removals": removals, "members": members}
    frames = {**tables, **{name: frame for name, frame in of_corpus.items() if frame is not None}}
    documents = measured(survivors.select(*KEYS), frames, config)
    bounds = bounds_of(cell_bounds)
    _require_bounds(documents, [name for name, one in config.by.items() if one.is_binned and name not in bounds])
    columns = [*KEYS, *map(value_column, config.places)]
    if config.duplicates is not None and exact_duplicates is not None and members is not None:
        copies = copies_of(exact_duplicates, removals, members, config.threshold)
        documents = documents.join(copies.withColumnRenamed("documents", _COPIES), "doc_id", "left")
        columns.append(_COPIES)
    name_cells = functools.partial(_named, config=config, bounds=bounds)
    rows = ArrowRows(documents.select(*columns), name_cells, _DDL)
    return Output({CELLS.name: rows.to_frame()}, arrow_rows={CELLS.name: rows})


def _require_bounds(documents: DataFrame, names: list[str]) -> None:
    """Refuse documents with values of dimensions that no bounds were frozen for: all would be in the lowest bin.

    Raises:
        InputError: names such a dimension.
    """
    for name in names:
        if documents.where(F.col(value_column(name)).isNotNull() & ~F.isnan(value_column(name))).limit(1).count():
            raise InputError(
                f"by.{name}: cell_bounds has none of it, as it was frozen before {name} was declared or a document had "
                "a value; headrace corpus refresh, then run, makes bounds anew, from all increments"
            )


def bounds_of(cell_bounds: DataFrame | None) -> dict[str, Float64Array]:
    """(B,) ascending bounds by dimension."""
    if cell_bounds is None:
        return {}
    rows = cell_bounds.select("dimension", "number", "bound").toArrow().sort_by("number")
    return {
        name: rows.filter(pc.equal(rows["dimension"], name))["bound"].to_numpy()
        for name in pc.unique(rows["dimension"]).to_pylist()
    }


def _named(
    batches: Iterable[pa.RecordBatch], config: CellsConfig, bounds: Mapping[str, Float64Array]
) -> Iterator[pa.RecordBatch]:
    """Rows of `cells`, of batches of documents with their values."""
    for batch in batches:
        columns = {name: batch.column(value_column(name)) for name in config.places}
        if config.duplicates is not None:
            name, duplicates = config.duplicates
            counts = pc.fill_null(batch.column(_COPIES), 1).to_numpy(zero_copy_only=False).astype(np.int64)
            # The exponent of n is the number of its bits: 1 for 1, 2 for 2 and 3, 3 for 4 to 7.
            levels = np.frexp(counts)[1].astype(np.int64) if duplicates.scale == "log2" else counts
            columns[name] = pa.array(np.minimum(levels, duplicates.most))
        binned = {name: bounds.get(name, np.zeros(0)) for name, one in config.by.items() if one.is_binned}
        cells = cell_names(columns, binned, batch.num_rows)
        yield pa.RecordBatch.from_arrays([*(batch.column(key) for key in KEYS), cells], names=[*KEYS, CELL_COLUMN])


def cell_names(columns: Mapping[str, pa.Array], bounds: Mapping[str, Float64Array], count: int) -> pa.Array:
    """(N,) names of the cells of documents.

    Args:
        columns: (N,) values of each dimension: doubles of those with bounds, else texts or whole numbers.
        bounds: (B,) ascending bounds of dimensions whose values are bins.
        count: N.
    """
    together, coded = np.zeros(count, np.int64), dict[str, tuple[Int64Array, list[Value]]]()
    for name, column in columns.items():
        codes, values = coded[name] = _coded(column, bounds.get(name))
        # Codes of all dimensions so far are dense, so that the product of many dimensions stays small.
        together = np.unique(together * len(values) + codes, return_inverse=True)[1].reshape(-1)
    _, firsts, inverse = np.unique(together, return_index=True, return_inverse=True)
    names = [
        cell_text({name: values[codes[first]] for name, (codes, values) in coded.items()}) for first in firsts.tolist()
    ]
    return pa.array(names, pa.string()).take(pa.array(inverse.reshape(-1)))


def _coded(column: pa.Array, bounds: Float64Array | None) -> tuple[Int64Array, list[Value]]:
    """(N,) codes of the values of a dimension, and the value of each code; null and NaN are none."""
    if bounds is None:
        encoded = column.dictionary_encode()
        values = encoded.dictionary.to_pylist()
        return pc.fill_null(encoded.indices, len(values)).to_numpy().astype(np.int64), [*values, None]
    numbers = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    bins = np.searchsorted(bounds, numbers, side="right")
    return np.where(np.isnan(numbers), len(bounds) + 1, bins), [*range(len(bounds) + 1), None]


def bounds_step(tables: Iterable[str] = ()) -> Step:
    """The step `cell_bounds`, with tables of values among its inputs."""
    declare = step(version="2", scope=Scope.FROZEN, tables=(CELL_BOUNDS,), name=CELL_BOUNDS.name, config=CellsConfig)
    return declare(with_inputs(_bounds, tables))


def cells_step(tables: Iterable[str] = ()) -> Step:
    """The step `cells`, with tables of values among its inputs."""
    declare = step(version="2", scope=Scope.INCREMENT, tables=(CELLS,), name=CELLS.name, config=CellsConfig)
    return declare(with_inputs(_cells, [name for name in tables if name not in DUPLICATES]))


cell_bounds, cells = bounds_step(), cells_step()

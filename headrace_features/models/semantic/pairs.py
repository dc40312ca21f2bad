"""The step `semantic_pairs`: documents of one cell with vectors at a cosine of at least the threshold.

The new documents of a cell are cut, in their order, into tiles. A task holds the documents of a tile and streams the
better ones of the cell past them, earlier increments first, so its memory does not grow with the cell:

    cell of 10,000 new documents, tiles of 4,096     tile 0    with all earlier ones and itself
                                                     tile 1    with these, tile 0 and itself
                                                     tile 2    with these, tiles 0 and 1 and itself

A document gets the first `max_pairs` better neighbours of a cell and is compared no further. The best of many documents
that are all alike is among these, so n of them give n * `max_pairs` pairs and not n^2.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Final

import numpy as np
import pyarrow as pa
from pydantic import Field

from headrace_features.models.semantic.compared import families, vectors_of, with_families
from headrace_features.models.semantic.cosine import Queries
from spark_jobs.arrays import Int16Array, Int64Array
from spark_jobs.code.grouped_rows import grouped_rows
from spark_jobs.dedup.graph.dense_graph import DEFAULT_DRIVER_EDGES, DriverEdges
from spark_jobs.dedup.graph.threshold_pairs import exact
from spark_jobs.dedup.near.pairs import PAIRS
from spark_jobs.dedup.pictures import draw_pair_similarities
from spark_jobs.lake.declare.step import ConfigModel, Plot, Scope, step
from spark_jobs.lake.declare.tables import Column, ddl_names
from spark_jobs.lake.engine.arrangement import grouped
from spark_jobs.spark_sql import DataFrame, F

_PAIRS_DDL: Final = (
    "dataset string, doc_id string, place bigint, better_dataset string, better_doc_id string, better_place bigint, "
    "better_increment int, shared_weight bigint, united_weight bigint"
)
_ORDER: Final = ["role", "increment", "place", "doc_id"]
_OWN: Final = ("dataset", "doc_id", "place", "increment", "vector", "family", "cell")


class SemanticPairsConfig(ConfigModel):
    """Which pairs are stored."""

    threshold: float = Field(0.9, gt=0, le=1, description="least cosine of a pair")
    max_pairs: int = Field(32, ge=1, description="pairs stored for a document in a cell, best priority first")
    tile_documents: int = Field(
        4096,
        ge=1,
        le=65_536,
        description="new documents of a cell that a task compares; each takes 6 bytes a dimension",
    )
    driver_edges: DriverEdges = DEFAULT_DRIVER_EDGES


SEMANTIC_PAIRS = replace(
    PAIRS,
    name="semantic_pairs",
    comment="One row per two documents whose vectors were compared and have at least the cosine of the threshold.",
    columns=(
        *PAIRS.columns[1:-3],  # the two documents
        Column("shared_weight!", "long", "product of the two vectors: the numerator of the cosine"),
        Column("united_weight!", "long", "product of their lengths, rounded down: the denominator"),
        Column("similarity!", "double", "the cosine, rounded to a double"),
    ),
)


@step(
    version="1",
    scope=Scope.HISTORY,
    tables=(SEMANTIC_PAIRS,),
    plot=Plot("cosine of pairs", ("similarity",), draw_pair_similarities),
)
def semantic_pairs(
    semantic_cells: DataFrame, increment: int, config: SemanticPairsConfig, documents: DataFrame | None = None
) -> DataFrame:
    """Compare the documents of an increment with the better ones of their cells; one row per pair.

    `documents` (rows of increments 0 to `increment`) give the families: their members are never a pair; None for none.
    """
    from pyspark.sql import Window

    known = with_families(semantic_cells, families(documents, semantic_cells, config.driver_edges))
    listed = known.withColumn("cell", F.explode(F.array("cell", "second_cell"))).where("cell IS NOT NULL").select(*_OWN)
    by_place = Window.partitionBy("cell").orderBy("place", "doc_id")
    new = listed.where(F.col("increment") == increment).withColumn("rank", F.row_number().over(by_place).cast("bigint"))
    new = new.withColumn("tile", F.floor((F.col("rank") - 1) / config.tile_documents).cast("int"))
    last = new.groupBy("cell").agg(F.max("tile").alias("last"))
    before = listed.where(F.col("increment") < increment).withColumn("rank", F.lit(0).cast("bigint"))
    others = new.unionByName(before.withColumn("tile", F.lit(0))).join(F.broadcast(last), "cell")
    passing = others.withColumn("tile", F.explode(F.sequence("tile", "last"))).withColumn("role", F.lit(1)).drop("last")
    tiles = new.withColumn("role", F.lit(0)).unionByName(passing)
    compare = functools.partial(_compare, least=exact(config.threshold), most=config.max_pairs)
    found = grouped(tiles, ["cell", "tile"], _ORDER).map(compare, _PAIRS_DDL).to_frame().distinct()
    return found.withColumn("similarity", F.col("shared_weight") / F.col("united_weight"))


def _compare(batches: Iterable[pa.RecordBatch], least: Fraction, most: int) -> Iterator[pa.RecordBatch]:
    """The pairs of each tile. Rows come by (cell, tile): first its own documents, then those they are compared with."""
    for pairs in grouped_rows(batches, ("cell", "tile"), functools.partial(_Tile, least, most)):
        yield from pairs.to_batches()


class _Tile:
    """One tile: holds its own documents and gives their pairs with the following rows."""

    def __init__(self, least: Fraction, most: int) -> None:
        self._least, self._most = least, most
        self._held: list[pa.RecordBatch] = []
        self._queries: Queries | None = None
        self._own = pa.record_batch({})

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Take the tile's next rows (`role` 0: its own documents; 1: others) and give the pairs with the others."""
        roles = rows["role"].to_numpy()
        own = int((roles == 0).sum())
        if own:
            self._held.append(rows.slice(0, own))
        passing = rows.slice(own)
        if self._queries is None and passing.num_rows:
            self._own = pa.Table.from_batches(self._held).combine_chunks().to_batches()[0]
            self._queries = Queries(*_arrays(self._own), self._least, self._most)
        if self._queries is None:
            return self._pairs(rows, passing, np.zeros((4, 0), np.int64))
        return self._pairs(self._own, passing, np.stack(self._queries.neighbours(*_arrays(passing))))

    def _pairs(self, own: pa.RecordBatch, passing: pa.RecordBatch, found: Int64Array) -> pa.RecordBatch:
        """Rows of `_PAIRS_DDL` of (4, P) `found`: row in `own`, row in `passing`, numerator, denominator."""
        mine, theirs = own.take(pa.array(found[0])), passing.take(pa.array(found[1]))
        columns = [mine[name] for name in ("dataset", "doc_id", "place")]
        columns += [theirs[name] for name in ("dataset", "doc_id", "place", "increment")]
        weights = (pa.array(found[2]), pa.array(found[3]))
        return pa.RecordBatch.from_arrays([*columns, *weights], names=ddl_names(_PAIRS_DDL))


def _arrays(rows: pa.Table | pa.RecordBatch) -> tuple[Int16Array, Int64Array, Int64Array]:
    """Vectors (R, V), ranks (R,) and families (R,) of R rows, the arguments of `Queries`."""
    return vectors_of(rows["vector"]), rows["rank"].to_numpy(), rows["family"].to_numpy()

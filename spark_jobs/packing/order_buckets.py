"""Order buckets: parts of the documents of an increment that tasks work on; those of two cells share no window.

A cell's documents lie in order buckets of its own, and have plans of their own, as many as `shards` says:

    cell    documents   plans   buckets of each     order_buckets 4, shards 1
    law           300   0       0 1 2               p = 3, by its share of the documents
    math          100   1       3 (4 5 unused)      p = 1

So a repository's neighbours join within a cell alone, and windows are planned, placed and counted as if each cell were
packed by itself. Cells are numbered in the order of their names; so are their windows, and their ordinals in an
increment are one run, permuted inside.

With length classes the pieces of a bucket are of several plans, one for each class; the class is one dimension more of
the cell of a window.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from headrace.tables.cells import CELL_COLUMN, LENGTH_CLASS, cell_text, cell_values
from spark_jobs.exceptions import ConfigError
from spark_jobs.packing.packed_table import PackedConfig
from spark_jobs.packing.plan.affinity import AffinityPlan
from spark_jobs.packing.plan.shuffle_at_rest import permutation_key
from spark_jobs.packing.plan.window_order import CellOrder, PlanNumbers, WindowOrder
from spark_jobs.spark_sql import Column as SparkColumn
from spark_jobs.spark_sql import DataFrame, F

_KEYS: Final = ["shard", "doc_id"]
_MOST: Final = 1 << 16  # each wastes a window, and its plan is made on the driver


class OrderBuckets:
    """Order buckets of documents, each of a plan: what tasks work on (`placement`).

    Attributes:
        config: of the packed table.
        cells: names of the cells of documents; none without any.
        shard_count: plans, those of all classes as one.
        bucket_count: order buckets; neighbouring ones share a plan.
        numbers: of the plans.
    """

    def __init__(self, config: PackedConfig) -> None:
        """Those of documents without cells."""
        self.config = config
        self.cells: tuple[str, ...] = ()
        self.shard_count = config.shards
        self.numbers = PlanNumbers(config.shards, config.classes)
        self.bucket_count = config.bucket_count

    @property
    def plan_count(self) -> int:
        """Plans of all classes."""
        return self.shard_count * self.numbers.class_count

    @property
    def window_cells(self) -> tuple[str, ...]:
        """Names of the cells of windows, as plans are numbered."""
        if not self.config.classes:
            return self.cells
        cells = [cell_values(cell) for cell in self.cells or ("{}",)]
        return tuple(cell_text({**cell, LENGTH_CLASS: length}) for cell in cells for length in self.config.classes)

    def length_of(self, plan: int) -> int:
        """Length of the sequences of a plan."""
        number = plan // self.numbers.cell_shards % self.numbers.class_count
        return self.config.classes[number] if self.config.classes else self.config.window_tokens

    def append(self, documents: DataFrame) -> DataFrame:
        """Append `bucket`, by repository and doc_id: a repository is never split."""
        return documents.withColumn("bucket", F.pmod(_hashed(), F.lit(self.bucket_count)).cast("int"))

    def order(self, plan: AffinityPlan, name: str, base: int, increment: int) -> WindowOrder | CellOrder:
        """The order of the windows of an increment; cell by cell, permuted in each, where they have cells."""
        cells, seed = self.window_cells, self.config.seed
        if not cells:
            return WindowOrder(base, plan.window_count, permutation_key(name, increment, seed))
        counts = np.array([shard.window_count for shard in plan.plans], np.int64)
        of_cells = counts.reshape(-1, self.numbers.cell_shards).sum(axis=1)
        firsts = np.cumsum(of_cells) - of_cells
        orders = (
            WindowOrder(base + first, count, permutation_key(name, increment, seed, cell))
            for first, count, cell in zip(firsts.tolist(), of_cells.tolist(), cells, strict=True)
        )
        return CellOrder(tuple(orders), firsts)


class CellBuckets(OrderBuckets):
    """Those of documents with cells: a repository is split by cell alone.

    Attributes:
        parts: (C,) order buckets of each plan of a cell, by its share of the documents.
    """

    def __init__(self, documents: Mapping[str, int], name: str, config: PackedConfig, cells: DataFrame) -> None:
        """Share order buckets out.

        Args:
            documents: how many each cell has.
            name: of the packed table.
            config: of it.
            cells: those of the documents of its dataset.

        Raises:
            ConfigError: there are too many cells.
        """
        super().__init__(config)
        self._rows = cells
        if len(documents) > _MOST:
            raise ConfigError(
                f"{name}: {len(documents)} cells, at most {_MOST} are packed; give a dimension of many values bounds "
                "or quantiles"
            )
        if any(f'"{LENGTH_CLASS}":' in cell for cell in documents):
            raise ConfigError(f"{name}: {LENGTH_CLASS} is packing's own dimension; call that of the cells otherwise")
        # The plans next_fit and concat_and_slice are made bucket by bucket, so there a plan has one.
        buckets = 1 if config.sequence else config.order_buckets
        total = sum(documents.values()) * config.shards
        self.cells = tuple(sorted(documents))
        self.parts = [max(1, -(-documents[cell] * buckets // total)) for cell in self.cells]
        self.shard_count = max(1, len(self.cells) * config.shards)
        self.bucket_count = self.shard_count * max(self.parts, default=1)

    @classmethod
    def of(cls, cells: DataFrame, name: str, config: PackedConfig) -> CellBuckets:
        """Those of a dataset's documents in the table `cells`."""
        of_dataset = cells.where(F.col("dataset") == config.dataset)
        counts = of_dataset.groupBy(CELL_COLUMN).agg(F.count("*").alias("documents")).toArrow()
        by_name = dict(zip(counts[CELL_COLUMN].to_pylist(), counts["documents"].to_pylist(), strict=True))
        return cls(by_name, name, config, of_dataset)

    def append(self, documents: DataFrame) -> DataFrame:
        """Append `bucket`, by cell, repository and doc_id; -1 where a document has no cell."""
        rows = [*zip(self.cells, range(len(self.cells)), self.parts, strict=True)]
        numbers = documents.sparkSession.createDataFrame(rows, f"{CELL_COLUMN} string, number bigint, parts bigint")
        numbered = self._rows.join(F.broadcast(numbers), CELL_COLUMN)
        placed = documents.join(numbered.select(*_KEYS, "number", "parts"), _KEYS, "left")
        placed = placed.withColumn("part", F.pmod(_hashed(), F.col("parts") * self.config.shards))
        shard = f"number * {self.config.shards}L + part div parts"
        bucket = F.expr(f"cast(coalesce(({shard}) * {max(self.parts, default=1)}L + part % parts, -1) as int)")
        return placed.withColumn("bucket", bucket).drop("number", "parts", "part")


def _hashed() -> SparkColumn:
    return F.xxhash64(F.coalesce("repository", "doc_id"))

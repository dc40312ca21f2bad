"""Bags: the weighted tokens of every compared document, in integers.

The weight of a token in a bag is unit x level: `unit` from the vocabulary, `level` = min(occurrences, max_level). The
weighted Jaccard similarity of two bags, sum of the lesser weights / sum of the greater weights, is therefore a fraction
of two integers, and every threshold is compared exactly.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pydantic import Field

from spark_jobs.arrays import Int64Array, UInt8Array, UInt64Array
from spark_jobs.dedup.bags.features import Features
from spark_jobs.dedup.bags.vocabulary import compared_members, compared_texts
from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.step import ConfigModel, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table, ddl_names
from spark_jobs.lake.engine.arrangement import Shared
from spark_jobs.lake.engine.spooled_rows import mapped_rows
from spark_jobs.spark_sql import DataFrame

if TYPE_CHECKING:
    from spark_jobs.dedup.bags.token_table import UnitTable


class BagsConfig(ConfigModel):
    """Features of bags, and the cap on the weight of a token."""

    features: Features = Field(Features(), description="as the vocabulary's")
    max_level: int = Field(4, ge=1, le=16, description="most occurrences of a token in a document that add weight")


BAGS = Table(
    name="bags",
    comment="One row per document that is compared: its tokens and their weights. A document without any token has "
    "no row and is no duplicate.",
    columns=(
        Column("dataset!", "string", "dataset that the document came from"),
        Column("shard!", "int", "hash of the repository (else the doc_id) modulo the dataset's shards"),
        Column("doc_id!", "string", "identity of the document"),
        Column("kind!", "string", "code, prose, markup or data; documents of different kinds share no token"),
        Column("place!", "long", "order in which documents are considered for keeping, as in members"),
        Column("token_count!", "int", "distinct tokens"),
        Column("total_weight!", "long", "sum of all weights"),
        Column("token_hashes!", "binary", "hashes of the distinct tokens, ascending, 8 bytes each, little-endian"),
        Column("units!", "binary", "weight of one occurrence of each, 1 byte"),
        Column("levels!", "binary", "occurrences of each up to max_level, 1 byte"),
    ),
    key=("doc_id",),
    partition=("increment",),
    checks=(
        Check(
            "lengths_agree",
            "token_count >= 1 and octet_length(token_hashes) = 8 * token_count "
            "and octet_length(units) = token_count and octet_length(levels) = token_count",
            "every token has a hash, a unit and a level",
        ),
        Check("total_weight_positive", "total_weight >= token_count", "every weight is at least 1"),
    ),
)

_ROW_DDL = (
    "dataset string, shard int, doc_id string, kind string, place bigint, token_count int, total_weight bigint, "
    "token_hashes binary, units binary, levels binary"
)


@dataclass(frozen=True)
class Units:
    """Weights of the vocabulary, for workers.

    Attributes:
        hashes: (V,) uint64 tokens.
        units: (V,) uint8 their weights.
        others: weight of any other token, by kind.
        tokens_version: identifies the rules and features of the tokens.
    """

    hashes: UInt64Array
    units: UInt8Array
    others: dict[str, int]
    tokens_version: str

    @functools.cached_property
    def table(self) -> UnitTable:
        """The weights by hash, made where they are looked up: it is not pickled on the driver."""
        from spark_jobs.dedup.bags.token_table import UnitTable

        return UnitTable(self.hashes, self.units)


@step(version="5", scope=Scope.INCREMENT, tables=(BAGS,))
def bags(
    members: DataFrame, exact_duplicates: DataFrame, texts: DataFrame, vocabulary: DataFrame, config: BagsConfig
) -> DataFrame:
    """Weigh the tokens of every document; one row per document with at least one token."""
    read = compared_texts(texts, compared_members(members, exact_duplicates))
    units = Shared(read, read_units(vocabulary))
    return read.mapInArrow(partial(_bag_batches, shared=units, config=config), _ROW_DDL)


def read_units(vocabulary: DataFrame) -> Units:
    """Collect the weights of the vocabulary on the driver: 9 bytes a token."""
    other = vocabulary.where("token_hash IS NULL").select("kind", "unit", "tokens_version").collect()
    with mapped_rows(vocabulary.where("token_hash IS NOT NULL").select("token_hash", "unit")) as vocabulary_rows:
        hashes = (
            vocabulary_rows.column("token_hash").to_numpy().view(np.uint64).copy()
        )  # what is mapped goes with the file
        weights = vocabulary_rows.column("unit").to_numpy().astype(np.uint8)
        return Units(hashes, weights, {row["kind"]: row["unit"] for row in other}, other[0]["tokens_version"])


def _bag_batches(
    batches: Iterable[pa.RecordBatch], shared: Shared[Units], config: BagsConfig
) -> Iterator[pa.RecordBatch]:
    """Turn texts into rows of `bags`, batch by batch."""
    from spark_jobs.dedup.bags.features import token_rules
    from spark_jobs.dedup.bags.token_counts import count_tokens, token_version

    units = shared.value
    version = token_version(config.features)
    if version != units.tokens_version:
        raise InputError(
            f"bags: this worker makes tokens {version}, the vocabulary has {units.tokens_version}; use the same "
            "features, and the same Python and headrace on all workers, or refreeze the corpus"
        )
    for batch in batches:
        kinds = batch.column("kind").to_pylist()
        names = tuple(dict.fromkeys(kinds))
        numbers = np.array([names.index(kind) for kind in kinds], np.uint8)
        rules = token_rules(kinds, batch.column("language").to_pylist(), config.features)
        counted = count_tokens(batch.column("content"), *rules)
        lengths = np.diff(counted.offsets)
        others = np.array([units.others.get(name, 255) for name in names], np.uint8)
        weights = units.table.of(counted.hashes, np.repeat(others[numbers], lengths))
        levels = np.minimum(counted.counts, config.max_level).astype(np.uint8)
        yield _rows(batch, counted.offsets, counted.hashes, weights, levels)


def _rows(
    batch: pa.RecordBatch,
    offsets: Int64Array,
    hashes: UInt64Array,
    units: UInt8Array,
    levels: UInt8Array,
) -> pa.RecordBatch:
    """Rows of `bags` for the documents of a batch with a token."""
    from spark_jobs.dedup.bags.bag_arrays import binary_column

    lengths = np.diff(offsets)
    some = pa.array(np.flatnonzero(lengths))
    np.cumsum(units.astype(np.int64) * levels, out=(sums := np.zeros(len(hashes) + 1, np.int64))[1:])
    totals = sums[offsets[1:]] - sums[offsets[:-1]]
    columns = [
        *(batch.column(name) for name in ("dataset", "shard", "doc_id", "kind", "place")),
        pa.array(lengths.astype(np.int32)),
        pa.array(totals),
        *(binary_column(values, offsets) for values in (hashes, units, levels)),
    ]
    rows = pa.RecordBatch.from_arrays(columns, names=ddl_names(_ROW_DDL))
    return rows.take(some) if len(some) < len(lengths) else rows

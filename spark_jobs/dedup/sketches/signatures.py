"""Signatures: a sketch of each bag in 256 bytes; the more similar two bags are, the more bytes agree.

Two signatures agree in each byte with probability J + (1 - J) / 256 (`weighted_minhash`). They are the stored index:
every increment is compared with it. The darts of the tokens that occur in the most documents are drawn once in
each worker; that is a cache, the bytes are the same without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pydantic import Field

from spark_jobs.arrays import UInt8Array
from spark_jobs.lake.declare.step import ConfigModel, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table, ddl_names
from spark_jobs.spark_sql import DataFrame, F
from spark_jobs.threads import made_once

if TYPE_CHECKING:
    from spark_jobs.dedup.sketches.darts import Darts


class SignaturesConfig(ConfigModel):
    """Seed of the darts, and the cache."""

    seed: int = Field(1, ge=0, lt=1 << 63, description="another seed makes other, independent signatures")
    max_level: int = Field(4, ge=1, le=16, description="as the bags'")
    hot_tokens: int = Field(
        10_000,
        ge=0,
        le=200_000,
        description="tokens whose darts a worker keeps, about 1 kB each",
        json_schema_extra={"affects_rows": False},
    )


_LEAST_HOT_DOCUMENTS = 16  # of a token that is worth a place in the cache; nine of ten tokens have fewer
SIGNATURE_BYTES = 256
SIGNATURES = Table(
    name="signatures",
    comment="One row per bag: its signature by consistent weighted sampling.",
    columns=(
        Column("dataset!", "string", "dataset that the document came from"),
        Column("shard!", "int", "hash of the repository (else the doc_id) modulo the dataset's shards"),
        Column("doc_id!", "string", "identity of the document"),
        Column("kind!", "string", "code, prose, markup or data"),
        Column("place!", "long", "order in which documents are considered for keeping, as in members"),
        Column("total_weight!", "long", "sum of all weights of the bag"),
        Column("signature!", "binary", f"{SIGNATURE_BYTES} values of 8 bits"),
        Column("signature_version!", "string", "rules and seed that define the values; others cannot be compared"),
    ),
    key=("doc_id",),
    partition=("increment",),
    checks=(
        Check(
            "signature_is_whole",
            f"octet_length(signature) = {SIGNATURE_BYTES}",
            f"a signature has {SIGNATURE_BYTES} bytes",
        ),
    ),
)

_ROW_DDL = (
    "dataset string, shard int, doc_id string, kind string, place bigint, total_weight bigint, signature binary, "
    "signature_version string"
)


@step(version="1", scope=Scope.INCREMENT, tables=(SIGNATURES,))
def signatures(bags: DataFrame, vocabulary: DataFrame, config: SignaturesConfig) -> DataFrame:
    """Make the signature of every bag; one row per bag."""
    frequent = vocabulary.where("token_hash IS NOT NULL").where(F.col("document_count") >= _LEAST_HOT_DOCUMENTS)
    hot = frequent.orderBy(F.desc("document_count"), "token_hash").limit(config.hot_tokens)
    hot_tokens = hot.select("token_hash", "unit").toArrow()
    hashes = hot_tokens.column("token_hash").to_numpy().astype("<i8").tobytes()
    units = hot_tokens.column("unit").to_numpy().astype(np.uint8).tobytes()
    return bags.drop("token_count").mapInArrow(partial(_sign, config=config, hashes=hashes, units=units), _ROW_DDL)


def _sign(
    batches: Iterable[pa.RecordBatch], config: SignaturesConfig, hashes: bytes, units: bytes
) -> Iterator[pa.RecordBatch]:
    """Turn bags into rows of `signatures`, batch by batch."""
    from spark_jobs.dedup.bags.bag_arrays import bags_from_columns
    from spark_jobs.dedup.sketches.darts import SIGNATURE_VERSION
    from spark_jobs.dedup.sketches.weighted_minhash import signatures

    darts = _darts(config.seed, config.max_level, hashes, units)
    version = f"{SIGNATURE_VERSION}:{config.seed}:{config.max_level}"
    for batch in batches:
        read = bags_from_columns(*(batch.column(name) for name in ("token_hashes", "units", "levels")))
        values = np.ascontiguousarray(signatures(read, darts))
        fixed = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(SIGNATURE_BYTES), len(values), [None, pa.py_buffer(values)]
        )
        kept = [batch.column(name) for name in ("dataset", "shard", "doc_id", "kind", "place", "total_weight")]
        yield pa.RecordBatch.from_arrays(
            [*kept, fixed.cast(pa.binary()), pa.array([version] * len(values), pa.string())],
            names=ddl_names(_ROW_DDL),
        )


@made_once(most=1)
def _darts(seed: int, max_level: int, hashes: bytes, units: bytes) -> Darts:
    """The darts of the hot tokens, drawn once in a worker."""
    from spark_jobs.dedup.sketches.darts import make_darts

    return make_darts(seed, max_level, np.frombuffer(hashes, np.uint64), np.frombuffer(units, np.uint8))


def signature_rows(column: pa.Array) -> UInt8Array:
    """(D, 256) view of a column of D byte strings of 256 bytes each, without a copy."""
    wide = column.cast(pa.large_binary())
    _, offsets, data = wide.buffers()
    if not len(wide) or data is None:
        return np.zeros((0, SIGNATURE_BYTES), np.uint8)
    start = int(np.frombuffer(offsets, np.int64)[wide.offset])
    values = np.frombuffer(data, np.uint8)[start : start + len(wide) * SIGNATURE_BYTES]
    return values.reshape(len(wide), SIGNATURE_BYTES)

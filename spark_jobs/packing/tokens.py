"""Tokens: the ids of every document that survived, as its tokenizer gives them, without special tokens.

The survivors are narrow: they are broadcast to the texts while Spark's own threshold allows it, and content stays where
it lies. Beyond it content is shuffled once, which costs about 1% of what encoding it costs. The tokenizer's file
travels with the function and is parsed once per worker process.

The library encodes a batch with all cores. Measured on 2 cores (benchmarks/bench_packing.py): one task 5.9 MB/s against
3.3 with one thread, two tasks at once 5.6 against 5.3, so threads are left on; spark.executorEnv.RAYON_NUM_THREADS
bounds them where executors run many tasks.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from spark_jobs.exceptions import InputError
from spark_jobs.lake.tables import Check, Column, Table
from spark_jobs.packing.byte_pairs import load_encoder
from spark_jobs.step import Output, Scope, step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TOKENS_DDL = "dataset string, shard int, doc_id string, input_ids array<int>, token_count int"
_TOKENS_SCHEMA = pa.schema(
    [
        pa.field("dataset", pa.string()),
        pa.field("shard", pa.int32()),
        pa.field("doc_id", pa.string()),
        pa.field("input_ids", pa.list_(pa.int32())),
        pa.field("token_count", pa.int32()),
    ]
)


class TokensConfig(BaseModel):
    """How much is encoded at once; decides no row."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    batch_characters: int = Field(
        1 << 18,
        ge=1,
        description="characters encoded at once; a task needs about 115 bytes of memory for each byte of them",
        json_schema_extra={"affects_rows": False},
    )


TOKENS = Table(
    name="tokens",
    comment="one row per surviving document: its token ids",
    columns=(
        Column("dataset!", "string", "dataset of the document"),
        Column("shard!", "int", "hash of the repository modulo the dataset's shards"),
        Column("doc_id!", "string", "identity of the document"),
        Column("input_ids!", "list<int!>", "token ids of the whole text without special tokens; empty for empty text"),
        Column("token_count!", "int", "length of input_ids"),
    ),
    key=("dataset", "doc_id"),
    partition=("increment", "shard"),
    checks=(Check("token_count_is_length", "token_count = size(input_ids)", "the count is the length of the list"),),
    sampled=("input_ids",),
)


@step(version="1", scope=Scope.INCREMENT, tables=(TOKENS,), kernels=("spark_jobs.packing.byte_pairs",))
def tokens(survivors: DataFrame, texts: DataFrame, tokenizer: DataFrame, config: TokensConfig) -> Output:
    """Encode the documents that survived; one row is a document's token ids."""
    row = tokenizer.select("file", "sha256", "vocabulary_size").first()
    if row is None:
        raise InputError("tokens: the tokenizer table has no row; materialize tokenizer first")
    documents = texts.select("dataset", "shard", "doc_id", "content").join(
        survivors.select("dataset", "shard", "doc_id"), ["dataset", "shard", "doc_id"], "left_semi"
    )
    encode = functools.partial(_encode, file_text=row["file"], batch_characters=config.batch_characters)
    return Output(
        {TOKENS.name: documents.mapInArrow(encode, _TOKENS_DDL)},
        {"headrace.tokenizer-sha256": row["sha256"], "headrace.vocabulary-size": str(row["vocabulary_size"])},
    )


def _encode(batches: Iterable[pa.RecordBatch], file_text: str, batch_characters: int) -> Iterator[pa.RecordBatch]:
    """Encode batches of documents, keeping their columns."""
    encoder = load_encoder(file_text)
    for batch in batches:
        done = 0
        ids: list[npt.NDArray[np.int32]] = []
        held = 0
        for document in encoder.encode(batch.column("content").to_pylist(), batch_characters):
            ids.append(document)
            held += len(document)
            if held >= batch_characters:
                yield _rows(batch.slice(done, len(ids)), ids)
                done += len(ids)
                ids, held = [], 0
        if ids:
            yield _rows(batch.slice(done, len(ids)), ids)


def _rows(documents: pa.RecordBatch, ids: list[npt.NDArray[np.int32]]) -> pa.RecordBatch:
    """The rows of some documents with their ids."""
    counts = np.array([len(document) for document in ids], dtype=np.int32)
    offsets = np.zeros(len(ids) + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    input_ids = pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate(ids)))
    names = ("dataset", "shard", "doc_id")
    return pa.RecordBatch.from_arrays(
        [*(documents.column(name) for name in names), input_ids, pa.array(counts)], schema=_TOKENS_SCHEMA
    )

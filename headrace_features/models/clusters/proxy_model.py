"""The step `proxy_model`: a small causal model over bytes, trained on a sample of a corpus and then frozen.

`cluster_losses` trains copies of it on each cluster, and it is small for that: a few seconds a cluster on one core. It
reads bytes because a corpus's tokenizer is made after `shape`, which these losses decide; and bytes have no unknown
word in any language, and no vocabulary whose rare half stays untrained in a sample.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from headrace_features.models.clusters.proxy_config import ProxyModelConfig, require_torch
from headrace_features.models.model_file import SHA256_CHECK, SHA256_COLUMN
from spark_jobs.lake.declare.step import Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.engine.arrangement import grouped
from spark_jobs.spark_sql import DataFrame, F
from spark_jobs.text.hash_sample import smallest_hashes

_KEYS: Final = ["dataset", "shard", "doc_id"]
_DDL: Final = "sha256 string, parameter_count bigint, byte_count bigint, loss double, file binary"
_HELD_OUT: Final = 32  # one of so many documents


PROXY_MODEL = Table(
    name="proxy_model",
    comment="one row: the model, as the bytes of its file",
    columns=(
        SHA256_COLUMN,
        Column("parameter_count!", "long", "numbers that were trained"),
        Column("byte_count!", "long", "bytes of the texts that it was trained on"),
        Column(
            "loss", "double", "nats a byte on documents of the sample that were held out; null where there are none"
        ),
        Column("file!", "binary", "the file, which `headrace_features.models.causal_model` reads"),
    ),
    key=("sha256",),
    partition=("increment",),
    checks=(SHA256_CHECK, Check("no_gain", "coalesce(loss, 0) >= 0", "a loss is 0 or more")),
    sampled=("file",),
)


@step(version="2", scope=Scope.FROZEN, tables=(PROXY_MODEL,))
def proxy_model(survivors: DataFrame, texts: DataFrame, config: ProxyModelConfig) -> DataFrame:
    """Train the model on the documents with the smallest hashes of their ids; the one row is the model.

    Raises:
        SetupError: torch is not installed.
    """
    require_torch("proxy_model")
    chosen = texts.select(*_KEYS, "content").join(survivors.select(_KEYS), _KEYS, "left_semi")
    rows = chosen.select(
        F.xxhash64("doc_id", F.lit("proxy_model")).alias("hash"),
        "doc_id",
        F.substring("content", 1, config.document_bytes).alias("content"),
    )
    sample = smallest_hashes(rows, config.sample_bytes)
    return grouped(sample, []).map(functools.partial(_train, config=config), _DDL).to_frame()


def _train(batches: Iterable[pa.RecordBatch], config: ProxyModelConfig) -> Iterator[pa.RecordBatch]:
    """The row of the model, trained on all documents of the sample, all in this one task."""
    parts = [batch for batch in batches if batch.num_rows]
    if not parts:
        return
    rows = pa.Table.from_batches(parts).sort_by([("hash", "ascending"), ("doc_id", "ascending")])
    yield pa.RecordBatch.from_pydict(trained(rows.column("content").to_pylist(), config))


def trained(documents: list[str], config: ProxyModelConfig) -> dict[str, pa.Array]:
    """The columns of `proxy_model`: a model trained on documents in random order."""
    from headrace_features.models.causal_model import ByteNetwork, CausalModel, cut, encode_bytes
    from headrace_features.models.clusters.proxy_training import pieces, total_loss, train

    network = ByteNetwork(config.width, config.layers, config.heads, config.piece_tokens, config.seed)
    model = CausalModel(network, encode_bytes, config.piece_tokens, "")
    texts = [text for document in documents if (text := cut(document, config.document_bytes))]
    held_out, shown = texts[_HELD_OUT - 1 :: _HELD_OUT], [text for i, text in enumerate(texts, 1) if i % _HELD_OUT]
    if shown:  # without any text the model stays as it was drawn
        train(model, pieces(model, shown, config), config, lambda step: None)
    held_bytes = sum(len(text.encode()) for text in held_out)
    loss = round(total_loss(model, pieces(model, held_out, config), config) / held_bytes, 4) if held_out else None
    file = network.to_bytes()
    return {
        "sha256": pa.array([file[-32:].hex()]),
        "parameter_count": pa.array([sum(parameter.numel() for parameter in network.parameters())], pa.int64()),
        "byte_count": pa.array([sum(len(text.encode()) for text in shown)], pa.int64()),
        "loss": pa.array([loss], pa.float64()),
        "file": pa.array([file]),
    }

"""The step `cluster_losses`: how much a proxy model learns from each cluster; `shape` keeps or drops clusters by it.

A copy of the model goes on training on a few documents of a cluster, for some steps; its loss on others of the same
cluster is measured before, during and after. Text that a model knows already has a low loss before, repetitive text
a low one after, and noise a high one, not lowered by training.

A cluster is a task. Its result is stored under a hash of its inputs (the code, the model, the texts, the config), so
that a killed run resumes with the clusters not yet reached, and a later one trains only on clusters whose
sample changed.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
from pydantic import Field

from headrace_features.models.clusters.pictures import draw_losses
from headrace_features.models.clusters.proxy_config import ProxyTrainingConfig, require_torch
from headrace_features.models.model_file import DIGEST_BYTES
from spark_jobs.code.grouped_rows import grouped_rows
from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.step import Output, Plot, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.engine.arrangement import grouped, persist
from spark_jobs.lake.ledger.step_key import canonical_json
from spark_jobs.spark_sql import DataFrame, F
from spark_jobs.threads import made_once

if TYPE_CHECKING:
    from headrace_features.models.causal_model import CausalModel
    from headrace_features.models.registered import ModelFile
    from spark_jobs.lake.files.objects import ObjectFolder

_CODE: Final = "1"  # part of the key of stored results; changed with the version of the step
_KEYS: Final = ["dataset", "shard", "doc_id"]
_MOST_TASKS: Final = 20_000
_DIGITS: Final = 5
_DDL: Final = (
    "cluster int, document_count bigint, sample_count int, loss_before double, loss double, slope double, model string"
)
_SCHEMA: Final = pa.schema(
    {
        "cluster": pa.int32(),
        "document_count": pa.int64(),
        "sample_count": pa.int32(),
        **dict.fromkeys(("loss_before", "loss", "slope"), pa.float64()),
        "model": pa.string(),
    }
)


class ClusterLossesConfig(ProxyTrainingConfig):
    """The model that clusters are measured with, and how long it is trained on each."""

    model: str | None = Field(
        None,
        pattern=r"^[a-z][a-z0-9_]{0,40}@[A-Za-z0-9._-]+$",
        description="NAME@VERSION of a causal model in the registry; by default the corpus's proxy model",
    )
    documents: int = Field(16, ge=1, le=4096, description="most documents of a cluster; every fourth is held out")


CLUSTER_LOSSES = Table(
    name="cluster_losses",
    comment="One row per cluster: the loss of a model before and after it was trained on some of its documents.",
    columns=(
        Column("cluster!", "int", "cluster"),
        Column("document_count!", "long", "survivors of the first increment that are in it"),
        Column("sample_count!", "int", "documents that were read, one in four of them held out"),
        Column(
            "loss_before",
            "double",
            "nats a byte on the documents held out; null for too short a text, and where training diverged",
        ),
        Column("loss", "double", "loss in nats a byte after the training, on the same documents"),
        Column("slope", "double", "change of the loss for each step of the training"),
        Column("model!", "string", "SHA-256 of the model"),
    ),
    key=("cluster",),
    partition=("increment",),
    sort=("cluster",),
    checks=(
        Check(
            "all_or_nothing",
            "(loss is null) = (loss_before is null) and (loss is null) = (slope is null)",
            "a cluster has all three numbers or none",
        ),
        Check("no_gain", "coalesce(loss, 0) >= 0", "a loss is 0 or more"),
    ),
)


@step(
    version="1",
    scope=Scope.FROZEN,
    tables=(CLUSTER_LOSSES,),
    plot=Plot("loss by size of the cluster", ("document_count", "loss_before", "loss"), draw_losses),
    refuse=lambda config: config.model and _registered(config.model),
)
def cluster_losses(
    clusters: DataFrame,
    texts: DataFrame,
    config: ClusterLossesConfig,
    objects: ObjectFolder,
    proxy_model: DataFrame | None = None,
) -> Output:
    """Train a copy of a model on each cluster, and measure its loss before and after; one row per cluster.

    Raises:
        InputError: the registry has no such causal model.
        SetupError: torch is not installed.
    """
    require_torch("cluster_losses")
    from pyspark.sql import Window

    there = clusters.where("cluster is not null").select(*_KEYS, "cluster")
    sizes = persist(there.groupBy("cluster").agg(F.count("*").alias("document_count")))
    drawn = there.withColumn("hash", F.xxhash64("doc_id", F.lit("cluster_losses")))
    by_hash = Window.partitionBy("cluster").orderBy("hash", "doc_id")
    sample = drawn.withColumn("place", F.row_number().over(by_hash)).where(F.col("place") <= config.documents)
    beginnings = texts.select(*_KEYS, F.substring("content", 1, config.document_bytes).alias("content"))
    measure = functools.partial(_measure, model=_located(config, proxy_model), config=config, objects=objects)
    documents = beginnings.join(sample, _KEYS).join(sizes, "cluster")
    calls = max(1, min(sizes.count(), _MOST_TASKS))
    of_clusters = grouped(documents, ["cluster"], ["place"], calls).select("cluster", "document_count", "content")
    return Output({CLUSTER_LOSSES.name: of_clusters.map(measure, _DDL).to_frame()}, persisted=(sizes,))


def _located(config: ClusterLossesConfig, proxy_model: DataFrame | None) -> bytes | ModelFile:
    """The bytes of the corpus's own model, sent with the tasks, or the registered model's file, read by workers.

    Raises:
        InputError: the registry has no such causal model.
    """
    if config.model is None:
        if proxy_model is None:
            raise InputError(
                "cluster_losses: there is no model; bind proxy_model, or name one of the registry as model"
            )
        return bytes(proxy_model.select("file").toArrow().column("file")[0].as_py())
    return _registered(config.model)


def _registered(model: str) -> ModelFile:
    """The file of a registered model.

    Raises:
        InputError: the registry has no such causal model.
    """
    from headrace.tables.settings import load_settings
    from headrace_features.models.registered import find_models
    from spark_jobs.lake.session.catalogue import open_catalogue

    [(facts, file)] = find_models(open_catalogue(load_settings()), [model])
    if facts.format != "causal":
        raise InputError(
            f"cluster_losses: model {model} is of the format {facts.format}; name a causal one or leave it out"
        )
    return file


def _measure(
    batches: Iterable[pa.RecordBatch], model: bytes | ModelFile, config: ClusterLossesConfig, objects: ObjectFolder
) -> Iterator[pa.RecordBatch]:
    """The row of each cluster; its documents come in the order of their hashes."""
    for rows in grouped_rows(batches, ("cluster",)):
        texts = rows.column("content").to_pylist()
        row = {name: rows.column(name)[0].as_py() for name in ("cluster", "document_count")}
        row |= {"sample_count": len(texts), **_losses(texts, model, config, objects)}
        yield pa.RecordBatch.from_pylist([row], _SCHEMA)


def _losses(
    texts: list[str], model: bytes | ModelFile, config: ClusterLossesConfig, objects: ObjectFolder
) -> dict[str, Any]:
    """The losses of a cluster: stored ones of an earlier run, else measured now and stored."""
    from headrace_features.models.causal_model import cut

    sha256 = model[-DIGEST_BYTES:].hex() if isinstance(model, bytes) else model.sha256
    read = [hashlib.sha256(cut(text, config.document_bytes).encode()).hexdigest() for text in texts]
    settings = config.model_dump(mode="json", exclude={"model", "documents"})
    decides = {"code": _CODE, "model": sha256, "texts": read, "config": settings}
    key = hashlib.sha256(canonical_json(decides).encode()).hexdigest()
    if (kept := objects.result(key)) is not None:
        facts: dict[str, Any] = json.loads(kept)
        return facts
    from headrace_features.models.clusters.proxy_training import learnt

    losses = learnt(_loaded(model), texts, config)
    numbers = (None, None, None) if losses is None else (losses.before, losses.after, losses.slope)
    before, after, slope = (None if number is None else round(number, _DIGITS) for number in numbers)
    facts = {"loss_before": before, "loss": after, "slope": slope, "model": sha256}
    objects.keep_result(key, canonical_json(facts).encode())
    return facts


@made_once(most=1)
def _loaded(model: bytes | ModelFile) -> CausalModel:
    """The model, read once per process."""
    from headrace_features.models.registered import load_model, read_model

    proxy = read_model(model, "the proxy model") if isinstance(model, bytes) else load_model(model)
    return cast("CausalModel", proxy)

"""The step `sampled`: documents to ask a judge about, spread over the dataset, with weights back to it.

A document's stratum is what the judge's config spreads by; of each stratum, those with the smallest hashes of seed and
doc_id are sampled (`strata` says how many). So the sample is a function of dataset, config and seed, and when the
dataset grows most of it stays, with other weights. The weights add up to the documents of the dataset, and a weighted
mean of a measure estimates its mean over them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final

import pyarrow as pa

from headrace_features.synthetic.labels.rubric import JudgeConfig, templates_of
from headrace_features.synthetic.labels.strata import Stratum, allocate
from headrace_features.synthetic.requests import Parent, request_of
from spark_jobs.lake.declare.step import Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.files.side_reads import map_joined
from spark_jobs.spark_sql import Column as SparkColumn
from spark_jobs.spark_sql import DataFrame, F

_LENGTHS: Final = (250, 1_000, 4_000, 16_000, 64_000)  # characters at which classes of length end
_NONE: Final = "none"

SAMPLED = Table(
    name="sampled",
    comment="One row per document that a judge is asked about: what it reads, and what the document stands for.",
    columns=(
        Column("shard!", "int", "hash of the repository (else the doc_id) modulo the dataset's shards"),
        Column("doc_id!", "string", "identity of the document"),
        Column("kind!", "string", "code, prose, markup or data"),
        Column("stratum!", "string", "by what the sample is spread; `rest` where small strata are sampled together"),
        Column("stratum_count!", "long", "documents of the dataset that are in it"),
        Column("weight!", "double", "documents of the dataset that this one stands for"),
        Column("character_count!", "long", "characters of the text"),
        Column("characters_read!", "long", "of these, from the start, how many the judge reads"),
        Column("content!", "string", "what the judge reads"),
        Column("key", "string", "key of the request; null for white space alone, about which no request is made"),
        Column("second_key", "string", "key of the second request about the same document; null for most documents"),
    ),
    key=("doc_id",),
    sort=("key",),
    checks=(Check("weight_at_least_one", "weight >= 1", "a document stands for itself at least"),),
    sampled=("content",),
)
_NARROW: Final = ("shard", "doc_id", "kind", "stratum", "stratum_count", "weight", "character_count")
_DDL: Final = (
    "shard int, doc_id string, kind string, stratum string, stratum_count bigint, weight double, "
    "character_count bigint, characters_read bigint, content string, key string, second_key string"
)


@step(version="2", scope=Scope.WHOLE, tables=(SAMPLED,), without_excised=True)
def sampled(
    texts: DataFrame,
    signals: DataFrame,
    config: JudgeConfig,
    languages: DataFrame | None = None,
    clusters: DataFrame | None = None,
) -> DataFrame:
    """Draw the documents for a judge.

    Args:
        texts: doc_id, language and content.
        signals: shard, doc_id, kind and character_count of the same.
        config: of the judge.
        languages: doc_id and language, where the dataset has that scorer; else the language of `texts` counts.
        clusters: doc_id and coarse cluster, where the sample is spread over clusters.
    """
    from pyspark.sql import Window

    rows = signals.select("shard", "doc_id", "kind", "character_count")
    if "language" in config.spread_by:
        of_language = (texts if languages is None else languages).select("doc_id", "language")
        rows = rows.join(of_language, "doc_id", "left")
    if clusters is not None:
        rows = rows.join(clusters.select("doc_id", F.col("coarse").alias("cluster")), "doc_id", "left")
    rows = rows.select("shard", "doc_id", "kind", "character_count", _stratum(config).alias("own_stratum"))
    counted = rows.groupBy("own_stratum").count().toArrow().to_pydict()
    strata = allocate(dict(zip(counted["own_stratum"], counted["count"], strict=True)), config.sample)
    shares = rows.sparkSession.createDataFrame(
        _shares(strata, config.repeat),
        "own_stratum string, stratum string, stratum_count bigint, sampled_count bigint, repeated_count bigint",
    )
    placed = rows.join(F.broadcast(shares), "own_stratum")
    by_draw = Window.partitionBy("stratum").orderBy(F.xxhash64("doc_id", F.lit(config.seed)), "doc_id")
    drawn = placed.withColumn("number", F.row_number().over(by_draw)).where("number <= sampled_count")
    chosen = drawn.withColumn("weight", F.col("stratum_count") / F.col("sampled_count")).withColumn(
        "is_repeated", F.col("number") <= F.col("repeated_count")
    )
    keyed = partial(_with_keys, judge=config)
    return map_joined(
        texts,
        chosen.select(*_NARROW, "is_repeated").drop("kind"),
        ["shard", "doc_id"],
        [*_NARROW, "is_repeated"],
        ["content"],
        keyed,
        _DDL,
    ).to_frame()


def _stratum(config: JudgeConfig) -> SparkColumn:
    """What the sample is spread by, as one text: `de, 1000 to 4000`."""
    ends = (0, *_LENGTHS)
    length = F.lit(f"{_LENGTHS[-1]} and more")
    for low, high in zip(reversed(ends[:-1]), reversed(ends[1:]), strict=True):
        length = F.when(F.col("character_count") < high, F.lit(f"{low} to {high}")).otherwise(length)
    values = {
        "kind": F.col("kind"),
        "language": F.coalesce("language", F.lit("no language")),
        "length": length,
        "cluster": F.coalesce(F.concat(F.lit("cluster "), F.col("cluster")), F.lit("no cluster")),
    }
    return F.concat_ws(", ", *(values[name] for name in config.spread_by)) if config.spread_by else F.lit("all")


def _shares(strata: Mapping[str, Stratum], repeat: float) -> list[tuple[str, str, int, int, int]]:
    """Of each stratum: its name, that of the one it is sampled with, documents, those sampled, and those asked twice.

    Those asked about twice are spread over the strata in proportion, and a share of the whole sample, rounded up.
    """
    twice: dict[str, int] = {}
    before = 0
    for stratum in sorted(set(strata.values()), key=lambda stratum: stratum.name):
        twice[stratum.name] = math.ceil((before + stratum.sampled) * repeat) - math.ceil(before * repeat)
        before += stratum.sampled
    return [
        (value, stratum.name, stratum.count, stratum.sampled, twice[stratum.name]) for value, stratum in strata.items()
    ]


def _with_keys(batches: Iterable[pa.RecordBatch], judge: JudgeConfig) -> Iterator[pa.RecordBatch]:
    """The columns of the table, from those of the sample with whole texts."""
    template, again = templates_of(judge)
    for batch in batches:
        read: list[str] = []
        keys: list[str | None] = []
        second_keys: list[str | None] = []
        repeated = batch.column("is_repeated").to_pylist()
        for text, is_repeated in zip(batch.column("content").to_pylist(), repeated, strict=True):
            part = text[: judge.endpoint.reads_characters]
            parent = Parent("", "", part, 0, 0)  # whose name is in no key
            read.append(part)
            keys.append(request_of(parent, template, judge.endpoint).key if part.strip() else None)
            is_asked_again = is_repeated and keys[-1] is not None
            second_keys.append(request_of(parent, again, judge.endpoint, sample=1).key if is_asked_again else None)
        keys_of_documents = {name: batch.column(name) for name in _NARROW}
        columns = {
            "characters_read": pa.array(map(len, read), pa.int64()),
            "content": pa.array(read, pa.string()),
            "key": pa.array(keys, pa.string()),
            "second_key": pa.array(second_keys, pa.string()),
        }
        yield pa.RecordBatch.from_pydict({**keys_of_documents, **columns})

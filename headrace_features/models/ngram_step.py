"""The step `ngrams`: train an n-gram model on a bounded sample of texts, for the perplexity of others."""

from __future__ import annotations

from pydantic import Field

from headrace_features.models.model_file import DIGEST_BYTES, SHA256_CHECK, SHA256_COLUMN
from headrace_features.models.ngram_model import NgramConfig
from spark_jobs.lake.declare.step import Scope, step
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.spark_sql import DataFrame, F
from spark_jobs.text.hash_sample import smallest_hashes


class NgramsConfig(NgramConfig):
    """The size of the sample, the length of n-grams, and which are kept."""

    sample_bytes: int = Field(32 << 20, ge=1, le=1 << 30, description="least bytes of text to train on")


NGRAMS = Table(
    name="ngrams",
    comment="one row: the model, as the bytes of its file",
    columns=(
        SHA256_COLUMN,
        Column("order!", "int", "most words of an n-gram"),
        Column("ngram_count!", "long", "n-grams kept"),
        Column("file!", "binary", "the file, which `headrace_features.models.ngram_model` reads"),
    ),
    key=("sha256",),
    checks=(SHA256_CHECK,),
    sampled=("file",),
)


@step(version="1", scope=Scope.WHOLE, tables=(NGRAMS,))
def ngrams(texts: DataFrame, config: NgramsConfig) -> DataFrame:
    """Train an n-gram model with modified Kneser-Ney smoothing; the one row is the model.

    Raises:
        InputError: there is no text.
    """
    import pyarrow as pa

    from headrace_features.models.ngram_training import train_on_spark

    rows = texts.select(F.xxhash64("doc_id").alias("hash"), F.col(config.text_column).alias("content"))
    sample = smallest_hashes(rows, config.sample_bytes, "ngrams: there is no text to train on; check the datasets")
    model = train_on_spark(sample, config.model_copy(update={"text_column": "content"}))
    file = model.to_bytes()
    row = {"sha256": [file[-DIGEST_BYTES:].hex()], "order": pa.array([model.order], pa.int32())}
    return texts.sparkSession.createDataFrame(
        pa.table({**row, "ngram_count": pa.array([len(model.hashes)], pa.int64()), "file": pa.array([file])})
    )

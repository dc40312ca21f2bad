"""The step `judged`: the score of each sampled document, or the reason why it has none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

import pyarrow as pa

from headrace_features.synthetic.attempts import FAILED
from headrace_features.synthetic.labels.rubric import JudgeConfig, score_of
from spark_jobs.lake.declare.step import ArrowRows, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.spark_sql import DataFrame, F

JUDGED = Table(
    name="judged",
    comment="One row per sampled document: its score by a judge, or the reason why it has none.",
    columns=(
        Column("shard!", "int", "hash of the repository (else the doc_id) modulo the dataset's shards"),
        Column("doc_id!", "string", "identity of the document"),
        Column("kind!", "string", "code, prose, markup or data"),
        Column("score", "int", "score by the rubric; null where there is a reason"),
        Column(
            "reason",
            "string",
            "why there is no score: no_text, not_asked (yet), no_score, outside_rubric, or what became of the request "
            "(refused, cut, unfinished, unparsed, empty, reasoning_only, repetitive, rejected, failed)",
        ),
        Column("weight!", "double", "documents of the dataset that this one stands for"),
        Column("stratum!", "string", "by what the sample is spread"),
        Column("character_count!", "long", "characters of the text"),
        Column("characters_read!", "long", "of these, from the start, how many the judge reads"),
        Column("content!", "string", "what the judge reads"),
        Column("answer", "string", "what the judge said"),
        Column("detail", "string", "the reason in the endpoint's words"),
        Column("model", "string", "as the server named it"),
        Column("second_score", "int", "score of the second asking; null where there is none"),
        Column("second_reason", "string", "why the second asking gave no score; null where there was none"),
    ),
    key=("doc_id",),
    checks=(
        Check("score_or_reason", "(score is null) = (reason is not null)", "a document has a score or a reason"),
        Check("one_second", "second_score is null or second_reason is null", "a second score has no reason beside it"),
    ),
    sampled=("content", "answer"),
)
_ANSWERED: Final = "key string, score int, reason string, answer string, detail string, model string"
_OWN: Final = tuple(column.name for column in JUDGED.columns)


@step(version="2", scope=Scope.WHOLE, tables=(JUDGED,))
def judged(sampled: DataFrame, answers: DataFrame, config: JudgeConfig) -> DataFrame:
    """Read the scores in the answers about a sample; one row per sampled document.

    Args:
        sampled: rows of the table `sampled`.
        answers: what the judge answered, about this sample and others; an answer may be there twice, and after one that
            failed.
        config: of the judge.
    """
    # The least of several, whichever is read first; one that came before one that failed.
    answer = F.struct(F.col("reason") == FAILED, "reason", "text", "detail", "model").alias("said")
    first_answers = answers.groupBy("key").agg(F.min(answer).alias("said"))
    first_answers = first_answers.select("key", *(f"said.{name}" for name in ("reason", "text", "detail", "model")))
    scored = ArrowRows(first_answers, partial(_scored, scores=config.scores), _ANSWERED).to_frame()
    again = scored.select(
        F.col("key").alias("second_key"), F.col("score").alias("second_score"), F.col("reason").alias("second_reason")
    )
    rows = sampled.join(scored, "key", "left").join(again, "second_key", "left")
    unanswered = F.when(F.col("key").isNull(), "no_text").otherwise("not_asked")
    first = F.when(F.col("score").isNull(), F.coalesce("reason", unanswered))
    is_asked_again = F.col("second_key").isNotNull() & F.col("second_score").isNull()
    second = F.when(is_asked_again, F.coalesce("second_reason", F.lit("not_asked")))
    return rows.withColumns({"reason": first, "second_reason": second}).select(*_OWN)


def _scored(batches: Iterable[pa.RecordBatch], scores: tuple[int, int]) -> Iterator[pa.RecordBatch]:
    """Answers with their scores, or the reasons why they have none."""
    for batch in batches:
        read = [
            (None, reason) if reason else score_of(text, scores)
            for reason, text in zip(batch.column("reason").to_pylist(), batch.column("text").to_pylist(), strict=True)
        ]
        yield pa.RecordBatch.from_pydict(
            {
                "key": batch.column("key"),
                "score": pa.array([score for score, _ in read], pa.int32()),
                "reason": pa.array([reason for _, reason in read], pa.string()),
                "answer": batch.column("text"),
                "detail": batch.column("detail"),
                "model": batch.column("model"),
            }
        )

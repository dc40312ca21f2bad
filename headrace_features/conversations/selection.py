"""The selection `conversations`: documents that the template writes without leaving anything out."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

import pyarrow as pa

from headrace_features.conversations.child import RefusedConversationError, render_apart
from headrace_features.conversations.config import ConversationsConfig
from headrace_features.conversations.documents import KEYS, conversations_of, with_messages
from headrace_features.conversations.registered import template_source
from headrace_features.conversations.rendering import RenderingRules
from spark_jobs.lake.declare.step import ArrowRows, Output, Scope, step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.engine.arrangement import persist
from spark_jobs.lake.plan.binding import Source
from spark_jobs.selection.declared import Bound, Selection, SelectionPlace
from spark_jobs.selection.kept import IDENTITY, kept_table
from spark_jobs.selection.stages import SelectionStage
from spark_jobs.spark_sql import DataFrame, F

_STAGE = SelectionStage(
    "conversations", "rendered", "conversations_rejected", "that the template of conversations writes whole"
)
_REJECTED = Table(
    name=_STAGE.reasons,
    comment="One row per conversation of which the template would leave a text out, or that it refuses.",
    columns=(
        *IDENTITY,
        Column(
            "failed!",
            "list<struct<rule!: string, value: double, threshold: double>!>",
            "left_out.KIND, template or limits, with the number of the message",
        ),
        Column("message!", "string", "why, in a line"),
    ),
    key=("doc_id",),
    partition=("increment", "shard"),
    checks=(Check("has_a_reason", "size(failed) > 0", "a document that is left out fails a rule"),),
    properties=_STAGE.properties,
)
_DDL = (
    "dataset string, shard int, doc_id string, failed array<struct<rule: string, value: double, threshold: double>>, "
    "message string"
)
_SCHEMA = pa.schema(
    [
        ("dataset", pa.string()),
        ("shard", pa.int32()),
        ("doc_id", pa.string()),
        ("failed", pa.list_(pa.struct([("rule", pa.string()), ("value", pa.float64()), ("threshold", pa.float64())]))),
        ("message", pa.string()),
    ]
)


@step(
    version="2",
    scope=Scope.INCREMENT,
    tables=(kept_table(_STAGE, _STAGE.table), _REJECTED),
    name="conversations",
    refuse=lambda config: template_source(config.template),
)
def conversations(
    survivors: DataFrame,
    documents: DataFrame,
    texts: DataFrame,
    config: ConversationsConfig,
    cut_texts: DataFrame | None = None,
) -> Output:
    """Keep the documents that the template writes without leaving out what is not allowed to be."""
    rules = config.rules(template_source(config.template), {}, train="all")
    rows = with_messages(survivors, documents, texts, cut_texts).where(F.col("messages").isNotNull())
    judged = ArrowRows(rows, functools.partial(_rejected, rules=rules, config=config), _DDL)
    rejected = persist(judged.to_frame())
    kept = survivors.select(*KEYS).join(rejected.select("doc_id"), "doc_id", "left_anti").select(*KEYS)
    return Output({_STAGE.table: kept, _STAGE.reasons: rejected}, persisted=(rejected,))


def _rejected(
    batches: Iterable[pa.RecordBatch], rules: RenderingRules, config: ConversationsConfig
) -> Iterator[pa.RecordBatch]:
    """Rows of the conversations that the template refuses, or would write in part."""
    for batch in batches:
        given = [config.rows(row) for row in conversations_of(batch) if row is not None]
        answers = iter(render_apart(rules, [row for of_document in given for row in of_document]))
        judged = [[next(answers) for _ in of_document] for of_document in given]
        refused = [
            (at, faults[0])
            for at, of_document in enumerate(judged)
            if (faults := [row for row in of_document if isinstance(row, RefusedConversationError)])
        ]
        rows = batch.select(KEYS).take(pa.array([at for at, _ in refused], pa.int64())).to_pylist()
        reasons = [
            {"failed": [{"rule": row.rule, "value": row.number, "threshold": None}], "message": str(row)}
            for _, row in refused
        ]
        yield pa.RecordBatch.from_pylist([row | reason for row, reason in zip(rows, reasons, strict=True)], _SCHEMA)


def _arrange(config: ConversationsConfig, place: SelectionPlace) -> Iterator[Bound]:
    inputs: dict[str, Source] = {
        "survivors": place.survivors,
        "documents": place.each("documents"),
        "texts": place.each("texts"),
    }
    cut: dict[str, Source] = {} if place.cut_texts is None else {"cut_texts": place.cut_texts}
    yield Bound(conversations, {**inputs, **cut}, config.model_dump(exclude_unset=True))


CONVERSATIONS = Selection(_STAGE, ConversationsConfig, _arrange, reads=("documents", "texts"))

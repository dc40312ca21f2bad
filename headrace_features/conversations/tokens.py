"""The step `conversation_tokens`: ids and masks of what a template writes, in the table `tokens` of a corpus.

A document without messages is encoded as it is, and trained as a whole.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from headrace_features.conversations.child import RefusedConversationError, check_rules, render_apart
from headrace_features.conversations.config import ConversationsConfig
from headrace_features.conversations.documents import KEYS, conversations_of, with_messages
from headrace_features.conversations.encoding import ConversationEncoder, EncodedRow, added_tokens
from headrace_features.conversations.messages.conversation import Conversation
from headrace_features.conversations.registered import template_source
from headrace_features.conversations.rendering import RenderingRules
from headrace_features.conversations.rows import ConversationRows, joined
from headrace_features.conversations.shapes import Rendered
from headrace_features.conversations.templates import TemplateRefusedError
from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.step import ArrowRows, Output, Scope, step
from spark_jobs.lake.declare.tables import Column, Notice
from spark_jobs.spark_sql import DataFrame
from spark_jobs.tokens.tokens import (
    MASKED_TOKENS,
    MASKED_TOKENS_DDL,
    MASKED_TOKENS_SCHEMA,
    RENDERED,
    same_encoder,
)

CONVERSATION_TOKENS = dataclasses.replace(
    MASKED_TOKENS,
    name="conversation_tokens",
    columns=(
        *MASKED_TOKENS.columns,
        Column("left_out", "string", "kinds of text that the template left out as allowed, or why there are no tokens"),
        Column("crossing!", "int", "tokens with a part in a trained text and a part outside"),
    ),
    notice=Notice(
        "nothing_is_left_out", "left_out is not null", "left out", "left_out", "templates write all of each row"
    ),
)
_DDL: Final = f"{MASKED_TOKENS_DDL}, left_out string, crossing int"
_SCHEMA: Final = pa.schema([*MASKED_TOKENS_SCHEMA, ("left_out", pa.string()), ("crossing", pa.int32())])


class TokensTask(NamedTuple):
    """How documents are rendered and encoded."""

    config: ConversationsConfig
    rules: RenderingRules
    control_names: frozenset[str]
    file_text: str
    end_id: int


def _same_encoder(config: Any, inputs: Any, standing: Any) -> dict[str, str]:
    from spark_jobs.tokens.tokens import TokensConfig as PlainConfig

    return same_encoder(PlainConfig(), inputs, standing)


@step(
    version="2",
    scope=Scope.INCREMENT,
    tables=(CONVERSATION_TOKENS,),
    name="conversation_tokens",
    guard=_same_encoder,
    refuse=lambda config: template_source(config.template),
)
def conversation_tokens(
    survivors: DataFrame,
    documents: DataFrame,
    texts: DataFrame,
    tokenizer: DataFrame,
    config: ConversationsConfig,
    cut_texts: DataFrame | None = None,
) -> Output:
    """Render and encode the surviving documents; one row is a document's token ids with its mask."""
    row = tokenizer.select("file", "sha256", "vocabulary_size", "end_of_document_id").first()
    if row is None:
        raise InputError("tokens: the tokenizer table has no row; materialize tokenizer first")
    try:
        rules = config.rules(template_source(config.template), added_tokens(row["file"]))
        control_names, form = check_rules(rules)
    except TemplateRefusedError as error:
        raise InputError(f"conversations: template {config.template}: {error}") from error
    task = TokensTask(config, rules, control_names, row["file"], row["end_of_document_id"])
    rows = with_messages(survivors, documents, texts, cut_texts)
    encoded = ArrowRows(rows, functools.partial(_encoded, task=task), _DDL)
    ends = ", ".join(form.ends) or "none"
    facts = {
        "headrace.tokenizer-sha256": row["sha256"],
        "headrace.vocabulary-size": str(row["vocabulary_size"]),
        RENDERED: f"{config.template}; trained: {_words(rules.train)}; end tokens {ends} are in"
        f"{', the newline behind them too' if config.newline else ', the newline behind them is not'}",
    }
    return Output({CONVERSATION_TOKENS.name: encoded.to_frame()}, facts, arrow_rows={CONVERSATION_TOKENS.name: encoded})


def _words(train: str | tuple[str, ...]) -> str:
    return train if isinstance(train, str) else ", ".join(train)


def _encoded(batches: Iterable[pa.RecordBatch], task: TokensTask) -> Iterator[pa.RecordBatch]:
    """Rows of the table, of batches of documents."""
    encoder = ConversationEncoder(task.file_text, task.control_names, task.rules.train == "template")
    for batch in batches:
        given = [*conversations_of(batch)]
        texts = batch["content"].to_pylist()
        yield _batch(batch, [*document_rows(given, texts, encoder, task)])


def document_rows(
    given: Sequence[Conversation | None], texts: Sequence[str | None], encoder: ConversationEncoder, task: TokensTask
) -> Iterator[tuple[ConversationRows, str | TemplateRefusedError | None, int]]:
    """Tokens of each document, what was left out or why it has none, how many tokens cross an edge of its mask."""
    asked = [None if row is None else task.config.rows(row) for row in given]
    rendered = iter(render_apart(task.rules, [row for rows in asked if rows is not None for row in rows]))
    answers: list[list[Rendered | RefusedConversationError]] = [
        [_plain(text or "")] if rows is None else [next(rendered) for _ in rows]
        for rows, text in zip(asked, texts, strict=True)
    ]
    encoded = encoder.encode_each([row for rows in answers for row in rows if isinstance(row, Rendered)])
    for rows in answers:
        made = [next(encoded) if isinstance(row, Rendered) else row for row in rows]
        refused = next((row for row in made if isinstance(row, TemplateRefusedError)), None)
        tokens = [] if refused is not None else [row for row in made if isinstance(row, EncodedRow)]
        document = joined(tokens, task.end_id, task.config.max_tokens or 1 << 30, task.config.repeat_head)
        lost = Counter(lost.kind for row in rows if isinstance(row, Rendered) for lost in row.lost)
        kinds = ", ".join(sorted(lost)) or None
        nothing = None if len(document.trainable) > 1 or kinds else "no token is trained"
        yield document, refused or kinds or nothing, sum(row.crossing for row in tokens)


def _plain(text: str) -> Rendered:
    """A document of another kind: all of it is text, and trained."""
    return Rendered(text, [], True, [(0, len(text))], [], 0, [], [])


def _batch(
    batch: pa.RecordBatch, rows: Sequence[tuple[ConversationRows, str | TemplateRefusedError | None, int]]
) -> pa.RecordBatch:
    documents = [document for document, _, _ in rows]
    counts = np.array([len(document.ids) for document in documents], np.int32)
    columns = [
        *(batch[name] for name in KEYS),
        _lists([document.ids for document in documents], pa.int32()),
        pa.array(counts),
        _lists([document.trainable for document in documents], pa.bool_()),
        pa.array([document.row_starts for document in documents], pa.list_(pa.int32())),
        pa.array([f"refused: {out}" if isinstance(out, Exception) else out for _, out, _ in rows], pa.string()),
        pa.array([crossing for _, _, crossing in rows], pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(
        [column.cast(field.type) for column, field in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
    )


def _lists(values: Sequence[np.ndarray[Any, Any]], kind: pa.DataType) -> pa.ListArray:
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    joined_values = np.concatenate([*values, np.zeros(0, np.bool_ if kind == pa.bool_() else np.int32)])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(joined_values, kind))

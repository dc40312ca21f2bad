"""Conversations of a corpus's documents: canonical messages, with what was edited and cut of their text since."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from headrace_features.conversations.messages.conversation import Conversation, from_json, with_text
from spark_jobs.spark_sql import DataFrame, F

KEYS: Final = ["dataset", "shard", "doc_id"]
_EDITS: Final = "array<struct<rule: string, start: bigint, end: bigint, replacement_length: bigint>>"


def with_messages(
    survivors: DataFrame, documents: DataFrame, texts: DataFrame, cut_texts: DataFrame | None
) -> DataFrame:
    """Rows (keys, messages, tools, edits, cut_edits, content) of survivors.

    `messages` is null for a document of another kind; `content` is the text then, and where a conversation was edited.
    """
    landed = documents.select(
        *KEYS, F.col("metadata")["messages"].alias("messages"), F.col("metadata")["tools"].alias("tools")
    )
    edited = texts.select(*KEYS, "content", F.col("edits").cast(_EDITS).alias("edits"))
    rows = survivors.select(*KEYS).join(landed, KEYS).join(edited, KEYS)
    if cut_texts is None:
        rows = rows.withColumn("cut_edits", F.lit(None).cast(_EDITS))
    else:
        cut = cut_texts.select(
            *KEYS, F.col("content").alias("cut_content"), F.col("edits").cast(_EDITS).alias("cut_edits")
        )
        rows = rows.join(cut, KEYS, "left").withColumn("content", F.coalesce("cut_content", "content"))
    is_plain = F.col("messages").isNotNull() & (F.size("edits") == 0) & F.col("cut_edits").isNull()
    content = F.when(is_plain, F.lit(None).cast("string")).otherwise(F.col("content"))
    return rows.select(*KEYS, "messages", "tools", "edits", "cut_edits", content.alias("content"))


def conversations_of(batch: pa.RecordBatch) -> Iterator[Conversation | None]:
    """The conversation of each row of `with_messages`, None for a document of another kind."""
    names = ("messages", "tools", "edits", "cut_edits", "content")
    for messages, own_tools, edits, cut_edits, content in zip(
        *(batch[name].to_pylist() for name in names), strict=True
    ):
        if messages is None:
            yield None
            continue
        conversation = from_json(messages, own_tools)
        if content is not None:
            conversation = with_text(conversation, content, *([edits] + ([] if cut_edits is None else [cut_edits])))
        yield conversation

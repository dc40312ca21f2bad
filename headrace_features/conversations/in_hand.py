"""Conversations in hand, rendered, encoded and masked as a corpus does it, without a lake."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace_features.conversations.child import BATCH, check_rules, render_apart
from headrace_features.conversations.config import ConversationsConfig
from headrace_features.conversations.encoding import ConversationEncoder, EncodedRow, added_tokens
from headrace_features.conversations.messages.canonical import BadMessages, read_messages
from headrace_features.conversations.messages.conversation import Conversation, from_json, to_json
from headrace_features.conversations.registered import packaged_template
from headrace_features.conversations.shapes import Rendered
from spark_jobs.exceptions import InputError
from spark_jobs.tokens.tokenizer import read_tokenizer_file


def render(
    data: Any,
    template: str | Path,
    tokenizer: str | Path,
    column: str = "messages",
    tools_column: str | None = "tools",
    **settings: Any,
) -> pa.Table:
    """Render conversations by a chat template, and prove that nothing is left out.

    Args:
        data: a list of conversations (lists of messages), of rows (dictionaries), or a table.
        template: path of a .jinja file, `package:NAME` of an installed package, or the template itself.
        tokenizer: path of a tokenizer.json.
        column: of the messages, where the data has columns.
        tools_column: of the definitions of tools.
        settings: of `conversations:` of a corpus, such as `train`, `allow`, `special_tokens`, `date`.

    Returns:
        A row for each conversation, of `prefixes: each_turn` for each of its turns: `text`, `input_ids`, `trainable`
        (of each id), `trained` (its spans in characters), `left_out` (kinds), and `refused`, why it has none of
        them; null where it has.

    Raises:
        InputError: the template cannot be used, or the data has no such column.
    """
    config = ConversationsConfig.model_validate({"template": "in_hand@1", **settings})
    file_text = read_tokenizer_file(str(tokenizer))
    rules = config.rules(_source(template), added_tokens(file_text))
    control_names, _ = check_rules(rules)
    encoder = ConversationEncoder(file_text, control_names, rules.train == "template")
    rows, batch = list[dict[str, Any]](), list[Conversation | str]()
    for conversation in _conversations(data, column, tools_column):
        batch += [conversation] if isinstance(conversation, str) else config.rows(conversation)
        if len(batch) >= BATCH:
            rows += _rendered(batch, rules, encoder)
            batch = []
    return pa.Table.from_pylist([*rows, *_rendered(batch, rules, encoder)], _SCHEMA)


_SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("input_ids", pa.list_(pa.int32())),
        ("trainable", pa.list_(pa.bool_())),
        ("trained", pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64())]))),
        ("left_out", pa.list_(pa.string())),
        ("refused", pa.string()),
    ]
)


def _source(template: str | Path) -> str:
    if isinstance(template, Path) or str(template).endswith(".jinja"):
        try:
            return Path(template).expanduser().read_text("utf-8")
        except OSError as error:
            raise InputError(f"render: template {template}: {error.strerror}; give a .jinja file") from error
    return packaged_template(template) if "{" not in template else template


def _conversations(data: Any, column: str, tools_column: str | None) -> Iterable[Conversation | str]:
    """The conversations of data, or why one is none."""
    is_table = hasattr(data, "to_pylist") or hasattr(data, "to_arrow")
    listed = (data if hasattr(data, "to_pylist") else data.to_arrow()).to_pylist() if is_table else list(data)
    for row in listed:
        fields = row if isinstance(row, dict) and "role" not in row else {column: row}
        if column not in fields:
            raise InputError(f"render: a row has no column {column!r}; it has {', '.join(fields)}: name it by column=")
        try:
            given = fields.get(tools_column) if tools_column else None
            yield from_json(*to_json(read_messages(fields[column], given, typed=is_table)))
        except BadMessages as error:
            yield str(error)


def _rendered(batch: list[Conversation | str], rules: Any, encoder: ConversationEncoder) -> list[dict[str, Any]]:
    rendered = render_apart(rules, [conversation for conversation in batch if not isinstance(conversation, str)])
    answers, encoded = iter(rendered), encoder.encode_each([row for row in rendered if isinstance(row, Rendered)])
    rows: list[dict[str, Any]] = []
    for conversation in batch:
        answer = conversation if isinstance(conversation, str) else next(answers)
        row = next(encoded) if isinstance(answer, Rendered) else answer
        if not isinstance(answer, Rendered) or not isinstance(row, EncodedRow):
            rows.append({"refused": str(row)})
            continue
        rows.append(
            {
                "text": answer.text,
                "input_ids": row.ids,
                "trainable": row.trainable,
                "trained": [{"start": start, "end": end} for start, end in answer.trained],
                "left_out": sorted({lost.kind for lost in answer.lost}),
            }
        )
    return rows

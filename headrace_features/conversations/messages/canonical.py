"""Messages of a row in canonical form.

Whatever the row writes (OpenAI's messages, ShareGPT's from and value, content in parts, calls given flat, three names
of reasoning), a canonical message has these keys in this order, those that it needs:

    role               system, developer, user, assistant or tool
    content            text
    reasoning_content  text
    tool_calls         [{"type": "function", "id": .., "function": {"name": .., "arguments": JSON text of an object}}]
    tool_call_id, name, then whatever else the row had, by name: templates may read it

Null keys are dropped, except in arguments of calls, where null is a value. In a typed column (a struct of Parquet) it
cannot be told from a key of another row's call, so such rows are refused. Line ends are LF.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headrace_features.conversations.messages.calls import Round, calls_of, tools_of
from headrace_features.conversations.messages.column import RULE
from headrace_features.conversations.messages.conversation import (
    Conversation,
    Message,
    Part,
    from_json,
    plain_text,
    to_json,
    with_text,
)
from headrace_features.conversations.messages.values import (
    BadMessages,
    json_of,
    kept,
    kept_keys,
    listed,
    text_of,
    type_of,
)
from spark_jobs.exceptions import did_you_mean
from spark_jobs.sources.records.plain_values import WrittenNumber
from spark_jobs.sources.refusals import first_line

__all__ = [
    "RULE",
    "BadMessages",
    "Conversation",
    "Message",
    "Part",
    "from_json",
    "message_document",
    "plain_text",
    "read_messages",
    "to_json",
    "with_text",
]

ROLES: Final = ("system", "developer", "user", "assistant", "tool")
_CALLING: Final = ("function_call", "tool_call")
_ROLE_OF: Final[Mapping[str, str]] = (
    dict(zip(ROLES, ROLES, strict=True))
    | {"human": "user"}
    | dict.fromkeys(("gpt", "chatgpt", "bing", "bard", *_CALLING), "assistant")  # ShareGPT's; calls as messages
    | dict.fromkeys(("observation", "function_response", "tool_response", "function", "ipython"), "tool")
)
_REASONING: Final = ("reasoning_content", "reasoning", "thinking")
_TEXT_PARTS: Final = ("text", "input_text", "output_text")
_PART_TYPES: Final = frozenset(
    (*_TEXT_PARTS, "thinking", "image", "image_url", "input_image", "audio", "input_audio", "video", "file", "document")
)
_MEND: Final = "write role and content, or from and value"


def read_messages(value: object, tools: object = None, *, typed: bool = False) -> Conversation:
    """Read the messages of a row, and its definitions of tools.

    Args:
        value: a list of messages, or their JSON as text.
        tools: definitions of tools, likewise; flat ones become those of functions.
        typed: whether values come from columns with a type for each key, such as those of Parquet.

    Raises:
        BadMessages: they are no conversation.
    """
    rows, is_typed = listed(value, "the messages", typed)
    if not rows:
        raise BadMessages("there are no messages; leave such rows out")
    messages, turns = list[Message](), Round()
    for number, row in enumerate(rows, 1):
        try:
            messages.append(_message(row, is_typed))
            turns = Round() if messages[-1]["role"] == "user" else turns
            turns.take(messages[-1])
        except (BadMessages, RecursionError) as error:
            raise BadMessages(f"message {number}: {first_line(error)}") from None
    _require_json(messages)
    if not any(message["role"] in ("user", "assistant") for message in messages):
        raise BadMessages("no message is of a user or an assistant; name the column of the messages")
    return Conversation(messages, tools_of(tools, typed))


def _require_json(messages: Sequence[Message], first: int = 1) -> None:
    """Refuse a lone surrogate, a number without JSON, a value nested too deeply.

    Raises:
        BadMessages: names the message.
    """
    try:
        json.dumps(messages, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        if len(messages) == 1:
            raise BadMessages(f"message {first}: no Unicode or no JSON: {first_line(error)}") from None
        for number, message in enumerate(messages, first):
            _require_json([message], number)


def message_document(value: object, tools: object, typed: bool) -> tuple[str, dict[str, str]]:
    """The text of the document of a row, and what its metadata has; see `read_messages`.

    Raises:
        BadMessages: the row is no conversation.
    """
    conversation = read_messages(value, tools, typed=typed)
    messages, definitions = to_json(conversation)
    of_tools = {} if definitions is None else {"tools": definitions}
    return plain_text(conversation)[0], {"messages": messages, **of_tools}


def _message(value: object, typed: bool) -> Message:
    """One message in canonical form, numbers and dates without a form in JSON as texts.

    Raises:
        BadMessages: it is none.
    """
    if not isinstance(value, dict):
        raise BadMessages(f"it is {type_of(value)}, not an object; {_MEND}")
    row = kept_keys(value)
    stated = _of(row, ("role", "from"))
    if stated is None:
        raise BadMessages(f"no role among its keys {', '.join(sorted(row)) or '(none)'}; {_MEND}"[:300])
    role = _ROLE_OF.get(stated) if isinstance(stated, str) else None
    if role is None:
        raise BadMessages(f"role {stated!r:.80} is unknown{did_you_mean(str(stated)[:80], (*ROLES, 'human', 'gpt'))}")
    content, calls, old = _of(row, ("content", "value")), row.pop("tool_calls", None), row.pop("function_call", None)
    if calls and old:
        raise BadMessages("both tool_calls and function_call; keep one")
    if stated in _CALLING:
        old, content = content, None
    if stated in _CALLING or old:
        read, typed = listed(old, "the call", typed, one=True)
        calls = read
    text, thoughts = _content(content, role, typed)
    named: list[tuple[str, str]] = [(name, text_of(row.pop(name), name)) for name in _REASONING if name in row]
    named += [("a part of the content", "".join(thoughts))] if thoughts else []
    if len({reasoning for _, reasoning in named if reasoning}) > 1:
        raise BadMessages(f"{' and '.join(name for name, _ in named)} differ; keep the right one")
    message: Message = {"role": role}
    if text is not None:
        message["content"] = text
    if named:
        message["reasoning_content"] = max(reasoning for _, reasoning in named)
    if calls and (read_calls := calls_of(calls, role, typed)):
        message["tool_calls"] = read_calls
    for name in ("tool_call_id", "name"):
        if name in row:
            message[name] = text_of(row.pop(name), name)
    return message | {name: kept(row[name]) for name in sorted(row)}


def _of(row: dict[str, Any], names: Sequence[str]) -> Any:
    """Take the value under one of two names out of a row; None without any.

    Raises:
        BadMessages: two of them have different values.
    """
    values = [row.pop(name) for name in names if name in row]
    if values[1:] and values[0] != values[1]:
        raise BadMessages(f"{' and '.join(names)} differ; keep the right one")
    return values[0] if values else None


def _content(value: Any, role: str, typed: bool) -> tuple[str | None, list[str]]:
    """Text and reasoning of a content.

    Raises:
        BadMessages: it has a part other than text, or is no text.
    """
    if value is None:
        return None, []
    is_text = isinstance(value, str) and not isinstance(value, WrittenNumber)
    is_parts = isinstance(value, list) and (role != "tool" or (value and all(map(_is_part, value))))
    if is_text or (not is_parts and role != "tool"):
        return text_of(value, "content"), []
    if not is_parts:
        return json_of(value, "the answer", typed), []
    texts, thoughts = list[str](), list[str]()
    for number, part in enumerate(value, 1):
        kind = part.get("type") if isinstance(part, dict) else "text"
        if kind == "thinking":
            if texts:
                raise BadMessages(f"part {number} of its content is thinking behind text; write a message for each")
            inner = part.get("thinking")  # of Mistral's a list of texts
            thoughts.append(_content(inner, "assistant", typed)[0] or "")
        elif kind in _TEXT_PARTS:
            texts.append(text_of(part.get("text") if isinstance(part, dict) else part, f"part {number} of its content"))
        else:
            raise BadMessages(f"part {number} of its content is of type {kind!r:.80}, not text; write it as text")
    return "".join(texts), thoughts


def _is_part(value: object) -> bool:
    kind = value.get("type") if isinstance(value, dict) else None
    return isinstance(kind, str) and kind in _PART_TYPES

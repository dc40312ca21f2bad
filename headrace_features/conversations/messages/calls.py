"""Calls of functions, definitions of tools, and which answer belongs to a call."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from headrace_features.conversations.messages.conversation import Message
from headrace_features.conversations.messages.values import (
    BadMessages,
    json_of,
    kept,
    kept_keys,
    listed,
    parsed_json,
    text_of,
    type_of,
)
from spark_jobs.exceptions import nearest
from spark_jobs.sources.refusals import first_line

# Hermes, Glaive, ReAct and code interpreters write calls as text of the assistant, whose form no rule can know.
_CALL_AS_TEXT: Final = re.compile(
    r"(tool|function)[ _-]?(call|use)|<function|<\|python_tag\|>|^[ \t]{0,9}Action[ \t]{0,9}:|\"name\"[ \t]{0,9}:|"
    r"```|<code|^[ \t]{0,9}\[[^\[\]()\n]{1,99}\(|^[ \t]{0,9}[\w.]{1,99}\(.*\)[ \t]{0,9}$",
    re.IGNORECASE | re.MULTILINE,
)


def calls_of(value: Any, role: str, typed: bool) -> list[dict[str, Any]]:
    """Calls of a message.

    Raises:
        BadMessages: one of them is none.
    """
    rows, typed = listed(value, "tool_calls", typed)
    if rows and role != "assistant":
        raise BadMessages(f"a {role} makes calls; those are of an assistant")
    calls = []
    for number, row in enumerate(rows, 1):
        beside, function = map(kept_keys, _function(row, f"call {number}"))
        name, arguments = text_of(function.pop("name"), "a name"), function.pop("arguments", None)
        call: dict[str, Any] = {"type": "function"}
        if "id" in beside:
            call["id"] = text_of(beside.pop("id"), f"the id of call {number}")
        call["function"] = {
            "name": name,
            "arguments": _arguments(arguments, f"call {number}", typed),
            **kept(function),
        }
        calls.append(call | kept(beside))
    return calls


def _function(row: object, what: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What stands beside the function of a call or definition, flat or not, and the function.

    Raises:
        BadMessages: it is none, or has no name.
    """
    if not isinstance(row, dict):
        raise BadMessages(f"{what} is {type_of(row)}, not an object")
    if (kind := row.get("type") or "function") != "function":
        raise BadMessages(f"{what} is of type {kind!r:.80}; functions alone are read")
    beside = {key: value for key, value in row.items() if key not in ("type", "function")}
    function = row.get("function")
    if function is None:
        function = {key: value for key, value in beside.items() if key != "id"}
        beside = {key: value for key, value in beside.items() if key == "id"}
    if not (isinstance(function, dict) and isinstance(function.get("name"), str) and function["name"].strip()):
        raise BadMessages(f"{what} has no name of a function")
    return beside, function


def _arguments(value: Any, what: str, typed: bool) -> str:
    """Arguments of a call as JSON text; {} where there are none.

    Raises:
        BadMessages: they are no object.
    """
    if value is None or value == "":
        return "{}"
    if isinstance(value, dict):
        return json_of(value, f"arguments of {what}", typed)
    text = text_of(value, f"arguments of {what}")
    try:
        parsed = parsed_json(text)
        json.dumps(parsed, ensure_ascii=False).encode()  # a lone surrogate is no text for a template
    except (ValueError, RecursionError) as error:
        raise BadMessages(
            f"arguments of {what} are no JSON: {first_line(error)}; write json.dumps(arguments)"
        ) from None
    if not isinstance(parsed, dict):
        raise BadMessages(f"arguments of {what} are {type_of(parsed)} of JSON, not an object")
    return text


def tools_of(value: object, typed: bool) -> list[dict[str, Any]]:
    """Definitions of tools.

    Raises:
        BadMessages: one of them is none.
    """
    if value is None or (isinstance(value, str | bytes) and value.strip() in ("", "null", b"", b"null")):
        return []
    rows, typed = listed(value, "the tools", typed)
    tools = []
    for number, row in enumerate(rows, 1):
        of, is_typed = listed(row, f"tool {number}", typed, one=True)
        definition = of[0] if len(of) == 1 else of
        _, function = _function(definition, f"tool {number}")
        if is_typed:
            function = {key: value for key, value in function.items() if value is not None}
        if is_typed or "function" not in definition or "type" not in definition:
            definition = {"type": "function", "function": function}
        try:
            tools.append(json.loads(text := json_of(definition, f"tool {number}", is_typed)))
            text.encode()
        except (ValueError, RecursionError) as error:
            raise BadMessages(first_line(error)) from None
    return tools


class Round:
    """Calls and answers from one turn of a user to the next."""

    def __init__(self) -> None:
        self._ids, self._calls, self._answers, self._texts = list[str](), 0, 0, list[str]()

    def take(self, message: Message) -> None:
        """Take the next message.

        Raises:
            BadMessages: it is empty, or a tool's answer without a call.
        """
        role, content, calls = message["role"], message.get("content", ""), message.get("tool_calls", [])
        is_empty = not (content.strip() or message.get("reasoning_content", "").strip() or calls)
        if is_empty and role in ("user", "assistant"):  # a tool may answer nothing
            raise BadMessages(f"the turn of the {role} is empty; leave it or the row out")
        self._ids += [call["id"] for call in calls if "id" in call]
        self._calls += len(calls)
        if role == "assistant":
            self._texts.append(content)
        elif role == "tool":
            fault = self._fault(message.get("tool_call_id"))
            if fault is not None and not any(map(_CALL_AS_TEXT.search, self._texts)):
                raise BadMessages(fault)

    def _fault(self, call_id: str | None) -> str | None:
        """Count a tool's answer, and tell what is wrong where it answers no call of the round."""
        self._answers += 1
        if not self._calls:
            return "a tool answers without a call before it in the round; leave the row out, or add the call"
        if call_id is not None and len(self._ids) == self._calls:
            if call_id in self._ids:
                return None
            near = nearest(call_id[:80], self._ids[:80])
            return f"no call of the round has its tool_call_id {call_id!r:.80}{near}; correct one of the two ids"
        return (
            None
            if self._answers <= self._calls
            else (f"answer {self._answers} of tools in a round of {self._calls} calls; add the call")
        )

"""Messages of rows in canonical form, their plain text, and edits led back into them."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_features.conversations.messages.canonical import (
    BadMessages,
    Conversation,
    Part,
    from_json,
    plain_text,
    read_messages,
    to_json,
    with_text,
)
from headrace_features.conversations.messages.conversation import SEPARATOR
from headrace_features.privacy.personal_data.find import DetectedSpan
from headrace_features.privacy.personal_data.redacted_texts import redact
from spark_jobs.selection.cuts import without
from spark_jobs.text.normalization import Edits, compose, normalize
from tests.tiers import tries

Message = dict[str, Any]
_USER: Message = {"role": "user", "content": "Rain in Oslo?"}
_CALL = {"type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
_CALLS: Message = {"role": "assistant", "tool_calls": [_CALL]}
_FLAT = {"name": "weather", "arguments": {"city": "Oslo"}}
_ANSWER: Message = {"role": "tool", "content": "yes"}
_END: Message = {"role": "assistant", "content": "It rains."}
_EXCHANGE = [_USER, _CALLS, _ANSWER, _END]


def _with_id(call: Message, call_id: str) -> Message:
    return {"type": "function", "id": call_id, "function": call["function"]}


@pytest.mark.parametrize(
    ("row", "canonical"),
    [
        ([_USER, _END], [_USER, _END]),
        (json.dumps([_USER, _END]), [_USER, _END]),
        (json.dumps([_USER, _END]).encode(), [_USER, _END]),
        (
            [{"from": "human", "value": "Rain in Oslo?"}, {"from": "gpt", "value": "It rains.", "weight": 0}],
            [_USER, _END | {"weight": 0}],
        ),
        (
            [
                {"from": "human", "value": "Rain in Oslo?"},
                {"from": "function_call", "value": json.dumps(_FLAT)},
                {"from": "observation", "value": "yes"},
                {"from": "gpt", "value": "It rains."},
            ],
            _EXCHANGE,
        ),
        (  # Hermes: calls and answers as text
            [
                {"from": "system", "value": "<tools>[]</tools>"},
                {"from": "human", "value": "Rain?"},
                {"from": "gpt", "value": '<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>'},
                {"from": "tool", "value": "<tool_response>\nyes\n</tool_response>"},
                {"from": "gpt", "value": "It rains."},
            ],
            [
                {"role": "system", "content": "<tools>[]</tools>"},
                {"role": "user", "content": "Rain?"},
                {"role": "assistant", "content": '<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>'},
                {"role": "tool", "content": "<tool_response>\nyes\n</tool_response>"},
                _END,
            ],
        ),
        (  # OpenAI's log: nulls, ids, arguments as text
            [
                {"role": "developer", "content": "Be short.", "name": None},
                _USER | {"tool_calls": None},
                {
                    "content": None,
                    "role": "assistant",
                    "refusal": None,
                    "function_call": None,
                    "tool_calls": [{"id": "c1", "index": 0, **_CALL}],
                },
                {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "yes"}]},
                _END | {"tool_calls": [], "audio": None},
            ],
            [
                {"role": "developer", "content": "Be short."},
                _USER,
                {"role": "assistant", "tool_calls": [_with_id(_CALL, "c1") | {"index": 0}]},
                {"role": "tool", "content": "yes", "tool_call_id": "c1"},
                _END,
            ],
        ),
        (  # OpenAI's first form of calls
            [
                _USER,
                {"role": "assistant", "content": None, "function_call": _CALL["function"]},
                {"role": "function", "name": "weather", "content": "yes"},
            ],
            [_USER, _CALLS, _ANSWER | {"name": "weather"}],
        ),
        ([_USER, {"role": "assistant", "tool_calls": [_FLAT]}], [_USER, _CALLS]),
        ([_USER, {"role": "assistant", "tool_calls": json.dumps([_FLAT])}], [_USER, _CALLS]),
        (
            [{"role": "user", "content": ["Rain ", {"type": "input_text", "text": "in Oslo?"}]}, _END],
            [_USER, _END],
        ),
        (
            [
                _USER,
                {
                    "role": "assistant",
                    "content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "It rains."}],
                },
            ],
            [_USER, _END | {"reasoning_content": "Hm."}],
        ),
        (  # Mistral's
            [
                _USER,
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}], "closed": True},
                        {"type": "text", "text": "It rains."},
                    ],
                },
            ],
            [_USER, _END | {"reasoning_content": "Hm."}],
        ),
        *(
            ([_USER, _END | {name: "Hm."}], [_USER, _END | {"reasoning_content": "Hm."}])
            for name in ("reasoning_content", "reasoning", "thinking")
        ),
        ([_USER, _END | {"thinking": "", "reasoning": "Hm."}], [_USER, _END | {"reasoning_content": "Hm."}]),
        (
            [_USER, _CALLS, {"role": "tool", "content": {"rain": None}}],
            [_USER, _CALLS, _ANSWER | {"content": '{"rain": null}'}],
        ),
        ([_USER, _CALLS, {"role": "tool", "content": ""}], [_USER, _CALLS, {"role": "tool", "content": ""}]),
        ([{"role": "system", "content": ""}, _USER], [{"role": "system", "content": ""}, _USER]),
        ([_USER | {"content": "a\r\nb\rc"}], [_USER | {"content": "a\nb\nc"}]),
        ([_USER | {"more": {"a": None, "b": [{"c": None}]}}], [_USER | {"more": {"b": [{}]}}]),
    ],
)
def test_rows_of_every_form_become_canonical(row: object, canonical: list[Message]) -> None:
    """With keys in one order, and read again they stay as they are."""
    conversation = read_messages(row)
    assert [list(message.items()) for message in conversation.messages] == [
        sorted(message.items(), key=lambda item: _place(item[0])) for message in canonical
    ]
    assert read_messages(conversation.messages) == conversation
    assert from_json(*to_json(conversation)) == conversation


def _place(key: str) -> tuple[int, str]:
    order = ("role", "content", "reasoning_content", "tool_calls", "tool_call_id", "name")
    return (order.index(key), "") if key in order else (len(order), key)


@pytest.mark.parametrize(
    "call",
    [
        '<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>',
        '<functioncall> {"name": "weather"}',
        "Thought: rain.\nAction: weather\nAction Input: Oslo",
        '[Weather Now API(city="Oslo",\nday="today")]',
        'weather(city="Oslo")',
        "```python\nprint(weather())\n```",
        '<|python_tag|>weather.call(city="Oslo")',
    ],
)
def test_calls_written_as_text_may_be_answered(call: str) -> None:
    """By a tool, however often; in the next round another one is needed."""
    row = [_USER, {"role": "assistant", "content": call}, _ANSWER, _ANSWER, _END]
    assert read_messages(row).messages == row
    with pytest.raises(BadMessages, match="message 7"):
        read_messages([*row, _USER, _ANSWER])


@pytest.mark.parametrize("text", ["See [the page](https://example.org).", "It rains (a lot)", "No name: yes."])
def test_other_texts_are_no_calls(text: str) -> None:
    """A link, brackets, a colon."""
    with pytest.raises(BadMessages, match="message 3: a tool answers without a call"):
        read_messages([_USER, {"role": "assistant", "content": text}, _ANSWER])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"city": "Oslo", "unit": None}, '{"city": "Oslo", "unit": null}'),
        ('{"city":"Oslo"}', '{"city":"Oslo"}'),
        ({"name": "Åse"}, '{"name": "Åse"}'),
        (None, "{}"),
        ("", "{}"),
    ],
)
def test_arguments_are_json_text(arguments: object, text: str) -> None:
    """Text stays as it is, objects are written once, null in them is a value."""
    row = [_USER, {"role": "assistant", "tool_calls": [{"name": "weather", "arguments": arguments}]}]
    assert read_messages(row).messages[1]["tool_calls"][0]["function"]["arguments"] == text


def test_numbers_of_arguments_keep_their_digits() -> None:
    """A number that no double holds too."""
    row = '[{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [{"name": "f", "arguments": %s}]}]'
    arguments = '{"x": 0.1000000000000000055511151231, "y": 1e400}'
    assert read_messages(row % arguments).messages[1]["tool_calls"][0]["function"]["arguments"] == arguments


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (
            [_USER, {"role": "asistant", "content": "a"}],
            r"message 2: role 'asistant' is unknown; did you mean 'assistant'",
        ),
        ([_USER, {"speaker": "x"}], "message 2: no role among its keys speaker; write role and content"),
        ([_USER, "text"], "message 2: it is a text, not an object"),
        ([_USER, None], "message 2: it is null"),
        ([_USER, _ANSWER], "message 2: a tool answers without a call"),
        ([_USER, _END, _ANSWER], "message 3: a tool answers without a call"),
        ([*_EXCHANGE, _USER, _ANSWER], "message 6: a tool answers without a call"),
        ([_USER, _CALLS, _ANSWER, _ANSWER], "message 4: answer 2 of tools in a round of 1 calls"),
        (
            [_USER, {"role": "assistant", "tool_calls": [_with_id(_CALL, "c1")]}, _ANSWER | {"tool_call_id": "c2"}],
            "message 3: no call of the round has its tool_call_id 'c2'; did you mean 'c1'",
        ),
        ([_USER, {"role": "assistant", "content": " \n"}], "message 2: the turn of the assistant is empty"),
        ([{"role": "user"}], "message 1: the turn of the user is empty"),
        ([], "no messages"),
        (None, "null, not a list"),
        ("[{'role': 'user'}]", "no JSON: .*json.dumps"),
        ('{"role": "user"}', "an object, not a list"),
        ([{"role": "system", "content": "a"}], "no message is of a user or an assistant"),
        ([_USER | {"content": [{"type": "image_url", "image_url": {"url": "x"}}]}], "message 1: part 1 .* 'image_url'"),
        ([_USER | {"content": 3}], "message 1: content is a number"),
        (
            [_USER, {"role": "assistant", "content": ["a", {"type": "thinking", "thinking": "b"}]}],
            "message 2: part 2 of its content is thinking behind text",
        ),
        ([_USER, _END | {"thinking": "a", "reasoning": "b"}], "message 2: reasoning and thinking differ"),
        ([_USER | {"tool_calls": [_FLAT]}], "message 1: a user makes calls"),
        ([_USER, {"role": "assistant", "tool_calls": [{"arguments": {}}]}], "message 2: call 1 has no name"),
        (
            [_USER, {"role": "assistant", "tool_calls": [{"name": "f", "arguments": "{x"}]}],
            "message 2: arguments .* no JSON",
        ),
        (
            [_USER, {"role": "assistant", "tool_calls": [{"name": "f", "arguments": "[1]"}]}],
            "arguments .* a list of JSON",
        ),
        (
            [_USER, {"role": "assistant", "tool_calls": [{"name": "f", "arguments": '"{}"'}]}],
            "arguments .* a text of JSON",
        ),
        ([_USER, {"role": "assistant", "tool_calls": [_FLAT | {"type": "custom"}]}], "call 1 is of type 'custom'"),
        (
            [{"from": "human", "value": "x"}, {"from": "function_call", "value": "weather()"}],
            "message 2: the call: no JSON",
        ),
        ([_USER | {"content": "\ud800"}], "message 1: no Unicode"),
        ([_USER | {"score": float("nan")}], "message 1: no Unicode or no JSON"),
    ],
)
def test_bad_rows_are_refused_in_a_line(row: object, fault: str) -> None:
    """Which message, what, and the mend."""
    with pytest.raises(BadMessages, match=fault) as refused:
        read_messages(row)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 400


def test_a_null_of_a_typed_column_is_refused_in_arguments_alone() -> None:
    """Elsewhere it is no key, and as JSON text it is a value."""
    calls: list[Message] = [
        {"type": None, "function": {"name": "weather", "arguments": {"city": "Oslo", "unit": None}}}
    ]
    row = [_USER | {"tool_calls": None}, {"role": "assistant", "content": None, "tool_calls": calls}]
    with pytest.raises(BadMessages, match=r"message 2: .*null at unit .*json\.dumps"):
        read_messages(row, typed=True)
    calls[0]["function"] = _CALL["function"]
    assert read_messages(row, typed=True).messages == [_USER, _CALLS]


def test_tools_are_definitions_of_functions() -> None:
    """Flat ones too, in the order of their keys; nulls of JSON stay."""
    function = {"name": "weather", "parameters": {"type": "object", "default": None}}
    whole = {"function": function, "type": "function"}
    for tools in ([function], [{"type": "function", **function}], json.dumps([whole]), [json.dumps(whole)], [whole]):
        read = read_messages([_USER], tools)
        assert read.tools == [whole]
        assert from_json(*to_json(read)) == read
    assert list(read_messages([_USER], [whole]).tools[0]) == ["function", "type"]
    assert [read_messages([_USER], none).tools for none in (None, [], "", "[]", "null")] == [[]] * 5
    with pytest.raises(BadMessages, match="tool 1 has no name"):
        read_messages([_USER], [{"description": "x"}])
    with pytest.raises(BadMessages, match=r"tool 1: null at function\.parameters\.default"):
        read_messages([_USER], [whole], typed=True)
    typed = {"type": "function", "function": {"name": "f", "strict": None, "parameters": None}}
    assert read_messages([_USER], [typed], typed=True).tools == [{"type": "function", "function": {"name": "f"}}]


def test_the_plain_text_has_each_part_where_it_says() -> None:
    """Reasoning, content, names and arguments of calls, without roles and definitions."""
    thoughts = {"role": "assistant", "reasoning_content": "Hm.", "content": "", "tool_calls": [_CALL]}
    text, parts = plain_text(read_messages([_USER, thoughts, _ANSWER], [_FLAT]))
    assert text == 'Rain in Oslo?\n\nHm.\n\nweather\n\n{"city": "Oslo"}\n\nyes'
    assert parts[1] == Part(1, "reasoning_content", 15, 18)
    assert [(part.message, part.field, text[part.start : part.end]) for part in parts[2:]] == [
        (1, "tool_calls.0.function.name", "weather"),
        (1, "tool_calls.0.function.arguments", '{"city": "Oslo"}'),
        (2, "content", "yes"),
    ]


_TEXTS = st.text(st.sampled_from('ab é\u0301Ω𝄞\n"\\{<|'), min_size=1, max_size=12).filter(str.strip)
_CALL_ROWS = st.builds(
    lambda name, arguments, many: {"role": "assistant", "tool_calls": [{"name": name, "arguments": arguments}] * many},
    _TEXTS, st.dictionaries(_TEXTS, st.one_of(_TEXTS, st.none(), st.integers()), max_size=2), st.integers(1, 2),
)  # fmt: skip
_ROWS = st.one_of(
    st.builds(lambda text: {"role": "user", "content": text}, _TEXTS),
    st.builds(lambda text, thought: {"role": "assistant", "content": text, "thinking": thought}, _TEXTS, _TEXTS),
    st.builds(lambda call, text: {**call, "content": text}, _CALL_ROWS, st.one_of(st.none(), _TEXTS)),
)
_CONVERSATIONS = st.lists(_ROWS, min_size=1, max_size=5).map(read_messages)


def _edited(draw: Any, text: str, free: list[tuple[int, int]]) -> tuple[str, list[dict[str, Any]]]:
    """A text after edits inside of spans of characters, and the edits, as rows of `texts` have them."""
    pieces, edits, at, size = list[str](), list[dict[str, Any]](), 0, 0
    for start, end in free:
        if end > start and draw(st.booleans()):
            first = draw(st.integers(start, end - 1))
            last = draw(st.integers(first + 1, end))
            new = draw(st.sampled_from(["", "<MAIL_1>", "é"]))
            source = len(text[:first].encode())
            size = len(text[first:last].encode())
            edits.append({"rule": "x", "start": source, "end": source + size, "replacement_length": len(new.encode())})
            pieces += [text[at:first], new]
            at = last
    return "".join([*pieces, text[at:]]), edits


def _joined(conversation: Conversation, parts: list[Part]) -> str:
    """The parts of a layout, as a conversation has them."""
    texts = []
    for part in parts:
        value: Any = conversation.messages[part.message]
        for key in part.field.split("."):
            value = value[int(key) if key.isdigit() else key]
        texts.append(value)
    return SEPARATOR.join(texts)


@settings(max_examples=tries(500, 30))
@given(st.data(), _CONVERSATIONS)
def test_edits_of_the_plain_text_lead_back_into_the_messages(data: st.DataObject, conversation: Conversation) -> None:
    """Of two rounds too, the second of the text that the first left; arguments stay JSON."""
    text, parts = plain_text(conversation)
    spans = [(part.start, part.end) for part in parts if not part.field.endswith("arguments")]
    once, edits = _edited(data.draw, text, spans)
    edited = with_text(conversation, once, edits)
    assert _joined(edited, parts) == once
    places = _moved(spans, text, edits)
    twice, more = _edited(data.draw, once, places)
    assert _joined(with_text(conversation, twice, edits, more), parts) == twice
    assert [len(message.get("tool_calls", ())) for message in edited.messages] == [
        len(message.get("tool_calls", ())) for message in conversation.messages
    ]


def _moved(spans: list[tuple[int, int]], text: str, edits: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Spans of characters in the edited text."""
    moved, left = [], list(edits)
    grown = 0
    for start, end in spans:
        first = start + grown
        bounds = len(text[:start].encode()), len(text[:end].encode())
        for edit in [edit for edit in left if bounds[0] <= edit["start"] < bounds[1]]:
            old = text.encode()[edit["start"] : edit["end"]].decode()
            grown += {0: 0, 8: 8, 2: 1}[edit["replacement_length"]] - len(old)
        moved.append((first, end + grown))
    return moved


@settings(max_examples=tries(500, 30))
@given(st.data(), _CONVERSATIONS)
def test_no_edit_makes_anything_but_canonical_messages(data: st.DataObject, conversation: Conversation) -> None:
    """Wherever it begins and ends; a replacement comes once, and arguments are JSON text."""
    text, _ = plain_text(conversation)
    edited, edits = _edited(data.draw, text, [(0, len(text) // 2), (len(text) // 2, len(text))])
    result = with_text(conversation, edited, edits)
    after, _ = plain_text(result)
    for message in result.messages:
        for call in message.get("tool_calls", ()):
            json.loads(call["function"]["arguments"])
    assert after.count("<MAIL_1>") <= edited.count("<MAIL_1>")
    assert [message["role"] for message in result.messages] == [message["role"] for message in conversation.messages]


def test_a_placeholder_across_messages_stands_in_the_first() -> None:
    """And the beginning of the second is cut."""
    conversation = read_messages([_USER | {"content": "I am Ada"}, _END | {"content": "Lovelace? Hi"}])
    text, _ = plain_text(conversation)
    place = text.index("Ada")
    edits = [{"rule": "redacted", "start": place, "end": place + len("Ada\n\nLovelace"), "replacement_length": 6}]
    edited = with_text(conversation, "I am <NAME>? Hi", edits)
    assert [message["content"] for message in edited.messages] == ["I am <NAME>", "? Hi"]


def test_an_edit_between_messages_changes_none() -> None:
    """Whether it is all of the separator or one end of it."""
    conversation = read_messages([_USER, _END])
    text, parts = plain_text(conversation)
    for start, end in ((0, 2), (0, 1), (1, 2)):
        edits = [{"rule": "x", "start": 13 + start, "end": 13 + end, "replacement_length": 1}]
        edited = text[: 13 + start] + "#" + text[13 + end :]
        assert with_text(conversation, edited, edits) == conversation
    assert parts[0].end == 13


def test_a_placeholder_of_a_number_in_arguments_is_quoted() -> None:
    """What can be no JSON even so is a string of JSON."""
    conversation = read_messages(
        [_USER, {"role": "assistant", "tool_calls": [{"name": "f", "arguments": '{"a": 55}'}]}]
    )
    text, _ = plain_text(conversation)
    place = text.index("55")
    edits = [{"rule": "redacted", "start": place, "end": place + 2, "replacement_length": 9}]
    edited = with_text(conversation, text.replace("55", "<PHONE_1>"), edits)
    assert edited.messages[1]["tool_calls"][0]["function"]["arguments"] == '{"a": "<PHONE_1>"}'
    edits = [{"rule": "cut", "start": place, "end": place + 3, "replacement_length": 0}]
    edited = with_text(conversation, text.replace("55}", ""), edits)
    assert json.loads(edited.messages[1]["tool_calls"][0]["function"]["arguments"]) == '{"a": '


@settings(max_examples=tries(300, 30))
@given(_CONVERSATIONS)
def test_normalization_leads_back(conversation: Conversation) -> None:
    """NFC never crosses a border, since line ends join nothing."""
    text, parts = plain_text(conversation)
    normal, edits = normalize(text)
    joined = _joined(with_text(conversation, normal, edits), parts)
    assert joined == normal


_KEYS_IN_ROWS = (
    *("role", "from", "content", "value", "type", "text", "thinking", "reasoning", "tool_calls", "function_call"),
    *("function", "name", "arguments", "id", "tool_call_id", "x\ny"),
)
_WORDS_IN_ROWS = (
    "user",
    "assistant",
    "tool",
    "human",
    "text",
    "thinking",
    "function",
    "",
    "a\r\n",
    "{}",
    "[]",
    "\ud800",
)
_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from(_WORDS_IN_ROWS)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(_KEYS_IN_ROWS), inner, max_size=5)
    ),
    max_leaves=25,
)
_MESSAGE_LIKE = st.fixed_dictionaries(
    {"role": st.sampled_from(("user", "assistant", "tool"))},
    optional=dict.fromkeys(_KEYS_IN_ROWS[2:], _JSON),
)


@settings(max_examples=tries(3000, 60))
@given(st.one_of(_JSON, st.lists(_MESSAGE_LIKE, min_size=1, max_size=4)), st.one_of(st.none(), _JSON), st.booleans())
def test_whatever_stands_in_a_row_is_read_or_refused_in_a_line(value: Any, tools: Any, typed: bool) -> None:
    """What is read is canonical: read once more, and through its JSON, it stays as it is."""
    try:
        conversation = read_messages(value, tools, typed=typed)
    except BadMessages as refused:
        assert str(refused) and "\n" not in str(refused) and len(str(refused)) < 500
        return
    assert read_messages(*conversation) == from_json(*to_json(conversation)) == conversation
    "".join(filter(None, to_json(conversation))).encode()
    text, parts = plain_text(conversation)
    assert "\r" not in text and _joined(conversation, parts) == text


def test_edits_of_texts_placeholders_and_cuts_lead_back_together() -> None:
    """As the tables have them: NFC, then a placeholder in content and in arguments, then a cut of what that left."""
    arguments = '{"to": "ada@example.org", "cafe\u0301": "x"}'
    row = [
        {"role": "user", "content": "Write to ada@example.org. Advertisement."},
        {"role": "assistant", "tool_calls": [{"name": "mail", "arguments": arguments}]},
        {"role": "tool", "content": "sent"},
        {"role": "assistant", "content": "Sent to ada@example.org."},
    ]
    conversation = read_messages(row)
    normal, first = normalize(plain_text(conversation)[0])
    data = normal.encode()
    places = [match.span() for match in re.finditer(rb"ada@example\.org", data)]
    redacted, second = redact(normal, [DetectedSpan(*place, "mail", "mail", 1.0) for place in places])
    start = redacted.index(" Advertisement.")
    cut, third = without(redacted, [(start, start + len(" Advertisement."))], "advertisement")
    edited = with_text(conversation, cut, compose(first, second), third)
    assert plain_text(edited)[0] == cut
    assert edited.messages == [
        {"role": "user", "content": "Write to <MAIL_1>."},
        {"role": "assistant", "tool_calls": [_call("mail", '{"to": "<MAIL_1>", "caf\u00e9": "x"}')]},
        {"role": "tool", "content": "sent"},
        {"role": "assistant", "content": "Sent to <MAIL_1>."},
    ]


def _call(name: str, arguments: str) -> Message:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def test_edits_of_another_text_are_refused() -> None:
    """Rather than cut somewhere."""
    conversation = read_messages([_USER])
    four = (np.array([number]) for number in (0, 0, 4, 0))
    with pytest.raises(ValueError, match="lead from 13 bytes to 9, not 13"):
        with_text(conversation, "Rain in Oslo?", Edits(*four))

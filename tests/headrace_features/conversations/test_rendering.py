"""Rendered conversations: transformers' text and mask, nothing left out unnamed, names of control tokens as text."""

from __future__ import annotations

import copy
import datetime
import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer

from headrace_features.conversations.encoding import ConversationEncoder
from headrace_features.conversations.messages.conversation import Conversation
from headrace_features.conversations.parts import text_parts
from headrace_features.conversations.rendering import Renderer
from headrace_features.conversations.rows import joined, prefixes
from headrace_features.conversations.shapes import Rendered, joined_texts
from headrace_features.conversations.skeleton import shape_of
from headrace_features.conversations.templates import TemplateRefusedError
from tests.headrace_features.conversations.chat_templates import (
    CONTROLS,
    SPECIAL,
    TEMPLATES,
    odd_conversation,
    renderer,
    tokenizer_file,
)

SEEDS = st.integers(0, 10**9)
NAMES = st.sampled_from(sorted(TEMPLATES))
ROUND = [("user", "a"), ("assistant", "b", "why")]
TOOLS = [
    {"type": "function", "function": {"name": "search", "description": "Looks.", "parameters": {"type": "object"}}}
]


def foreign(name: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> tuple[str, Any] | None:
    """Text and generation blocks by transformers; None where it raises."""
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    try:
        texts, spans = utils.render_jinja_template(
            conversations=[copy.deepcopy(messages)],
            tools=tools,
            chat_template=TEMPLATES[name],
            return_assistant_tokens_mask=True,
            **SPECIAL,
        )
    except Exception:  # noqa: BLE001  a template raises what it likes
        return None
    return texts[0], [tuple(span) for span in spans[0] if span[0] < span[1]]


def taken(name: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages with contents in parts, where the template takes them so."""
    if name != "parts":
        return messages
    return [message | {"content": [{"type": "text", "text": message["content"]}]} for message in messages]


@given(name=NAMES, seed=SEEDS, with_tools=st.booleans())
def test_text_and_blocks_are_those_of_transformers(name: str, seed: int, with_tools: bool) -> None:
    """Characters and generation blocks, for every conversation that transformers renders and nothing of it is lost."""
    messages = odd_conversation(seed, calls=name in ("trimmed", "thinking"))
    wanted = foreign(name, taken(name, messages), TOOLS if with_tools else None)
    try:
        row = renderer(name, "template").render(messages, TOOLS if with_tools else [])
    except TemplateRefusedError as error:
        assert wanted is None or "changes what the template writes" in str(error)
        return
    assert wanted is not None
    assert row.text == wanted[0]
    if not row.lost:
        assert row.trained == wanted[1]


@given(name=NAMES, seeds=st.lists(SEEDS, min_size=2, max_size=6))
def test_a_known_shape_gives_what_the_template_writes(name: str, seeds: list[int]) -> None:
    """A row that was not rendered is the row of the rendering, in each of its fields."""
    rendering = renderer(name)
    for seed in (*seeds, *seeds):
        messages = odd_conversation(seed % 50, calls=name == "trimmed")
        try:
            row = rendering.render(messages, [])
        except TemplateRefusedError:
            continue
        assert row == rendered_anew(rendering, messages)


TURN = "<|im_start|>{{ m.role }}\n"
ASKING = (  # what a template may do with a text, so that another text is written in another way
    *("{{ {'yes': 'Y'}.get(m.content) }}", "{{ {'yes': 'Y'}[m.content] }}", "{{ 'Y' if m.content in {'yes': 1} }}"),
    *(
        "{{ {m.content: 1, 'no': 2} | length }}",
        "{{ 'Y' if m.content is in 'yes no' }}",
        "{{ 'yes' | trim(m.content) }}",
    ),
    "{{ messages | selectattr('content', 'in', 'yes no') | list | length }}",
    "{% set x = ' '.join(messages | map(attribute='content')) %}{{ 'Y' if 'no' in x }}",
    "{% set x = ' '.join({'a': m.content}.values()) %}{{ 'Y' if 'no' in x }}",
    "{% set x = ['a', 'b'] | join(m.content) %}{{ 'Y' if 'no' in x }}",
    "{% set x = '%s' % (m.content,) %}{{ 'Y' if x == 'no' }}",
    "{{ 'Y' if m.content in 'yes no' in ['x'] }}{{ 'Z' if 'a' < m.content < 'z' }}",
    *("{{ m.content.rstrip('\\n') }}\n", "{{ m.content }}\n{{ m.content.lstrip('\\n') }}\n"),
    *("{{ (m.content.rstrip('\\n') ~ m.content) | tojson }}", "{{ m.name }}: "),
)


@given(
    asking=st.sampled_from(ASKING),
    texts=st.lists(st.sampled_from(["zed", "yes", "no", "yes\n", "\nno", " a"]), min_size=4, max_size=12),
    names=st.lists(st.sampled_from(["", " ", "f", "g"]), min_size=6, max_size=6),
)
def test_a_template_that_looks_into_texts_is_asked_for_each(asking: str, texts: list[str], names: list[str]) -> None:
    """Keys, tests, joins, trims and names: the row of a known shape is what the template writes."""
    source = "{% for m in messages %}" + TURN + asking + "{{ m.content }}<|im_end|>\n{% endfor %}"
    source += "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    rendering = renderer(source)
    for first, second, name in zip(texts[::2], texts[1::2], names, strict=False):
        messages = [{"role": "user", "name": name, "content": first}, {"role": "assistant", "content": second}]
        assert rendering.render(messages, []).text == rendering._template.write(messages, []).text


def rendered_anew(rendering: Renderer, messages: list[dict[str, Any]]) -> Rendered:
    """The row by the template itself."""
    messages = rendering._as_taken(messages)
    shape, parts = shape_of(messages, [])
    return rendering._row(rendering._shapes[shape], messages, [], parts)


def test_conversations_of_a_shape_are_not_rendered_again() -> None:
    """Ordinary conversations of one shape are filled in by its skeleton; one with `</think>` is rendered."""
    rendering = renderer("thinking")
    for text in ("hello", "other", "more"):
        messages = [{"role": "user", "content": text}, {"role": "assistant", "content": f"{text} there"}]
        rendering.render(messages, [])
    shape, parts = shape_of(messages, [])
    row = rendering._shapes[shape].row
    assert len(rendering._shapes) == 1
    assert row is not None and row.is_of(parts)
    quoting = [messages[0], {"role": "assistant", "content": "a </think> tail"}]
    assert not row.is_of(shape_of(quoting, [])[1])
    assert rendering.render(quoting, []).lost
    assert "\0" in joined_texts(parts)


@given(name=NAMES, seed=SEEDS)
def test_nothing_is_left_out_unnamed(name: str, seed: int) -> None:
    """A part is named as lost if a word of its own in its place is not in the text; else its place holds it."""
    messages = odd_conversation(seed, calls=name in ("trimmed", "thinking"))
    words = [dict(message) for message in messages]
    for number, message in enumerate(words):
        for field in ("content", "reasoning_content"):
            if message.get(field, "").strip():
                message[field] = f"word{number}{field}"
    try:
        row = renderer(name).render(words, [])
    except TemplateRefusedError:
        return
    lost = [(message, kind) for message, kind in row.lost if kind != "moved"]
    for number, message in enumerate(words):
        for field in ("content", "reasoning_content"):
            if message.get(field, "").strip():
                kinds = (
                    ("reasoning", "reasoning_before_last") if field != "content" else (message["role"], "tool_answer")
                )
                assert (message[field] in row.text) == (not any((number, kind) in lost for kind in kinds))
    for place in renderer(name).render(words, []).places:
        texts = [part.text for part in text_parts(words) if part.message == place.message]
        escaped = [json.dumps(text, ensure_ascii=False)[1:-1] for text in texts]
        assert row.text[place.start : place.end].strip() in [text.strip() for text in (*texts, *escaped)]


@pytest.mark.parametrize(
    ("name", "messages", "kind"),
    [
        ("chatml", [("user", "a"), ("assistant", "b", "why")], "reasoning"),
        (
            "thinking",
            [("user", "a"), ("assistant", "b", "why"), ("user", "c"), ("assistant", "d")],
            "reasoning_before_last",
        ),
        ("thinking", [("user", "Which?"), ("assistant", "The tag </think> closes it.")], "assistant"),
        ("instructed", [("system", "s"), ("user", "a"), ("assistant", "b")], "system"),
        (
            "instructed",
            [("system", "s1 s2"), ("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")],
            "moved",
        ),
    ],
)
def test_a_lost_text_fails_the_row_with_its_kind(name: str, messages: list[Any], kind: str) -> None:
    """The row is refused under `left_out`, with the line that permits it; permitted it is counted."""
    given_messages = [
        {"role": message[0], "content": message[1]} | ({"reasoning_content": message[2]} if len(message) > 2 else {})
        for message in messages
    ]
    template = TEMPLATES[name] if kind != "system" else TEMPLATES[name].replace("system", "nobody")
    with pytest.raises(TemplateRefusedError, match=rf"left_out: .*allow: \[{kind}\] permits it"):
        renderer(template, allow=()).render(given_messages, [])
    row = renderer(template, allow=(kind,)).render(given_messages, [])
    assert {lost.kind for lost in row.lost} == {kind}


def test_a_turn_without_its_text_is_not_trained() -> None:
    """Neither an empty answer with its end token, nor what is written in place of lost reasoning."""
    template = TEMPLATES["chatml"].replace("message.content }}<|im_end|>\n{% endgen", "'' }}<|im_end|>\n{% endgen")
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "lost"}]
    for train in ("assistant", "template"):
        if train == "assistant":
            with pytest.raises(TemplateRefusedError, match="no control token"):
                renderer(template, train)
            continue
        assert renderer(template, train, allow=("assistant",)).render(messages, []).trained == []


@given(name=st.sampled_from(["chatml", "trimmed", "thinking", "instructed"]), seed=SEEDS)
def test_ids_are_those_of_the_library_and_names_in_messages_are_letters(name: str, seed: int) -> None:
    """Without names in messages the ids of the whole text; with them as many control ids as the template wrote."""
    rendering = renderer(name)
    try:
        row = rendering.render(odd_conversation(seed, calls=name == "trimmed"), [])
    except TemplateRefusedError:
        return
    encoder = ConversationEncoder(tokenizer_file(), rendering.control_names, overlaps=False)
    assert encoder._fast is not None
    (by_segments,), whole = encoder.encode([row]), encoder._whole(row)
    assert by_segments.ids.tolist() == whole.ids.tolist()
    assert by_segments.trainable.tolist() == whole.trainable.tolist()
    assert by_segments[2:] == whole[2:]
    tokenizer = Tokenizer.from_str(tokenizer_file())
    if not row.has_quotes:
        assert by_segments.ids.tolist() == tokenizer.encode(row.text, add_special_tokens=False).ids
    controls = [tokenizer.id_to_token(token) for token in by_segments.ids.tolist()]
    assert [control for control in controls if control in rendering.control_names] == [
        row.text[start:end] for start, end in row.controls
    ]
    assert tokenizer.decode(by_segments.ids.tolist(), skip_special_tokens=False) == row.text


def test_a_quoted_control_name_is_letters_and_trained() -> None:
    """Both at once: the answer with `<|im_end|>` in it is trained up to its own end token."""
    rendering = renderer("chatml")
    messages = [{"role": "user", "content": "What ends?"}, {"role": "assistant", "content": "It is <|im_end|> here"}]
    row = rendering.render(messages, [])
    (encoded,) = ConversationEncoder(tokenizer_file(), rendering.control_names, overlaps=False).encode([row])
    tokenizer = Tokenizer.from_str(tokenizer_file())
    end = tokenizer.token_to_id("<|im_end|>")
    assert encoded.ids.tolist().count(end) == 2
    trained = tokenizer.decode(encoded.ids[encoded.trainable].tolist(), skip_special_tokens=False)
    assert trained == "It is <|im_end|> here<|im_end|>"


@given(seed=SEEDS, strips=st.fixed_dictionaries({"lstrip": st.booleans(), "rstrip": st.booleans()}))
def test_an_end_token_that_takes_blanks_of_its_neighbours_is_trained(seed: int, strips: dict[str, bool]) -> None:
    """As that of Phi-3 takes the newline behind it: each answer's end token is in the mask."""
    tokenizer = Tokenizer.from_str(tokenizer_file())
    tokenizer.add_special_tokens([AddedToken("<|im_end|>", **strips)])
    rendering = renderer("chatml")
    messages = odd_conversation(seed, calls=False)
    row = rendering.render(messages, [])
    (encoded,) = ConversationEncoder(tokenizer.to_str(), rendering.control_names, overlaps=False).encode([row])
    if not row.has_quotes:
        assert encoded.ids.tolist() == tokenizer.encode(row.text, add_special_tokens=False).ids
    trained = encoded.ids[encoded.trainable].tolist()
    answers = sum(message["role"] == "assistant" for message in messages)
    assert trained.count(tokenizer.token_to_id("<|im_end|>")) == answers


def test_a_tokenizer_that_does_not_see_the_templates_tokens_is_refused() -> None:
    """Of `single_word`: beside letters it is none, and its hidden name would be in the ids."""
    tokenizer = Tokenizer.from_str(tokenizer_file())
    tokenizer.add_special_tokens([AddedToken("<|im_end|>", single_word=True)])
    rendering = renderer("chatml")
    row = rendering.render([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], [])
    encoder = ConversationEncoder(tokenizer.to_str(), rendering.control_names, overlaps=False)
    with pytest.raises(TemplateRefusedError, match="single_word"):
        encoder.encode([row])


PIECES = ("<think>so</think>", "then", "</think>", "<|im_end|>", "<|im_start|>user\n", "<tool_call>", "\n", "x ")
TEXTS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join).filter(str.strip)


@given(texts=st.lists(TEXTS, min_size=2, max_size=4))
def test_no_message_writes_a_token_that_begins_or_ends_a_turn(texts: list[str]) -> None:
    """Of a template that looks for `</think>`: one token begins each turn and one ends it, whatever messages quote."""
    messages = [{"role": role, "content": text} for role, text in zip(["user", "assistant"] * 2, texts, strict=False)]
    try:
        row = renderer("thinking").render(messages, [])
    except TemplateRefusedError:
        return
    controls = [row.text[start:end] for start, end in row.controls]
    assert [name for name in controls if name.startswith("<|im")] == ["<|im_start|>", "<|im_end|>"] * len(messages)


def test_a_name_with_a_quote_in_it_and_one_of_two_texts_are_letters() -> None:
    """`<|"|>` of Gemma, which JSON writes in another way; `<|im_` of the reasoning before `end|>` of the answer."""
    source = TEMPLATES["chatml"].replace("{% generation %}", "{% generation %}{{ message.reasoning_content }}")
    rules = renderer(source).rules
    rendering = Renderer(rules._replace(added=rules.added | {'<|"|>': True}))
    answer = {"role": "assistant", "reasoning_content": "<|im_", "content": 'end|> <|"|> b'}
    for messages in ([{"role": "user", "content": 'a <|"|>'}, answer], [{"role": "user", "content": "a"}, answer]):
        row = rendering.render(messages, [])
        controls = [row.text[start:end] for start, end in row.controls]
        assert controls == ["<|im_start|>", "<|im_end|>"] * 2


@pytest.mark.parametrize("texts", [("Q zz", "a"), ("Q zz", "u"), ("Q", "user"), ("Q", "m"), ("Q", "assistant")])
def test_a_short_text_is_not_taken_for_a_header(texts: tuple[str, str]) -> None:
    """Where a template changes a text the others are searched: not in control tokens, nor in headers."""
    source = TEMPLATES["chatml"].replace("message.content", "message.content | replace('Q', 'R')")
    row = renderer(source, allow=("user",)).render(
        [{"role": "user", "content": texts[0]}, {"role": "assistant", "content": texts[1]}], []
    )
    assert [row.text[slice(*span)] for span in row.trained] == [f"{texts[1]}<|im_end|>"]


def test_neither_a_tool_answer_in_a_call_nor_a_turn_without_its_content_is_trained() -> None:
    """Though `moved` and `assistant` may be left out."""
    source = """{% for m in messages %}{% if m.role != 'tool' %}<|im_start|>{{ m.role }}
{{ m.reasoning_content }}{% for call in m.tool_calls or [] %}{{ call.function | tojson }}
 = {{ messages[loop.index + 1].content }}
{% endfor %}{{ m.content if not m.reasoning_content else '' }}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
    call = {"type": "function", "id": "call00001", "function": {"name": "f", "arguments": {"q": "b"}}}
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "calling", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call00001", "content": "output"},
        {"role": "assistant", "content": "lost", "reasoning_content": "why"},
    ]
    row = renderer(source).render(messages, [])
    trained = "".join(row.text[slice(*span)] for span in row.trained)
    assert {lost.kind for lost in row.lost} == {"moved", "assistant"}
    assert trained == '{"name": "f", "arguments": {"q": "b"}}\n = \ncalling<|im_end|>'


@given(seed=SEEDS, train=st.sampled_from(["assistant", "last", ("user",), ("user", "assistant"), "all"]))
def test_the_mask_covers_exactly_the_chosen_turns(seed: int, train: Any) -> None:
    """Of ChatML: contents of the chosen roles, and behind an answer its end token."""
    messages = odd_conversation(seed, calls=False)
    row = renderer("chatml", train).render(messages, [])
    if train == "all":
        assert row.trained == [(0, len(row.text))]
        return
    roles = {"assistant"} if isinstance(train, str) else set(train)
    last = max(number for number, message in enumerate(messages) if message["role"] == "user")
    wanted = [
        message["content"].strip() + ("<|im_end|>" if message["role"] == "assistant" else "")
        for number, message in enumerate(messages)
        if message["role"] in roles and (train != "last" or number > last)
    ]
    spans = [row.text[start:end] for start, end in row.trained]
    assert [span.replace("\n<|im_end|>", "<|im_end|>").strip() for span in spans] == [
        text.replace("\n<|im_end|>", "<|im_end|>").strip() for text in wanted
    ] or [span.removesuffix("<|im_end|>").strip() for span in spans] == [
        text.removesuffix("<|im_end|>").strip() for text in wanted
    ]


@given(seed=SEEDS, max_tokens=st.integers(16, 200), head=st.booleans())
def test_rows_of_a_long_conversation_are_its_turns(seed: int, max_tokens: int, head: bool) -> None:
    """Every trained token once and in order; each row begins at a turn, with what was before the first question."""
    rendering = renderer("chatml")
    row = rendering.render(odd_conversation(seed, calls=False), [])
    (encoded,) = ConversationEncoder(tokenizer_file(), rendering.control_names, overlaps=False).encode([row])
    end = Tokenizer.from_str(tokenizer_file()).token_to_id("<|endoftext|>")
    document = joined([encoded], end, max_tokens, head)
    assert len(document.trainable) == len(document.ids) + 1
    assert document.ids[document.trainable[:-1]].tolist() == encoded.ids[encoded.trainable].tolist()
    bounds = [0, *document.row_starts, len(document.ids) + 1]
    whole = np.append(document.ids, end)
    for start, stop in pairwise(bounds):
        assert whole[stop - 1] == end
        assert document.trainable[start:stop].any()
        if head and start and encoded.head < max_tokens // 2:  # a longer one would leave no room for turns
            assert whole[start : start + encoded.head].tolist() == encoded.ids[: encoded.head].tolist()


@given(seed=SEEDS)
def test_prefixes_train_each_turn_once(seed: int) -> None:
    """A row up to each turn, its last turn trained: together all that is trained in the whole, once."""
    messages = odd_conversation(seed, calls=False)
    whole = renderer("chatml").render(messages, [])
    last = renderer("chatml", "last")
    rows = [last.render(prefix.messages, []) for prefix in prefixes(Conversation(messages, []))]
    assert [row.text[slice(*span)] for row in rows for span in row.trained] == [
        whole.text[slice(*span)] for span in whole.trained
    ]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfo %}", "no Jinja of chat templates"),
        ("{{ bos_token }}{{ sep_token }}{{ messages[0].content }}", "writes sep_token"),
        ("{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}", "no control token"),
        ("{{ messages[0].content.__class__ }}", "no control token|refuses"),
        ("{% for m in messages %}{{ m.name in m.content }}{{ m.content }}<|im_end|>{% endfor %}", "no control token"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused_in_a_line(source: str, message: str) -> None:
    """Before any row, with what to write."""
    with pytest.raises(TemplateRefusedError, match=message):
        renderer(source)


def test_a_block_in_a_macro_is_refused_where_it_would_be_the_mask() -> None:
    """Its place is that of other text there; the assistant's turns are known all the same."""
    turn = "{% macro turn(m) %}<|im_start|>{{ m.role }}\n{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}"
    source = turn + "{% endmacro %}{% for m in messages %}{{ turn(m) }}{% endfor %}"
    source += "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    (span,) = renderer(source).render(messages, []).trained
    assert renderer(source).render(messages, []).text[slice(*span)] == "b<|im_end|>"
    with pytest.raises(TemplateRefusedError, match=r"in a macro|no control token"):
        renderer(source, "template").render(messages, [])


def test_the_date_is_declared() -> None:
    """A template with today's date gets the declared day; without one it is refused."""
    source = TEMPLATES["chatml"] + "{% if strftime_now is defined %}{{ strftime_now('%Y-%m-%d') }}{% endif %}"
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert renderer(source).render(messages, []).text.endswith("2026-01-31")
    rules = renderer("chatml").rules
    with pytest.raises(TemplateRefusedError, match="declare the day"):
        Renderer(rules._replace(settings=rules.settings._replace(source=source, date=None)))
    assert datetime.date(2026, 1, 31) == rules.settings.date


def test_definitions_and_arguments_are_looked_for() -> None:
    """Of a template that writes calls: names, keys, numbers and texts of arguments, and definitions of tools."""
    function = {"name": "search", "arguments": json.dumps({"q": 'a "b"', "n": 5, "deep": {"x": [None, True]}})}
    call = {"type": "function", "id": "call00001", "function": function}
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call00001", "content": "out"},
        {"role": "assistant", "content": "b"},
    ]
    assert renderer("trimmed", allow=()).render(messages, TOOLS).lost == []
    with pytest.raises(TemplateRefusedError, match="tool_definition"):
        renderer("thinking", allow=()).render(messages, TOOLS)
    with pytest.raises(TemplateRefusedError, match="call_name"):
        renderer("chatml", allow=()).render(messages, [])
    assert CONTROLS

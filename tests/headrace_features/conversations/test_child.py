"""A template in a child process: one conversation that it cannot end loses its own row alone."""

from __future__ import annotations

import pytest

from headrace_features.conversations import child
from headrace_features.conversations.child import RefusedConversationError, prompts_apart, render_apart
from headrace_features.conversations.messages.conversation import Conversation
from headrace_features.conversations.shapes import Rendered
from headrace_features.conversations.templates import TemplateRefusedError
from spark_jobs.child_processes import end_idle_children
from spark_jobs.code.syntax.syntax_child import SyntaxLimits, SyntaxParser
from tests.headrace_features.conversations.chat_templates import TEMPLATES, renderer

_LONG = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
_ENDLESS = f"{{% if 'stay' in m.content %}}{_LONG}{{% endif %}}"


def _chat(text: str) -> Conversation:
    return Conversation([{"role": "user", "content": text}, {"role": "assistant", "content": f"{text} too"}], [])


def test_rows_of_a_child_are_those_of_the_renderer() -> None:
    """Each field, of rows and of reasons; places where they are asked for."""
    rendering = renderer("chatml", allow=())
    chats = [_chat("a"), _chat("é <|im_end|>"), Conversation([{"role": "user", "content": "b"}], [])]
    rows = render_apart(rendering.rules, chats, with_places=True)
    assert rows == [rendering.render(chat.messages, []) for chat in chats]
    without = render_apart(rendering.rules, chats)
    assert without == [row._replace(places=other.places) for row, other in zip(rows, without, strict=True)]
    assert prompts_apart(rendering.rules, [Conversation(chats[0].messages[:1], [])]) == [
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
    ]
    lost = Conversation([*chats[0].messages[:1], chats[0].messages[1] | {"reasoning_content": "why"}], [])
    (refused,) = render_apart(rendering.rules, [lost])
    assert isinstance(refused, RefusedConversationError)
    assert (refused.rule, refused.number) == ("left_out.reasoning", 2)


def test_a_conversation_without_end_loses_only_its_own_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time of the processor is limited for each; the others of the batch have their rows."""
    limits = SyntaxLimits(parse_seconds=1, file_bytes=1 << 30, memory_bytes=1 << 30)
    monkeypatch.setattr(child, "_PARSER", SyntaxParser(limits, "headrace_features.conversations.child:answer"))
    source = "{% for m in messages %}" + _ENDLESS + "{% endfor %}" + TEMPLATES["chatml"]
    rules = renderer(source).rules
    try:
        first, refused, last = render_apart(rules, [_chat("a"), _chat("stay"), _chat("b")])
    finally:
        end_idle_children()
    assert isinstance(first, Rendered) and isinstance(last, Rendered)
    assert isinstance(refused, RefusedConversationError) and refused.rule == "limits"
    assert "1 s of processor time" in str(refused)


def test_a_template_that_cannot_be_used_is_said_once() -> None:
    """Not for each row."""
    rules = renderer("chatml").rules
    with pytest.raises(TemplateRefusedError, match="no Jinja"):
        render_apart(rules._replace(settings=rules.settings._replace(source="{% if %}")), [_chat("a")])

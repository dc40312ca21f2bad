"""Render in a child process with limits: a template is a program of somebody else.

A batch of conversations is sent at once. Where the child dies of it (time, memory), each is sent alone, so that one
conversation loses only its own row.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

from headrace_features.conversations.conversation import Conversation
from headrace_features.conversations.exceptions import TemplateRefusedError
from headrace_features.conversations.rendering import LeftOutError, Rendered, Renderer, RenderingRules
from spark_jobs.code.syntax.syntax_child import SyntaxLimits, SyntaxParser

_LIMITS: Final = SyntaxLimits(parse_seconds=10, file_bytes=1 << 30, memory_bytes=2 << 30)
_PARSER: Final = SyntaxParser(_LIMITS, "headrace_features.conversations.child:answer")
_MOST_RENDERERS: Final = 4
_renderers: OrderedDict[bytes, Renderer] = OrderedDict()  # of the child, which has one thread


class RefusedConversationError(TemplateRefusedError):
    """Why a conversation has no row: `rule` is left_out.KIND, template or limits; `number` that of the message."""

    def __init__(self, rule: str, message: str, number: int | None = None) -> None:
        super().__init__(message)
        self.rule, self.number = rule, number

    def __reduce__(self) -> Any:
        return RefusedConversationError, (self.rule, str(self), self.number)


def render_apart(
    rules: RenderingRules, conversations: Sequence[Conversation]
) -> list[Rendered | RefusedConversationError]:
    """Render conversations, each of them or why it is refused.

    Raises:
        TemplateRefusedError: the template itself cannot be used.
    """
    if not conversations:
        return []
    answer: Any = _asked(rules, conversations)
    if isinstance(answer, str) and len(conversations) > 1:
        return [row for conversation in conversations for row in render_apart(rules, [conversation])]
    if isinstance(answer, str):
        return [RefusedConversationError("limits", f"the template takes too much for it: {answer}")]
    if isinstance(answer, TemplateRefusedError):
        raise answer
    rendered: list[Rendered | RefusedConversationError] = answer
    return rendered


def check_rules(rules: RenderingRules) -> tuple[frozenset[str], Any]:
    """The names of control tokens under rules, and how the template writes turns.

    Raises:
        TemplateRefusedError: the template cannot be used.
    """
    answer = _asked(rules, None)
    if isinstance(answer, str):
        raise TemplateRefusedError(f"the template takes too much: {answer}")
    if isinstance(answer, TemplateRefusedError):
        raise answer
    checked: tuple[frozenset[str], Any] = answer
    return checked


def prompts_apart(rules: RenderingRules, conversations: Sequence[Conversation]) -> list[str | RefusedConversationError]:
    """The prompt of inference of each conversation: its messages, and an answer begun."""
    answer = _asked(rules, conversations, "prompt")
    if isinstance(answer, str):
        return [RefusedConversationError("limits", answer) for _ in conversations]
    prompts: list[str | RefusedConversationError] = answer
    return prompts


def _asked(rules: RenderingRules, conversations: Sequence[Conversation] | None, wanted: str = "render") -> Any:
    message = pickle.dumps((pickle.dumps(rules), conversations, wanted))
    return _PARSER.definitions([("", message)])[0]


def answer(_: str, message: bytes) -> Any:
    """In the child: the rows of a batch; of no batch what `check_rules` gives."""
    key, conversations, wanted = pickle.loads(message)
    if key not in _renderers:
        try:
            _renderers[key] = Renderer(pickle.loads(key))
        except TemplateRefusedError as error:
            return error
        if len(_renderers) > _MOST_RENDERERS:
            _renderers.popitem(last=False)
    renderer = _renderers[key]
    if conversations is None:
        return renderer.control_names, renderer.masking.form
    write: Any = renderer.render if wanted == "render" else renderer.prompt
    return [_row(write, conversation) for conversation in conversations]


def _row(write: Any, conversation: Conversation) -> Any:
    try:
        return write(conversation.messages, conversation.tools)
    except LeftOutError as error:
        return RefusedConversationError(f"left_out.{error.lost.kind}", str(error), error.lost.message + 1)
    except TemplateRefusedError as error:
        return RefusedConversationError("template", str(error))

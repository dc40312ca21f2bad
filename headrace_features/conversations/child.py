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


class Refusal(TemplateRefusedError):
    """Why a conversation has no row: `rule` is `left_out`, `template` or `limits`."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule

    def __reduce__(self) -> Any:
        return Refusal, (self.rule, str(self))


def render_apart(rules: RenderingRules, conversations: Sequence[Conversation]) -> list[Rendered | Refusal]:
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
        return [Refusal("limits", f"the template takes too much for it: {answer}")]
    if isinstance(answer, TemplateRefusedError):
        raise answer
    rendered: list[Rendered | Refusal] = answer
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


def _asked(rules: RenderingRules, conversations: Sequence[Conversation] | None) -> Any:
    message = pickle.dumps((pickle.dumps(rules), conversations))
    return _PARSER.definitions([("", message)])[0]


def answer(_: str, message: bytes) -> Any:
    """In the child: the rows of a batch; of no batch what `check_rules` gives."""
    key, conversations = pickle.loads(message)
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
    return [_row(renderer, conversation) for conversation in conversations]


def _row(renderer: Renderer, conversation: Conversation) -> Rendered | Refusal:
    try:
        return renderer.render(conversation.messages, conversation.tools)
    except LeftOutError as error:
        return Refusal("left_out", str(error))
    except TemplateRefusedError as error:
        return Refusal("template", str(error))

"""Render in a child process with limits: a template is a program of somebody else.

A batch of conversations is sent at once. Where the child dies of it (time, memory), each is sent alone, so that one
conversation loses only its own row.
"""

from __future__ import annotations

import gc
import marshal
import pickle
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

from headrace_features.conversations.located import Lost, Place
from headrace_features.conversations.messages.conversation import Conversation
from headrace_features.conversations.rendering import LeftOutError, Renderer, RenderingRules
from headrace_features.conversations.shapes import Rendered
from headrace_features.conversations.templates import TemplateRefusedError
from spark_jobs.code.syntax.syntax_child import SyntaxLimits, SyntaxParser

_LIMITS: Final = SyntaxLimits(parse_seconds=10, file_bytes=1 << 30, memory_bytes=2 << 30)
_PARSER: Final = SyntaxParser(_LIMITS, "headrace_features.conversations.child:answer")
_MOST_RENDERERS: Final = 4
BATCH: Final = 256  # conversations sent at once: a limit of time is that of a batch
_renderers: OrderedDict[bytes, Renderer] = OrderedDict()  # of the child, which has one thread


class RefusedConversationError(TemplateRefusedError):
    """Why a conversation has no row: `rule` is left_out.KIND, template or limits; `number` that of the message."""

    def __init__(self, rule: str, message: str, number: int | None = None) -> None:
        super().__init__(message)
        self.rule, self.number = rule, number

    def __reduce__(self) -> Any:
        return RefusedConversationError, (self.rule, str(self), self.number)


def render_apart(
    rules: RenderingRules, conversations: Sequence[Conversation], with_places: bool = False
) -> list[Rendered | RefusedConversationError]:
    """Render conversations, each of them or why it is refused; `places` of rows are empty unless they are asked for.

    Raises:
        TemplateRefusedError: the template itself cannot be used.
    """
    if not conversations:
        return []
    if len(conversations) > BATCH:
        batches = (conversations[first : first + BATCH] for first in range(0, len(conversations), BATCH))
        return [row for batch in batches for row in render_apart(rules, batch, with_places)]
    answer: Any = _asked(rules, conversations, "places" if with_places else "render")
    if isinstance(answer, str) and len(conversations) > 1:
        return [row for conversation in conversations for row in render_apart(rules, [conversation], with_places)]
    if isinstance(answer, str):
        return [RefusedConversationError("limits", f"the template takes too much for it: {answer}")]
    if isinstance(answer, TemplateRefusedError):
        raise answer
    return [_unpacked(row) for row in marshal.loads(answer)]


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
    plain = conversations and marshal.dumps([(row.messages, row.tools) for row in conversations])  # as JSON has them
    message = pickle.dumps((pickle.dumps(rules), plain, wanted))
    return _PARSER.definitions([("", message)])[0]


def answer(_: str, message: bytes) -> Any:
    """In the child: the rows of a batch; of no batch what `check_rules` gives."""
    key, plain, wanted = pickle.loads(message)
    if key not in _renderers:
        try:
            _renderers[key] = Renderer(pickle.loads(key))
        except TemplateRefusedError as error:
            return error
        gc.freeze()  # templates and modules stay; what a conversation leaves has hardly a circle
        gc.set_threshold(100_000)
        if len(_renderers) > _MOST_RENDERERS:
            _renderers.popitem(last=False)
    renderer = _renderers[key]
    if plain is None:
        return renderer.control_names, renderer.masking.form
    write: Any = renderer.prompt if wanted == "prompt" else partial(renderer.render, with_places=wanted == "places")
    rows = [_row(write, *conversation) for conversation in marshal.loads(plain)]
    return rows if wanted == "prompt" else marshal.dumps([*map(_packed, rows)])


def _packed(row: Rendered | RefusedConversationError) -> tuple[Any, ...]:
    """A row as a pipe takes it: its places as bytes, for a pickle of pairs costs more than the rendering."""
    if isinstance(row, RefusedConversationError):
        return row.rule, str(row), row.number
    places = [place for span in chain(row.controls, row.trained) for place in span] + row.turns + [row.head]
    counts = len(row.controls), len(row.trained)
    parts, lost = [tuple(place) for place in row.places], [tuple(part) for part in row.lost]
    return row.text, array("q", places).tobytes(), counts, row.has_quotes, parts, lost


def _unpacked(packed: tuple[Any, ...]) -> Rendered | RefusedConversationError:
    if len(packed) == 3:
        return RefusedConversationError(*packed)
    text, flat, counts, has_quotes, places, lost = packed
    flat = array("q", flat).tolist()
    pairs = [*zip(flat[::2], flat[1::2], strict=False)]
    controls, trained = pairs[: counts[0]], pairs[counts[0] : sum(counts)]
    *turns, head = flat[2 * sum(counts) :]
    parts, left_out = [Place(*place) for place in places], [Lost(*part) for part in lost]
    return Rendered(text, controls, has_quotes, trained, turns, head, parts, left_out)


def _row(write: Any, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Any:
    try:
        return write(messages, tools)
    except LeftOutError as error:
        return RefusedConversationError(f"left_out.{error.lost.kind}", str(error), error.lost.message + 1)
    except TemplateRefusedError as error:
        return RefusedConversationError("template", str(error))

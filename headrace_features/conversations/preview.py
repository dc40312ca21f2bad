"""A conversation as the model sees it: control tokens, what is trained, what is left out, what the template adds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dagster_project.exceptions import CommandError
from headrace_features.conversations.child import RefusedConversationError, check_rules, prompts_apart, render_apart
from headrace_features.conversations.config import ConversationsConfig
from headrace_features.conversations.encoding import ConversationEncoder, added_tokens
from headrace_features.conversations.messages.conversation import Conversation
from headrace_features.conversations.parts import KINDS, Span
from headrace_features.conversations.shapes import Rendered

_OPEN, _CLOSE = "⟦", "⟧"
_SHORT: Final = 24  # characters of text between parts that are a header


@dataclass(frozen=True)
class ConversationPreview:
    """What becomes of a conversation.

    Attributes:
        text: as it is written, ⟦ and ⟧ around what is trained.
        token_count: of the text.
        trained_count: tokens with a loss.
        crossing: tokens with a part in a trained text and a part outside.
        refused: why it has no row; None where it has one.
        left_out: kind of each lost text, with its message; what is not allowed to be lost refuses the row.
        added: texts of the template between the parts, headers aside.
        prompt: whether the prompt of inference before the last answer is a prefix of the text; None without an answer.
    """

    text: str
    token_count: int
    trained_count: int
    crossing: int
    refused: str | None
    left_out: list[str]
    added: list[str]
    prompt: bool | None

    def lines(self) -> Iterator[str]:
        """What a terminal shows."""
        yield self.text
        yield ""
        trained = f"{self.trained_count} trained ({_OPEN}..{_CLOSE})"
        yield f"{self.token_count} tokens, {trained}, {self.crossing} across an edge"
        yield f"left out: {', '.join(self.left_out) or 'nothing'}"
        yield from (f"refused: {self.refused}" for _ in range(self.refused is not None))
        yield from (f"added by the template: {text!r}" for text in self.added)
        if self.prompt is not None:
            yield f"the prompt of inference is {'a' if self.prompt else 'NO'} prefix of this row"


def preview(
    conversation: Conversation, config: ConversationsConfig, source: str, file_text: str
) -> ConversationPreview:
    """Show what becomes of a conversation.

    Raises:
        TemplateRefusedError: the template cannot be used, or refuses it.
    """
    if not (rows := config.rows(conversation)):
        raise CommandError("it has no turn of the assistant, so prefixes: each_turn makes no row of it")
    conversation = rows[-1]  # of prefixes the longest
    rules = config.rules(source, added_tokens(file_text))
    control_names, _ = check_rules(rules)
    (strict,) = render_apart(rules, [conversation])
    (row,) = render_apart(rules._replace(allow=frozenset(KINDS)), [conversation], with_places=True)
    if isinstance(row, RefusedConversationError):
        raise row
    (encoded,) = ConversationEncoder(file_text, control_names, rules.train == "template").encode([row])
    answers = [at for at, message in enumerate(conversation.messages) if message["role"] == "assistant"]
    is_prefix = None
    if answers:
        (prompt,) = prompts_apart(rules, [conversation._replace(messages=conversation.messages[: answers[-1]])])
        is_prefix = isinstance(prompt, str) and row.text.startswith(prompt)
    return ConversationPreview(
        _marked(row.text, row.trained),
        len(encoded.ids),
        int(encoded.trainable.sum()),
        encoded.crossing,
        str(strict) if isinstance(strict, RefusedConversationError) else None,
        [f"{lost.kind} of message {lost.message + 1}" if lost.message >= 0 else lost.kind for lost in row.lost],
        [*_added(row)],
        is_prefix,
    )


def _marked(text: str, spans: list[Span]) -> str:
    for start, end in reversed(spans):
        text = f"{text[:start]}{_OPEN}{text[start:end]}{_CLOSE}{text[end:]}"
    return text


def _added(row: Rendered) -> Iterator[str]:
    """Texts of a template between parts and control tokens which are longer than a header."""
    begin = 0
    for start, end in sorted(
        [*row.controls, *((place.start, place.end) for place in row.places), (len(row.text),) * 2]
    ):
        if len(text := row.text[begin:start].strip()) > _SHORT:
            yield text
        begin = max(begin, end)

"""Render conversations, and prove that nothing is left out: text, control tokens, trained characters, what is lost.

    messages -> template -> text
             -> skeleton of the shape, filled -> the same text: the place of each part is known
                                              -> another text: the parts are searched

Names of control tokens inside of messages stay text. Where a conversation has any it is rendered once more with marks
around them; if that text without its marks is the first one, they say which names are of messages.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from headrace_features.conversations.located import Lost, Place, chosen, searched
from headrace_features.conversations.masks import ROLES, Masking, turn_form
from headrace_features.conversations.parts import MOVED, REASONING, Span, TextPart, replaced
from headrace_features.conversations.quotes import MARKED, marked_constants, marked_value, names_of, quoted_spans
from headrace_features.conversations.shapes import Rendered, Shape, ShapeRow, joined_texts
from headrace_features.conversations.skeleton import marks_of, shape_of, skeleton_of
from headrace_features.conversations.templates import ChatTemplate, TemplateRefusedError, TemplateSettings

_MOST_SHAPES: Final = 4096


class RenderingRules(NamedTuple):
    """How conversations are rendered.

    Attributes:
        settings: of the template.
        added: added tokens of the tokenizer, each with whether it is special.
        train: see `masks.Masking`.
        newline: likewise.
        allow: kinds of text that may be left out.
    """

    settings: TemplateSettings
    added: Mapping[str, bool]
    train: str | tuple[str, ...]
    newline: bool
    allow: frozenset[str]


class Renderer:
    """Renders conversations by one template; for one thread at a time."""

    def __init__(self, rules: RenderingRules) -> None:
        """Compile the template, and learn how it writes turns.

        Raises:
            TemplateRefusedError: it cannot be used; without an end token none but `all` and `template` can be trained.
        """
        self.rules, self._template = rules, ChatTemplate(rules.settings)
        literals = self._template.literals
        self.control_names = frozenset(
            name for name, is_special in rules.added.items() if is_special or (name in literals and not name.isspace())
        )
        self._names = _pattern(rules.added)
        self._quotable = _pattern(self.control_names)
        self._asked = {name for name in self.control_names if any(name in text for text in self._template.constants)}
        self._shapes: OrderedDict[bytes, Shape] = OrderedDict()
        self._takes_text, self._takes_parts = self._forms()
        self.masking = Masking(rules.train, rules.newline, turn_form(self._written, self._controls))
        self._headers = _pattern({self.masking.form.header, self.masking.form.question} - {""})
        if rules.train == "template" and not self._template.has_generation_blocks:
            raise TemplateRefusedError(
                "train: template needs {% generation %} blocks, and it has none; name `assistant`"
            )
        if rules.train != "all" and not (self._ends_blocks() if rules.train == "template" else self.masking.form.ends):
            raise TemplateRefusedError(
                "it ends an answer by no control token of this tokenizer, and a model without one goes on for ever: "
                "add the token to the tokenizer, or use another template"
            )

    def render(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], with_places: bool = True) -> Rendered:
        """Render a conversation, its messages canonical; `places` may be empty where they are not asked for.

        Raises:
            TemplateRefusedError: the template refuses it, or leaves out what is not allowed to be (`left_out`).
        """
        messages = self._as_taken(messages)
        shape, parts = shape_of(messages, tools)
        learnt = self._shapes.get(shape)
        if learnt is None:
            learnt = self._learnt(messages, tools, parts)
            self._shapes[shape] = learnt
            if len(self._shapes) > _MOST_SHAPES:
                self._shapes.popitem(last=False)
        if (row := learnt.row) is not None and row.is_of(parts) and not self._quotable.search(joined_texts(parts)):
            return row.filled(parts, with_places)
        return self._row(learnt, messages, tools, parts)

    def _row(
        self, learnt: Shape, messages: list[dict[str, Any]], tools: list[dict[str, Any]], parts: Sequence[TextPart]
    ) -> Rendered:
        """The row of a conversation, by the template itself."""
        text, blocks, is_placed = self._template.write(messages, tools)
        if self.rules.train == "template" and not is_placed:
            raise TemplateRefusedError(
                "a {% generation %} block stands in a macro or a captured value, where it marks other text; write it "
                "into the loop, or train: assistant"
            )
        quotes = self._quotes(messages, tools, text)
        if located := learnt.located(text, parts):
            quotes = sorted([*quotes, *_overlapping(self._controls(text, quotes), located[0])])
            return self._of_text(text, messages, *located, blocks, quotes)
        fixed = self._controls(text, quotes) + [match.span() for match in self._headers.finditer(text)]
        return self._of_text(text, messages, *searched(text, messages, tools, parts, fixed), blocks, quotes)

    def _of_text(
        self,
        text: str,
        messages: list[dict[str, Any]],
        places: list[Place],
        lost: list[Lost],
        blocks: Sequence[Span],
        quotes: Sequence[Span],
    ) -> Rendered:
        """The row of a text, by the places of its parts."""
        refused = next((what for what in lost if what.kind not in self.rules.allow), None)
        if refused is not None:
            raise LeftOutError(refused)
        roles = [message["role"] for message in messages]
        trained = self.masking.spans(text, roles, places, lost, blocks)
        turns = self.masking._replace(train="template").turns(text, roles, places, lost)
        ends = [
            end + len(text[end:]) - len(text[end:].lstrip())
            for (_, end), number in turns
            if number + 1 < len(roles) and roles[number + 1] not in ("assistant", "tool")
        ]
        first = next((place.start for place in places if roles[place.message] == "user"), 0)
        head = max(text.rfind(self.masking.form.question, 0, first), 0) if self.masking.form.question else 0
        return Rendered(text, self._controls(text, quotes), bool(quotes), trained, ends, head, places, lost)

    def prompt(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> str:
        """The prompt of inference: messages, and an answer begun."""
        return self._template.write(self._as_taken(messages), tools, add_generation_prompt=True).text

    def _ends_blocks(self) -> bool:
        """Whether the last block of a small conversation holds a control token behind its answer."""
        answer = "headraceanswer"
        small = [{"role": "user", "content": "headracequestion"}, {"role": "assistant", "content": answer}]
        text, blocks, _ = self._template.write(self._as_taken(small), [])
        behind = max(text.rfind(answer), 0)
        return bool(blocks) and any(behind < start < blocks[-1][1] for start, _ in self._controls(text))

    def _written(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], begun: bool) -> str:
        return self._template.write(self._as_taken(messages), tools, begun).text

    def _as_taken(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Messages as the template takes them: arguments as an object or as text, contents as texts or in parts."""
        if not self._takes_parts and not any("tool_calls" in message for message in messages):
            return messages
        taken = []
        for message in messages:
            changed = message
            if calls := message.get("tool_calls"):
                changed = changed | {"tool_calls": [_with_arguments(call, self._takes_text) for call in calls]}
            if self._takes_parts and isinstance(content := message.get("content"), str):
                changed = changed | {"content": [{"type": "text", "text": content}]}
            taken.append(changed)
        return taken

    def _forms(self) -> tuple[bool, bool]:
        """Whether the template takes arguments as JSON text alone, and contents in parts alone."""
        self._takes_text = self._takes_parts = False
        question = {"role": "user", "content": "headracequestion"}
        answer = {"role": "assistant", "content": "headraceanswer"}
        if not self._writes([question, answer], "headraceanswer"):
            self._takes_parts = True
            # a list that is written as Python has it (`{'type': 'text', ..}`) is not taken
            is_written = self._writes([question, answer], "headraceanswer")
            self._takes_parts = is_written and not self._writes([question, answer], "'text'")
        call = {
            "type": "function",
            "id": "headrace1",
            "function": {"name": "headrace", "arguments": '{"a": "headraceargument"}'},
        }
        asked: list[dict[str, Any]] = [question, {"role": "assistant", "content": "", "tool_calls": [call]}]
        asked.append({"role": "tool", "name": "headrace", "tool_call_id": "headrace1", "content": "1"})
        if not self._writes([*asked, answer], "headraceargument"):
            self._takes_text = True
            self._takes_text = self._writes([*asked, answer], "headraceargument")
        return self._takes_text, self._takes_parts

    def _writes(self, messages: list[dict[str, Any]], wanted: str) -> bool:
        try:
            return wanted in self._written(messages, [], False)
        except TemplateRefusedError:
            return False

    def _learnt(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], parts: Sequence[TextPart]) -> Shape:
        """What is known of all conversations of a shape, by one of them."""
        try:
            skeleton = skeleton_of(messages, tools, parts, self._template)
        except TemplateRefusedError:
            skeleton = None
        if skeleton is None:
            return Shape(None, None, None)
        learnt = Shape(skeleton, chosen(skeleton, messages, tools, parts), None)
        constants = [replaced(messages, lambda number, kind, text: ""), tools]
        if skeleton.questions is None or names_of(constants, self._quotable):
            return learnt
        try:
            bare = [part._replace(text=mark) for part, mark in zip(parts, marks_of(parts), strict=True)]
            places, lost = learnt.located(skeleton.bare, bare) or searched(skeleton.bare, messages, tools, bare)
            row = ShapeRow.of(
                skeleton, self._of_text(skeleton.bare, messages, places, lost, skeleton.blocks, ()), learnt
            )
            whole = self._row(learnt, messages, tools, parts)
        except TemplateRefusedError:
            return learnt
        is_alike = row is not None and row.is_of(parts) and not whole.has_quotes and row.filled(parts) == whole
        return learnt._replace(row=row) if is_alike else learnt

    def _quotes(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], text: str) -> list[Span]:
        """The names of control tokens in a text that are of messages.

        A name that changes what the template writes around it (`</think>` in an answer) is the template's.
        """
        names = names_of([messages, tools], self._quotable)
        if not names:
            return []
        if names_of([messages, tools], MARKED):
            raise TemplateRefusedError(
                "it has the name of a control token and characters U+E010, U+E011; remove either"
            )

        def marked(of_answers: re.Pattern[str], of_others: re.Pattern[str]) -> list[Span] | None:
            return self._marked(messages, tools, text, names, of_answers, of_others)

        if (quotes := marked(self._quotable, self._quotable)) is not None:
            return quotes
        asked = {name for name in names if marked(_pattern([name]), _pattern([name])) is None}
        rest = _pattern(self.control_names - asked)
        for of_others in (self._quotable, rest) if asked <= self._asked else ():
            if (quotes := marked(rest, of_others)) is not None:
                return quotes
        raise TemplateRefusedError(
            "a control token's name in a message changes what the template writes around it, so it cannot stay text"
        )

    def _marked(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        text: str,
        names: set[str],
        of_answers: re.Pattern[str],
        of_others: re.Pattern[str],
    ) -> list[Span] | None:
        """The quotes in a text by marks around names in answers, and in all else; None where marks change it."""

        def marked(value: Any) -> Any:
            return marked_value(value, of_others)

        try:
            written = self._template.write(
                replaced(
                    [marked_constants(message, marked) for message in messages],
                    lambda _, kind, of: marked_value(of, of_answers if kind in ("assistant", REASONING) else of_others),
                ),
                marked(tools),
            ).text
        except TemplateRefusedError:
            return None
        return quoted_spans(written, names) if MARKED.sub("", written) == text else None

    def _controls(self, text: str, quotes: Sequence[Span] = ()) -> list[Span]:
        """The control tokens in a text outside of quotes."""
        spans = [match.span() for match in self._names.finditer(text) if match[0] in self.control_names]
        if not quotes:
            return spans
        controls, begin = list[Span](), 0
        for start, end in [*quotes, (len(text), len(text))]:
            pieces = self._names.finditer(text, begin, start)
            controls += [match.span() for match in pieces if match[0] in self.control_names]
            begin = end
        return controls


class LeftOutError(TemplateRefusedError):
    """A template leaves a text out: `lost` says of which message and what kind."""

    def __init__(self, lost: Lost) -> None:
        where = f"message {lost.message + 1}" if lost.message >= 0 else "the definitions of tools"
        noun = lost.kind.replace("_", " ") + (" text" if lost.kind in ROLES else "")
        what = "a text out of its order" if lost.kind == MOVED else f"the {noun}"
        super().__init__(f"left_out: the template loses {what} of {where}; allow: [{lost.kind}] permits it")
        self.lost = lost

    def __reduce__(self) -> Any:
        return LeftOutError, (self.lost,)


def _pattern(names: Any) -> re.Pattern[str]:
    """Finds the longest of names at each place; nothing where there are none."""
    return re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))) or "(?!)")


def _overlapping(controls: Sequence[Span], places: Sequence[Place]) -> list[Span]:
    """Names that texts of messages make with what stands beside them: letters, like names in messages."""
    return [(start, end) for start, end in controls if any(place.start < end and start < place.end for place in places)]


def _with_arguments(call: dict[str, Any], as_text: bool) -> dict[str, Any]:
    """A call with its arguments as an object, or as JSON text."""
    function = call["function"]
    arguments = function.get("arguments", {})
    if isinstance(arguments, str) and not as_text:
        arguments = json.loads(arguments)
    elif not isinstance(arguments, str) and as_text:
        arguments = json.dumps(arguments, ensure_ascii=False)
    return call | {"function": function | {"arguments": arguments}}

r"""Where a loss is taken in the text of a conversation: turns of roles, from after the header to the end token.

    <|im_start|>assistant\n  how are you  <|im_end|>  \n
    header                   trained                  not, or as `newline` says

Header and end token of a template are learnt by four small conversations. A turn whose text the template lost is not
trained: not its end token, and of a turn without its reasoning not the empty block in the place of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from headrace_features.conversations.located import Lost, Place
from headrace_features.conversations.parts import MOVED, REASONING, REASONING_BEFORE_LAST, TOOL_ANSWER, Span
from headrace_features.conversations.templates import TemplateRefusedError

ROLES: Final = ("system", "developer", "user", "assistant")
_QUESTION, _ANSWER, _AGAIN = "headracequestion", "headraceanswer", "headraceagain"
_CALL: Final = {
    "type": "function",
    "id": "headrace1",
    "function": {"name": "headracecall", "arguments": {"a": "headraceargument"}},
}
_TOOL: Final = {
    "type": "function",
    "function": {
        "name": "headracecall",
        "description": "headrace",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "string", "description": "a"}},
            "required": ["a"],
        },
    },
}
Write = Callable[[list[dict[str, Any]], list[dict[str, Any]], bool], str]
Controls = Callable[[str], list[Span]]


class TurnForm(NamedTuple):
    """How a template writes a turn of the assistant.

    Attributes:
        prompt: what begins an answer, as at inference; empty where the template has none.
        header: what it begins with in a conversation.
        ends: names of tokens that end an answer or a call; empty where there is none.
        question: what a question begins with.
    """

    prompt: str
    header: str
    ends: tuple[str, ...]
    question: str = ""


def turn_form(write: Write, controls: Controls) -> TurnForm:
    """Learn how a template writes a turn.

    Args:
        write: gives the text of messages and definitions, with a begun answer or without.
        controls: gives the control tokens in a text that are no part of words, in order.
    """
    question, answer = {"role": "user", "content": _QUESTION}, {"role": "assistant", "content": _ANSWER}
    try:
        alone, begun = write([question], [], False), write([question], [], True)
        text = write([question, answer], [], False)
    except TemplateRefusedError:
        return TurnForm("", "", ())
    at = text.rfind(_ANSWER)
    if at < 0:
        return TurnForm("", "", ())
    shared = len(_common(alone, begun))
    shared = next((span[0] for span in controls(begun) if span[0] < shared < span[1]), shared)
    prompt = begun[shared:] if shared >= alone.rfind(_QUESTION) else ""
    header = _common(prompt, text[shared:at]) if text.startswith(begun[:shared]) else ""
    ends = _ends(write, controls, question, answer)
    before = alone[: alone.rfind(_QUESTION)]
    for end in ends:
        before = before.rpartition(end)[2].lstrip()
    return TurnForm(prompt, header, ends, before)


def _ends(write: Write, controls: Controls, question: dict[str, Any], answer: dict[str, Any]) -> tuple[str, ...]:
    """The tokens that end an answer, last or not, and a call; none where the last answer has none."""

    def behind(wanted: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> tuple[list[str], set[str]]:
        """The control tokens behind a text, and the stems of those between it and its question."""
        try:
            text = write(messages, tools, False)
        except TemplateRefusedError:
            return [], set()
        at, asked = text.find(wanted), text.rfind(_QUESTION)
        spans = controls(text) if at >= 0 else []
        opened = {_stem(text[slice(*span)]) for span in spans if asked < span[0] and span[1] <= at}
        return [text[slice(*span)] for span in spans if span[0] >= at], opened

    last, _ = behind(_ANSWER, [question, answer], [])
    if not last:
        return ()
    again = [question, answer, question | {"content": _AGAIN}, answer | {"content": "headracelast"}]
    ends = last[:1] + behind(_ANSWER, again, [])[0][:1]
    call = {"role": "assistant", "content": "", "tool_calls": [_CALL]}
    names, opened = behind("headraceargument", [question, call], [_TOOL])
    if not {*ends} & {*names}:  # what only closes a call ends no turn
        ends += [name for name in names if _stem(name) not in opened][:1]
    return tuple(dict.fromkeys(ends))


def _stem(name: str) -> str:
    """What an opening and a closing token share: `<tool_call>` and `</tool_call>`, `<|a_begin|>` and `<|a_end|>`."""
    return re.sub(r"(?:begin|start|end)$", "", re.sub(r"\W|_|\u2581", "", name))


class Masking(NamedTuple):
    """Which turns are trained.

    Attributes:
        train: `assistant`, `last`, `all`, `template`, or roles.
        newline: whether a newline right behind the end token is trained too.
        form: of the template's turns.
    """

    train: str | tuple[str, ...]
    newline: bool
    form: TurnForm

    def spans(
        self, text: str, roles: Sequence[str], places: Sequence[Place], lost: Sequence[Lost], blocks: Sequence[Span]
    ) -> list[Span]:
        r"""Where a loss is taken, [start, end) in characters, ascending.

        Args:
            text: the rendering.
            roles: of the messages.
            places: of their parts.
            lost: what is left out.
            blocks: generation blocks of the template.

        Raises:
            TemplateRefusedError: an answer has no end token.
        """
        if self.train == "all":
            return [(0, len(text))]
        turns = self.turns(text, roles, places, lost)
        answers = [(place.start, place.end) for place in places if place.kind == TOOL_ANSWER]
        if self.train != "template":
            without = {message for message, kind in lost if kind == "assistant"}
            return _without([turn for turn, number in turns if number not in without], answers)
        told = {message for message, kind in lost if message >= 0 and roles[message] == "assistant" and kind != MOVED}
        untrained = answers + _lost_regions(text, roles, places, told)
        return _without([*blocks], untrained)

    def turns(
        self, text: str, roles: Sequence[str], places: Sequence[Place], lost: Sequence[Lost]
    ) -> list[tuple[Span, int]]:
        """The trained turns, each with its message; of `template` all of the assistant."""
        wanted = {self.train} & set(ROLES) or ({"assistant"} if isinstance(self.train, str) else set(self.train))
        begin = max((n for n, role in enumerate(roles) if role == "user"), default=-1) if self.train == "last" else -1
        bounds = _bounds(len(roles), places)
        shortened = {message for message, kind in lost if kind in (REASONING, REASONING_BEFORE_LAST)}
        turns = list[tuple[Span, int]]()
        for number, role in enumerate(roles):
            if role in wanted and number > begin and bounds[number] is not None:
                turns.append((self._turn(text, number, role, bounds, number in shortened), number))
        return turns

    def _turn(self, text: str, number: int, role: str, bounds: Sequence[Span | None], shortened: bool) -> Span:
        first, last = bounds[number] or (0, 0)
        before = max((bound[1] for bound in bounds[:number] if bound and bound[1] <= first), default=0)
        after = min((bound[0] for bound in bounds[number + 1 :] if bound and bound[0] >= last), default=len(text))
        header, prompt = self.form.header, self.form.prompt
        start = first
        if role == "assistant" and header and not shortened and (at := text.rfind(header, before, first)) >= 0:
            start = at + len(header)
            if text.startswith(prompt, at) and at + len(prompt) <= first:
                start = at + len(prompt)
        ends = [(at, len(end)) for end in self.form.ends if last <= (at := text.find(end, last, after))]
        if not ends:
            if role != "assistant" or self.train == "template":
                return start, last
            raise TemplateRefusedError(
                f"no end token behind message {number + 1}; a mask without one is not learnt from"
            )
        end = sum(min(ends)) if role == "assistant" else last
        return start, end + (1 if role == "assistant" and self.newline and text.startswith("\n", end) else 0)


def _bounds(count: int, places: Sequence[Place]) -> list[Span | None]:
    """[start, end) of the parts of each message; None where no part is in the text."""
    bounds: list[Span | None] = [None] * count
    for place in places:
        bound = bounds[place.message]
        bounds[place.message] = (
            (place.start, place.end) if bound is None else (min(bound[0], place.start), max(bound[1], place.end))
        )
    return bounds


def _lost_regions(text: str, roles: Sequence[str], places: Sequence[Place], told: set[int]) -> list[Span]:
    """Where the template wrote something for messages that lost a text: up to their first part, or all of it."""
    bounds = _bounds(len(roles), places)
    regions = list[Span]()
    for number in sorted(told):
        before = max((bound[1] for bound in bounds[:number] if bound), default=0)
        after = min((bound[0] for bound in bounds[number + 1 :] if bound), default=len(text))
        bound = bounds[number]
        regions.append((before, after if bound is None else bound[0]))
    return regions


def _without(spans: Sequence[Span], cut: Sequence[Span]) -> list[Span]:
    """Spans less what is cut of them."""
    for start, end in cut:
        spans = [
            piece
            for span in spans
            for piece in ((span[0], min(span[1], start)), (max(span[0], end), span[1]))
            if piece[0] < piece[1]
        ]
    return sorted(set(spans))


def _common(left: str, right: str) -> str:
    """The longest text with which both begin."""
    length = next((n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    return left[:length]

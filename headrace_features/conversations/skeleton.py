r"""The skeleton of all conversations of one shape: what a template writes around their texts, learnt by two renderings.

    user <1>, assistant <2>  ->  "<|im_start|>user\n" <1> "<|im_end|>\n<|im_start|>assistant\n" <2> "<|im_end|>\n"

The shape is the conversation without its texts: roles, present fields, numbers, keys of arguments. The first rendering
has a mark in the place of each text; in the second one blanks and a quote stand around the marks and say whether the
template trims a text or escapes it as JSON. A conversation of that shape then has a text which is known before it is
rendered. Where the rendering is that text, the place of each part is certain, however short it is; where it is another
one (a template may look into texts), the parts are searched (`located`).
"""

from __future__ import annotations

import bisect
import json
import marshal
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, NamedTuple

from headrace_features.conversations.parts import Span, TextPart, is_name, replaced
from headrace_features.conversations.templates import ChatTemplate
from headrace_features.conversations.watched import Notes, Question, watched

_OPEN, _CLOSE, _FIRST = "\ue000", "\ue001", 0xE100
_MOST_PARTS: Final = 0xF8FF - _FIRST  # characters for private use, one a part
_MARK_CHARACTERS: Final = 3
_MARK: Final = re.compile(f"{_OPEN}(.){_CLOSE}", re.DOTALL)
_BEFORE: Final = "\n\u2005"  # a newline and a blank of which no template knows
_AFTER: Final = '"\u2006\n'
_KEPT, _NEWLINES, _BLANKS = 0, 1, 2
_LEFT: Final = {_BEFORE: (_KEPT, False), "\\n\u2005": (_KEPT, True), "\u2005": (_NEWLINES, None), "": (_BLANKS, None)}
_RIGHT: Final = {
    **{'"\u2006\n': (_KEPT, False), '"\u2006': (_NEWLINES, False), '"': (_BLANKS, False)},
    **{'\\"\u2006\\n': (_KEPT, True), '\\"\u2006': (_NEWLINES, True), '\\"': (_BLANKS, True)},
}


class _Place(NamedTuple):
    """A place of a part: its number, what is trimmed on its left and right, and whether it is escaped as JSON."""

    part: int
    left: int
    right: int
    is_escaped: bool

    def text(self, text: str) -> str:
        """A part's text, as it is written here."""
        if self.left:
            text = text.lstrip("\n" if self.left == _NEWLINES else None)
        if self.right:
            text = text.rstrip("\n" if self.right == _NEWLINES else None)
        return json.dumps(text, ensure_ascii=False)[1:-1] if self.is_escaped else text


@dataclass(frozen=True)
class Skeleton:
    """What a template writes for a shape.

    Attributes:
        literals: (P + 1,) texts around the places.
        places: (P,) of parts, in the order of the text.
        bare: the rendering with marks.
        blocks: generation blocks of it.
        questions: what the template asks of the texts, with its answers; None where it does more with them.
    """

    literals: tuple[str, ...]
    places: tuple[_Place, ...]
    bare: str
    blocks: tuple[Span, ...]
    questions: tuple[Question, ...] | None

    def filled(self, parts: Sequence[TextPart]) -> tuple[str, list[Span]]:
        """The text of a conversation of this shape, and [start, end) of each place."""
        pieces, spans, length = [self.literals[0]], list[Span](), len(self.literals[0])
        for place, literal in zip(self.places, self.literals[1:], strict=True):
            text = place.text(parts[place.part].text)
            spans.append((length, length + len(text)))
            pieces += (text, literal)
            length += len(text) + len(literal)
        return "".join(pieces), spans

    def answers_alike(self, parts: Sequence[TextPart]) -> bool:
        """Whether a conversation of this shape is written as the skeleton has it, by what the template asks of it."""
        return self.questions is not None and all(
            question.holds(parts[question.part].text) for question in self.questions
        )

    def anchors(self, positions: Sequence[int]) -> list[tuple[int, int]] | None:
        """Positions in `bare` as a number of a literal and characters in it; None where one is inside of a place."""
        starts, at = [0], 0
        for literal in self.literals[:-1]:
            at += len(literal) + _MARK_CHARACTERS
            starts.append(at)
        anchors = []
        for position in positions:
            number = bisect.bisect_right(starts, position) - 1
            if position - starts[number] > len(self.literals[number]):
                return None
            anchors.append((number, position - starts[number]))
        return anchors


def shape_of(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> tuple[bytes, list[TextPart]]:
    """What conversations of one shape share, as bytes, and the parts of this one."""
    parts, names = list[TextPart](), dict[str, str]()

    def note(number: int, kind: str, text: str) -> str:
        parts.append(TextPart(number, kind, text))
        if not text or text.isspace():
            return text
        return names.setdefault(text, f"\0{len(names)}") if is_name(kind) else "\0"

    return marshal.dumps((replaced(messages, note), tools), 2), parts  # in 2 equal values have equal bytes


def skeleton_of(
    messages: list[dict[str, Any]], tools: list[dict[str, Any]], parts: Sequence[TextPart], template: ChatTemplate
) -> Skeleton | None:
    """Learn the skeleton of a shape from a conversation of it.

    Args:
        messages: of the conversation.
        tools: of it.
        parts: of it.
        template: renders it; may raise, then the shape has none.

    Returns:
        None where the template does something else with texts than to trim and escape them.
    """
    if len(parts) > _MOST_PARTS:
        return None
    marks, notes = marks_of(parts), Notes()
    seen = [watched(mark, number, notes) if mark[:1] == _OPEN else mark for number, mark in enumerate(marks)]
    bare, blocks, _ = template.watch(_with(messages, seen), tools)
    padded, *_ = template.write(_with(messages, [_padded(mark) for mark in marks]), tools)
    plain, around = _MARK.split(bare), _MARK.split(padded)
    if plain[1::2] != around[1::2]:
        return None
    sides = [
        _sides(literal, other, number == 0, number == len(plain) // 2)
        for number, (literal, other) in enumerate(zip(plain[::2], around[::2], strict=True))
    ]
    if None in sides:
        return None
    numbers = {mark[1:2]: number for number, mark in reversed([*enumerate(marks)]) if mark}
    places = tuple(
        _Place(numbers[character], left[1][0], right[0][0], bool(right[0][1]))
        for character, left, right in zip(plain[1::2], sides, sides[1:], strict=False)
    )
    is_opaque = notes.is_opaque or bare != template.write(_with(messages, marks), tools).text
    questions = None if is_opaque else tuple(notes.questions)
    return Skeleton(tuple(plain[::2]), places, bare, tuple(blocks), questions)


def marks_of(parts: Sequence[TextPart]) -> list[str]:
    """A mark for each part with letters, equal ones for equal names; empty and blank parts stay."""
    names, marks = dict[str, int](), list[str]()
    for number, part in enumerate(parts):
        at = names.setdefault(part.text, number) if is_name(part.kind) else number
        is_text = bool(part.text) and not part.text.isspace()
        marks.append(f"{_OPEN}{chr(_FIRST + at)}{_CLOSE}" if is_text else part.text)
    return marks


def _padded(mark: str) -> str:
    return f"{_BEFORE}{mark}{_AFTER}" if mark.startswith(_OPEN) else mark


def _with(messages: list[dict[str, Any]], texts: Sequence[str]) -> list[dict[str, Any]]:
    following = iter(texts)
    return replaced(messages, lambda number, kind, text: next(following))


def _sides(literal: str, other: str, is_first: bool, is_last: bool) -> Any:
    """What the padding made of a literal: right side of the part before, left side of that behind; else None.

    Between two parts with newlines alone it may be that either lost a newline: then None too.
    """
    both = product([""] if is_first else _RIGHT, [""] if is_last else _LEFT)
    fitting = [pair for pair in both if pair[0] + literal + pair[1] == other]
    return (_RIGHT.get(fitting[0][0], (_KEPT, False)), _LEFT[fitting[0][1]]) if len(fitting) == 1 else None

"""Rows of conversations, and what is known of all that share a shape: there the template need not be asked again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace_features.conversations.located import Lost, PartChoice, Place
from headrace_features.conversations.parts import Span, TextPart
from headrace_features.conversations.skeleton import Skeleton


class Rendered(NamedTuple):
    """A rendered conversation; all places are [start, end) in characters, ascending.

    Attributes:
        text: as the template wrote it.
        controls: control tokens of the template.
        has_quotes: whether a message has the name of a control token, which is text.
        trained: where a loss is taken.
        turns: ends of the assistant's turns, before another question.
        head: end of what stands before the first question.
        places: of the parts.
        lost: what is left out.
    """

    text: str
    controls: list[Span]
    has_quotes: bool
    trained: list[Span]
    turns: list[int]
    head: int
    places: list[Place]
    lost: list[Lost]


class Shape(NamedTuple):
    """What is known of conversations of one shape; the row where they need not be rendered."""

    skeleton: Skeleton | None
    choice: PartChoice | None
    row: ShapeRow | None

    def located(self, text: str, parts: Sequence[TextPart]) -> tuple[list[Place], list[Lost]] | None:
        """The parts in a text, if it is the skeleton with them."""
        if self.skeleton is None or self.choice is None:
            return None
        filled, spans = self.skeleton.filled(parts)
        if filled != text:
            return None
        chosen_places = ((parts[part], spans[place]) for part, place in self.choice.places)
        return [Place(part.message, part.kind, *span) for part, span in chosen_places], self.choice.lost


class ShapeRow(NamedTuple):
    """The row of all conversations of a shape, its places as anchors in the literals of the skeleton."""

    skeleton: Skeleton
    choice: PartChoice
    row: Rendered
    anchors: list[tuple[int, int]]

    @classmethod
    def of(cls, skeleton: Skeleton, row: Rendered, learnt: Shape) -> ShapeRow | None:
        """The row of a shape by that of its skeleton; None where a place is inside of a part."""
        spans = [*row.controls, *row.trained]
        anchors = skeleton.anchors([place for span in spans for place in span] + [*row.turns, row.head])
        return None if anchors is None or learnt.choice is None else cls(skeleton, learnt.choice, row, anchors)

    def is_of(self, parts: Sequence[TextPart]) -> bool:
        """Whether the template answers alike for these parts."""
        return self.skeleton.answers_alike(parts)

    def filled(self, parts: Sequence[TextPart], with_places: bool = True) -> Rendered:
        """The row with these parts."""
        text, spans = self.skeleton.filled(parts)
        starts = [0, *(end for _, end in spans)]
        at = [starts[literal] + characters for literal, characters in self.anchors]
        pairs = [*zip(at[::2], at[1::2], strict=False)]
        controls, both = len(self.row.controls), len(self.row.controls) + len(self.row.trained)
        wanted = self.choice.places if with_places else ()
        places = [Place(parts[part].message, parts[part].kind, *spans[place]) for part, place in wanted]
        *turns, head = at[2 * both :]
        return Rendered(text, pairs[:controls], False, pairs[controls:both], turns, head, places, self.row.lost)


def joined_texts(parts: Sequence[TextPart]) -> str:
    """All texts of parts, to search in at once."""
    return "\0".join([part.text for part in parts])

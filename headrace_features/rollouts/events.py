"""What is decided about rollouts, and what follows of it: events of the log, groups, answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, NamedTuple, Protocol

from headrace.blender.v1 import rollouts_pb2

_STATUS: Final = {
    "admitted": rollouts_pb2.Outcome.ADMITTED,
    "failed": rollouts_pb2.Outcome.FAILED,
    "refused": rollouts_pb2.Outcome.REFUSED,
}


@dataclass(frozen=True, slots=True)
class Event:
    """A row of the log.

    Attributes:
        sequence: dense from 0.
        at: microseconds since 1970.
        kind: announced, admitted, failed, refused, passed_over or published.
        principal: the caller.
        writer: id of the writer, and `number` its number of the rollout; None where no rollout is meant.
        group: id of the group; `member` is the number in it, `group_size` and `timeout_seconds` as the member says.
        version: the announced one, or the oldest of the rollout's tokens.
        reward: as the worker gave it.
        ordinal: announced: the trainer's next row; published: of the first row.
        rows: how many were published.
        reason: a word, a colon and more words.
        payload: the rollout as it came; empty once its row is in the table.
    """

    sequence: int
    at: int
    kind: str
    principal: str = ""
    writer: str | None = None
    number: int | None = None
    group: str | None = None
    member: int | None = None
    group_size: int | None = None
    timeout_seconds: float | None = None
    version: int | None = None
    reward: float | None = None
    ordinal: int | None = None
    rows: int | None = None
    reason: str | None = None
    payload: bytes | None = None


_COLUMNS: Final = tuple(column.name for column in fields(Event) if column.name != "payload")


@dataclass
class OpenGroup:
    """A group waiting for members.

    Attributes:
        size: members to wait for.
        deadline: moment of its publication with what there is.
        admitted: events of its rollouts, by member.
        settled: of members without a row, why.
    """

    size: int
    deadline: int
    admitted: dict[int, Event] = field(default_factory=dict)
    settled: dict[int, str] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether no member is waited for."""
        return len(self.admitted) + len(self.settled) == self.size


class Published(NamedTuple):
    """Rows of a published group.

    Attributes:
        ordinal: of the first row; the others follow.
        members: the rollouts, ascending by member.
        version: that was announced then.
        reason: `complete`, or why it is not.
    """

    ordinal: int
    members: tuple[Event, ...]
    version: int | None
    reason: str


class Acknowledgement(NamedTuple):
    """The answer to a writer's number of a rollout, and the deciding event."""

    writer: str
    number: int
    sequence: int
    group: str
    member: int
    kind: str
    reason: str

    @property
    def outcome(self) -> rollouts_pb2.Outcome:
        """The answer itself."""
        return rollouts_pb2.Outcome(status=_STATUS[self.kind], reason=self.reason)


class GroupIds(Protocol):
    """A set of ids of groups."""

    def __contains__(self, group: object, /) -> bool:
        """Whether a group is in it."""

    def add(self, group: str, /) -> None:
        """Put a group into it."""


class Saved(NamedTuple):
    """What is new since the last save.

    Attributes:
        state: all but the answers and the published groups, as JSON has it; events without their payloads.
        answers: that were given.
        kept: writers, and the first sequence of their known answers.
    """

    state: dict[str, Any]
    answers: list[Acknowledgement]
    kept: list[tuple[str, int]]


def anchor(event: Event) -> tuple[Any, ...]:
    """What tells an event from that of another log with its sequence."""
    return event.sequence, event.at, event.kind, event.group


def answer_of(event: Event) -> Acknowledgement:
    """What the writer of a rollout is told."""
    assert event.writer is not None and event.number is not None
    assert event.group is not None and event.member is not None
    reason = event.reason or ""
    return Acknowledgement(event.writer, event.number, event.sequence, event.group, event.member, event.kind, reason)


def facts_of(event: Event) -> tuple[Any, ...]:
    """The columns of an event but for its payload, the last one."""
    return tuple(getattr(event, name) for name in _COLUMNS)


def filled(event: Event, payloads: Mapping[int, bytes | None]) -> Event:
    """The event with its payload, where that is given by its sequence."""
    return replace(event, payload=payloads[event.sequence]) if event.sequence in payloads else event

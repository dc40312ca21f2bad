"""Decide what becomes of each rollout. All that is known is a fold over the rows of a log, so a restart knows it too.

    rollout -> known already?  the same answer again
            -> refused         late, double, other_size; stale, too_long (these two settle their member)
            -> slow down       it would open a group, and as many rows wait for the trainer as may; nothing is logged
            -> admitted        or failed: the worker says that there will be none (this settles it too)
    group   -> published       when all members are admitted or settled, or its time is up: its members get ordinals;
                               those stale by now are passed over

Each decision is an `Event`, a row of the log, and `apply` of an event is the only thing that changes the state: what
was decided and what is read back of the log give the same.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from blender_service.exceptions import MalformedRolloutError
from headrace.blender.v1 import rollouts_pb2
from headrace_features.rollouts.events import (
    Acknowledgement,
    Event,
    GroupIds,
    OpenGroup,
    Published,
    Saved,
    anchor,
    answer_of,
    facts_of,
    filled,
)
from headrace_features.rollouts.settings import RolloutTable

MOST_IN_REQUEST: Final = 128
KNOWN_NUMBERS: Final = 4 * MOST_IN_REQUEST  # of a writer; those on their way span half of it, in any order
_KNOWN_WRITERS: Final = 4096  # those that appended last; no other has a request on its way
_SETTLES: Final = ("stale", "too_long")


class Append(NamedTuple):
    """A request of a writer."""

    principal: str
    writer: str
    first_number: int
    rollouts: Sequence[rollouts_pb2.Rollout]


class Admission:
    """What is known of one table of rollouts.

    Attributes:
        next_sequence: of the log.
        next_ordinal: that a published row gets next.
        version: announced last, None before.
        read_ordinal: the trainer's next row, as it said.
        groups: that are open.
        published: groups with rows perhaps not in the table yet; their writer takes them out.
        new: decided events not in the log yet; their writer takes them out.
        last: the last event, by its `anchor`.
    """

    def __init__(self, settings: RolloutTable, window_tokens: int, closed: GroupIds | None = None) -> None:
        """Know nothing yet, but the published groups, where they are kept elsewhere."""
        self._settings = settings
        self._window_tokens = window_tokens
        self._closed: GroupIds = set() if closed is None else closed
        self._writers: OrderedDict[str, OrderedDict[int, Acknowledgement]] = OrderedDict()
        self._unsaved: dict[str, None] = {}  # writers whose answers have changed
        self._saved_at = 0
        self.last: tuple[Any, ...] = ()
        self.next_sequence = 0
        self.next_ordinal = 0
        self.version: int | None = None
        self.read_ordinal = 0
        self.groups: dict[str, OpenGroup] = {}
        self.published: list[Published] = []
        self.new: list[Event] = []

    def append(self, call: Append, now: int) -> list[rollouts_pb2.Outcome]:
        """Decide about the rollouts of a request.

        Raises:
            MalformedRolloutError: a number was another rollout's before, or is too old to be known; nothing is decided.
        """
        outcomes = []
        for number, rollout in enumerate(call.rollouts, start=call.first_number):
            self._check_number(call.writer, number, rollout)
        for number, rollout in enumerate(call.rollouts, start=call.first_number):
            if number not in self._known(call.writer):
                kind, reason = self._verdict(rollout)
                if kind == "admitted" and rollout.group not in self.groups and self.is_full:
                    status = rollouts_pb2.Outcome.SLOW_DOWN
                    outcomes.append(rollouts_pb2.Outcome(status=status, reason=self._fullness()))
                    continue
                self._take(call, number, rollout, kind, reason, now)
            outcomes.append(self._known(call.writer)[number].outcome)
        return outcomes

    def announce(self, principal: str, version: int, next_ordinal: int, now: int) -> None:
        """Note the trainer's version, and its next row; the last one said holds, lower ones too."""
        if (self.version, self.read_ordinal) != (version, next_ordinal):
            self._log(now, "announced", principal=principal, version=version, ordinal=next_ordinal)

    def close_overdue(self, now: int) -> None:
        """Publish the groups at the end of their time with what there is."""
        for group in [group for group, waiting in self.groups.items() if waiting.deadline <= now]:
            self._publish(group, "timed_out", now)

    @property
    def next_deadline(self) -> int | None:
        """When the next group's time is up; None while none is open."""
        return min((group.deadline for group in self.groups.values()), default=None)

    @property
    def is_full(self) -> bool:
        """Whether a group opened now would wait for longer than `max_lag` steps.

        Never while less than a step's worth of rows is published and unread, else trainer and workers would wait for
        one another.
        """
        step = self._settings.rows_per_step
        waits = self.next_ordinal - self.read_ordinal
        return waits >= step and self._reserved >= max(1, self._settings.max_lag) * step

    @property
    def needed(self) -> list[int]:
        """Sequences of the events with payloads perhaps needed."""
        waiting = [event for group in self.groups.values() for event in group.admitted.values()]
        return [event.sequence for event in (*waiting, *(event for group in self.published for event in group.members))]

    @property
    def oldest_needed(self) -> int:
        """First sequence of the log with a payload perhaps needed."""
        return min(self.needed, default=self.next_sequence)

    @property
    def unsaved_count(self) -> int:
        """How many events came since the last save."""
        return self.next_sequence - self._saved_at

    def apply(self, event: Event) -> None:
        """Take over an event, decided now or read from the log."""
        self.next_sequence = event.sequence + 1
        self.last = anchor(event)
        if event.kind == "announced":
            self.version, self.read_ordinal = event.version, event.ordinal or 0
            return
        assert event.group is not None  # every other kind is about one
        if event.writer is not None:
            self.remember(answer_of(event))
        if event.kind == "published":
            self._closed.add(event.group)
            members = self.groups.pop(event.group).admitted
            ordered = tuple(members[member] for member in sorted(members))
            ordinal = self.next_ordinal if event.ordinal is None else event.ordinal
            if ordered:
                self.published.append(Published(ordinal, ordered, event.version, event.reason or ""))
            self.next_ordinal = ordinal + len(ordered)
            return
        word = (event.reason or "").partition(":")[0]
        if event.kind == "refused" and word not in _SETTLES:
            return
        assert event.member is not None
        group = self.groups.get(event.group)
        if group is None:
            seconds = event.timeout_seconds or self._settings.group_timeout_seconds
            group = self.groups[event.group] = OpenGroup(event.group_size or 1, event.at + int(seconds * 1e6))
        if event.kind == "admitted":
            group.admitted[event.member] = event
        else:
            group.admitted.pop(event.member, None)  # passed over
            group.settled[event.member] = "failed" if event.kind == "failed" else word

    def remember(self, answer: Acknowledgement) -> None:
        """Keep an answer for the case that it is lost on its way."""
        numbers = self._writers.setdefault(answer.writer, OrderedDict())
        numbers[answer.number] = answer
        if len(numbers) > KNOWN_NUMBERS:
            numbers.popitem(last=False)
        self._writers.move_to_end(answer.writer)
        self._unsaved[answer.writer] = None
        if len(self._writers) > _KNOWN_WRITERS:
            gone, _ = self._writers.popitem(last=False)
            self._unsaved[gone] = None

    def skip_to(self, last: Event, ordinal: int | None = None, rows: int = 0) -> None:
        """Note events of groups known to be over: the last of them, and the rows of the last published one."""
        self.next_sequence = last.sequence + 1
        self.last = anchor(last)
        if ordinal is not None:
            self.next_ordinal = ordinal + rows

    def to_save(self) -> Saved:
        """What a restart has to know beside the published groups, where all that was decided is in the log."""
        assert not self.new  # else a kill would make true what nobody committed
        state = {
            "next_sequence": self.next_sequence,
            "next_ordinal": self.next_ordinal,
            "version": self.version,
            "read_ordinal": self.read_ordinal,
            "last": self.last,
            "groups": [
                [
                    name,
                    group.size,
                    group.deadline,
                    [facts_of(event) for event in group.admitted.values()],
                    [*group.settled.items()],
                ]
                for name, group in self.groups.items()
            ],
            "published": [
                [group.ordinal, [facts_of(event) for event in group.members], group.version, group.reason]
                for group in self.published
            ],
        }
        answers, kept = list[Acknowledgement](), list[tuple[str, int]]()
        for writer in self._unsaved:
            answers_of = list(self._known(writer).values())
            kept.append((writer, answers_of[0].sequence if answers_of else self.next_sequence))
            answers += [answer for answer in answers_of if answer.sequence >= self._saved_at]
        return Saved(state, answers, kept)

    def saved(self) -> None:
        """Note that what `to_save` gave is saved."""
        self._unsaved, self._saved_at = {}, self.next_sequence

    def restore(self, state: Mapping[str, Any], answers: Iterable[Acknowledgement]) -> None:
        """Know what was saved; payloads are still to be read (`with_payloads`)."""
        for name in ("next_sequence", "next_ordinal", "version", "read_ordinal"):
            setattr(self, name, state[name])
        self.last = tuple(state["last"])
        for name, size, deadline, admitted, settled in state["groups"]:
            events = {event.member: event for event in (Event(*facts) for facts in admitted)}
            self.groups[name] = OpenGroup(size, deadline, events, dict(settled))  # type: ignore[arg-type]
        for ordinal, members, version, reason in state["published"]:
            self.published.append(Published(ordinal, tuple(Event(*facts) for facts in members), version, reason))
        for answer in answers:
            self.remember(answer)
        self.saved()

    def with_payloads(self, payloads: Mapping[int, bytes | None]) -> None:
        """Give restored events their payloads, by sequence."""
        for group in self.groups.values():
            group.admitted = {member: filled(event, payloads) for member, event in group.admitted.items()}
        self.published = [
            group._replace(members=tuple(filled(event, payloads) for event in group.members))
            for group in self.published
        ]

    def _known(self, writer: str) -> OrderedDict[int, Acknowledgement]:
        """Give what a writer was answered lately, by number."""
        return self._writers.get(writer, OrderedDict())

    def _fullness(self) -> str:
        return (
            f"{self._reserved} rows wait for the trainer, which reads row {self.read_ordinal} next; max_lag is "
            f"{self._settings.max_lag} steps of {self._settings.rows_per_step}; append again later"
        )

    @property
    def _reserved(self) -> int:
        return self.next_ordinal + sum(group.size for group in self.groups.values()) - self.read_ordinal

    def _check_number(self, writer: str, number: int, rollout: rollouts_pb2.Rollout) -> None:
        numbers = self._known(writer)
        earlier = numbers.get(number)
        if earlier is not None and (earlier.group, earlier.member) != (rollout.group, rollout.member):
            raise MalformedRolloutError(
                f"writer {writer}: number {number} was member {earlier.member} of group {earlier.group}, now it is "
                f"member {rollout.member} of {rollout.group}; give each writer an id of its own"
            )
        if earlier is None and len(numbers) == KNOWN_NUMBERS and number < next(iter(numbers)):
            raise MalformedRolloutError(
                f"writer {writer}: whether number {number} came before is not known any more; count on from "
                f"{next(reversed(numbers)) + 1}"
            )

    def _verdict(self, rollout: rollouts_pb2.Rollout) -> tuple[str, str | None]:
        """Give the kind of a rollout's event, and the reason."""
        group, tokens = self.groups.get(rollout.group), len(rollout.input_ids) // 4
        if rollout.group in self._closed:
            return "refused", "late: its group is published"
        if group is not None and (rollout.member in group.admitted or rollout.member in group.settled):
            return "refused", "double: the group has this member"
        if group is not None and group.size != rollout.group_size:
            return "refused", f"other_size: the group has {group.size} members, this says {rollout.group_size}"
        if rollout.failure:
            return "failed", rollout.failure
        if tokens > self._window_tokens:
            return "refused", f"too_long: {tokens} tokens, a row has {self._window_tokens}"
        if self._is_stale(_oldest(rollout)):
            return "refused", self._staleness(_oldest(rollout))
        return "admitted", None

    def _take(
        self, call: Append, number: int, rollout: rollouts_pb2.Rollout, kind: str, reason: str | None, now: int
    ) -> None:
        """Log what becomes of a rollout, and publish its group if it was the last."""
        self._log(
            now, kind, principal=call.principal, writer=call.writer, number=number, group=rollout.group,
            member=rollout.member, group_size=rollout.group_size, timeout_seconds=rollout.timeout_seconds or None,
            version=_oldest(rollout), reward=rollout.reward if rollout.HasField("reward") else None, reason=reason,
            payload=rollout.SerializeToString() if kind == "admitted" else None,
        )  # fmt: skip
        group = self.groups.get(rollout.group)
        if group is not None and group.is_whole:
            self._publish(rollout.group, "settled", now)

    def _publish(self, name: str, why: str, now: int) -> None:
        """Log that a group is published, and first its stale members."""
        group = self.groups[name]
        for member, event in list(group.admitted.items()):
            if self._is_stale(event.version):
                self._log(
                    now, "passed_over", group=name, member=member, version=event.version, reward=event.reward,
                    reason=self._staleness(event.version),
                )  # fmt: skip
        rows = len(group.admitted)
        counts = Counter(group.settled.values())
        counts["missing"] = group.size - rows - len(group.settled)
        lacking = "".join(f", {count} {word}" for word, count in sorted(counts.items()) if count)
        reason = "complete" if rows == group.size else f"{why}: {rows} of {group.size} members{lacking}"
        self._log(
            now, "published", group=name, group_size=group.size, version=self.version, ordinal=self.next_ordinal,
            rows=rows, reason=reason,
        )  # fmt: skip

    def _is_stale(self, oldest: int | None) -> bool:
        return self.version is not None and oldest is not None and self.version - oldest > self._settings.max_lag

    def _staleness(self, oldest: int | None) -> str:
        return f"stale: of version {oldest}, the trainer has {self.version}, max_lag is {self._settings.max_lag}"

    def _log(self, now: int, kind: str, principal: str = "", **facts: str | int | float | bytes | None) -> None:
        event = Event(self.next_sequence, now, kind, principal, **facts)  # type: ignore[arg-type]
        self.new.append(event)
        self.apply(event)


def _oldest(rollout: rollouts_pb2.Rollout) -> int | None:
    """Give the version of a rollout's oldest token, None if it has none."""
    return min((span.policy_version for span in rollout.spans), default=None)

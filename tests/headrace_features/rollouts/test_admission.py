"""What becomes of rollouts: laws over random histories, and the cases by name."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pytest

from blender_service.exceptions import MalformedRolloutError
from headrace.blender.v1.rollouts_pb2 import Outcome, PolicySpan, Rollout
from headrace_features.rollouts import writer as rollout_writer
from headrace_features.rollouts.admission import Admission, Append
from headrace_features.rollouts.events import Event
from headrace_features.rollouts.settings import RolloutTable
from tests.tiers import sampled, tries

WINDOW = 8
ADMITTED, FAILED, REFUSED, SLOW_DOWN = Outcome.ADMITTED, Outcome.FAILED, Outcome.REFUSED, Outcome.SLOW_DOWN


def settings(**given: Any) -> RolloutTable:
    """A table with a lag of two steps of four rows, whose groups wait for ten seconds."""
    facts = {"max_lag": 2, "rows_per_step": 4, "group_timeout_seconds": 10.0, **given}
    return RolloutTable(table="rl.rollouts", like="main.packed", **facts)


def rollout(group: str, member: int, size: int, version: int = 0, tokens: int = 3, failure: str = "") -> Rollout:
    """A member of a group; its first token is of `version`, the others of the next."""
    if failure:
        return Rollout(group=group, member=member, group_size=size, failure=failure)
    spans = [PolicySpan(token_count=1, policy_version=version + (step > 0)) for step in range(tokens)]
    return Rollout(group=group, member=member, group_size=size, input_ids=bytes(4 * tokens), spans=spans)


class Worker:
    """A writer that numbers what it appends."""

    def __init__(self, admission: Admission, name: str = "w") -> None:
        """Append to `admission`."""
        self.admission, self.name, self.number = admission, name, 0

    def append(self, *rollouts: Rollout, now: int = 0) -> list[tuple[int, str]]:
        """Append, and give status and first word of each answer."""
        first, self.number = self.number, self.number + len(rollouts)
        found = self.admission.append(Append("somebody", self.name, first, rollouts), now)
        return [(one.status, one.reason.partition(":")[0]) for one in found]


def test_every_reason_by_name() -> None:
    """Late, double, of another size, too long, stale; a stale or failed member is not waited for."""
    admission = Admission(settings(), WINDOW)
    worker = Worker(admission)
    assert worker.append(rollout("a", 0, 2), rollout("a", 0, 2), rollout("a", 1, 3)) == [
        (ADMITTED, ""), (REFUSED, "double"), (REFUSED, "other_size"),
    ]  # fmt: skip
    assert worker.append(rollout("a", 1, 2), rollout("a", 1, 2)) == [(ADMITTED, ""), (REFUSED, "late")]
    assert worker.append(rollout("b", 0, 3, tokens=9), rollout("b", 1, 3, failure="crashed")) == [
        (REFUSED, "too_long"), (FAILED, "crashed"),
    ]  # fmt: skip
    admission.announce("trainer", 5, 0, 0)
    assert worker.append(rollout("b", 2, 3, version=2)) == [(REFUSED, "stale")]
    assert [event.reason for event in admission.new if event.kind == "published"] == [
        "complete", "settled: 0 of 3 members, 1 failed, 1 stale, 1 too_long",
    ]  # fmt: skip
    assert worker.append(rollout("c", 0, 1, version=3)) == [(ADMITTED, "")]
    assert (admission.next_ordinal, [group.ordinal for group in admission.published]) == (3, [0, 2])


def test_what_waits_for_its_group_may_become_stale() -> None:
    """Then it is passed over by a row of its own, and the others of its group are published."""
    admission = Admission(settings(), WINDOW)
    worker = Worker(admission)
    worker.append(rollout("a", 0, 3, version=1), rollout("a", 2, 3, version=4), now=1_000_000)
    admission.announce("trainer", 4, 0, 2_000_000)
    admission.close_overdue(10_999_999)
    assert list(admission.groups) == ["a"] and admission.next_deadline == 11_000_000
    admission.close_overdue(11_000_000)
    passed, published = admission.new[-2:]
    assert (passed.kind, passed.member, passed.reason) == (
        "passed_over", 0, "stale: of version 1, the trainer has 4, max_lag is 2",
    )  # fmt: skip
    assert published.reason == "timed_out: 1 of 3 members, 1 missing, 1 stale"
    assert [event.member for group in admission.published for event in group.members] == [2]
    assert worker.append(rollout("a", 1, 3, version=4)) == [(REFUSED, "late")]


def test_slow_down_holds_back_new_groups_alone() -> None:
    """Members of open groups come in; nothing is logged of those that wait; reading on makes room."""
    admission = Admission(settings(), WINDOW)
    worker = Worker(admission)
    for group in range(4):
        assert worker.append(rollout(f"g{group}", 0, 2), rollout(f"g{group}", 1, 2)) == [(ADMITTED, "")] * 2
    logged = len(admission.new)
    assert worker.append(rollout("new", 0, 1)) == [(SLOW_DOWN, "8 rows wait for the trainer, which reads row 0 next; "
        "max_lag is 2 steps of 4; append again later")]  # fmt: skip
    assert len(admission.new) == logged
    admission.announce("trainer", 1, 4, 0)
    assert worker.append(rollout("open", 0, 4)) == [(ADMITTED, "")]  # 4 rows and 4 to come
    assert worker.append(rollout("new", 0, 1), rollout("open", 1, 4))[0][0] == SLOW_DOWN
    assert 1 in admission.groups["open"].admitted


def test_trainer_and_workers_never_wait_for_one_another() -> None:
    """While less than a step is published and unread, new groups are taken, however many are open."""
    admission = Admission(settings(max_lag=0), WINDOW)
    worker = Worker(admission)
    for group in range(50):
        assert worker.append(rollout(f"g{group}", 0, 8)) == [(ADMITTED, "")]


def test_a_repeat_gets_its_answer_and_appends_nothing() -> None:
    """Also after a restart, by the log alone; a number that was another rollout's is a mistake."""
    admission = Admission(settings(), WINDOW)
    worker = Worker(admission)
    first = [rollout("a", 0, 2), rollout("a", 0, 2), rollout("b", 0, 1, failure="no")]
    answers = worker.append(*first)
    read_again = Admission(settings(), WINDOW)
    for event in admission.new:
        read_again.apply(event)
    for one in (admission, read_again):
        logged, repeating = len(one.new), Worker(one)
        assert repeating.append(*first) == answers
        assert len(one.new) == logged
        with pytest.raises(MalformedRolloutError, match="number 0 was member 0 of group a"):
            Worker(one).append(rollout("other", 0, 2))


@sampled(3)
@pytest.mark.parametrize("seed", range(tries(200)))
def test_requests_on_their_way_come_in_any_order_and_more_than_once(seed: int) -> None:
    """Of those that a writer may have on their way, each number is decided once and is answered alike."""
    chance, admission = random.Random(seed), Admission(settings(rows_per_step=10**6), WINDOW)
    on_their_way: dict[int, int] = {}
    answers: dict[int, Any] = {}
    end = 0
    for _ in range(200):
        if end - min(on_their_way, default=end) <= rollout_writer.MOST_IN_REQUEST:
            on_their_way[end] = chance.choice([1, 5, rollout_writer.MOST_IN_REQUEST])
            end += on_their_way[end]
        first = chance.choice(list(on_their_way))
        rollouts = [rollout(f"g{number}", 0, 1, tokens=1) for number in range(first, first + on_their_way[first])]
        answer = admission.append(Append("somebody", "w", first, rollouts), 0)
        assert answers.setdefault(first, answer) == answer
        if chance.random() < 0.4:  # it has arrived
            del on_their_way[first]
    decided = [event.number for event in admission.new if event.writer]
    assert sorted(decided) == sorted({*decided})


def _history(seed: int) -> tuple[Admission, list[tuple[Any, ...]]]:
    """Random appends of some writers, announcements and pauses; gives each step with its answers."""
    chance = random.Random(seed)
    admission = Admission(settings(max_lag=chance.randrange(4), rows_per_step=chance.choice([2, 8, 1000])), WINDOW)
    workers = [Worker(admission, f"w{number}") for number in range(3)]
    now, version, steps = 0, 0, []
    for _ in range(120):
        now += chance.randrange(2_000_000)
        if chance.random() < 0.2:
            version = max(0, version + chance.choice([1, 1, 1, 2, -1]))
            admission.announce("trainer", version, chance.randrange(admission.next_ordinal + 1), now)
        rollouts = []
        for _ in range(chance.randrange(4)):
            group = chance.randrange(30)
            size = 1 + group % 4 + (chance.random() < 0.05)
            failure = "crashed" if chance.random() < 0.1 else ""
            made = max(0, version - chance.randrange(5))
            tokens = chance.choice([1, 3, 8, 9])
            rollouts.append(rollout(f"g{group}", chance.randrange(size), size, made, tokens, failure))
        state = admission.version, admission.is_full
        answers = chance.choice(workers).append(*rollouts, now=now)
        admission.close_overdue(now)
        steps.append((rollouts, answers, state))
    admission.close_overdue(now + 10**12)
    return admission, steps


@pytest.mark.parametrize("seed", range(tries(500, 25)))
def test_each_admitted_rollout_is_one_row_or_passed_over(seed: int) -> None:
    """Of every group once, its rows together, ordinals dense, none stale; counted from the answers, not the state."""
    admission, steps = _history(seed)
    admitted = [
        (one.group, one.member)
        for rollouts, answers, _ in steps
        for one, (status, _) in zip(rollouts, answers, strict=True)
        if status == ADMITTED
    ]
    rows = [(event.group, event.member) for group in admission.published for event in group.members]
    passed = [(event.group, event.member) for event in admission.new if event.kind == "passed_over"]
    assert sorted(rows + passed) == sorted(admitted) and len(set(admitted)) == len(admitted)
    published = [event for event in admission.new if event.kind == "published"]
    assert len({event.group for event in published}) == len(published)
    ordinal = 0
    for event in published:
        assert event.ordinal == ordinal
        ordinal += event.rows or 0
    max_lag = admission._settings.max_lag
    for group in admission.published:
        lags = [(group.version or 0) - (event.version or 0) for event in group.members if group.version is not None]
        assert all(lag <= max_lag for lag in lags)
    for rollouts, answers, (version, _) in steps:
        for one, (_, word) in zip(rollouts, answers, strict=True):
            if word == "stale":
                assert version is not None and version - min(span.policy_version for span in one.spans) > max_lag


@pytest.mark.parametrize("seed", range(tries(200, 10)))
def test_a_restart_knows_what_the_log_says(seed: int) -> None:
    """At every cut: who reads the log up to there decides the rest as who wrote it."""
    whole, _ = _history(seed)
    events = whole.new
    for cut in random.Random(seed).sample(range(len(events)), 5):
        again = Admission(whole._settings, WINDOW)
        for event in events[:cut]:
            again.apply(event)
        facts = again.next_sequence, again.next_ordinal, again.version, again.read_ordinal
        assert facts == _facts_by_counting(events[:cut])
        for event in events[cut:]:
            again.apply(event)
        assert (again.published, again.groups, again._closed) == (whole.published, whole.groups, whole._closed)
        assert again._writers == whole._writers


def _facts_by_counting(events: list[Event]) -> tuple[int, int, int | None, int]:
    rows: dict[str, int] = defaultdict(int)
    for event in events:
        rows[event.kind] += event.rows or 0
    said = [event for event in events if event.kind == "announced"]
    version, read = (said[-1].version, said[-1].ordinal or 0) if said else (None, 0)
    return len(events), rows["published"], version, read

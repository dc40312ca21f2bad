r"""Tasks: bundles of requests for workers on any machine, as rows of the catalogue's database.

    put -> take, with a fresh token -> answers are written while the token is held -> finish
                                   \-> give_back, or not renewed in time, or its process is gone: the next one takes it

Each acquisition has a token of its own, and time is the database's. So a worker stopped for longer than its
lease and wakes up can write, renew and give back nothing: by then the task has another token. What a task can cost at
most is reserved of the budget when it is taken, in the same transaction, so workers do not overspend together.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sa

from headrace_features.synthetic.answers import Answer
from headrace_features.synthetic.attempts import AnswerStore, Totals
from headrace_features.synthetic.generated_config import GeneratedSource, template_of
from headrace_features.synthetic.requests import Parent, Request, request_of
from headrace_features.synthetic.tables import (
    TASKS,
    Hold,
    answered,
    database_time,
    holds_of,
    until_reached,
)
from spark_jobs.exceptions import InputError
from spark_jobs.lake.ledger.process import Process, this_process

REQUESTS: Final = 32  # in a task; with one each, leases would be the bottleneck of an SQLite file
LEASE_SECONDS: Final = 60.0
_MARK_TOKENS: Final = 64  # tokens that a chat template may put around messages
_FREE: Final = dict.fromkeys(("token", "host", "scope", "pid", "started", "expires")) | {"held_in": 0, "held_out": 0}


class BudgetError(Exception):
    """A task waits, and not one of its requests fits into the budget now."""


@dataclass(frozen=True)
class Taken:
    """A taken task.

    Attributes:
        hold: number and token, for the queue to check that this worker still has the task.
        requests: those to send, within the budget.
        rest: those of it that do not fit into the budget now; the task is given back with them.
        unexecuted: by key, answers of earlier conversations, with code not executed.
    """

    hold: Hold
    requests: tuple[Request, ...]
    rest: tuple[Request, ...] = ()
    unexecuted: Mapping[str, Answer] = field(default_factory=dict)


class TaskQueue:
    """The tasks of a dataset, in the database of its answers."""

    def __init__(self, store: AnswerStore, source: GeneratedSource, lease_seconds: float = LEASE_SECONDS) -> None:
        self.store, self.source = store, source
        self.templates = {template.name: template for template in map(template_of, source.templates)}
        self.lease_seconds = lease_seconds
        self._makes_tasks = False

    @until_reached
    def put(self, requests: Sequence[Request]) -> None:
        """Add tasks of some requests to the queue."""
        rows = [
            self._content(requests[at : at + REQUESTS]) | {"dataset": self.store.dataset} | _FREE
            for at in range(0, len(requests), REQUESTS)
        ]
        if rows:
            with self.store.transaction() as connection:
                connection.execute(sa.insert(TASKS), rows)

    @until_reached
    def counts(self) -> tuple[int, int]:
        """Requests of all tasks, and taken tasks."""
        wanted = sa.select(sa.func.coalesce(sa.func.sum(TASKS.c.requests), 0), sa.func.count(TASKS.c.token))
        with self.store.engine.connect() as connection:
            requests, taken = connection.execute(wanted.where(self._own)).one()
            return int(requests), int(taken)

    @property
    def priority(self) -> int:
        """The priority of the dataset; workers take tasks of a higher one first."""
        return self.source.asking.priority

    @until_reached
    def waits(self) -> bool:
        """Whether a task can be taken."""
        with self.store.engine.connect() as connection:
            return (
                connection.execute(sa.select(TASKS.c.number).where(self._own, self._free).limit(1)).first() is not None
            )

    @until_reached
    def take(self) -> Taken | None:
        """Take a task, for as long as a lease lasts; None where none waits.

        Raises:
            BudgetError: one waits, and none of its requests fits.
            InputError: the task was made by a project declaring the dataset otherwise.
        """
        with self.store.transaction() as connection:
            columns = sa.select(TASKS.c.number, TASKS.c.payload).where(self._own, self._free)
            while row := connection.execute(columns.order_by(TASKS.c.number).limit(1)).first():
                number, requests = int(row[0]), self._requests(row[1])
                if requests is None and not self._makes_tasks:
                    raise InputError(
                        f"{self.store.dataset}: its run asks by another template, or another model or limit, than is "
                        "declared here; let both have the same project"
                    )
                requests = requests or []  # a worker of an earlier declaration gave them back: nobody wants them
                already = answered(connection, self.store.dataset, [request.key for request in requests])
                requests = [request for request in requests if request.key not in already]
                if requests:
                    return self._hold(connection, number, requests)
                connection.execute(sa.delete(TASKS).where(TASKS.c.number == number))
        return None

    def _hold(self, connection: sa.Connection, number: int, requests: list[Request]) -> Taken:
        """Give a task a token, with as many of its requests as fit into the budget; of conversations the next ones."""
        unexecuted = dict[str, Answer]()
        if self.source.execute is not None:
            requests, unexecuted = self.store.continued_in(connection, requests)
        others_in, others_out = self._held(connection, TASKS.c.number != number)
        spent = self.store.totals_in(connection)
        held_in = held_out = count = 0
        for request in requests:
            more_in, more_out = self.most_tokens(request)
            if not self._fits(spent, others_in + held_in + more_in, others_out + held_out + more_out):
                break
            held_in, held_out, count = held_in + more_in, held_out + more_out, count + 1
        if not count:
            raise BudgetError
        me, token = this_process(), uuid.uuid4().hex
        values: dict[str, Any] = {"host": me.host, "scope": me.scope, "pid": me.pid, "started": me.start}
        values |= {"token": token, "held_in": held_in, "held_out": held_out, "expires": self._expiry}
        connection.execute(sa.update(TASKS).where(TASKS.c.number == number).values(values))
        return Taken(Hold(number, token), tuple(requests[:count]), tuple(requests[count:]), unexecuted)

    @until_reached
    def reserve(self, hold: Hold, before: Request, after: Request) -> bool:
        """Reserve tokens for the next request of a conversation in place of the last; whether the budget allows it."""
        less, most = self.most_tokens(before), self.most_tokens(after)
        more_in, more_out = most[0] - less[0], most[1] - less[1]
        with self.store.transaction() as connection:
            held_in, held_out = self._held(connection)
            fits = self._fits(self.store.totals_in(connection), held_in + more_in, held_out + more_out)
            if not fits or not holds_of(connection, {hold}):
                return False
            values = {"held_in": TASKS.c.held_in + more_in, "held_out": TASKS.c.held_out + more_out}
            connection.execute(sa.update(TASKS).where(TASKS.c.number == hold.number).values(values))
            return True

    def _held(self, connection: sa.Connection, *which: sa.ColumnElement[bool]) -> tuple[int, int]:
        """Tokens reserved by tasks."""
        sums = (sa.func.coalesce(sa.func.sum(TASKS.c[name]), 0) for name in ("held_in", "held_out"))
        held_in, held_out = connection.execute(sa.select(*sums).where(self._own, *which)).one()
        return int(held_in), int(held_out)

    def most_tokens(self, request: Request) -> tuple[int, int]:
        """The highest cost of a request in tokens of prompts and answers: a token is a byte or more."""
        size = sum(len(message["content"].encode(errors="replace")) for message in request.body["messages"])
        prompt, answer = size + _MARK_TOKENS * (1 + len(request.turns)), request.answer_tokens
        # A cut answer is asked for once more, with twice the limit.
        return (2 * prompt, 3 * answer) if self.source.on_cut == "raise_limit_once" else (prompt, answer)

    def _fits(self, spent: Totals, held_in: int, held_out: int) -> bool:
        tokens_in, tokens_out, budget = spent.tokens_in + held_in, spent.tokens_out + held_out, self.source.budget
        if budget.tokens is not None and tokens_in + tokens_out > budget.tokens:
            return False
        price = budget.price(tokens_in, tokens_out)
        return budget.money is None or price is None or price <= budget.money

    @until_reached
    def renew(self, holds: Collection[Hold]) -> set[Hold]:
        """Extend leases; gives the lost holds."""
        with self.store.transaction() as connection:
            hold_set = holds_of(connection, holds)
            some = TASKS.c.number.in_([hold.number for hold in hold_set])
            connection.execute(sa.update(TASKS).where(some).values(expires=self._expiry))
        return set(holds) - hold_set

    @until_reached
    def finish(self, done: Collection[Taken]) -> None:
        """Remove tasks with answers to all requests, and let what did not fit into the budget wait again."""
        with self.store.transaction() as connection:
            hold_set = holds_of(connection, {outcome.hold for outcome in done})
            for outcome in done:
                if outcome.hold in hold_set:
                    self._leave(connection, outcome.hold, outcome.rest)

    @until_reached
    def give_back(self, hold: Hold, requests: Sequence[Request]) -> None:
        """Put what is left of a task back into the queue."""
        with self.store.transaction() as connection:
            if holds_of(connection, {hold}):
                self._leave(connection, hold, requests)

    def _leave(self, connection: sa.Connection, hold: Hold, requests: Sequence[Request]) -> None:
        this_task = TASKS.c.number == hold.number
        if requests:
            connection.execute(sa.update(TASKS).where(this_task).values(self._content(requests) | _FREE))
        else:
            connection.execute(sa.delete(TASKS).where(this_task))

    @until_reached
    def free_dead(self) -> None:
        """Free the tasks of processes ended without giving them back, as after a `kill -9` on this machine."""
        columns = sa.select(*(TASKS.c[name] for name in ("number", "host", "scope", "pid", "started")))
        with self.store.transaction() as connection:
            for number, *process in connection.execute(columns.where(self._own, TASKS.c.token.is_not(None))).all():
                if Process(*process).lives() is False:
                    connection.execute(sa.update(TASKS).where(TASKS.c.number == number).values(_FREE))

    @until_reached
    def clear(self) -> set[str]:
        """Remove the waiting tasks; gives the keys of the taken ones. From now on this process makes them."""
        self._makes_tasks = True
        self.free_dead()
        with self.store.transaction() as connection:
            connection.execute(sa.delete(TASKS).where(self._own, self._free))
            payloads = connection.execute(sa.select(TASKS.c.payload).where(self._own)).scalars().all()
        return {key for payload in payloads for *_, key in json.loads(payload)["requests"]}

    def _content(self, requests: Sequence[Request]) -> dict[str, Any]:
        """Columns of a task: each parent once, and for each request its parent, template, sample and key."""
        parents = list(dict.fromkeys(request.parent for request in requests))
        numbers = {parent: number for number, parent in enumerate(parents)}
        payload = {
            "parents": [(parent.dataset, parent.doc_id, parent.text, parent.start, parent.end) for parent in parents],
            "requests": [
                (numbers[request.parent], request.template, request.sample, request.first_key) for request in requests
            ],
        }
        return {"requests": len(requests), "payload": json.dumps(payload)}  # escaped: databases refuse NUL, surrogates

    def _requests(self, payload: str) -> list[Request] | None:
        """The requests of a task; None where this declaration would make other ones."""
        content = json.loads(payload)
        parents = [Parent(*fields) for fields in content["parents"]]
        requests = []
        for number, template, sample, key in content["requests"]:
            template_now = self.templates.get(template)
            request = (
                None
                if template_now is None
                else request_of(parents[number], template_now, self.source.endpoint, sample)
            )
            if request is None or request.key != key:
                return None
            requests.append(request)
        return requests

    @property
    def _own(self) -> sa.ColumnElement[bool]:
        return TASKS.c.dataset == self.store.dataset

    @property
    def _free(self) -> sa.ColumnElement[bool]:
        return sa.or_(TASKS.c.token.is_(None), TASKS.c.expires < database_time(self.store.engine.dialect.name))

    @property
    def _expiry(self) -> sa.ColumnElement[int]:
        return database_time(self.store.engine.dialect.name) + round(1000 * self.lease_seconds)

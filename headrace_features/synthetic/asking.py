"""Ask an endpoint what the tasks of a dataset hold: many requests at a time, each until it is answered for good.

What becomes of an attempt:

    429, 503; nobody listens,  all wait as long as Retry-After says, else longer each time, and one at a time are sent
    after an accepted answer   until one is answered; it costs no attempt
    broken connection, 5xx,    the request goes back into the queue and comes again after a pause, growing and
    408, 409, 425, no answer   random, while its slot asks others; after so many attempts it is refused as `failed`
    in time, 200 with an error
    401 to 404, a redirect     the run stops: no other request would do better; after an accepted answer as 400
    400 and others             `rejected` for good where it says so of this request (too long, content refused); else
                               `failed`, since the endpoint or its declaration may be wrong; not sent again in this run
    an answer                  judged; a cut one is never sent again unchanged (`on_cut`)
    an answer with code, and   the code is executed in a thread of its own, and what it gave is the next request of the
    `execute` is declared      conversation; it ends with an answer without code, a refused one, or so many rounds

Where the first 50 requests end for one reason, and no answer is accepted, the run stops and forgets them: the endpoint,
or its declaration, is wrong. They are asked again once that is mended. It stops after 50 that fail in a row, too. What
is in flight by then may show that it was wrong to stop, as slow answers beside quick refusals do: then it goes on.

An answer is written down before its slot takes the next request, so a kill asks again at most what was in flight.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from headrace_features.synthetic import faults
from headrace_features.synthetic.answers import DETAIL_CHARACTERS, NOTHING, Answer, judged
from headrace_features.synthetic.asked import Asked
from headrace_features.synthetic.attempts import FAILED, REJECTED, Attempt, Heard, Landed
from headrace_features.synthetic.conversations import Execute, Executor, code_of, conversation_of
from headrace_features.synthetic.gate import LONGEST_PAUSE, Gate
from headrace_features.synthetic.replies import reply_to
from headrace_features.synthetic.requests import Request, Turn, next_request, request_of
from headrace_features.synthetic.tables import Hold
from headrace_features.synthetic.tasks import BudgetError, Taken, TaskQueue
from headrace_features.synthetic.writing import Writer
from spark_jobs.credentials import filled
from spark_jobs.messages import kept_message
from spark_jobs.sources.config.paged_source import header_secret_of
from spark_jobs.sources.opening.destinations import Destinations

if TYPE_CHECKING:
    import aiohttp

_LOOK_SECONDS: Final = 0.2  # between two looks for a task, where none waits

_log = logging.getLogger(__name__)


@dataclass
class _Lease:
    """A task of this worker until a moment: its requests without a final answer; whether another has it now."""

    task: Taken
    open: dict[str, Request]
    until: float
    lost: bool = False


@dataclass
class _Pending:
    """A request waiting or sent: its task and key there, failed attempts, and the cut answer to a lower limit."""

    request: Request
    lease: _Lease
    key: str
    attempts: int = 0
    cut: Landed | None = None


class Asker:
    """A worker: takes tasks of a dataset from the queue and asks their requests."""

    def __init__(self, tasks: TaskQueue, field: str = "source", executor: Executor | None = None) -> None:
        """Name the place where the source is declared, for messages; the executor is for sources with `execute`."""
        self._tasks, self._source, self._store, self._field = tasks, tasks.source, tasks.store, field
        self._queue: asyncio.Queue[_Pending] = asyncio.Queue()
        self._to_execute: asyncio.Queue[tuple[_Pending, Answer]] = asyncio.Queue()
        self._executing = 0  # answers whose code waits for its execution, or is executed
        self._executor = executor
        self._execute: Execute | None = None
        self._leases: list[_Lease] = []
        self._gate = Gate(tasks.source.asking)
        self._changed, self._going = asyncio.Event(), asyncio.Event()
        self._going.set()
        self._in_doubt = False  # a stop that an answer to what is in flight takes back
        self._writer = Writer(tasks, self._lose)
        self._short_looks = 0  # looks in a row at which the budget had no room, and nobody held any of it
        self._renewal = asyncio.Lock()
        self._patience = math.inf  # until when what is in flight is waited for after a stop
        self._success = self._looked = 0.0
        self.done = Asked()

    async def work(self, more: Callable[[], bool]) -> Asked:
        """Take tasks and ask until none is left and no more come, or the worker has to stop.

        Raises:
            ConfigError: the environment lacks the key.
            InputError: the tasks are of another declaration.
            SetupError: code of answers is to be executed, and this machine does not hold it.
        """
        import aiohttp

        from spark_jobs.sources.opening.web_connections import guarded_connector

        key = self._source.endpoint.key
        headers = {"Authorization": f"Bearer {header_secret_of(f'{self._field}.endpoint.key', key)}"} if key else {}
        timeout = aiohttp.ClientTimeout(total=self._source.asking.answer_seconds)
        place, url = f"{self._field}.endpoint.url", self._source.endpoint.url
        destinations = Destinations.of([filled(url, place, in_address=True)])
        connector = guarded_connector(destinations, limit=self._source.asking.at_once)
        self._success = time.monotonic()
        at_once = self._source.execute.at_once if self._source.execute else 0
        pool = ThreadPoolExecutor(at_once or 1)  # a sandbox dies with the thread that started it
        async with aiohttp.ClientSession(headers=headers, timeout=timeout, connector=connector) as session:
            tasks = [asyncio.create_task(self._slot(session)) for _ in range(self._source.asking.at_once)]
            tasks += [asyncio.create_task(self._execute_code(pool)) for _ in range(at_once)]
            tasks += [asyncio.create_task(self._watch())]
            writer = asyncio.create_task(self._writer.run())
            working = asyncio.gather(writer, *tasks)  # fails with the first of them
            try:
                await self._feed(more, working)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                self._writer.end()
                await asyncio.gather(writer, working, return_exceptions=True)
                for lease in self._leases:
                    self._tasks.give_back(lease.task.hold, [*lease.open.values(), *lease.task.rest])
                if in_vain := self.done.in_vain:
                    self._store.reopen(keys=in_vain)
                pool.shutdown(wait=False, cancel_futures=True)
        return self.done

    def stop(self, reason: str, patience: float = math.inf) -> None:
        """Send nothing more, and wait `patience` seconds for what is in flight, since it is paid for."""
        self._patience = min(self._patience, time.monotonic() + patience)
        self.done.stopped, self._in_doubt = self.done.stopped or reason, False
        self._going.clear()
        self._changed.set()

    @property
    def _open(self) -> int:
        """Taken requests without a final answer."""
        return sum(len(lease.open) for lease in self._leases)

    async def _feed(self, more: Callable[[], bool], working: asyncio.Future[list[None]]) -> None:
        """Take tasks while there are slots for them, and wait for their ends."""
        while not self.done.stopped or await self._goes_on():
            if working.done():
                working.result()  # what went wrong in a slot is no fault of the endpoint's
            if self._open < self._source.asking.at_once and await self._take():
                continue
            if not self._open and not more():
                return
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _LOOK_SECONDS)

    async def _goes_on(self) -> bool:
        """Whether the awaited requests in flight at a stop show that the endpoint is right."""
        while self._gate.sent and time.monotonic() < self._patience:
            await asyncio.sleep(0.05)
        if self._in_doubt and not self.done.why_to_stop():
            self.done.stopped, self.done.hopeless, self._in_doubt = "", False, False
            self._going.set()
        return not self.done.stopped

    async def _take(self) -> bool:
        """Take a task, where one waits and the budget allows it."""
        began = time.monotonic()
        try:
            taken = await asyncio.to_thread(self._next_task)
        except BudgetError:
            is_held = self._leases or (await asyncio.to_thread(self._tasks.counts))[1]
            self._short_looks = 0 if is_held else self._short_looks + 1
            if self._short_looks == 2:  # once more, for what others held may have come free between the two questions
                self.stop(f"the budget is used up; raise {self._field}.budget to go on")
            return False
        self._short_looks = 0
        if taken is None:
            if began - self._looked > 1.0:
                self._looked = began
                await asyncio.to_thread(self._tasks.free_dead)
            return False
        if not self._open:
            self._success = time.monotonic()
        lease = _Lease(
            taken, {request.first_key: request for request in taken.requests}, began + self._tasks.lease_seconds
        )
        self._leases.append(lease)
        for request in taken.requests:
            self._let_go_on(_Pending(request, lease, request.first_key), taken.unexecuted.get(request.key))
        return True

    def _next_task(self) -> Taken | None:
        """Take a task; before the first one of conversations make sure that code can be executed here."""
        if self._source.execute is not None and self._execute is None:
            if not self._tasks.waits():
                return None
            assert self._executor is not None
            self._execute = self._executor(self._source.execute)
        return self._tasks.take()

    async def _slot(self, session: aiohttp.ClientSession) -> None:
        """Ask one request after the other."""
        while True:
            pending = await self._queue.get()
            await self._gate.turn()
            await self._going.wait()
            if time.monotonic() > pending.lease.until:  # this process was stopped meanwhile
                await self._renew()
            if pending.lease.lost:
                continue
            with self._gate.passed():
                await self._attempt(session, pending)

    async def _renew(self) -> None:
        """Push the ends of leases ahead, in good time."""
        async with self._renewal:
            leases, now = list(self._leases), time.monotonic()
            if leases and min(lease.until for lease in leases) - now < 0.75 * self._tasks.lease_seconds:
                lost = await asyncio.to_thread(self._tasks.renew, [lease.task.hold for lease in leases])
                for lease in leases:
                    lease.until = now + self._tasks.lease_seconds
                self._lose(lost)

    def _lose(self, holds: Collection[Hold]) -> None:
        """Drop tasks taken by other workers by now."""
        for lease in [lost_lease for lost_lease in self._leases if lost_lease.task.hold in holds]:
            _log.warning("a task of %d requests went to another worker, since this one was away", len(lease.open))
            lease.lost = True
            self._leases.remove(lease)
            self._changed.set()

    async def _attempt(self, session: aiohttp.ClientSession, pending: _Pending) -> None:
        """Send a request once, and decide what becomes of it."""
        key, began, asking = pending.request.key, time.monotonic(), self._source.asking
        url = f"{self._source.endpoint.url.rstrip('/')}/chat/completions"
        self.done.attempts += 1
        filled_url = filled(url, f"{self._field}.endpoint.url", in_address=True)
        status, answer, wait, nobody_listens = await reply_to(session, filled_url, pending.request.body)
        is_away = nobody_listens and self.done.accepted > 0  # it is started again, say
        seconds = time.monotonic() - began
        if isinstance(answer, Answer):
            await self._judge(pending, answer, seconds)
            return
        fault = " ".join(kept_message(answer).split())[:DETAIL_CHARACTERS]
        self.done.said[fault] += 1
        if status in faults.WAIT_STATUSES or is_away:
            self._gate.pause(began, wait)
            await self._writer.note([Attempt(key, seconds, "waited", fault)])
            self._queue.put_nowait(pending)
        elif faults.is_of_request(status, answer):
            await self._end(pending, Attempt(key, seconds, "rejected", fault), REJECTED, fault)
        elif (status in faults.HOPELESS_STATUSES and not self.done.accepted) or 300 <= status < 400:
            await self._writer.note([Attempt(key, seconds, "rejected", fault)])
            self.done.hopeless = True
            mend = faults.mend_of(fault).replace("endpoint.", f"{self._field}.endpoint.")
            self.stop(f"{url}: {fault}; {mend}", patience=0)
        elif 400 <= status < 500 and status not in faults.PASSING_STATUSES:
            await self._end(pending, Attempt(key, seconds, "rejected", fault), FAILED, fault)
        elif pending.attempts + 1 >= asking.attempts:
            await self._end(pending, Attempt(key, seconds, "broken", fault), FAILED, fault)
        else:
            await self._writer.note([Attempt(key, seconds, "broken", fault)])
            longest = min(asking.backoff_seconds * 2**pending.attempts, LONGEST_PAUSE)
            pending.attempts += 1
            pause = random.uniform(longest / 2, longest)
            asyncio.get_running_loop().call_later(pause, self._queue.put_nowait, pending)

    async def _judge(self, pending: _Pending, answer: Answer, seconds: float) -> None:
        """Note an answer, or go on from it: with a higher limit where it was cut, else with its code."""
        request, source, hold = pending.request, self._source, pending.lease.task.hold
        template = self._tasks.templates[request.template]
        self._success = time.monotonic()
        self._gate.answered()
        attempt = Attempt(request.key, seconds, "answered", answer.finish, answer, self._tasks.most_tokens(request))
        text, reason, detail = judged(answer, template, request.parent.text, source)
        may_be_raised = source.on_cut == "raise_limit_once" and answer.is_cut_by_limit
        if reason == "cut" and may_be_raised and pending.cut is None:
            limit = 2 * request.answer_tokens
            again = request_of(request.parent, template, source.endpoint, request.sample, limit)
            if not await asyncio.to_thread(self._store.answered, [again.key]):  # else the limit was declared before
                await self._writer.note([attempt])
                cut = Landed(request, answer, "", "cut", "asked once more with twice the limit", hold)
                self._queue.put_nowait(replace(pending, request=again, cut=cut))
                return
        if source.execute is not None:
            served = answer.model, answer.fingerprint
            others = [turn for turn in request.turns if (turn.answer.model, turn.answer.fingerprint) != served]
            if others and source.served == "one" and not reason:
                reason = "other_model"
            if not reason:
                await self._converse(pending, attempt, answer, source.execute.language)
                return
            detail = f"round {len(request.turns) + 1} {detail}".strip()
        await self._end(pending, attempt, reason, detail[:DETAIL_CHARACTERS], answer, text)

    async def _converse(self, pending: _Pending, attempt: Attempt, answer: Answer, language: str) -> None:
        """Queue the code of an answer for execution; an answer without code ends the conversation."""
        request = pending.request
        if code_of(answer.text, language) is None:
            whole, text, facts = conversation_of(request, request.turns, answer)
            await self._end(pending, attempt, "", facts, whole, text)
            return
        turn = Heard(request, Turn(request.key, answer), pending.lease.task.hold)
        if await self._writer.note([attempt], turns=[turn]):
            self._let_go_on(pending, answer)

    def _let_go_on(self, pending: _Pending, answered: Answer | None = None) -> None:
        """Queue a request to be sent; or, where it has an answer with code, queue that to be executed."""
        if answered is None:
            self._queue.put_nowait(pending)
        else:
            self._executing += 1
            self._to_execute.put_nowait((pending, answered))

    async def _execute_code(self, pool: ThreadPoolExecutor) -> None:
        """Execute the code of one answer after the other, and go on with its conversation."""
        config = self._source.execute
        assert config is not None
        while True:
            pending, answer = await self._to_execute.get()
            try:
                code, execute = code_of(answer.text, config.language), self._execute
                assert execute is not None
                if not pending.lease.lost:
                    executed = await asyncio.get_running_loop().run_in_executor(pool, execute, code or "")
                    await self._go_on(pending, Turn(pending.request.key, answer, *executed), config.rounds)
            finally:
                self._executing -= 1
                self._success = time.monotonic()

    async def _go_on(self, pending: _Pending, turn: Turn, rounds: int) -> None:
        """Send what code gave as the next request of a conversation, within the budget; end it after its last round."""
        request, lease = pending.request, pending.lease
        if len(request.turns) + 1 >= rounds:
            whole, text, facts = conversation_of(request, (*request.turns, turn), None)
            await self._end(pending, None, "", facts, whole, text)
        elif await self._writer.note([], turns=[Heard(request, turn, lease.task.hold)]):
            after = next_request(request, turn)
            if await asyncio.to_thread(self._tasks.reserve, lease.task.hold, request, after):
                self._let_go_on(_Pending(after, lease, after.first_key))
            elif not lease.lost:
                lease.task = replace(lease.task, rest=(*lease.task.rest, after))
                self._close(pending)

    async def _end(
        self, pending: _Pending, attempt: Attempt | None, reason: str, detail: str, answer: Answer = NOTHING,
        text: str = "",
    ) -> None:  # fmt: skip
        """Note what became of a request for good: a text, or the reason why there will be none."""
        lease = pending.lease
        end = Landed(pending.request, answer, text, reason, detail, lease.task.hold)
        ends = [end] if pending.cut is None else [pending.cut, end]
        if not await self._writer.note([] if attempt is None else [attempt], ends):
            return
        self.done.end(ends)
        self._close(pending)
        if not self.done.stopped and (why := self.done.why_to_stop()):
            self.stop(f"{why}; all of them are asked again by the next run")
            self.done.hopeless = self._in_doubt = True

    def _close(self, pending: _Pending) -> None:
        """Count a request as done: it is answered for good, or goes back to the queue with its task."""
        lease = pending.lease
        del lease.open[pending.key]
        if not lease.open:
            self._leases.remove(lease)
            self._writer.finish(lease.task)
        self._changed.set()

    async def _watch(self) -> None:
        """Renew leases, and stop where nothing succeeds for long."""
        silence = self._source.asking.silence_seconds
        while True:
            await asyncio.sleep(min(1.0, silence / 4, self._tasks.lease_seconds / 4))
            await self._renew()
            if self._open > self._executing and time.monotonic() - self._success > silence:
                problem = f"no answer succeeded for {silence:g} s{self.done.words()}"
                self.stop(f"{problem}; what is done stays, the next run goes on", patience=0)

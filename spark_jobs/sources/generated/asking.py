"""Ask an endpoint what the tasks of a dataset hold: many requests at a time, each until it is answered for good.

What becomes of an attempt:

    429, 503                   all wait as long as Retry-After says; it costs no attempt
    broken connection, 5xx,    the request goes back into the queue and comes again after a pause that grows and is
    200 with an error,         random, while its slot asks others; after so many attempts it is refused as `failed`
    no answer in time
    401, 403, 404, a redirect  the run stops: no other request would do better
    400 and others             refused as `rejected`; sent again it would fail again
    an answer                  judged; one that was cut is never sent again unchanged (`on_cut`)

An answer is written down before its slot takes the next request, so a kill asks again at most what was in flight.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import random
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

from spark_jobs.sources.config.api_config import header_secret_of
from spark_jobs.sources.config.generated_config import GeneratedSource, template_of
from spark_jobs.sources.generated.answers import NOTHING, Answer, answer_of, judged
from spark_jobs.sources.generated.attempts import AnswerStore, Attempt, Hold, Landed
from spark_jobs.sources.generated.requests import Request, request_of
from spark_jobs.sources.generated.tasks import BudgetError, Taken, TaskQueue

if TYPE_CHECKING:
    import aiohttp

_WAIT_STATUSES: Final = frozenset({429, 503, 529})
_HOPELESS_STATUSES: Final = frozenset({401, 403, 404})
_LONGEST_PAUSE: Final = 60.0
_LEAST_WAIT: Final = 1.0  # where a 429 names no time
_DETAIL_CHARACTERS: Final = 300
_TELL_SECONDS: Final = 10.0
_MOST_BYTES: Final = 64 << 20

_LOOK_SECONDS: Final = 0.2  # between two looks for a task, where none waits

_Writing = tuple[list[Attempt], list[Landed], "asyncio.Future[set[Hold]]"]

_log = logging.getLogger(__name__)


@dataclass
class _Lease:
    """A task that this worker has: what of it is not answered for good, and how long it is surely held."""

    task: Taken
    open: dict[str, Request]
    until: float
    lost: bool = False


@dataclass
class _Pending:
    """A request on its way: how often it was tried; where its limit was raised, the cut answer before."""

    request: Request
    lease: _Lease
    attempts: int = 0
    cut: Landed | None = None

    @property
    def key(self) -> str:
        """By which its task knows it."""
        return self.request.key if self.cut is None else self.cut.request.key


@dataclass
class Asked:
    """What asking came to.

    Attributes:
        accepted: answers that are documents.
        refused: answers and requests that are none, by reason.
        attempts: requests that were sent.
        stopped: why it ended before all was asked; empty where it did not.
        hopeless: whether it would end so again, because the endpoint refuses the key or is not there.
    """

    accepted: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    attempts: int = 0
    stopped: str = ""
    hopeless: bool = False


class Asker:
    """Takes tasks of a dataset and asks their requests."""

    def __init__(
        self, source: GeneratedSource, store: AnswerStore, tasks: TaskQueue, seed: int | None = None,
        field: str = "source",
    ) -> None:  # fmt: skip
        """The seed is that of the pauses; the field is where the source is declared, for messages."""
        self._source, self._store, self._tasks, self._field = source, store, tasks, field
        self._templates = {one.name: one for one in map(template_of, source.templates)}
        self._random = random.Random(seed)
        self._queue: asyncio.Queue[_Pending] = asyncio.Queue()
        self._leases: list[_Lease] = []
        self._open = 0  # requests that were taken and are not answered for good
        self._sent = 0  # requests in flight
        self._resume = self._next = 0.0
        self._changed, self._waiting = asyncio.Event(), asyncio.Event()
        self._to_write: list[_Writing] = []
        self._finished: list[Taken] = []
        self._ending = False
        self._renewal = asyncio.Lock()
        self._patience = math.inf  # until when what is in flight is waited for after a stop
        self._success = self._told = self._looked = 0.0
        self.done = Asked()

    async def work(self, more: Callable[[], bool]) -> Asked:
        """Take tasks and ask until none is left and no more come, or the worker has to stop.

        Raises:
            ConfigError: the environment lacks the key.
            InputError: the tasks are of another declaration.
        """
        import aiohttp

        key = self._source.endpoint.key
        headers = {"Authorization": f"Bearer {header_secret_of(f'{self._field}.endpoint.key', key)}"} if key else {}
        timeout = aiohttp.ClientTimeout(total=self._source.asking.answer_seconds)
        connector = aiohttp.TCPConnector(limit=self._source.asking.at_once)
        self._success = self._told = time.monotonic()
        async with aiohttp.ClientSession(headers=headers, timeout=timeout, connector=connector) as session:
            slots = [asyncio.create_task(self._slot(session)) for _ in range(self._source.asking.at_once)]
            writer = asyncio.create_task(self._write())
            others = [asyncio.create_task(self._watch()), asyncio.create_task(self._keep())]
            try:
                await self._feed(more, (writer, *slots, *others))
            finally:
                for task in (*slots, *others):
                    task.cancel()
                await asyncio.gather(*slots, *others, return_exceptions=True)
                self._ending = True
                self._waiting.set()
                await asyncio.gather(writer, return_exceptions=True)
                for lease in self._leases:
                    self._tasks.give_back(lease.task.hold, [*lease.open.values(), *lease.task.rest])
        return self.done

    def stop(self, reason: str, patience: float = math.inf) -> None:
        """Send nothing more; what is in flight is waited for, for so many seconds, since it is paid for."""
        self._patience = min(self._patience, time.monotonic() + patience)
        self.done.stopped = self.done.stopped or reason
        self._changed.set()

    async def _feed(self, more: Callable[[], bool], workers: tuple[asyncio.Task[None], ...]) -> None:
        """Take tasks while there are slots for them, and wait for their ends."""
        failed: list[asyncio.Task[None]] = []

        def note(one: asyncio.Task[None]) -> None:
            failed.append(one)
            self._changed.set()

        for worker in workers:
            worker.add_done_callback(note)
        while not self.done.stopped:
            for worker in failed:
                worker.result()  # what went wrong in a slot is no fault of the endpoint's
            if self._open < self._source.asking.at_once and await self._take():
                continue
            if not self._open and not more():
                return
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _LOOK_SECONDS)
        while self._sent and time.monotonic() < self._patience:
            await asyncio.sleep(0.05)

    async def _take(self) -> bool:
        """Take a task, where one waits and the budget allows it."""
        began = time.monotonic()
        try:
            taken = await asyncio.to_thread(self._tasks.take)
        except BudgetError:
            if not self._leases and not (await asyncio.to_thread(self._tasks.counts))[1]:
                self.stop(f"the budget is used up; raise {self._field}.budget to go on")
            return False
        if taken is None:
            if began - self._looked > 1.0:
                self._looked = began
                await asyncio.to_thread(self._tasks.free_dead)
            return False
        if not self._open:
            self._success = time.monotonic()
        lease = _Lease(taken, {one.key: one for one in taken.requests}, began + self._tasks.lease_seconds)
        self._leases.append(lease)
        for request in taken.requests:
            self._open += 1
            self._queue.put_nowait(_Pending(request, lease))
        return True

    async def _slot(self, session: aiohttp.ClientSession) -> None:
        """Ask one request after the other."""
        while True:
            pending = await self._queue.get()
            await self._turn()
            if self.done.stopped:
                return
            if time.monotonic() > pending.lease.until:  # this process was stopped meanwhile
                await self._renew()
            if pending.lease.lost:
                continue
            self._sent += 1
            try:
                await self._attempt(session, pending)
            finally:
                self._sent -= 1

    async def _keep(self) -> None:
        """Renew leases, again and again."""
        while True:
            await asyncio.sleep(self._tasks.lease_seconds / 4)
            await self._renew()

    async def _renew(self) -> None:
        async with self._renewal:
            leases, now = list(self._leases), time.monotonic()
            if leases and min(one.until for one in leases) - now < 0.9 * self._tasks.lease_seconds:
                lost = await asyncio.to_thread(self._tasks.renew, [one.task.hold for one in leases])
                for lease in leases:
                    lease.until = now + self._tasks.lease_seconds
                self._lose(lost)

    def _lose(self, holds: Collection[Hold]) -> None:
        """Ask nothing more of tasks that others have by now."""
        for lease in [one for one in self._leases if one.task.hold in holds]:
            _log.warning("a task of %d requests went to another worker, since this one was away", len(lease.open))
            lease.lost = True
            self._leases.remove(lease)
            self._open -= len(lease.open)
            self._changed.set()

    async def _turn(self) -> None:
        """Wait until a request may be sent: the endpoint asked for patience, or so many were sent this minute."""
        space = 60.0 / self._source.asking.requests_a_minute
        while (left := max(self._resume, self._next) - time.monotonic()) > 0:
            await asyncio.sleep(left)
        self._next = max(self._next, time.monotonic()) + space

    async def _attempt(self, session: aiohttp.ClientSession, pending: _Pending) -> None:
        """Send a request once, and decide what becomes of it."""
        import aiohttp

        request, began = pending.request, time.monotonic()
        answer: Answer | None = None
        self.done.attempts += 1
        try:
            url = f"{self._source.endpoint.url.rstrip('/')}/chat/completions"
            async with session.post(url, json=request.body, allow_redirects=False) as response:
                data = await response.content.read(_MOST_BYTES)
                while not response.content.at_eof() and len(data) < _MOST_BYTES:
                    data += await response.content.read(_MOST_BYTES)
            status, retry_after = response.status, response.headers.get("Retry-After")
            found = _read(status, data)
            answer = found if isinstance(found, Answer) else None
            fault = "" if isinstance(found, Answer) else found
            if 300 <= status < 400:  # followed, it would take texts and key to where nobody declared them to go
                fault = f"status {status}, to {response.headers.get('Location')}: redirects are not followed"
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            status, retry_after = 0, None
            fault = f"no answer in {self._source.asking.answer_seconds:g} s" if isinstance(error, TimeoutError) else ""
            fault = fault or f"{type(error).__name__}: {error}"
        seconds = time.monotonic() - began
        fault = fault[:_DETAIL_CHARACTERS]
        if answer is not None:
            await self._judge(pending, answer, seconds)
        elif status in _WAIT_STATUSES:
            self._resume = max(self._resume, time.monotonic() + _wait_of(retry_after))
            await self._note([Attempt(request.key, seconds, "waited", fault)])
            self._queue.put_nowait(pending)
        elif status in _HOPELESS_STATUSES or 300 <= status < 400:
            await self._note([Attempt(request.key, seconds, "rejected", fault)])
            self.done.hopeless = True
            self.stop(f"{url}: {fault}; correct {self._field}.endpoint", patience=0)
        elif 400 <= status < 500:
            await self._end(pending, Attempt(request.key, seconds, "rejected", fault), "rejected", fault)
        else:
            pending.attempts += 1
            attempt = Attempt(request.key, seconds, "broken", fault)
            if pending.attempts >= self._source.asking.attempts:
                await self._end(pending, attempt, "failed", fault)
                return
            await self._note([attempt])
            longest = min(self._source.asking.backoff_seconds * 2 ** (pending.attempts - 1), _LONGEST_PAUSE)
            asyncio.get_running_loop().call_later(
                self._random.uniform(longest / 2, longest), self._queue.put_nowait, pending
            )

    async def _judge(self, pending: _Pending, answer: Answer, seconds: float) -> None:
        request, source = pending.request, self._source
        self._success = time.monotonic()
        most = self._tasks.most_tokens(request)
        attempt = Attempt(request.key, seconds, "answered", answer.finish, answer, most)
        text, reason = judged(
            answer, self._templates[request.template], request.parent.text, source.max_copied, source.max_longer,
            keeps_cut=source.on_cut == "keep",
        )  # fmt: skip
        if reason == "cut" and source.on_cut == "raise_limit_once" and pending.cut is None:
            limit = 2 * request.body["max_tokens"]
            again = request_of(
                request.parent, self._templates[request.template], source.endpoint, request.sample, limit
            )
            if not await asyncio.to_thread(self._store.answered, [again.key]):  # else the limit was declared before
                await self._note([attempt])
                said = "asked once more with twice the limit"
                cut = Landed(request, answer, "", "cut", said, pending.lease.task.hold)
                self._queue.put_nowait(replace(pending, request=again, cut=cut))
                return
        await self._end(pending, attempt, reason, answer.refusal[:_DETAIL_CHARACTERS], answer, text)

    async def _end(
        self, pending: _Pending, attempt: Attempt, reason: str, detail: str, answer: Answer = NOTHING, text: str = ""
    ) -> None:
        """Note what became of a request for good: a text, or the reason why there will be none."""
        lease = pending.lease
        ends = [Landed(pending.request, answer, text, reason, detail, lease.task.hold)]
        if pending.cut is not None:
            ends.insert(0, pending.cut)
        if not await self._note([attempt], ends):
            return
        for one in ends:
            if one.reason:
                self.done.refused[one.reason] = self.done.refused.get(one.reason, 0) + 1
        self.done.accepted += not reason
        del lease.open[pending.key]
        self._open -= 1
        if not lease.open:
            self._leases.remove(lease)
            self._finished.append(lease.task)
            self._waiting.set()
        self._changed.set()

    async def _note(self, attempts: list[Attempt], answers: list[Landed] | None = None) -> bool:
        """Wait until attempts and answers are written; whether the answers were, which needs the task to be held."""
        written: asyncio.Future[set[Hold]] = asyncio.get_running_loop().create_future()
        self._to_write.append((attempts, answers or [], written))
        self._waiting.set()
        lost = await written
        return not any(one.hold in lost for one in answers or ())

    async def _write(self) -> None:
        """Write what waits, all of it in one transaction, again and again until the end."""
        while self._to_write or self._finished or not self._ending:
            if not self._to_write and not self._finished:
                self._waiting.clear()
                await self._waiting.wait()
            waiting, self._to_write = self._to_write, []
            finished, self._finished = self._finished, []
            lost = await asyncio.to_thread(self._save, waiting, finished)
            self._lose(lost)
            for *_, written in waiting:
                if not written.done():
                    written.set_result(lost)

    def _save(self, waiting: list[_Writing], finished: list[Taken]) -> set[Hold]:
        """Write attempts and answers, and remove finished tasks; gives the holds that are lost."""
        attempts = [one for some, _, _ in waiting for one in some]
        answers = [one for _, some, _ in waiting for one in some]
        lost = self._store.write(attempts, answers) if waiting else set()
        if finished:
            self._tasks.finish(finished)
        return lost

    async def _watch(self) -> None:
        """Stop where nothing succeeds for long, and say how far it came."""
        silence = self._source.asking.silence_seconds
        while True:
            await asyncio.sleep(min(1.0, silence / 4))
            now = time.monotonic()
            if self._open and now - self._success > silence:
                said = f"no answer succeeded for {silence:g} s; what is done stays, the next run goes on"
                self.stop(said, patience=0)
            if now - self._told > _TELL_SECONDS:
                self._told = now
                refused = sum(self.done.refused.values())
                _log.info("asked %d, accepted %d, refused %d", self.done.attempts, self.done.accepted, refused)


def _read(status: int, data: bytes) -> Answer | str:
    """The answer in a response, or what is wrong with it."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if status != 200:
        error = (
            value.get("error", value) if isinstance(value, dict) else data[:_DETAIL_CHARACTERS].decode(errors="replace")
        )
        said = error.get("message", error) if isinstance(error, dict) else error
        return f"status {status}: {said}"
    return "status 200, and no JSON" if value is None else answer_of(value)


def _wait_of(retry_after: str | None) -> float:
    """Seconds that a header Retry-After asks for: a number, or a date."""
    if retry_after is None:
        return _LEAST_WAIT
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return _LEAST_WAIT

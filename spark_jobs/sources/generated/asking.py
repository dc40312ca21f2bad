"""Ask an endpoint: many requests at a time, each until it is answered for good, within a budget.

What becomes of an attempt:

    429, 503                   all wait as long as Retry-After says; it costs no attempt
    broken connection, 5xx,    the request goes back into the queue and comes again after a pause that grows and is
    200 with an error,         random, while its slot asks others; after so many attempts it is refused as `failed`
    no answer in time
    401, 403, 404              the run stops: no other request would do better
    400 and others             refused as `rejected`; sent again it would fail again
    an answer                  judged; one that was cut is never sent again unchanged (`on_cut`)

An answer is written down before its slot takes the next request, so a kill asks again at most what was in flight.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

from spark_jobs.sources.config.api_config import secret_of
from spark_jobs.sources.config.generated_config import GeneratedSource, template_of
from spark_jobs.sources.generated.answers import NOTHING, Answer, answer_of, judged
from spark_jobs.sources.generated.attempts import AnswerStore, Attempt, Landed
from spark_jobs.sources.generated.budget import Spending
from spark_jobs.sources.generated.requests import Request, request_of

if TYPE_CHECKING:
    import aiohttp

_WAIT_STATUSES: Final = frozenset({429, 503, 529})
_HOPELESS_STATUSES: Final = frozenset({401, 403, 404})
_LONGEST_PAUSE: Final = 60.0
_LEAST_WAIT: Final = 1.0  # where a 429 names no time
_DETAIL_CHARACTERS: Final = 300
_TELL_SECONDS: Final = 10.0
_MOST_BYTES: Final = 64 << 20

_log = logging.getLogger(__name__)


@dataclass
class _Pending:
    """A request on its way: how often it was tried, and whether its limit was raised already."""

    request: Request
    attempts: int = 0
    raised: bool = False


@dataclass
class Asked:
    """What asking came to.

    Attributes:
        accepted: answers that are documents.
        refused: answers and requests that are none, by reason.
        attempts: requests that were sent.
        stopped: why it ended before all was asked; empty where it did not.
    """

    accepted: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    attempts: int = 0
    stopped: str = ""


class Asker:
    """Asks about some requests; for one run."""

    def __init__(
        self, source: GeneratedSource, store: AnswerStore, seed: int | None = None, field: str = "source"
    ) -> None:
        """The seed is that of the pauses; the field is where the source is declared, for messages."""
        self._source, self._store, self._field = source, store, field
        self._templates = {one.name: one for one in map(template_of, source.templates)}
        self._spending = Spending(source.budget, *store.spent()[:2])
        self._random = random.Random(seed)
        self._queue: asyncio.Queue[_Pending] = asyncio.Queue()
        self._open = 0  # requests that were taken and are not answered for good
        self._sent = 0  # requests in flight
        self._resume = self._next = 0.0
        self._changed, self._waiting = asyncio.Event(), asyncio.Event()
        self._to_write: list[tuple[list[Attempt], list[Landed], asyncio.Future[None]]] = []
        self._served: tuple[str, str] | None = None
        self._hopeless = False  # whether what is in flight is not waited for
        self.done = Asked()

    async def ask(self, requests: Iterator[Request], wanted: int | None = None) -> Asked:
        """Ask until all is answered, `wanted` answers were accepted, or the run has to stop.

        Raises:
            ConfigError: the environment lacks the key.
        """
        import aiohttp

        key = self._source.endpoint.key
        headers = {"Authorization": f"Bearer {secret_of(f'{self._field}.endpoint.key', key)}"} if key else {}
        timeout = aiohttp.ClientTimeout(total=self._source.asking.answer_seconds)
        connector = aiohttp.TCPConnector(limit=self._source.asking.at_once)
        self._success = self._told = time.monotonic()
        async with aiohttp.ClientSession(headers=headers, timeout=timeout, connector=connector) as session:
            tasks = [asyncio.create_task(self._slot(session)) for _ in range(self._source.asking.at_once)]
            writer, watch = asyncio.create_task(self._write()), asyncio.create_task(self._watch())
            try:
                await self._feed(requests, wanted, (writer, *tasks))
            finally:
                for task in (*tasks, watch):
                    task.cancel()
                await asyncio.gather(*tasks, watch, return_exceptions=True)
                writer.cancel()
                await asyncio.gather(writer, return_exceptions=True)
                self._flush()
        return self.done

    async def _feed(
        self, requests: Iterator[Request], wanted: int | None, workers: tuple[asyncio.Task[None], ...]
    ) -> None:
        """Put requests into the queue, as many as there are slots, and wait for their ends."""
        failed: list[asyncio.Task[None]] = []

        def note(one: asyncio.Task[None]) -> None:
            failed.append(one)
            self._changed.set()

        for worker in workers:
            worker.add_done_callback(note)
        more = True
        while not self.done.stopped:
            for worker in failed:
                worker.result()  # what went wrong in a slot is no fault of the endpoint's
            room = 2 * self._source.asking.at_once - self._open
            if wanted is not None:
                room = min(room, wanted - self.done.accepted - self._open)
            while more and room > 0:
                found = next(requests, None)
                more, room = found is not None, room - 1
                if found is not None:
                    self._open += 1
                    self._queue.put_nowait(_Pending(found))
            if not self._open:
                return
            self._changed.clear()
            await self._changed.wait()
        while self._sent and not self._hopeless:  # what is in flight is paid for
            await asyncio.sleep(0.05)

    async def _slot(self, session: aiohttp.ClientSession) -> None:
        """Ask one request after the other."""
        while True:
            pending = await self._queue.get()
            await self._turn()
            while not self.done.stopped and not self._spending.reserve(pending.request):
                if not self._sent:
                    self._stop(f"the budget is used up; raise {self._field}.budget to go on")
                await asyncio.sleep(0.05)
            if self.done.stopped:
                return
            self._sent += 1
            try:
                await self._attempt(session, pending)
            finally:
                self._sent -= 1

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
            async with session.post(url, json=request.body) as response:
                data = await response.content.read(_MOST_BYTES)
                while not response.content.at_eof() and len(data) < _MOST_BYTES:
                    data += await response.content.read(_MOST_BYTES)
            status, retry_after = response.status, response.headers.get("Retry-After")
            found = _read(status, data)
            answer = found if isinstance(found, Answer) else None
            fault = "" if isinstance(found, Answer) else found
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            status, retry_after = 0, None
            fault = f"no answer in {self._source.asking.answer_seconds:g} s" if isinstance(error, TimeoutError) else ""
            fault = fault or f"{type(error).__name__}: {error}"
        finally:
            self._spending.settle(request, answer)
        seconds = time.monotonic() - began
        fault = fault[:_DETAIL_CHARACTERS]
        if answer is not None:
            await self._judge(pending, answer, seconds)
        elif status in _WAIT_STATUSES:
            self._resume = max(self._resume, time.monotonic() + _wait_of(retry_after))
            await self._note([Attempt(request.key, seconds, "waited", fault)])
            self._queue.put_nowait(pending)
        elif status in _HOPELESS_STATUSES:
            await self._note([Attempt(request.key, seconds, "rejected", fault)])
            self._stop(f"{url}: {fault}; correct {self._field}.endpoint", hopeless=True)
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
        served = (answer.model, answer.fingerprint)
        if self._served is not None and served != self._served:
            before, now = ("/".join(filter(None, one)) for one in (self._served, served))
            self._stop(f"the endpoint served {before}, now {now}; what came lands, the next run goes on with it")
        self._served = self._served or served
        attempt = Attempt(request.key, seconds, "answered", answer.finish, answer)
        template = self._templates[request.template]
        text, reason = judged(
            answer, template, request.parent.text, source.max_copied, source.max_longer,
            keeps_cut=source.on_cut == "keep",
        )  # fmt: skip
        if reason == "cut" and source.on_cut == "raise_limit_once" and not pending.raised:
            await self._note([attempt], [Landed(request, answer, "", "cut", "asked once more with twice the limit")])
            limit = 2 * request.body["max_tokens"]
            again = request_of(request.parent, template, source.endpoint, request.sample, limit)
            self._queue.put_nowait(replace(pending, request=again, raised=True))
            return
        if reason:
            await self._end(pending, attempt, reason, answer.refusal[:_DETAIL_CHARACTERS], answer)
            return
        await self._note([attempt], [Landed(request, answer, text, "")])
        self.done.accepted += 1
        self._closed()

    async def _end(
        self, pending: _Pending, attempt: Attempt, reason: str, detail: str, answer: Answer = NOTHING
    ) -> None:
        """Note that a request has no usable answer, and never will."""
        await self._note([attempt], [Landed(pending.request, answer, "", reason, detail)])
        self.done.refused[reason] = self.done.refused.get(reason, 0) + 1
        self._closed()

    def _closed(self) -> None:
        self._open -= 1
        self._changed.set()

    def _stop(self, reason: str, *, hopeless: bool = False) -> None:
        self._hopeless = self._hopeless or hopeless
        self.done.stopped = self.done.stopped or reason
        self._changed.set()

    async def _note(self, attempts: list[Attempt], answers: list[Landed] | None = None) -> None:
        """Wait until attempts and answers are written."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._to_write.append((attempts, answers or [], written))
        self._waiting.set()
        await written

    async def _write(self) -> None:
        """Write what waits, all of it in one transaction, again and again."""
        while True:
            if not self._to_write:
                self._waiting.clear()
                await self._waiting.wait()
            waiting, self._to_write = self._to_write, []
            try:
                await asyncio.to_thread(self._save, waiting)
            except asyncio.CancelledError:
                self._to_write = [one for one in waiting if not one[2].done()] + self._to_write
                raise
            for *_, written in waiting:
                if not written.done():
                    written.set_result(None)

    def _save(self, waiting: list[tuple[list[Attempt], list[Landed], asyncio.Future[None]]]) -> None:
        self._store.write(
            [one for attempts, _, _ in waiting for one in attempts], [one for _, given, _ in waiting for one in given]
        )

    def _flush(self) -> None:
        """Write what the writer had not come to."""
        waiting, self._to_write = self._to_write, []
        if waiting:
            self._save(waiting)

    async def _watch(self) -> None:
        """Stop where nothing succeeds for long, and say how far it came."""
        silence = self._source.asking.silence_seconds
        while True:
            await asyncio.sleep(min(1.0, silence / 4))
            now = time.monotonic()
            if now - self._success > silence:
                said = f"no answer succeeded for {silence:g} s; what is done stays, the next run goes on"
                self._stop(said, hopeless=True)
            if now - self._told > _TELL_SECONDS:
                self._told = now
                _log.info("asked %d, accepted %d, refused %d", self.done.attempts, self.done.accepted,
                          sum(self.done.refused.values()))  # fmt: skip


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

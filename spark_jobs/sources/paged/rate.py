"""How fast a server is asked: up by one request a second each second, halved where it is too much for the server.

Source: Chiu and Jain 1989, additive increase and multiplicative decrease. Waits after faults are random between 0 and a
doubling bound ("full jitter": Brooker 2015, Exponential Backoff and Jitter).
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from spark_jobs.sources.config.paged_source import RequestLimits

_HALVED_SECONDS = 1.0  # faults of requests that were under way together halve the rate once


class Pace:
    """Says when each request may be sent; all requests of a source share one."""

    def __init__(self, limits: RequestLimits, seed: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_second = min(max(limits.start_per_second, limits.min_per_second), limits.max_per_second)
        self._limits, self._clock, self._random = limits, clock, random.Random(seed)
        self._next = self._paused_until = self._halved = float("-inf")

    def reserve(self) -> float:
        """Take the next free moment; returns the seconds until then."""
        now = self._clock()
        moment = max(now, self._next, self._paused_until)
        self._next = moment + 1 / self.per_second
        return moment - now

    async def turn(self) -> None:
        """Wait for a moment to send a request, again where the server asked for a pause meanwhile."""
        await asyncio.sleep(self.reserve())
        while (left := self._paused_until - self._clock()) > 0:
            await asyncio.sleep(left)

    def succeeded(self) -> None:
        """After an answer: raise the rate, by one request a second in each second with answers."""
        self.per_second = min(self._limits.max_per_second, self.per_second + 1 / self.per_second)

    def overloaded(self, retry_after_seconds: float | None) -> None:
        """The server is overloaded: halve the rate, and send no request for as long as it asks."""
        now = self._clock()
        if now - self._halved >= _HALVED_SECONDS:
            self.per_second = max(self._limits.min_per_second, self.per_second / 2)
            self._halved = now
        if retry_after_seconds is not None:
            wait = min(retry_after_seconds, self._limits.max_wait_seconds)
            self._paused_until = max(self._paused_until, now + wait)

    def backoff_seconds(self, attempt: int) -> float:
        """How long to wait before a page is tried again, after `attempt` tries."""
        bound = min(self._limits.max_wait_seconds, self._limits.backoff_seconds * 2.0 ** min(attempt - 1, 30))
        return self._random.uniform(0, bound)


def retry_after(header: str | None, now: datetime | None = None) -> float | None:
    """Seconds asked for in a header Retry-After, a number or a date (RFC 9110, 10.2.3); None if it is neither."""
    if header is None:
        return None
    if re.fullmatch(r"\s*\d{1,20}(\.\d*)?\s*", header):  # the RFC allows no fraction, some servers send one
        return float(header)
    try:
        moment = parsedate_to_datetime(header)
    except (ValueError, TypeError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())

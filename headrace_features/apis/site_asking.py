"""Ask the opt-out register, then the site, whether an address may be fetched, and what came, whether it may be kept.

    address -> register -> robots.txt and its like of scheme, host and port, asked for once in a run -> fetched
            -> headers and page of the answer; of one that came by a redirect, the same for where it came from

A site without such files (404, 410) lets all be taken; one that cannot be asked (5xx, 429, no answer) nothing until the
next run (RFC 9309, 2.3.1.3 and 2.3.1.4). Requests for them keep to the pace and the destinations of all others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.catalog import Catalog

from headrace_features.apis.client import Fault, HttpAnswer
from spark_jobs.sources.config.permissions import OptOuts, Site, opt_outs, permission, site_maker
from spark_jobs.sources.refusals import Refusal

Get = Callable[[str], Awaitable[HttpAnswer | Fault]]
_KEPT_SECONDS = 24 * 3600  # longest use of a robots.txt (RFC 9309, 2.4)
_WRITTEN_TOGETHER = 200  # answers; each write is a commit


@dataclass
class Permissions:
    """What may be fetched for a dataset in one run; without register and feature everything.

    Attributes:
        get: fetches an address as often as the limits say.
        register: opt-outs that hold now.
        make: a site that was not asked yet.
        keep: writes answers of sites down.
    """

    get: Get
    register: OptOuts | None = None
    make: Callable[[], Site] | None = None
    keep: Callable[[list[Any]], None] = lambda _: None
    _sites: dict[str, tuple[float, asyncio.Task[Site]]] = field(default_factory=dict)
    _answers: list[Any] = field(default_factory=list)

    @classmethod
    def of(cls, dataset: str, source: Any, catalogue: Catalog, get: Get) -> Permissions:
        """Those that a source asks for by its setting `rights`."""
        there = permission()
        if there is None:
            return cls(get, opt_outs(dataset, source, catalogue))
        keep = there.keep
        return cls(
            get,
            opt_outs(dataset, source, catalogue),
            site_maker(source),
            lambda answers: keep(catalogue, dataset, answers, None),
        )

    async def refusal(self, url: str) -> Refusal | None:
        """Why an address may not be fetched; the register is asked first, and then its site may need no request."""
        if self.register is not None and (refusal := self.register.file(url, None, None)):
            return refusal
        return None if self.make is None else (await self._site(url)).refusal(url)

    async def answer_refusal(self, url: str, got: HttpAnswer) -> Refusal | None:
        """Why what came from an address may not be kept."""
        if got.url != url and (refusal := await self.refusal(got.url)):
            return refusal
        if self.make is None:
            return None
        site = await self._site(got.url)
        refusal = site.page_refusal(got.url, got.headers, got.data or b"")
        self._answers += site.answers()
        return refusal

    async def close(self) -> None:
        """Write down the answers that are not yet."""
        answers, self._answers = self._answers, []
        if answers:
            await asyncio.to_thread(self.keep, answers)

    async def _site(self, url: str) -> Site:
        """The asked site of an address; whoever comes meanwhile waits for the same answer."""
        parts = urlsplit(url)
        origin = f"{parts.scheme.lower()}://{parts.netloc.lower()}"
        since, task = self._sites.get(origin, (float("-inf"), None))
        if task is None or time.monotonic() - since > _KEPT_SECONDS:
            task = asyncio.create_task(self._ask(origin))
            self._sites[origin] = time.monotonic(), task
        return await asyncio.shield(task)

    async def _ask(self, origin: str) -> Site:
        assert self.make is not None
        site = self.make()
        for path in site.paths:
            got = await self.get(origin + path)
            data = got.data if isinstance(got, HttpAnswer) else b""
            if not site.hear(origin + path, status_of(got), data or b""):
                break  # nothing may be fetched there in this run
        self._answers += site.answers()
        if len(self._answers) >= _WRITTEN_TOGETHER:
            await self.close()
        return site


def status_of(got: HttpAnswer | Fault) -> int | None:
    """The status of an answer with a meaning; None where a site could not be asked, or has too much to do."""
    if isinstance(got, HttpAnswer):
        return 200 if got.data is not None else None
    return None if got.overload else got.status

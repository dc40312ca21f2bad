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
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.catalog import Catalog

from headrace_features.apis.client import Fault, HttpAnswer
from spark_jobs.sources.config.permissions import OptOuts, Site, opt_outs, permission, site_maker
from spark_jobs.sources.refusals import Refusal

Get = Callable[[str], Awaitable[HttpAnswer | Fault]]
_KEPT_SECONDS = 24 * 3600  # longest use of a robots.txt (RFC 9309, 2.4)
_WRITTEN_TOGETHER = 200  # answers; each write is a commit


class Permissions:
    """What may be fetched for a dataset in one run; without register and feature everything."""

    def __init__(self, get: Get, register: OptOuts | None = None) -> None:
        """Ask nobody but the register.

        Args:
            get: fetches an address as often as the limits say.
            register: opt-outs that hold now.
        """
        self._get, self._register = get, register
        self._make: Callable[[], Site] | None = None
        self._keep: Callable[[list[Any]], None] = lambda _: None
        self._sites = dict[str, tuple[float, asyncio.Task[Site]]]()
        self._answers = list[Any]()

    @classmethod
    def of(cls, dataset: str, source: Any, catalogue: Catalog, get: Get) -> Permissions:
        """Those that a source asks for by its setting `rights`."""
        permissions = cls(get, opt_outs(dataset, source, catalogue))
        if (feature := permission()) is not None:
            permissions._make = site_maker(source, permissions._answers.append)
            permissions._keep = lambda answers: feature.keep(catalogue, dataset, answers, None)
        return permissions

    async def refusal(self, url: str) -> Refusal | None:
        """Why an address may not be fetched; the register is asked first, and then its site may need no request."""
        if self._register is not None and (refusal := self._register.refusal({"location": url})):
            return refusal
        return None if self._make is None else (await self._site(url)).refusal(url)

    async def answer_refusal(self, url: str, got: HttpAnswer) -> Refusal | None:
        """Why what came from an address may not be kept."""
        if got.url != url and (refusal := await self.refusal(got.url)):
            return refusal
        if self._make is None:
            return None
        refusal = (await self._site(got.url)).page_refusal(got.url, got.headers, got.data or b"")
        await self._write(_WRITTEN_TOGETHER)
        return refusal

    async def close(self) -> None:
        """Write down the answers that are not yet, and wait for no others."""
        for _, task in self._sites.values():
            task.cancel()
        await self._write()

    async def _write(self, least: int = 1) -> None:
        if len(self._answers) >= least:
            answers = self._answers[:]
            self._answers.clear()
            await asyncio.to_thread(self._keep, answers)

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
        assert self._make is not None
        site = self._make()
        done = set[str]()
        while url := next((url for url in site.files(origin) if url not in done), None):
            done.add(url)
            got = await self._get(url)
            data = got.data if isinstance(got, HttpAnswer) else None
            status = got.status if isinstance(got, Fault) else None if data is None else 200
            if not site.hear(url, status, data or b""):
                break  # nothing may be fetched there in this run
        await self._write(_WRITTEN_TOGETHER)
        return site

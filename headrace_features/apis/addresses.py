"""Fetch the web addresses in a file, one a line; what each gives is kept as a page of an API is.

    the file -> addresses, host by host -> answers -> objects, then their rows (`checkpoints`) -> the listing

Hosts are asked side by side, each by one request at a time and at a rate of its own. An address is asked for with the
validators of its server, where the opt-out register and its site let it be (`site_asking`). A list is
often made of other people's links, so an address in a private network is asked only where `allowed_hosts` names it.
"""

from __future__ import annotations

import asyncio
import io
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias
from urllib.parse import urlsplit

from headrace_features.apis.client import ApiClient, Fault, HttpAnswer, tried, validators
from headrace_features.apis.endpoint import Fetched
from headrace_features.apis.site_asking import Get, Permissions
from spark_jobs.credentials import address_fault, without_secrets
from spark_jobs.exceptions import InputError
from spark_jobs.lake.files.objects import ObjectFolder, sha256_of
from spark_jobs.sources.config.source_config import FilesSource
from spark_jobs.sources.opening.file_trees import FoundFile, absolute, open_file
from spark_jobs.sources.paged.checkpoints import Checkpoints, Reading, StoredPage
from spark_jobs.sources.paged.rate import Pace
from spark_jobs.sources.refusals import DELETED, Reason, Refusal

Permitting: TypeAlias = Callable[[Get], Permissions]
_OWN = ("addresses", "get")  # endpoint and request of their rows
_SILENT = 3  # addresses in a row that got no answer or 5xx, after which a host is not asked any more in a run


def listed_addresses(source: FilesSource, fetched: Collection[str] = ()) -> Iterator[tuple[str, Refusal | None]]:
    """Each address of the list once, without its fragment; for a line without address `FILE#line:N` and the reason.

    Args:
        source: names the list.
        fetched: addresses fetched before: they stand in tables already.

    Raises:
        InputError: the file cannot be read.
    """
    file, listed = absolute(source.urls or ""), set[str]()
    try:
        with open_file(file, source.stall_seconds) as stream:
            lines = bytes(stream.read()).decode("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"source.urls {file}: {error}; name a file of text with one address a line") from error
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        try:
            parts = urlsplit(line)
            fault = (
                ""
                if parts.scheme in ("http", "https") and parts.hostname
                else f"no web address: {without_secrets(line)[:200]}"
            )
        except ValueError as error:
            parts, fault = urlsplit(""), f"no web address: {error}"
        url = parts._replace(fragment="").geturl()
        if "@" in parts.netloc:
            fault = "the address holds a user or a password, which would stand in tables; take it out"
        elif not fault and url not in fetched and (bad_address := address_fault(url, source.public)):
            fault = f"the address: {bad_address}"
        if fault:
            yield f"{file}#line:{number}", Refusal(Reason.BAD_RECORD, fault)
        elif url not in listed:
            listed.add(url)
            yield url, None


def found_addresses(source: FilesSource, store: Checkpoints) -> Iterator[tuple[FoundFile, str | None]]:
    """Fetched addresses, and lines without address, as files, each with the object of its bytes."""
    newest = dict[str, StoredPage]()
    for page in store.pages(*_OWN):
        if page.cursor not in newest or page.reading >= newest[page.cursor].reading:
            newest[page.cursor] = page
    listed = list(listed_addresses(source, newest))
    count = Counter(url.rstrip("/") for url, _ in listed)
    for url, refusal in listed:
        newest_page, bare = newest.get(url), url.rstrip("/")
        path = url if count[bare] > 1 else bare  # often the same page, which would be one document twice
        if refusal is not None:
            yield FoundFile(url, path, None, None, refusal), None
        elif newest_page is not None:
            why = newest_page.refusal or (DELETED if newest_page.object is None else None)
            yield FoundFile(url, path, newest_page.byte_count, newest_page.fetched, why), newest_page.object


def fetch_addresses(
    source: FilesSource, store: Checkpoints, objects: ObjectFolder, seed: int = 0, permitting: Permitting = Permissions
) -> Fetched:
    """Ask for each address once; a fetch cut off, or stopped after `limits.fetch_seconds`, is continued.

    Args:
        source: names the list.
        store: of the pages of the dataset.
        objects: where they are kept.
        seed: of the waits after faults.
        permitting: makes what says which addresses may be fetched; it is given the function that fetches one.

    Raises:
        InputError: the list cannot be read.
    """
    before = store.reading(*_OWN)
    number = 0 if before is None else before.number + before.complete
    store.begin(*_OWN, Reading(number, False, None, None))
    pages = store.pages(*_OWN)
    there = {page.cursor for page in pages if page.reading == number}
    stored_pages = {page.cursor: page for page in pages if page.refusal is None}
    hosts = dict[str, list[str]]()
    for url, refusal in listed_addresses(source, stored_pages):
        if refusal is None and url not in there:
            hosts.setdefault(urlsplit(url).netloc, []).append(url)
    stored = {(page.cursor, page.digest): page for page in pages if page.refusal is None}
    fetch = _AddressFetch(source, store, objects, stored_pages, stored, number, seed, permitting)
    asyncio.run(fetch.ask_hosts(hosts))
    if not fetch.done.paused:
        store.begin(*_OWN, Reading(number, True, None, None))
    return fetch.done


@dataclass
class _AddressFetch:
    """One fetch, with the newest page of each address with one (`known`), and all by address and digest."""

    source: FilesSource
    store: Checkpoints
    objects: ObjectFolder
    known: Mapping[str, StoredPage]
    stored: Mapping[tuple[str, str | None], StoredPage]
    number: int
    seed: int
    permitting: Permitting
    done: Fetched = field(default_factory=Fetched)

    async def ask_hosts(self, hosts: Mapping[str, list[str]]) -> None:
        """Ask all hosts side by side."""
        # Uncompressed, because a gzip stream that was cut off cannot be told apart from a complete one.
        accept, allowed = {"Accept": "*/*", "Accept-Encoding": "identity"}, self.source.allowed_hosts
        accept["User-Agent"] = self.source.rights.agent  # which is to have the name that robots.txt goes by
        self.client = ApiClient(self.source.limits, allowed=allowed, accept=accept)
        self.slots, self.saving = asyncio.Semaphore(self.source.limits.connections), asyncio.Lock()
        self.until = time.monotonic() + self.source.limits.fetch_seconds
        self.paces = defaultdict[str, Pace](lambda: Pace(self.source.limits, self.seed))
        self.permissions = self.permitting(self._get)
        try:
            async with asyncio.TaskGroup() as group:
                for urls in hosts.values():
                    group.create_task(self._ask_host(urls))
        finally:
            await self.permissions.close()
            await self.client.close()

    async def _ask_host(self, urls: list[str]) -> None:
        """Ask one address after the other, until all of them were asked or the time is over."""
        silent, why = 0, ""
        for url in urls:
            if time.monotonic() > self.until:
                self.done.paused = True
                return
            if silent >= _SILENT:
                detail = f"its host is asked no more in this run: {why}"
                got: HttpAnswer | Fault = Fault(Refusal(Reason.NO_ANSWER, detail), again=False)
            else:
                got = await self._permitted(url)
                if isinstance(got, Fault) and got.overload:
                    waits = not got.again  # it names a time to wait that is too long
                    silent, why = _SILENT if waits else silent + 1, got.refusal.detail
                else:
                    silent = 0
            async with self.saving:
                await asyncio.to_thread(self._note, url, got)

    async def _permitted(self, url: str) -> HttpAnswer | Fault:
        """An answer, where the address may be fetched and what came may be kept."""
        refusal = await self.permissions.refusal(url)
        got = Fault(refusal, again=False) if refusal else await self._get(url)
        if isinstance(got, HttpAnswer) and (refusal := await self.permissions.answer_refusal(url, got)):
            return Fault(refusal, again=False)
        return got

    async def _get(self, url: str) -> HttpAnswer | Fault:
        """What an address gives, asked as often as the limits say, at the pace of its host."""
        pace = self.paces[urlsplit(url).netloc]
        return await tried(lambda: self._ask(url, pace), pace, self.source.limits)

    async def _ask(self, url: str, pace: Pace) -> HttpAnswer | Fault:
        await pace.turn()
        async with self.slots:
            self.done.requests += 1
            got = await self.client.get(url, {}, validators(self.known.get(url)))
        if isinstance(got, HttpAnswer) and got.data is None and url not in self.known:
            return Fault(Refusal(Reason.HTTP_ERROR, "status 304, and the address is not known"), again=True)
        return got

    def _note(self, url: str, got: HttpAnswer | Fault) -> None:
        """Keep what an address gave, or note why it gave nothing."""
        page = StoredPage(url, 0, reading=self.number)
        if isinstance(got, Fault):
            self.store.refuse(*_OWN, replace(page, refusal=got.refusal))
            self.done.refusals.append(f"{url}: {got.refusal.detail} ({got.refusal.reason})")
        elif got.data is None:
            self.store.save(*_OWN, replace(self.known[url], reading=self.number))
        else:
            digest = sha256_of(io.BytesIO(got.data))
            page = replace(page, digest=digest, byte_count=len(got.data), record_count=1)
            page = replace(page, etag=got.etag, modified=got.modified)
            if (before := self.stored.get((url, digest))) is not None:  # without object if it was deleted for good
                page = replace(page, object=before.object)
            else:
                page = replace(page, object=self.objects.keep(io.BytesIO(got.data)).location)
            self.done.pages += self.store.save(*_OWN, page) and page.object is not None

"""One endpoint of an API: its readings, each resumed where the last one broke off, page after page.

    page -> records -> kept as an object -> its row in the database   (`checkpoints`), then the next page

A list can move while it is read: pages of another size, fewer records in all than before, records after the end, a
cursor that expired. Then it is read again, at most `limits.readings` times, until a reading saw no such move or brought
no new page. What is read twice lands once, because a document's path is its record's id.
"""

from __future__ import annotations

import asyncio
import io
import json
import time
from bisect import bisect_right, insort
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from headrace_features.apis.api_config import (
    ApiSource,
    LinkHeaderPages,
    NextUrlPages,
    OffsetPages,
    request_digest,
)
from headrace_features.apis.client import ApiClient, Fault, HttpAnswer, tried, validators
from headrace_features.apis.connectors import called
from headrace_features.apis.list_moves import distinct_records, moved_pages, moved_total
from headrace_features.apis.paging import (
    first_cursor,
    is_addressable,
    largest,
    next_cursor,
    page_request,
    since_value,
    why_stopped,
)
from headrace_features.apis.site_asking import Permissions
from spark_jobs.credentials import with_variables, without_known
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.sources.identity import sha256_hex
from spark_jobs.sources.paged.checkpoints import COMPLETE_LIST, Checkpoints, Reading, StoredPage
from spark_jobs.sources.paged.page_records import records_in
from spark_jobs.sources.paged.rate import Pace
from spark_jobs.sources.records.paths import value_at
from spark_jobs.sources.refusals import Reason, Refusal

_STOPPED = "stopped"  # by a refusal or for the time; the next fetch goes on with the reading
_EXPIRED = (400, 404, 410, 422)
_HOLE_FAILURES = 2  # fetches in which an addressable page fails before a reading goes on without it


@dataclass
class Fetched:
    """What a fetch did: requests, new pages and their records, refusals, and whether it stopped to let them land."""

    requests: int = 0
    pages: int = 0
    records: int = 0
    refusals: list[str] = field(default_factory=list)
    paused: bool = False


class _Got(NamedTuple):
    """A fetched page, without its object, and its bytes; None where these are stored already or it has no record."""

    page: StoredPage
    data: bytes | None


@dataclass
class EndpointFetch:
    """The fetching of one endpoint; `fetch` is called once."""

    name: str
    source: ApiSource
    client: ApiClient
    connector: Any
    pace: Pace
    slots: asyncio.Semaphore
    store: Checkpoints
    objects: ObjectFolder
    done: Fetched

    def __post_init__(self) -> None:
        self.asked = self.source.lists[self.name]
        self.request = request_digest(self.source, self.name)
        paginator = self.source.paginator
        self.parallel = is_addressable(paginator) and self.connector is None
        self.step = paginator.limit if isinstance(paginator, OffsetPages) else 1  # of cursors, where pages are full
        self.reading = self.store.reading(self.name, self.request) or Reading(-1, True, None, None)
        self.there: dict[str, StoredPage] = {}  # pages of this reading, by the cursor of their row
        self.known: dict[str, StoredPage] = {}  # the newest page of any reading, by the cursor of its row
        self.stored: dict[tuple[str, str | None], StoredPage] = {}  # all of them, by cursor and digest
        self.digests: dict[str, StoredPage] = {}
        self.end: int | None = None  # the first page without records
        self.totals: list[Any] = []
        self.planned: list[int] = []  # cursors of addressable pages of this reading, in order
        self.requests = self.new_pages = self.kept = 0
        self.saving = asyncio.Lock()
        self.until = time.monotonic() + self.source.limits.fetch_seconds

    async def fetch_permitted(self, permissions: Permissions) -> None:
        """Read the endpoint, where its address may be asked for."""
        refusal = await permissions.refusal(self.asked.url) if self.asked.url else None
        await self.fetch() if refusal is None else self._refuse(StoredPage("", -1, refusal=refusal))

    async def fetch(self) -> None:
        """Read the endpoint until a reading saw no move of the list or brought no new page."""
        left = self.source.limits.readings
        while left:
            requests = self.requests
            if (moved := await self._read()) is None:
                return
            left -= self.requests > requests  # one of which all was stored asks nothing, and does not count
        self._refuse(StoredPage("", -1, refusal=Refusal(Reason.UNSTABLE_LIST, f"{moved}; read again at the next run")))

    async def _read(self) -> str | None:
        """Read the endpoint once, or finish the begun reading; gives how the list moved, or None."""
        before = self.reading
        if before.complete:
            since = since_value(self.source.since, before.mark) if self.source.since else None
            self.reading = Reading(before.number + 1, False, since, before.mark)
            self.store.begin(self.name, self.request, self.reading)
        self._recall()
        moved = await (self._read_parallel() if self.parallel else self._read_chain())
        if moved == _STOPPED:
            return None
        if moved is None:
            moved = self._moved()
            holes = [page.place for page in self.there.values() if page.refusal is not None]
            if moved is None and not holes and (before.complete or self.totals):  # else it may have moved in between
                self.store.begin(self.name, COMPLETE_LIST, replace(self.reading, mark=self.request))
            moved = f"page {min(holes)} could not be read" if holes else moved if self.new_pages else None
        marks = [page.seen for page in self.there.values() if moved is None]  # else all of it is asked for again
        self.reading = replace(self.reading, complete=True, mark=largest([self.reading.mark, *marks]))
        self.store.begin(self.name, self.request, self.reading)
        return moved

    def _recall(self) -> None:
        """Take up the stored pages of the endpoint, and mark those of this reading."""
        pages = self.store.pages(self.name, self.request)
        got = [page for page in pages if page.refusal is None]
        self.known = {page.cursor: page for page in got}
        self.stored = {(page.cursor, page.digest): page for page in got}
        in_this = (page for page in pages if page.reading == self.reading.number and page.place >= 0)
        self.there = {page.cursor: page for page in in_this if self._is_done(page)}
        self.digests = {page.digest: page for page in self.there.values() if page.digest}
        empty = (page.place for page in self.there.values() if page.refusal is None and not page.record_count)
        self.end = min(empty, default=None)
        self.totals, self.new_pages = [], 0

    async def _read_chain(self) -> str | None:
        """Read pages one after the other; gives what ended it early: a refusal, or how the list moved."""
        cursor = first_cursor(self.source.paginator) if self.connector is None else None
        cursors, place = set[str](), 0
        keeping: asyncio.Task[StoredPage] | None = None  # of the page before, while the next one is asked for
        try:
            while True:
                cursors.add(json.dumps(cursor))
                page = self.there.get(self._key(cursor))
                if page is None:
                    got = await self._get(cursor, place, cursors)
                    if keeping is not None:
                        await keeping
                    if isinstance(got, Fault):
                        if got.status in _EXPIRED and place:
                            return f"the cursor of page {place + 1} is not taken any more ({got.refusal.detail})"
                        failures = self._refuse(StoredPage(self._key(cursor), place, refusal=got.refusal))
                        again = failures < _HOLE_FAILURES or not place
                        return _STOPPED if again else f"page {place + 1} cannot be read"
                    page = got.page
                    self._take(page)
                    keeping = asyncio.create_task(self._keep(got))
                if page.next_cursor is None:
                    return None
                if self._is_late():
                    return _STOPPED
                cursor, place = page.next_cursor, place + 1
        finally:
            if keeping is not None:
                await keeping

    async def _read_parallel(self) -> str | None:
        """Read pages addressed by number, several at a time; gives whether it was stopped early."""
        paginator = self.source.paginator
        first = ahead = first_cursor(paginator)
        running, stopped = dict[asyncio.Task[StoredPage | None], int](), False
        todo, self.planned = [first], [first]

        def plan(cursor: int, after: int) -> bool:
            room = self._room(after)
            if (room is not None and cursor >= after + room) or (self.end is not None and cursor >= self.end):
                return False
            insort(self.planned, cursor)
            todo.append(cursor)
            return True

        try:
            while todo or running:
                while todo and len(running) < self.source.limits.connections:
                    cursor = todo.pop(0)
                    running[asyncio.create_task(self._one(cursor))] = cursor
                finished, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in finished:
                    cursor, page = running.pop(task), task.result()
                    stopped = stopped or page is None or self._is_late()
                    if page is None or stopped:
                        todo.clear()
                    elif page.next_cursor is not None:
                        plan(page.next_cursor, cursor)  # after a short page by offset: its missing rest
                        ahead = max(ahead, page.next_cursor)
                        # A server that gives less than was asked for is not asked ahead: its pages would overlap.
                        is_full = not isinstance(paginator, OffsetPages) or page.record_count == self.step
                        while is_full and len(running) + len(todo) < self.source.limits.connections:
                            if not plan(ahead + self.step, ahead):
                                break
                            ahead += self.step
        finally:
            for task in running:
                task.cancel()
        return _STOPPED if stopped else None

    def _is_done(self, page: StoredPage) -> bool:
        """Whether a resumed reading does not ask for a page again: it is there, or failed too often."""
        if page.refusal is not None:
            return self.parallel and page.failures >= _HOLE_FAILURES
        return why_stopped(page.next_cursor) is None

    def _room(self, cursor: int) -> int | None:
        """How far the next planned page is behind a cursor; None where there is none."""
        place = bisect_right(self.planned, cursor)
        return None if place == len(self.planned) else self.planned[place] - cursor

    async def _one(self, cursor: int) -> StoredPage | None:
        """One addressable page: as it was fetched in this reading before, or fetched; None where it is refused."""
        if (page := self.there.get(self._key(cursor))) is not None:
            most = max(page.record_count for page in self.there.values()) or self.step
            step = most if isinstance(self.source.paginator, OffsetPages) else self.step
            return page if page.refusal is None else replace(page, next_cursor=cursor + step)
        got = await self._get(cursor, cursor, set())
        if not isinstance(got, Fault):
            return await self._keep(got)
        if got.status == 404 and cursor != first_cursor(self.source.paginator):
            return await self._keep(_Got(self._page(cursor, cursor, []), None))
        self._refuse(StoredPage(self._key(cursor), cursor, refusal=got.refusal))
        return None

    def _moved(self) -> str | None:
        """What shows that the list moved while it was read; None where nothing does."""
        pages = sorted((page for page in self.there.values() if page.refusal is None), key=lambda page: page.place)
        records_path, id_column = self.source.records_path(self.name), self.source.id_column
        count = partial(distinct_records, pages, self.objects, records_path, id_column)
        if (moved := moved_total(self.totals, count)) is not None:
            return moved
        return moved_pages(pages, self.end, self.source.paginator) if self.parallel else None

    async def _get(self, cursor: Any, place: int, cursors: set[str]) -> _Got | Fault:
        """A page, tried as often as the limits say; a repetition of another of the reading counts as a fault."""

        async def ask() -> _Got | Fault:
            async with self.slots:
                await self.pace.turn()
                self.done.requests += 1
                self.requests += 1
                got = await (self._ask if self.connector is None else self._called)(cursor, place)
            repeated = None if isinstance(got, Fault) else self._repeats(got.page, cursors)
            return got if repeated is None else Fault(Refusal(Reason.UNSTABLE_LIST, repeated), again=True)

        fault = await tried(ask, self.pace, self.source.limits)
        if isinstance(fault, _Got):
            return fault
        if fault.refusal.reason == Reason.UNSTABLE_LIST and self.parallel:
            return _Got(self._page(cursor, place, []), None)  # a server that repeats the last page for ever
        detail = f"page {place + (not self.parallel)}: {fault.refusal.detail}"
        return fault._replace(refusal=replace(fault.refusal, detail=detail))

    def _repeats(self, page: StoredPage, cursors: set[str]) -> str | None:
        """Why a page cannot follow those before it; None where it can."""
        if page.next_cursor is not None and json.dumps(page.next_cursor) in cursors:
            return "its next cursor is that of a page before it"
        other = self.digests.get(page.digest) if page.digest is not None else None
        return f"it repeats the records of page {other.place}" if other and other.cursor != page.cursor else None

    async def _ask(self, cursor: Any, place: int) -> _Got | Fault:
        """Ask the server for a page once."""
        source, request_config = self.source, self.asked
        if (why := why_stopped(cursor)) is not None:
            return Fault(Refusal(Reason.BAD_ANSWER, why), again=False)
        url, params = page_request(
            source.paginator, request_config.url or "", {**source.params, **request_config.params}, cursor
        )
        if isinstance(source.paginator, OffsetPages) and (room := self._room(cursor)) is not None:
            params[source.paginator.limit_param] = str(min(room, source.paginator.limit))
        if source.since is not None and self.reading.since is not None and url == request_config.url:
            params.setdefault(source.since.param, self.reading.since)  # which may be that of the cursor
        before = self.known.get(self._key(cursor))
        if before is not None and why_stopped(before.next_cursor) is not None:
            before = None  # to learn anew which page is next
        answer = await self.client.get(url, params, validators(before))
        if isinstance(answer, Fault):
            return answer
        if answer.data is not None:
            return self._understood(cursor, place, answer, answer.data)
        if before is None:
            return Fault(Refusal(Reason.HTTP_ERROR, "status 304, and the page is not known"), again=True)
        return _Got(replace(before, place=place, reading=self.reading.number), None)

    def _understood(self, cursor: Any, place: int, answer: HttpAnswer, data: bytes) -> _Got | Fault:
        """What an answer holds, or what is wrong with it."""
        records = records_in(data, self.source.records_path(self.name), self.source.error)
        if isinstance(records, Refusal):
            return Fault(records, again=True)
        value = json.loads(data)
        paginator, total_path = self.source.paginator, self.source.total
        following = next_cursor(paginator, answer.url, cursor, value, answer.link, len(records), data)
        if isinstance(paginator, LinkHeaderPages | NextUrlPages) and isinstance(following, str):
            following = self.client.next_address(following, answer.url)
        elif isinstance(following, str):
            following = with_variables(following)
        total = value_at(value, total_path) if total_path else None
        if isinstance(total, int):
            self.totals.append(total)
        try:
            return _Got(self._page(cursor, place, records, following, answer), data)
        except RecursionError:
            return Fault(Refusal(Reason.BAD_ANSWER, "a record is nested too deeply"), again=False)

    async def _called(self, cursor: Any, place: int) -> _Got | Fault:
        """Ask a connector of the user's for a page once."""
        page = await called(self.connector, self.source.pages or "", cursor, self.source.limits.timeout_seconds)
        if isinstance(page, Refusal):
            return Fault(page, again=True)
        records = list(page.records)
        return _Got(self._page(cursor, place, records, page.next_cursor), without_known(json.dumps(records).encode()))

    def _key(self, cursor: Any) -> str:
        """The cursor of a page's row."""
        return json.dumps([self.reading.since, cursor])

    def _page(
        self, cursor: Any, place: int, records: list[Any], following: Any = None, answer: HttpAnswer | None = None
    ) -> StoredPage:
        """The row of a page with these records, still without its object."""
        since = self.source.since
        return StoredPage(
            cursor=self._key(cursor),
            place=place,
            next_cursor=following,
            record_count=len(records),
            digest=sha256_hex(json.dumps(records, sort_keys=True).encode()) if records else None,
            seen=largest(value_at(record, since.column) for record in records) if since else None,
            etag=answer.etag if answer else None,
            modified=answer.modified if answer else None,
            reading=self.reading.number,
        )

    async def _keep(self, got: _Got) -> StoredPage:
        """Keep a page's bytes, then note it: from here on it is not asked for again in this reading."""
        page, data = got
        if (before := self.stored.get((page.cursor, page.digest))) is not None:  # without object if deleted for good
            page = replace(page, object=before.object, byte_count=before.byte_count)
        elif data is not None and page.record_count:
            kept = await asyncio.to_thread(self.objects.keep, io.BytesIO(data))
            page = replace(page, object=kept.location, byte_count=kept.byte_count)
        async with self.saving:
            is_new = await asyncio.to_thread(self.store.save, self.name, self.request, page)
        if is_new and page.record_count:
            self.new_pages += 1
            self.done.pages += 1
            self.done.records += page.record_count
        self._take(page)
        self.kept += 1
        return page

    def _take(self, page: StoredPage) -> None:
        """Count a page among those of this reading."""
        self.there[page.cursor] = page
        if page.digest:
            self.digests[page.digest] = page
        elif self.end is None or page.place < self.end:
            self.end = page.place

    def _is_late(self) -> bool:
        """Whether what came is to land now; the next run goes on."""
        late = self.kept > 0 and time.monotonic() > self.until
        self.done.paused = self.done.paused or late
        return late

    def _refuse(self, page: StoredPage) -> int:
        """Note a failed page; gives its number of failed fetches."""
        page = replace(page, reading=self.reading.number)
        assert page.refusal is not None
        self.done.refusals.append(f"{self.name}: {page.refusal.detail} ({page.refusal.reason})")
        return self.store.refuse(self.name, self.request, page)

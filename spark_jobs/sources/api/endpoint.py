"""One endpoint of an API: its readings, each resumed where the last one broke off, page after page.

    page -> records -> kept as an object -> its row in the database   (`checkpoints`), then the next page

A reading is gone through again, at most `limits.readings` times, where the list moved while it was read: pages of
another size, fewer records in all than before, records after the end, a cursor that expired. It ends when a reading
was quiet or brought nothing new. What is read twice lands once, because a document's path is its record's id.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import time
from bisect import bisect_right, insort
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.ledger.step_key import canonical_json
from spark_jobs.sources.api.checkpoints import Checkpoints, Reading, StoredPage
from spark_jobs.sources.api.client import Answer, ApiClient, Fault, tried, validators
from spark_jobs.sources.api.connectors import called
from spark_jobs.sources.api.page_records import records_in
from spark_jobs.sources.api.paging import (
    first_cursor,
    is_addressable,
    largest,
    next_cursor,
    page_request,
    record_keys,
    since_value,
    value_at,
    why_stopped,
    written_at,
)
from spark_jobs.sources.api.rate import Pace
from spark_jobs.sources.config.api_config import ApiSource, CursorPages, NumberedPages, OffsetPages
from spark_jobs.sources.refusals import Reason, Refusal

WHOLE = "whole"
"""Stands for a request in the note of the last reading that saw the whole list; its mark is the request's digest."""
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
    """A page as it came: its bytes (None where it is the known one), and what they say."""

    data: bytes | None
    records: list[Any]
    digest: str | None
    next: Any
    etag: str | None = None
    modified: str | None = None


def request_digest(source: ApiSource, endpoint: str) -> str:
    """What pages and cursors of an endpoint are known by: a change of what is asked for begins anew."""
    asked = source.lists[endpoint]
    names = {"params", "paginator", "since", "pages"}
    said = [asked.url, asked.params, source.records_path(endpoint), source.model_dump(mode="json", include=names)]
    return hashlib.sha256(canonical_json(said).encode()).hexdigest()


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
        self.reading = Reading(-1, True, None, None)
        self.there: dict[str, StoredPage] = {}  # pages of this reading, by the cursor of their row
        self.known: dict[str, StoredPage] = {}  # the newest page of any reading, by the cursor of its row
        self.deleted: set[tuple[str, str | None]] = set()  # cursors and digests of pages that were deleted for good
        self.digests: dict[str, StoredPage] = {}
        self.end: int | None = None  # the first page without records
        self.totals: list[Any] = []
        self.planned: list[int] = []  # cursors of addressable pages of this reading, in order
        self.requests = self.new_pages = 0
        self.kept = 0
        self.saving = asyncio.Lock()
        self.until = time.monotonic() + self.source.limits.fetch_seconds

    async def fetch(self) -> None:
        """Read the endpoint until a reading was quiet or brought nothing new."""
        before = self.store.reading(self.name, self.request)
        left = self.source.limits.readings
        while left:
            requests = self.requests
            moved = await self._read(before)
            if moved is None:
                return
            left -= self.requests > requests  # a reading that was all there but for what cannot be read asks nothing
            before = self.reading
        self._refuse(StoredPage("", -1, refusal=Refusal(Reason.UNSTABLE_LIST, f"{moved}; read again at the next run")))

    async def _read(self, before: Reading | None) -> str | None:
        """Go through the endpoint once; gives what moved meanwhile, or None."""
        if before is None or before.complete:
            mark = None if before is None else before.mark
            since = since_value(self.source.since, mark) if self.source.since else None
            self.reading = Reading(0 if before is None else before.number + 1, False, since, mark)
            self.store.begin(self.name, self.request, self.reading)
        else:
            self.reading = before
        pages = self.store.pages(self.name, self.request)
        self.known = {page.cursor: page for page in pages if page.refusal is None}
        self.deleted = {(page.cursor, page.digest) for page in pages if page.refusal is None and page.object is None}
        known = (page for page in pages if (self._is_hole(page) if page.refusal else not why_stopped(page.next_cursor)))
        self.there = {page.cursor: page for page in known if page.reading == self.reading.number and page.place >= 0}
        self.digests = {page.digest: page for page in self.there.values() if page.digest}
        self.end = min((page.place for page in self.there.values() if _is_empty(page)), default=None)
        self.totals, self.new_pages = [], 0
        stopped = await (self._read_parallel() if self.parallel else self._read_chain())
        if stopped is not None and stopped != _STOPPED:
            self._complete(self.reading.mark)
            return stopped
        if stopped is not None:
            return None
        moved = self._moved()
        in_one = before is None or before.complete or bool(self.totals)  # else it was resumed, and may have moved
        holes = [page.place for page in self.there.values() if page.refusal is not None]
        if moved is None and in_one and not holes:
            self.store.begin(self.name, WHOLE, replace(self.reading, mark=self.request))
        moved = f"page {min(holes)} could not be read" if holes else moved if self.new_pages else None
        seen = (
            [page.seen for page in self.there.values()] if moved is None else []
        )  # else what was missed is asked again
        self._complete(largest([self.reading.mark, *seen]))
        return moved

    def _complete(self, mark: Any) -> None:
        self.reading = replace(self.reading, complete=True, mark=mark)
        self.store.begin(self.name, self.request, self.reading)

    async def _read_chain(self) -> str | None:
        """Read pages one after the other; gives what ended it early: a refusal, or what moved."""
        cursor = first_cursor(self.source.paginator) if self.connector is None else None
        asked, place = set[str](), 0
        keeping: asyncio.Task[StoredPage] | None = None  # of the page before, while the next one is asked for
        try:
            while True:
                asked.add(json.dumps(cursor))
                page = self.there.get(self._key(cursor))
                if page is None:
                    got = await self._get(cursor, place, asked)
                    if keeping is not None:
                        await keeping
                    if isinstance(got, Fault):
                        if got.status in _EXPIRED and place:
                            return f"the cursor of page {place + 1} is not taken any more ({got.refusal.detail})"
                        failures = self._refuse(StoredPage(self._key(cursor), place, refusal=got.refusal))
                        again = failures < _HOLE_FAILURES or not place
                        return _STOPPED if again else f"page {place + 1} cannot be read"
                    page = self._page(cursor, place, got)
                    self._take(page)
                    keeping = asyncio.create_task(self._keep(page, got.data))
                if page.next_cursor is None:
                    return None
                if self._is_late():
                    return _STOPPED
                cursor, place = page.next_cursor, place + 1
        finally:
            if keeping is not None:
                await keeping

    async def _read_parallel(self) -> str | None:
        """Read pages that can be asked for by number, several at a time."""
        paginator = self.source.paginator
        assert isinstance(paginator, NumberedPages | OffsetPages)
        first = ahead = first_cursor(paginator)
        running, refused = dict[asyncio.Task[StoredPage | None], int](), False
        todo, self.planned = [first], [first]

        def plan(cursor: int, after: int) -> bool:
            room = self._room(after)
            fits = room is None or cursor < after + room
            if not fits or refused or (self.end is not None and cursor >= self.end):
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
                    refused = refused or page is None or self._is_late()
                    if page is None or refused:
                        todo.clear()
                    elif page.next_cursor is not None:
                        plan(page.next_cursor, cursor)  # after a short page by offset: its missing rest
                        ahead = max(ahead, page.next_cursor)
                        # A server that gives less than was asked for is not asked ahead: its pages would overlap.
                        while self._is_full(page) and len(running) + len(todo) < self.source.limits.connections:
                            if not plan(ahead + self._step, ahead):
                                break
                            ahead += self._step
        finally:
            for task in running:
                task.cancel()
        return _STOPPED if refused else None

    @property
    def _step(self) -> int:
        """How far the cursor of a page is from that of the next, where each page is full."""
        return self.source.paginator.limit if isinstance(self.source.paginator, OffsetPages) else 1

    def _is_hole(self, page: StoredPage) -> bool:
        """Whether a reading goes on without a page that was refused."""
        return self.parallel and page.failures >= _HOLE_FAILURES

    def _room(self, cursor: int) -> int | None:
        """How far the next planned page is behind a cursor; None where there is none."""
        place = bisect_right(self.planned, cursor)
        return None if place == len(self.planned) else self.planned[place] - cursor

    def _is_full(self, page: StoredPage) -> bool:
        """Whether a page has as many records as were asked for, so that the next one begins a step behind it."""
        return isinstance(self.source.paginator, NumberedPages) or page.record_count == self._step

    async def _one(self, cursor: int) -> StoredPage | None:
        """One addressable page: as it was fetched in this reading before, or fetched; None where it is refused."""
        if (page := self.there.get(self._key(cursor))) is not None:
            counts = (one.record_count for one in self.there.values())
            step = self._step if isinstance(self.source.paginator, NumberedPages) else max(counts) or self._step
            return page if page.refusal is None else replace(page, next_cursor=cursor + step)
        got = await self._get(cursor, cursor, set())
        if not isinstance(got, Fault):
            return await self._keep(self._page(cursor, cursor, got), got.data)
        if got.status == 404 and cursor != first_cursor(self.source.paginator):
            return await self._keep(self._page(cursor, cursor, _Got(b"", [], None, None)), b"")
        self._refuse(StoredPage(self._key(cursor), cursor, refusal=got.refusal))
        return None

    def _moved(self) -> str | None:
        """What shows that the list moved while it was read; None where nothing does."""
        pages = sorted((page for page in self.there.values() if page.refusal is None), key=lambda page: page.place)
        if any(then > now for then, now in zip(self.totals, self.totals[1:], strict=False)):
            return "the total number of records shrank while they were read"
        if self.source.total is not None and self.totals and self._distinct(pages) < self.totals[-1]:
            return f"{self._distinct(pages)} records were read, the server says that there are {self.totals[-1]}"
        if not self.parallel:
            return None
        if any(self.end is not None and page.place > self.end and page.record_count for page in pages):
            return "there are records behind the first empty page"
        counts = [page.record_count for page in pages if page.record_count]
        if isinstance(self.source.paginator, NumberedPages) and (
            len(set(counts[:-1])) > 1 or (len(counts) > 1 and counts[-1] > counts[0])
        ):
            return f"pages have {min(counts)} to {max(counts)} records"
        return None

    def _distinct(self, pages: list[StoredPage]) -> int:
        """How many different records the pages of this reading hold, from their objects."""
        keys: set[str] = set()
        for page in pages:
            if page.object is None:  # nothing in it, or deleted for good
                keys |= {f"{page.cursor} {number}" for number in range(page.record_count)}
            else:
                with self.objects.open(page.object) as file:
                    records = records_in(bytes(file.read()), self.source.records_path(self.name))
                keys |= record_keys(records if isinstance(records, list) else [], self.source.id_column)
        return len(keys)

    async def _get(self, cursor: Any, place: int, asked: set[str]) -> _Got | Fault:
        """A page, tried as often as the limits say; one that repeats another of the reading counts as a fault."""

        async def ask() -> _Got | Fault:
            async with self.slots:
                await self.pace.turn()
                self.done.requests += 1
                self.requests += 1
                got = await (self._ask(cursor) if self.connector is None else self._called(cursor))
            repeated = None if isinstance(got, Fault) else self._repeats(cursor, got, asked)
            return got if repeated is None else Fault(Refusal(Reason.UNSTABLE_LIST, repeated), again=True)

        fault = await tried(ask, self.pace, self.source.limits)
        if isinstance(fault, _Got):
            return fault
        if fault.refusal.reason == Reason.UNSTABLE_LIST and self.parallel:
            return _Got(b"", [], None, None)  # servers that repeat the last page for ever, after the end
        number = place if self.parallel else place + 1
        return fault._replace(refusal=replace(fault.refusal, detail=f"page {number}: {fault.refusal.detail}"))

    def _repeats(self, cursor: Any, got: _Got, asked: set[str]) -> str | None:
        """Why a page cannot follow those before it; None where it can."""
        if got.next is not None and json.dumps(got.next) in asked:
            return "its next cursor is that of a page before it"
        other = self.digests.get(got.digest) if got.digest is not None else None
        if other is None or other.cursor == self._key(cursor):
            return None
        return f"it repeats the records of page {other.place}"

    async def _ask(self, cursor: Any) -> _Got | Fault:
        """Ask the server for a page once."""
        source, asked = self.source, self.asked
        if (why := why_stopped(cursor)) is not None:
            return Fault(Refusal(Reason.BAD_ANSWER, why), again=False)
        url, params = page_request(source.paginator, asked.url or "", {**source.params, **asked.params}, cursor)
        if isinstance(source.paginator, OffsetPages) and (room := self._room(cursor)) is not None:
            params[source.paginator.limit_param] = str(min(room, source.paginator.limit))
        if source.since is not None and self.reading.since is not None and url == asked.url:
            params.setdefault(source.since.param, self.reading.since)  # which may be that of the cursor
        before = self.known.get(self._key(cursor))
        if before is not None and why_stopped(before.next_cursor) is not None:
            before = None  # to be told anew what is next
        answer = await self.client.get(url, params, validators(before))
        if isinstance(answer, Fault):
            return answer
        if answer.data is None:
            if before is None:
                return Fault(Refusal(Reason.HTTP_ERROR, "status 304, and the page is not known"), again=True)
            return _Got(None, [], before.digest, before.next_cursor)
        return self._understood(cursor, answer)

    def _understood(self, cursor: Any, answer: Answer) -> _Got | Fault:
        """What an answer holds, or what is wrong with it."""
        source, data = self.source, answer.data or b""
        records = records_in(data, source.records_path(self.name), source.error)
        if isinstance(records, Refusal):
            return Fault(records, again=True)
        told = json.loads(data)
        following = self._following(cursor, answer, told, len(records))
        total = value_at(told, source.total) if source.total else None
        if isinstance(total, int):
            self.totals.append(total)
        try:
            digest = _digest(records)
        except RecursionError:
            return Fault(Refusal(Reason.BAD_ANSWER, "a record is nested too deeply"), again=False)
        return _Got(data, records, digest, following, answer.etag, answer.modified)

    def _following(self, cursor: Any, answer: Answer, told: Any, record_count: int) -> Any:
        """The cursor after an answer: a token as it was written, an address of a host that may be asked."""
        paginator = self.source.paginator
        found = next_cursor(paginator, answer.url, cursor, told, answer.link, record_count)
        if found is None or is_addressable(paginator) or why_stopped(found) is not None:
            return found
        if not isinstance(paginator, CursorPages):
            return self.client.next_address(found, answer.url)
        if isinstance(found, str) or type(found) is int:
            return found
        data = answer.data or b""
        return written_at(data.decode(json.detect_encoding(data), "surrogatepass"), paginator.path)

    async def _called(self, cursor: Any) -> _Got | Fault:
        """Ask a connector of the user's for a page once."""
        page = await called(self.connector, self.source.pages or "", cursor, self.source.limits.timeout_seconds)
        if isinstance(page, Refusal):
            return Fault(page, again=True)
        records = list(page.records)
        return _Got(json.dumps(records).encode(), records, _digest(records), page.next_cursor)

    def _key(self, cursor: Any) -> str:
        """The cursor of a page's row."""
        return json.dumps([self.reading.since, cursor])

    def _page(self, cursor: Any, place: int, got: _Got) -> StoredPage:
        """The row of a page, still without its object."""
        key, since = self._key(cursor), self.source.since
        if got.data is None:
            return replace(self.known[key], place=place, reading=self.reading.number)
        return StoredPage(
            cursor=key,
            place=place,
            next_cursor=got.next,
            record_count=len(got.records),
            digest=got.digest,
            seen=largest(value_at(one, since.column) for one in got.records) if since else None,
            etag=got.etag,
            modified=got.modified,
            reading=self.reading.number,
        )

    async def _keep(self, page: StoredPage, data: bytes | None) -> StoredPage:
        """Keep a page's bytes, then note it: from here on it is not asked for again in this reading."""
        before = self.known.get(page.cursor)
        if before is not None and before.digest == page.digest:  # kept already, or deleted for good
            page = replace(page, object=before.object, byte_count=before.byte_count)
        elif data is not None and page.record_count and (page.cursor, page.digest) not in self.deleted:
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
        """Know a page as one of this reading."""
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
        page = replace(page, reading=self.reading.number)
        assert page.refusal is not None
        self.done.refusals.append(f"{self.name}: {page.refusal.detail} ({page.refusal.reason})")
        return self.store.refuse(self.name, self.request, page)


def _is_empty(page: StoredPage) -> bool:
    return page.refusal is None and page.record_count == 0


def _digest(records: list[Any]) -> str | None:
    """SHA-256 over the records of a page, None where it has none."""
    return hashlib.sha256(json.dumps(records, sort_keys=True).encode()).hexdigest() if records else None

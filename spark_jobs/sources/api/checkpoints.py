"""What was fetched of each endpoint, page by page, as rows of the catalogue's database.

A page is here once its bytes are kept as an object, so whatever has a row is complete. One **reading** goes through an
endpoint from its first page to its last; rows say in which reading a page was last seen and where in it. A page whose
records are as they were keeps its row, and with it its `sequence`, by which `documents` knows what has arrived.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Engine,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

from spark_jobs.exceptions import InputError
from spark_jobs.sources.refusals import Reason, Refusal

_METADATA = MetaData()
_PAGES = Table(
    "headrace_pages",
    _METADATA,
    Column("dataset", String(64), primary_key=True),
    Column("endpoint", String(255), primary_key=True),
    Column("sequence", Integer, primary_key=True),
    Column("request", String(64), nullable=False),
    Column("cursor", Text, nullable=False),
    Column("cursor_key", String(64), nullable=False),  # SHA-256 of the cursor, which may be too long for an index
    Column("next_cursor", Text),
    Column("reading", Integer, nullable=False),
    Column("place", BigInteger, nullable=False),
    Column("object", Text),
    Column("byte_count", BigInteger, nullable=False),
    Column("record_count", Integer, nullable=False),
    Column("digest", String(64)),
    Column("seen", Text),
    Column("etag", Text),
    Column("modified", Text),
    Column("fetched", BigInteger, nullable=False),
    Column("reason", String(64)),
    Column("detail", Text),
    Column("failures", Integer, nullable=False),
    Index("headrace_pages_by_cursor", "dataset", "endpoint", "cursor_key"),
)
_READINGS = Table(
    "headrace_readings",
    _METADATA,
    Column("dataset", String(64), primary_key=True),
    Column("endpoint", String(255), primary_key=True),
    Column("request", String(64), primary_key=True),
    Column("reading", Integer, nullable=False),
    Column("complete", Boolean, nullable=False),
    Column("since", Text),
    Column("mark", Text),
)
_SUPERSEDED = -1  # reading of a page whose cursor gave something else later in its reading


@dataclass(frozen=True)
class StoredPage:
    """A page that was fetched or refused; see the module, and `paging` for cursors.

    Attributes:
        sequence: number of the row in its endpoint; never used again.
        cursor: what it was asked by, with the value of `since`, as JSON.
        next_cursor: the cursor after it; None after the last.
        place: where in the reading: a count, or the number in the cursor where pages are addressable.
        object: where its bytes are kept; None where it has no records or was refused.
        digest: SHA-256 over its records; None where it has none.
        seen: the largest value of the column of `since`.
        etag: validator that the server gave, as `modified`.
        fetched: when, in microseconds since 1970 UTC.
        refusal: why there is no page.
        failures: in how many fetches it was refused.
    """

    cursor: str
    place: int
    next_cursor: Any = None
    object: str | None = None
    byte_count: int = 0
    record_count: int = 0
    digest: str | None = None
    seen: Any = None
    etag: str | None = None
    modified: str | None = None
    refusal: Refusal | None = None
    sequence: int = -1
    reading: int = 0
    failures: int = 0
    fetched: int = field(default_factory=lambda: time.time_ns() // 1000)


@dataclass(frozen=True)
class Reading:
    """A reading: its number, whether it came to its end, its `since`, and what that of the next one is made from."""

    number: int
    complete: bool
    since: str | None
    mark: Any


class Checkpoints:
    """The pages of a dataset.

    Raises:
        InputError: the catalogue has no database.
    """

    def __init__(self, catalogue: Catalog, dataset: str) -> None:
        if not isinstance(catalogue, SqlCatalog):
            raise InputError(
                f"dataset {dataset}: pages of an API are kept in the catalogue's database, and a REST catalogue has "
                "none; use one of type sql"
            )
        self._engine: Engine = catalogue.engine
        self._dataset = dataset
        try:
            _METADATA.create_all(self._engine)
        except (OperationalError, ProgrammingError, IntegrityError):  # another process made them after the look
            _METADATA.create_all(self._engine)

    def reading(self, endpoint: str, request: str) -> Reading | None:
        """The latest reading of an endpoint by a request; None before the first."""
        with self._engine.connect() as connection:
            found = (
                connection.execute(select(_READINGS).where(*self._of(_READINGS, endpoint, request))).mappings().first()
            )
        if found is None:
            return None
        return Reading(found["reading"], found["complete"], found["since"], _load(found["mark"]))

    def begin(self, endpoint: str, request: str, reading: Reading) -> None:
        """Set what the latest reading is."""
        values = {
            "reading": reading.number,
            "complete": reading.complete,
            "since": reading.since,
            "mark": _dump(reading.mark),
        }
        with self._engine.begin() as connection:
            where = self._of(_READINGS, endpoint, request)
            if not connection.execute(update(_READINGS).where(*where).values(**values)).rowcount:
                own = {"dataset": self._dataset, "endpoint": endpoint, "request": request}
                connection.execute(insert(_READINGS).values(**own, **values))

    def forget(self) -> None:
        """Forget whatever was fetched for the dataset, as when its objects are deleted."""
        with self._engine.begin() as connection:
            for table in (_PAGES, _READINGS):
                connection.execute(delete(table).where(table.c.dataset == self._dataset))

    def forget_objects(self, names: Collection[str]) -> None:
        """Forget where pages are kept whose objects, named by SHA-256, were deleted: they do not land any more."""
        with self._engine.begin() as connection:
            own = select(_PAGES.c.object).where(_PAGES.c.dataset == self._dataset, _PAGES.c.object.is_not(None))
            for location in [one for (one,) in connection.execute(own) if one.rpartition("/")[2] in names]:
                connection.execute(
                    update(_PAGES)
                    .where(_PAGES.c.dataset == self._dataset, _PAGES.c.object == location)
                    .values(object=None)
                )

    def pages(self, endpoint: str, request: str, reading: int | None = None) -> list[StoredPage]:
        """Pages of an endpoint by a request, of one reading or all, the newest last."""
        where = [*self._of(_PAGES, endpoint, request)]
        if reading is not None:
            where.append(_PAGES.c.reading == reading)
        return [_page(row) for row in self._rows(where)]

    def all_pages(self) -> dict[str, list[StoredPage]]:
        """Every page of the dataset that holds records or was refused, by endpoint, in the order of their sequence."""
        found: dict[str, list[StoredPage]] = {}
        for row in self._rows([_PAGES.c.dataset == self._dataset]):
            if row["object"] is not None or row["reason"] is not None:
                found.setdefault(row["endpoint"], []).append(_page(row))
        return found

    def save(self, endpoint: str, request: str, page: StoredPage) -> bool:
        """Note a page, in the last row of its cursor if that has the same records; returns whether it is a new row."""
        values = {
            **{name: getattr(page, name) for name in ("cursor", "place", "reading", "etag", "modified")},
            "next_cursor": _dump(page.next_cursor),
        }
        own = (*self._of(_PAGES, endpoint, request), _PAGES.c.cursor_key == _key(page.cursor))
        newest = select(_PAGES).where(*own, _PAGES.c.reason.is_(None)).order_by(_PAGES.c.sequence.desc()).limit(1)
        with self._engine.begin() as connection:
            before = connection.execute(newest).mappings().first()
            connection.execute(update(_PAGES).where(*own, _PAGES.c.reading == page.reading).values(reading=_SUPERSEDED))
            if before is not None and before["digest"] == page.digest:
                connection.execute(update(_PAGES).where(*own, _PAGES.c.sequence == before["sequence"]).values(**values))
                return False
            values["cursor_key"] = _key(page.cursor)
            facts = ("object", "byte_count", "record_count", "digest", "fetched", "failures")
            values |= {name: getattr(page, name) for name in facts} | {"seen": _dump(page.seen)}
            connection.execute(self._insertion(connection, endpoint, request, values))
        return True

    def refuse(self, endpoint: str, request: str, page: StoredPage) -> int:
        """Note that a page was refused, in the row that says so already if there is one; returns how often it was."""
        assert page.refusal is not None
        reason, detail = str(page.refusal.reason), page.refusal.detail.replace("\0", " ")  # Postgres takes no null
        key = _key(page.cursor)
        own = (*self._of(_PAGES, endpoint, request), _PAGES.c.cursor_key == key, _PAGES.c.reason == reason)
        with self._engine.begin() as connection:
            before = connection.execute(select(_PAGES).where(*own)).mappings().first()
            again = before["failures"] + 1 if before is not None and before["reading"] == page.reading else 1
            values = {"reading": page.reading, "place": page.place, "failures": again}
            if before is not None:
                connection.execute(update(_PAGES).where(*own).values(**values))
            else:
                facts = {
                    "cursor": page.cursor,
                    "cursor_key": key,
                    "byte_count": 0,
                    "record_count": 0,
                    "fetched": page.fetched,
                }
                values |= {**facts, "reason": reason, "detail": detail}
                connection.execute(self._insertion(connection, endpoint, request, values))
        return again

    def _insertion(self, connection: Any, endpoint: str, request: str, values: dict[str, Any]) -> Any:
        """The statement that adds a row, with the next number of its endpoint."""
        own = (_PAGES.c.dataset == self._dataset, _PAGES.c.endpoint == endpoint)
        last = connection.execute(select(func.max(_PAGES.c.sequence)).where(*own)).scalar()
        number = 0 if last is None else last + 1
        named = {"dataset": self._dataset, "endpoint": endpoint, "request": request, "sequence": number}
        return insert(_PAGES).values(**named, **values)

    def _rows(self, where: list[Any]) -> list[Any]:
        with self._engine.connect() as connection:
            return list(connection.execute(select(_PAGES).where(*where).order_by(_PAGES.c.sequence)).mappings())

    def _of(self, table: Table, endpoint: str, request: str) -> tuple[Any, ...]:
        return table.c.dataset == self._dataset, table.c.endpoint == endpoint, table.c.request == request


def _page(row: Any) -> StoredPage:
    """The page in a row."""
    names = ("cursor", "place", "object", "byte_count", "record_count", "digest", "etag", "modified", "sequence")
    facts = {name: row[name] for name in (*names, "reading", "failures", "fetched")}
    refusal = Refusal(Reason(row["reason"]), row["detail"]) if row["reason"] else None
    return StoredPage(**facts, next_cursor=_load(row["next_cursor"]), seen=_load(row["seen"]), refusal=refusal)


def _key(cursor: str) -> str:
    return hashlib.sha256(cursor.encode()).hexdigest()


def _dump(value: Any) -> str | None:
    return None if value is None else json.dumps(value)


def _load(text: str | None) -> Any:
    return None if text is None else json.loads(text)

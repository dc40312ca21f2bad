"""What was fetched of each endpoint, page by page, as rows of the catalogue's database.

A page is here once its bytes are kept as an object, so whatever has a row is complete. One **reading** goes through an
endpoint from its first page to its last; rows say in which reading a page was last seen and where in it. A page whose
records are as they were keeps its row, and with it its `sequence`, by which `documents` knows what has arrived.
"""

from __future__ import annotations

import hashlib
import io
import json
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sqlalchemy as sa
from pyiceberg.catalog import Catalog

from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.session.catalogue import database_of
from spark_jobs.sources.refusals import Reason, Refusal


class _Json(sa.TypeDecorator[Any]):
    """A value as JSON in a column of text."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str | None:
        return None if value is None else json.dumps(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> Any:
        return None if value is None else json.loads(value)


_METADATA = sa.MetaData()
_PAGES = sa.Table(
    "headrace_pages",
    _METADATA,
    sa.Column("dataset", sa.String(64), primary_key=True),
    sa.Column("endpoint", sa.String(255), primary_key=True),
    sa.Column("sequence", sa.Integer, primary_key=True),
    sa.Column("request", sa.String(64), nullable=False),
    sa.Column("cursor", sa.Text, nullable=False),
    sa.Column("cursor_key", sa.String(64), nullable=False),  # SHA-256 of the cursor, which may be too long for an index
    sa.Column("next_cursor", _Json),
    sa.Column("reading", sa.Integer, nullable=False),
    sa.Column("place", sa.BigInteger, nullable=False),
    sa.Column("object", sa.Text),
    sa.Column("byte_count", sa.BigInteger, nullable=False),
    sa.Column("record_count", sa.Integer, nullable=False),
    sa.Column("digest", sa.String(64)),
    sa.Column("seen", _Json),
    sa.Column("etag", sa.Text),
    sa.Column("modified", sa.Text),
    sa.Column("fetched", sa.BigInteger, nullable=False),
    sa.Column("reason", sa.String(64)),
    sa.Column("detail", sa.Text),
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Index("headrace_pages_by_cursor", "dataset", "endpoint", "cursor_key"),
)
_READINGS = sa.Table(
    "headrace_readings",
    _METADATA,
    sa.Column("dataset", sa.String(64), primary_key=True),
    sa.Column("endpoint", sa.String(255), primary_key=True),
    sa.Column("request", sa.String(64), primary_key=True),
    sa.Column("reading", sa.Integer, nullable=False),
    sa.Column("complete", sa.Boolean, nullable=False),
    sa.Column("since", sa.Text),
    sa.Column("mark", _Json),
)
_SUPERSEDED = -1  # reading of a page whose cursor gave something else later in its reading


@dataclass(frozen=True)
class StoredPage:
    """A row of `headrace_pages`: a fetched or refused page; `paging` says what cursors are.

    Attributes:
        sequence: number of the row in its endpoint; never used again.
        cursor: what it was asked by, with the value of `since`, as JSON.
        next_cursor: the cursor after it; None after the last.
        place: where in the reading: a count, or the number in the cursor where pages are addressable.
        object: where its bytes are kept; None where it has no records or was refused.
        digest: SHA-256 over its records; None where it has none.
        seen: the largest value of the column of `since`.
        etag: validator from the server, as `modified`.
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


_FACTS = [name for name in StoredPage.__dataclass_fields__ if name not in ("sequence", "refusal")]


@dataclass(frozen=True)
class Reading:
    """A reading: its number, whether it is complete, its `since`, and the value behind the next `since`."""

    number: int
    complete: bool
    since: str | None
    mark: Any


COMPLETE_LIST = "whole"
"""Stands in the place of a request's digest for the last reading that saw the whole list; its mark is that digest."""


class Checkpoints:
    """The pages of a dataset.

    Raises:
        InputError: the catalogue has no database.
    """

    def __init__(self, catalogue: Catalog, dataset: str) -> None:
        self._engine = database_of(catalogue, f"dataset {dataset}: pages of an API", _METADATA)
        self._dataset = dataset
        self._adding = threading.Lock()  # a new row's number is read and written; pages and refusals come side by side

    def reading(self, endpoint: str, request: str) -> Reading | None:
        """The latest reading of an endpoint by a request; None before the first."""
        columns = (_READINGS.c[name] for name in ("reading", "complete", "since", "mark"))
        with self._engine.connect() as connection:
            row = connection.execute(sa.select(*columns).where(*self._of(_READINGS, endpoint, request))).first()
        return None if row is None else Reading(*row)

    def begin(self, endpoint: str, request: str, reading: Reading) -> None:
        """Store the latest reading."""
        changed = {
            "reading": reading.number,
            "complete": reading.complete,
            "since": reading.since,
            "mark": reading.mark,
        }
        ids = {"dataset": self._dataset, "endpoint": endpoint, "request": request}
        with self._engine.begin() as connection:
            where = self._of(_READINGS, endpoint, request)
            if not connection.execute(sa.update(_READINGS).where(*where).values(**changed)).rowcount:
                connection.execute(sa.insert(_READINGS).values(**ids, **changed))

    def forget(self, names: Collection[str] | None = None) -> None:
        """Forget whatever was fetched for the dataset, or where pages of deleted objects are kept.

        Args:
            names: of deleted objects, by SHA-256; pages of these do not land any more. None: all is forgotten.
        """
        of_dataset = _PAGES.c.dataset == self._dataset
        with self._engine.begin() as connection:
            if names is None:
                for table in (_PAGES, _READINGS):
                    connection.execute(sa.delete(table).where(table.c.dataset == self._dataset))
                return
            kept = connection.execute(
                sa.select(_PAGES.c.object).where(of_dataset, _PAGES.c.object.is_not(None))
            ).scalars()
            for location in [object_name for object_name in kept if object_name.rpartition("/")[2] in names]:
                connection.execute(sa.update(_PAGES).where(of_dataset, _PAGES.c.object == location).values(object=None))

    def pages(self, endpoint: str, request: str, reading: int | None = None) -> list[StoredPage]:
        """Pages of an endpoint by a request, of one reading or all, the newest last."""
        where = [*self._of(_PAGES, endpoint, request)]
        if reading is not None:
            where.append(_PAGES.c.reading == reading)
        return [_page(row) for row in self._rows(where)]

    def all_pages(self) -> dict[str, list[StoredPage]]:
        """Every page of the dataset with records or a refusal, by endpoint, by sequence; without cursors."""
        pages: dict[str, list[StoredPage]] = {}
        columns = [column for column in _PAGES.c if column is not _PAGES.c.cursor]  # which may be long
        for row in self._rows([_PAGES.c.dataset == self._dataset], columns):
            if row["object"] is not None or row["reason"] is not None:
                pages.setdefault(row["endpoint"], []).append(_page(row))
        return pages

    def keep_records(
        self,
        endpoint: str,
        request: str,
        cursor: str,
        records: list[Any],
        objects: ObjectFolder,
        place: int = 0,
        next_cursor: Any = None,
    ) -> bool:
        """Keep records as the bytes of a page, and store it; see `save`."""
        data = json.dumps(records, ensure_ascii=False).encode(errors="surrogatepass")
        kept = objects.keep(io.BytesIO(data))
        page = StoredPage(cursor, place, next_cursor, kept.location, kept.byte_count, len(records), kept.sha256)
        return self.save(endpoint, request, page)

    def save(self, endpoint: str, request: str, page: StoredPage) -> bool:
        """Store a page: in the last row of its cursor if that has the same records, else in a new row (true)."""
        this_page = (*self._of(_PAGES, endpoint, request), _PAGES.c.cursor_key == _key(page.cursor))
        newest = (
            sa.select(_PAGES).where(*this_page, _PAGES.c.reason.is_(None)).order_by(_PAGES.c.sequence.desc()).limit(1)
        )
        change = sa.update(_PAGES).where(*this_page)
        with self._adding, self._engine.begin() as connection:
            before = connection.execute(newest).mappings().first()
            connection.execute(change.where(_PAGES.c.reading == page.reading).values(reading=_SUPERSEDED))
            if before is None or before["digest"] != page.digest:
                self._insert(connection, endpoint, request, page)
                return True
            names = ("place", "reading", "etag", "modified", "next_cursor")
            changed = {name: getattr(page, name) for name in names}
            connection.execute(change.where(_PAGES.c.sequence == before["sequence"]).values(**changed))
        return False

    def refuse(self, endpoint: str, request: str, page: StoredPage) -> int:
        """Store that a page was refused, one row for each reason; returns in how many fetches it was."""
        assert page.refusal is not None
        this_page = (*self._of(_PAGES, endpoint, request), _PAGES.c.cursor_key == _key(page.cursor))
        this_page = (*this_page, _PAGES.c.reason == str(page.refusal.reason))
        with self._adding, self._engine.begin() as connection:
            before = connection.execute(sa.select(_PAGES).where(*this_page)).mappings().first()
            again = before["failures"] + 1 if before is not None and before["reading"] == page.reading else 1
            if before is None:
                self._insert(connection, endpoint, request, replace(page, failures=again))
            else:
                changed = {"reading": page.reading, "place": page.place, "failures": again}
                connection.execute(sa.update(_PAGES).where(*this_page).values(**changed))
        return again

    def _insert(self, connection: sa.Connection, endpoint: str, request: str, page: StoredPage) -> None:
        """Add the row of a page, with the next number of its endpoint."""
        of_endpoint = (_PAGES.c.dataset == self._dataset, _PAGES.c.endpoint == endpoint)
        last = connection.execute(sa.select(sa.func.max(_PAGES.c.sequence)).where(*of_endpoint)).scalar()
        row = {"dataset": self._dataset, "endpoint": endpoint, "request": request, "cursor_key": _key(page.cursor)}
        row |= {name: getattr(page, name) for name in _FACTS} | {"sequence": 0 if last is None else last + 1}
        if page.refusal is not None:  # Postgres takes no null character
            row |= {"reason": str(page.refusal.reason), "detail": page.refusal.detail.replace("\0", " ")}
        connection.execute(sa.insert(_PAGES).values(**row))

    def _rows(self, where: list[Any], columns: Sequence[sa.Column[Any]] = tuple(_PAGES.c)) -> list[Any]:
        with self._engine.connect() as connection:
            return list(connection.execute(sa.select(*columns).where(*where).order_by(_PAGES.c.sequence)).mappings())

    def _of(self, table: sa.Table, endpoint: str, request: str) -> tuple[Any, ...]:
        return table.c.dataset == self._dataset, table.c.endpoint == endpoint, table.c.request == request


def _page(row: Any) -> StoredPage:
    """The page in a row of `headrace_pages`."""
    refusal = Refusal(Reason(row["reason"]), row["detail"]) if row["reason"] else None
    return StoredPage(**{name: row.get(name, "") for name in (*_FACTS, "sequence")}, refusal=refusal)


def _key(cursor: str) -> str:
    return hashlib.sha256(cursor.encode()).hexdigest()

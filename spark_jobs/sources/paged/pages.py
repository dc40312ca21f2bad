"""List the pages fetched but not arrived, and what is gone with earlier ones; no server is asked.

A page is superseded once the whole list was read (`lists_all`) and the page is not in that reading. A record is gone
where a superseded page has it and no page of that reading does; a list without any record is taken for a fault.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from spark_jobs.exceptions import InputError
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.sources.config.paged_source import PAGE_MARK, PagedSource
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.kinds import Kind, Listing
from spark_jobs.sources.languages import PLAIN_TEXT, Language, language_columns
from spark_jobs.sources.listing.changes import add_size_ranks
from spark_jobs.sources.listing_rows import LISTING, listing_row, why
from spark_jobs.sources.paged.checkpoints import Checkpoints, StoredPage
from spark_jobs.sources.paged.page_records import page_records
from spark_jobs.sources.records.records import Record

P = TypeVar("P", bound=PagedSource)


class PagedKind(Kind[P]):
    """Sources of records kept page by page; pages of a stream are brought by the command to follow it."""

    has_versions = on_pages = True

    @classmethod
    def forget(cls, dataset: str, catalogue: Catalog, objects: Collection[str] | None = None) -> None:
        """Forget the pages of a dataset, of whichever kind they are."""
        if isinstance(catalogue, SqlCatalog):
            Checkpoints(catalogue, dataset).forget(objects)

    def whole_list(self, endpoint: str, store: Checkpoints) -> Mapping[int, StoredPage]:
        """The pages of the last reading of a whole list, by sequence; none where it is not declared or known."""
        return {}

    def changes(self, config: DocumentsConfig, arrivals: pa.Table, reread: bool, lake: Catalog | None) -> Listing:
        """List the pages fetched but not arrived.

        Raises:
            InputError: no lake is given to hold pages.
        """
        if lake is None:
            raise InputError(
                f"dataset {config.dataset}: pages of an API are kept in a lake; write to a table, not to files"
            )
        store, objects, source = Checkpoints(lake, config.dataset), ObjectFolder.of(lake, config.dataset), self.source
        arrivals = arrivals.take(pc.sort_indices(arrivals["increment"]))
        last = dict(zip(arrivals["location"].to_pylist(), arrivals["status"].to_pylist(), strict=True))
        rows = list[dict[str, Any]]()
        for endpoint, pages in store.all_pages().items():
            there = self.whole_list(endpoint, store)
            superseded = list[tuple[str, StoredPage]]()
            for page in pages:
                location = f"{source.address(endpoint)}{PAGE_MARK}{page.sequence}"
                if page.sequence not in there and last.get(location) == "gone":
                    continue
                if there and location in last and page.object is not None and page.sequence not in there:
                    superseded.append((location, page))
                elif reread or last.get(location, "gone") == "gone":
                    rows.append(_row(source, endpoint, location, page))
            if superseded:
                rows += _gone(config, source, endpoint, superseded, there.values(), objects)
        if not rows:
            return None
        rows.sort(key=lambda row: row["location"])
        add_size_ranks(rows)
        return pa.Table.from_pylist(rows, LISTING)

    def again(self, arrival: Mapping[str, Any]) -> dict[str, Any]:
        """The reader of pages, whatever the page."""
        return language_columns("page", PLAIN_TEXT)


def _gone(
    config: DocumentsConfig,
    source: PagedSource,
    endpoint: str,
    superseded: Iterable[tuple[str, StoredPage]],
    there: Iterable[StoredPage],
    objects: ObjectFolder,
) -> Iterator[dict[str, Any]]:
    """Rows `gone` of superseded pages, and of their records in no page of the list any more."""

    def records(page: StoredPage) -> Iterator[Record]:
        if page.object is None:  # deleted for good, and in the list as it was
            return
        with objects.open(page.object) as file:
            data = bytes(file.read())
        parsed = page_records(data, source.records_path(endpoint), source, endpoint, config.max_document_bytes)
        yield from (record for record in parsed if isinstance(record, Record))

    present = {(record.repository, record.record_id) for page in there for record in records(page)}
    for location, page in superseded:
        yield listing_row(location=location, gone=True)
        for record in records(page):
            if (record.repository, record.record_id) not in present:
                present.add((record.repository, record.record_id))
                facts = {"repository": record.repository, "path": f"{endpoint}#{record.record_id}"}
                yield listing_row(location=f"{location}#item:{record.number}", gone=True, **facts)


def _row(source: PagedSource, endpoint: str, location: str, page: StoredPage) -> dict[str, Any]:
    """The row of the listing of a page to be read, or a refused one."""
    columns = language_columns(None if page.refusal else "page", Language(source.record_kind, None, "text/plain"))
    kept = {"byte_count": page.byte_count, "modified": page.fetched, "object": page.object, "version": page.sequence}
    return listing_row(location=location, path=endpoint, **columns, **kept, **why(page.refusal))

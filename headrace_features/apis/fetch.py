"""Fetch what an API has, or what a list of addresses names, into objects of the dataset, its endpoints side by side.

A fault of the server is a row with a reason, not an exception: what could be fetched lands.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from urllib.parse import urlsplit

from pyiceberg.catalog import Catalog

from headrace_features.apis.addresses import Permitting, fetch_addresses, found_addresses
from headrace_features.apis.api_config import ApiSource, request_digest
from headrace_features.apis.client import ApiClient, Fault, HttpAnswer, tried
from headrace_features.apis.connectors import imported
from headrace_features.apis.endpoint import EndpointFetch, Fetched
from headrace_features.apis.site_asking import Permissions
from spark_jobs.credentials import VARIABLE
from spark_jobs.exceptions import ConfigError
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.ledger.lease import table_leases
from spark_jobs.sources.config.source_config import DocumentsConfig, FilesSource
from spark_jobs.sources.files import FileKind
from spark_jobs.sources.languages import Language
from spark_jobs.sources.listing.changes import Earlier, Listed, facts_files
from spark_jobs.sources.paged.checkpoints import COMPLETE_LIST, Checkpoints, StoredPage
from spark_jobs.sources.paged.pages import PagedKind
from spark_jobs.sources.paged.rate import Pace

_MAKES_PAGES = re.compile(r"(?i)\.(?:php\d?|aspx?|jspx?|cgi|pl|do|cfm)$")
_log = logging.getLogger(__name__)


class ApiKind(PagedKind[ApiSource]):
    """Paged APIs: pages are asked for before they are listed."""

    steps = ("headrace_features.apis.schema_changes:schema_changes",)

    def whole_list(self, endpoint: str, store: Checkpoints) -> Mapping[int, StoredPage]:
        """The pages of the last complete reading of a list, by sequence; none where it is not declared or known."""
        source = self.source
        if not source.lists_all or endpoint not in source.lists:
            return {}
        reading, request = store.reading(endpoint, COMPLETE_LIST), request_digest(source, endpoint)
        if reading is None or reading.mark != request:
            return {}
        return {page.sequence: page for page in store.pages(endpoint, request, reading.number) if page.record_count}

    def fetch(self, dataset: str, catalogue: Catalog, objects: ObjectFolder, wait_seconds: float) -> None:
        """Fetch what the endpoints have; see `fetch_source`."""
        fetch_source(dataset, self.source, catalogue, objects, wait_seconds)


class AddressKind(FileKind[FilesSource]):
    """Web addresses: each is listed once it was asked, with its object."""

    def fetch(self, dataset: str, catalogue: Catalog, objects: ObjectFolder, wait_seconds: float) -> None:
        """Ask for each address; see `fetch_source`."""
        fetch_source(dataset, self.source, catalogue, objects, wait_seconds)

    def files(self, config: DocumentsConfig, earlier: Earlier, lake: Catalog | None) -> list[Listed] | None:
        """Fetched addresses, and lines without one."""
        store = None if lake is None else Checkpoints(lake, config.dataset)
        if store is None or not store.all_pages():
            return None
        addressed = (replace(self.listed(file), object=kept) for file, kept in found_addresses(self.source, store))
        return self.checked(config, (*facts_files(self.source.repositories), *addressed))

    def reader_of(self, path: str) -> tuple[str | None, Language]:
        """By the name of a file at the end of an address, else by its content."""
        parts = urlsplit(path)
        is_named = not parts.query and not _MAKES_PAGES.search(parts.path)
        reader, language = super().reader_of(parts.path.rpartition("/")[2] if is_named else "")
        return reader or "detect", language


def fetch_source(
    dataset: str, source: ApiSource | FilesSource, catalogue: Catalog, objects: ObjectFolder, wait_seconds: float
) -> Fetched:
    """Fetch what the source of a dataset has; its pages are kept in `objects`.

    Raises:
        ConfigError: the environment lacks a secret, or a connector of the user's cannot be imported.
        InputError: the catalogue has no database.
        LeaseError: another process is fetching for the dataset, and goes on for longer than `wait_seconds`.
    """
    store = Checkpoints(catalogue, dataset)
    permitting = partial(Permissions.of, dataset, source, catalogue)
    with table_leases(catalogue, [f"{dataset}.fetched"], wait_seconds):
        if isinstance(source, ApiSource):
            done = asyncio.run(fetch_pages(source, store, objects, permitting=permitting))
        else:
            done = fetch_addresses(source, store, objects, permitting=permitting)
    _log.info("%s: %d requests, %d new pages, %d records", dataset, done.requests, done.pages, done.records)
    if done.paused:
        _log.warning("%s: stopped after limits.fetch_seconds, what came lands; the next run goes on", dataset)
    for refusal in done.refusals:
        _log.warning("%s: %s", dataset, refusal)
    return done


async def fetch_pages(
    source: ApiSource, store: Checkpoints, objects: ObjectFolder, seed: int = 0, permitting: Permitting = Permissions
) -> Fetched:
    """Fetch the endpoints of a source side by side; the other arguments are those of `fetch_addresses`."""
    named = [list_config.url for list_config in source.lists.values() if list_config.url]
    variables, done = set(VARIABLE.findall(source.model_dump_json())), Fetched()
    client = ApiClient(source.limits, source.auth, source.headers, named, source.allowed_hosts, variables=variables)
    pace, slots = Pace(source.limits, seed), asyncio.Semaphore(source.limits.connections)
    connector = None if source.pages is None else imported(source.pages)

    async def get(url: str) -> HttpAnswer | Fault:
        async with slots:
            await pace.turn()
            done.requests += 1
            return await client.get(url, {}, {})

    permissions = permitting(lambda url: tried(lambda: get(url), pace, source.limits))
    try:
        async with asyncio.TaskGroup() as group:
            for name in source.lists:
                fetch = EndpointFetch(name, source, client, connector, pace, slots, store, objects, done)
                group.create_task(fetch.fetch_permitted(permissions))
    except* ConfigError as errors:
        raise errors.exceptions[0] from None
    finally:
        await permissions.close()
        await client.close()
    return done

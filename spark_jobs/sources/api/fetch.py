"""Fetch what an API has, or what a list of addresses names, into objects of the dataset, its endpoints side by side.

A fault of the server is a row with a reason, not an exception: what could be fetched lands.
"""

from __future__ import annotations

import asyncio
import logging

from pyiceberg.catalog import Catalog

from spark_jobs.exceptions import ConfigError
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.ledger.lease import table_leases
from spark_jobs.sources.api.addresses import fetch_addresses
from spark_jobs.sources.api.checkpoints import Checkpoints
from spark_jobs.sources.api.client import ApiClient
from spark_jobs.sources.api.connectors import imported
from spark_jobs.sources.api.endpoint import EndpointFetch, Fetched
from spark_jobs.sources.api.rate import Pace
from spark_jobs.sources.config.api_config import ApiSource
from spark_jobs.sources.config.source_config import FilesSource

_log = logging.getLogger(__name__)


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
    with table_leases(catalogue, [f"{dataset}.fetched"], wait_seconds):
        if isinstance(source, ApiSource):
            done = fetch_pages(source, store, objects)
        else:
            done = fetch_addresses(source, store, objects)
    _log.info("%s: %d requests, %d new pages, %d records", dataset, done.requests, done.pages, done.records)
    if done.paused:
        _log.warning("%s: stopped after limits.fetch_seconds, what came lands; the next run goes on", dataset)
    for refusal in done.refusals:
        _log.warning("%s: %s", dataset, refusal)
    return done


def fetch_pages(source: ApiSource, store: Checkpoints, objects: ObjectFolder, seed: int = 0) -> Fetched:
    """Fetch the endpoints of a source side by side; the seed is that of the waits after faults."""
    return asyncio.run(_fetch_all(source, store, objects, seed))


async def _fetch_all(source: ApiSource, store: Checkpoints, objects: ObjectFolder, seed: int) -> Fetched:
    named = [one.url for one in source.lists.values() if one.url]
    done, client = Fetched(), ApiClient(source.limits, source.auth, source.headers, named, source.allowed_hosts)
    pace, slots = Pace(source.limits, seed), asyncio.Semaphore(source.limits.connections)
    connector = None if source.pages is None else imported(source.pages)
    try:
        async with asyncio.TaskGroup() as group:
            for name in source.lists:
                one = EndpointFetch(name, source, client, connector, pace, slots, store, objects, done)
                group.create_task(one.fetch())
    except* ConfigError as errors:
        raise errors.exceptions[0] from None
    finally:
        await client.close()
    return done

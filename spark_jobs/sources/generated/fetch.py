"""Ask the open questions of a dataset, and seal accepted answers as pages, which land like pages of an API.

Parents are asked about in the order of a hash, in rounds, so that a dataset that has enough after some of them has a
sample of the whole. A cut or refused answer counts as asked; it has a row with its reason and is not asked for again.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any, Final

from pyiceberg.catalog import Catalog

from spark_jobs.exceptions import InputError
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.ledger.lease import table_leases
from spark_jobs.sources.api.checkpoints import Checkpoints, StoredPage
from spark_jobs.sources.config.generated_config import GeneratedSource, template_of
from spark_jobs.sources.generated.asking import Asked, Asker
from spark_jobs.sources.generated.attempts import AnswerStore
from spark_jobs.sources.generated.parents import ranked_parents, texts_of
from spark_jobs.sources.generated.requests import Request, parts_of, request_of

_ROUND: Final = 1000  # parents whose texts are held at a time
_LOOKED_UP: Final = 100  # parents whose keys are looked up at a time
_PAGE_RECORDS: Final = 1000
_REQUEST: Final = "generated"  # what pages are kept under: all requests of a dataset have one list

_log = logging.getLogger(__name__)


def fetch_answers(
    dataset: str, source: GeneratedSource, catalogue: Catalog, objects: ObjectFolder, wait_seconds: float
) -> Asked:
    """Ask for what a dataset lacks, and seal what was accepted.

    Raises:
        ConfigError: the environment lacks the key of the endpoint.
        InputError: the parents were not judged yet, or the catalogue has no database.
        LeaseError: another process is asking for the dataset, and goes on for longer than `wait_seconds`.
    """
    if missing := [name for name in ("aiohttp", "jsonschema") if find_spec(name) is None]:
        raise InputError(f"{dataset}: {missing[0]} is not installed; run: pip install 'headrace[generate]'")
    store, pages = AnswerStore(catalogue, dataset), Checkpoints(catalogue, dataset)
    with table_leases(catalogue, [f"{dataset}.fetched"], wait_seconds):
        seal(store, pages, objects)  # what a killed run left
        total = Asked()
        parents = [] if 0 in _open(source, store) else ranked_parents(catalogue, source.parents, source.seed)
        for first in range(0, len(parents), _ROUND):
            lacking, left = _open(source, store)
            if 0 in (lacking, left) or total.stopped:
                break
            wanted = _requests(catalogue, source, store, parents[first : first + _ROUND])
            done = asyncio.run(Asker(source, store).ask(itertools.islice(wanted, left), lacking))
            total.accepted += done.accepted
            total.attempts += done.attempts
            total.stopped = done.stopped
            for reason, count in done.refused.items():
                total.refused[reason] = total.refused.get(reason, 0) + count
            seal(store, pages, objects)
    _tell(dataset, source, store, total)
    return total


def _open(source: GeneratedSource, store: AnswerStore) -> tuple[int | None, int | None]:
    """How many answers are still wanted, and how many requests may still be made; None without a bound."""
    before = store.outcomes()
    lacking = None if source.accepted is None else max(0, source.accepted - before.get("", 0))
    left = None if source.asked_at_most is None else max(0, source.asked_at_most - sum(before.values()))
    return lacking, left


def _requests(
    catalogue: Catalog, source: GeneratedSource, store: AnswerStore, parents: list[tuple[str, str]]
) -> Iterator[Request]:
    """The requests about some parents that were not answered yet, in the order of the parents."""
    templates = [template_of(one) for one in source.templates]
    texts = {(dataset, doc_id): text for dataset, doc_id, text in texts_of(catalogue, parents)}
    for at in range(0, len(parents), _LOOKED_UP):
        made = [
            request_of(part, template, source.endpoint, sample)
            for parent in parents[at : at + _LOOKED_UP]
            if parent in texts
            for part in parts_of(*parent, texts[parent], source.endpoint.reads_characters)
            for template in templates
            for sample in range(source.samples)
        ]
        known = store.answered(one.key for one in made)
        yield from (one for one in made if one.key not in known)


def seal(
    store: AnswerStore,
    pages: Checkpoints,
    objects: ObjectFolder,
    record_of: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None,
) -> int:
    """Make pages of accepted answers that have not landed; after a kill a record may be in two, and lands once.

    Args:
        store: of the answers.
        pages: of the dataset.
        objects: where pages are kept.
        record_of: makes a record of a row; without it that of a model's answer.
    """
    record_of = record_of or _record
    count = 0
    while rows := store.to_land(_PAGE_RECORDS):
        template = rows[0]["template"]
        rows = [row for row in rows if row["template"] == template]
        data = json.dumps([record_of(row) for row in rows], ensure_ascii=False).encode()
        kept = objects.keep(io.BytesIO(data))
        page = StoredPage(
            cursor=rows[0]["key"],
            place=0,
            object=kept.location,
            byte_count=kept.byte_count,
            record_count=len(rows),
            digest=kept.sha256,
        )
        pages.save(template, _REQUEST, page)
        store.mark_landed([row["key"] for row in rows])
        count += len(rows)
    return count


def _record(row: Mapping[str, Any]) -> dict[str, Any]:
    """An answer as a record of a page; the fields beside key and text become metadata."""
    record = {
        "key": row["key"],
        "text": row["text"],
        "parent": row["parent_doc_id"],
        "parent_dataset": row["parent_dataset"],
        "parent_bytes": f"{row['parent_start']}-{row['parent_end']}",
        "model": row["model"],
        "answer_tokens": row["answer_tokens"],
    }
    known = {name: row[name] for name in ("fingerprint", "reasoning", "tokens_in", "tokens_out") if row[name]}
    return {**record, **known}


def _tell(dataset: str, source: GeneratedSource, store: AnswerStore, done: Asked) -> None:
    """Say what was asked in this run, what all of it cost, and why it stopped."""
    if done.attempts:
        refused = ", ".join(f"{reason} {count:,}" for reason, count in sorted(done.refused.items()))
        tokens_in, tokens_out, unknown = store.spent()
        cost = f"{tokens_in:,} + {tokens_out:,} tokens in all runs"
        price = source.budget.price(tokens_in, tokens_out)
        cost += f", {price:,.2f} by the prices" if price is not None else ""
        cost += f"; the usage of {unknown:,} answers is not known" if unknown else ""
        _log.warning(
            "%s: %s requests sent, %s answers accepted%s; %s",
            dataset, f"{done.attempts:,}", f"{done.accepted:,}", f", refused: {refused}" if refused else "", cost,
        )  # fmt: skip
    if done.stopped:
        _log.warning("%s: stopped: %s", dataset, done.stopped)

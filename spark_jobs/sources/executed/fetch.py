"""Execute what a dataset lacks, and seal the records as pages, which land like pages of an API."""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, Final

from pyiceberg.catalog import Catalog

from spark_jobs.lake.files.lookups import EVERYTHING, read_columns
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.ledger.lease import table_leases
from spark_jobs.sources.api.checkpoints import Checkpoints
from spark_jobs.sources.api.pages import PagedKind
from spark_jobs.sources.config.executed_config import ExecutedSource
from spark_jobs.sources.executed.attacks import require_sandbox
from spark_jobs.sources.executed.execution import Bundle, execute
from spark_jobs.sources.executed.rows import Document, document_key
from spark_jobs.sources.generated.attempts import AnswerStore
from spark_jobs.sources.generated.fetch import AnswerPages
from spark_jobs.sources.generated.parents import ranked_parents, texts_of

_ROUND: Final = 2000  # documents whose texts are held at a time
_BUNDLE: Final = 20  # documents of a repository that are executed one after the other
_DONE: Final = ("executed", "no_functions")  # reasons of documents, not of calls

_log = logging.getLogger(__name__)


class ExecutedKind(PagedKind[ExecutedSource]):
    """Executions of code, which is executed before they are listed."""

    def fetch(self, dataset: str, catalogue: Catalog, objects: ObjectFolder, wait_seconds: float) -> None:
        """Execute what was not yet; see `fetch_executions`."""
        fetch_executions(dataset, self.source, catalogue, objects, wait_seconds)


def fetch_executions(
    dataset: str, source: ExecutedSource, catalogue: Catalog, objects: ObjectFolder, wait_seconds: float
) -> dict[str, int]:
    """Execute the documents that were not yet, and seal their records; rows by reason, records under ``.

    Raises:
        SetupError: an attack on the sandbox is not held on this machine.
        InputError: the parents were not judged yet, or the catalogue has no database.
        LeaseError: another process is at it, and goes on for longer than `wait_seconds`.
    """
    store, pages = AnswerStore(catalogue, dataset), Checkpoints(catalogue, dataset)
    with table_leases(catalogue, [f"{dataset}.fetched"], wait_seconds):
        before = store.outcomes()
        _seal(store, pages, objects)  # what a killed run left
        for bundles in _rounds(catalogue, source):
            if _enough(source, store):
                break
            _execute_all(bundles, source, store)
            _seal(store, pages, objects)
        after = store.outcomes()
    _tell(dataset, before, after)
    return after


def _seal(store: AnswerStore, pages: Checkpoints, objects: ObjectFolder) -> int:
    return AnswerPages(store, pages, objects, _record).seal()


def _record(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as a record of a page; the fields beside key, text and repository become metadata."""
    return {
        "key": row["key"],
        **json.loads(row["text"]),
        "parent": row["parent_doc_id"],
        "parent_dataset": row["parent_dataset"],
        "parent_bytes": f"{row['parent_start']}-{row['parent_end']}",
        "executed_with": row["model"],
    }


def _enough(source: ExecutedSource, store: AnswerStore) -> bool:
    return source.accepted is not None and store.outcomes().get("", 0) >= source.accepted


def _execute_all(bundles: Sequence[Bundle], source: ExecutedSource, store: AnswerStore) -> None:
    """Execute bundles side by side; each document's rows are written together, so a kill loses those in work."""
    lacking = list(filter(None, (_lacking(bundle, source, store) for bundle in bundles)))
    if not lacking:
        return
    if source.isolation == "bubblewrap":
        require_sandbox()
    else:
        _log.warning("isolation: unsafe_local: strangers' code runs as this process, with all that it may do")
    stopped, writing = threading.Event(), threading.Lock()

    def work(bundle: Bundle) -> None:
        for rows in execute(bundle, source):
            with writing:
                there = store.answered(row.request.key for row in rows)
                store.write([], [row for row in rows if row.request.key not in there])
                if _enough(source, store):
                    stopped.set()
            if stopped.is_set():
                return

    # A sandbox dies with the thread that started it; those of the pool live as long as the pool.
    with ThreadPoolExecutor(source.at_once) as pool:
        tasks = [pool.submit(work, bundle) for bundle in lacking]
        try:
            wait(tasks, return_when=FIRST_EXCEPTION)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            stopped.set()
            pool.shutdown(cancel_futures=True)


def _lacking(bundle: Bundle, source: ExecutedSource, store: AnswerStore) -> Bundle | None:
    """A bundle of the documents that were not executed yet; None where all were. Equal texts are executed once."""
    keys = {document_key(source, one.text): one for one in reversed(bundle.documents)}
    known = store.answered(keys)
    documents = tuple(one for key, one in reversed(keys.items()) if key not in known)
    return dataclasses.replace(bundle, documents=documents) if documents else None


def _rounds(catalogue: Catalog, source: ExecutedSource) -> Iterator[list[Bundle]]:
    """Bundles of all documents, by repository, in the order of a hash; so many that their texts can be held."""
    ranked = ranked_parents(catalogue, source.parents, source.seed)
    places = {dataset: _places(catalogue, dataset) for dataset in {dataset for dataset, _ in ranked}}
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for dataset, doc_id in ranked:
        repository, _, language = places[dataset].get(doc_id, (None, "", None))
        if (language or "").casefold() == source.language.casefold():
            groups[dataset, f"r {repository}" if repository is not None else f"d {doc_id}"].append(doc_id)
    of_repository: dict[tuple[str, str], list[str]] = defaultdict(list)
    for dataset, some in places.items():
        for doc_id, (repository, _, _) in some.items():
            of_repository[dataset, f"r {repository}" if repository is not None else f"d {doc_id}"].append(doc_id)
    some_groups, count = list[tuple[tuple[str, str], list[str]]](), 0
    for group, doc_ids in groups.items():
        some_groups.append((group, doc_ids))
        count += len(of_repository[group])
        if count >= _ROUND:
            yield list(_bundles(catalogue, some_groups, of_repository, places))
            some_groups, count = [], 0
    if some_groups:
        yield list(_bundles(catalogue, some_groups, of_repository, places))


def _bundles(
    catalogue: Catalog,
    groups: Sequence[tuple[tuple[str, str], list[str]]],
    of_repository: Mapping[tuple[str, str], list[str]],
    places: Mapping[str, Mapping[str, tuple[str | None, str, str | None]]],
) -> Iterator[Bundle]:
    """The bundles of some repositories, each with all texts of its repository."""
    wanted = [(group[0], doc_id) for group, _ in groups for doc_id in of_repository[group]]
    texts = {(dataset, doc_id): text for dataset, doc_id, text in texts_of(catalogue, wanted)}
    for group, doc_ids in groups:
        dataset = group[0]
        there = [doc_id for doc_id in of_repository[group] if (dataset, doc_id) in texts]
        files = {places[dataset][doc_id][1]: texts[dataset, doc_id] for doc_id in there}
        documents = [
            Document(dataset, doc_id, places[dataset][doc_id][1], texts[dataset, doc_id])
            for doc_id in doc_ids
            if (dataset, doc_id) in texts
        ]
        for at in range(0, len(documents), _BUNDLE):
            some = tuple(documents[at : at + _BUNDLE])
            own = {one.path: one.text for one in some}  # of two revisions at a path each is executed as it is
            yield Bundle(places[dataset][doc_ids[0]][0], {**files, **own}, some)


def _places(catalogue: Catalog, dataset: str) -> dict[str, tuple[str | None, str, str | None]]:
    """Repository, path and language of the documents of a dataset."""
    names = ("doc_id", "repository", "path", "language")
    found = read_columns(catalogue, f"{dataset}.documents", names, EVERYTHING)
    columns = [found[name].to_pylist() for name in names] if found is not None else [[]] * 4
    return {doc_id: (repository, path, language) for doc_id, repository, path, language in zip(*columns, strict=True)}


def _tell(dataset: str, before: Mapping[str, int], after: Mapping[str, int]) -> None:
    """Say what this run gave."""
    new = {reason: count - before.get(reason, 0) for reason, count in after.items()}
    documents = sum(new.get(reason, 0) for reason in (*_DONE, "not_importable"))
    if documents:
        refused = ", ".join(f"{reason} {n:,}" for reason, n in sorted(new.items()) if n and reason not in ("", *_DONE))
        _log.warning(
            "%s: %s documents executed, %s records%s",
            dataset, f"{documents:,}", f"{new.get('', 0):,}", f", no record: {refused}" if refused else "",
        )  # fmt: skip

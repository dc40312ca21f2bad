"""Execute what a dataset lacks, and seal the records as pages, which land like pages of an API."""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, Final, NamedTuple

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
from spark_jobs.sources.synthetic.attempts import AnswerStore
from spark_jobs.sources.synthetic.fetch import AnswerPages
from spark_jobs.sources.synthetic.parents import ranked_parents, texts_of

_ROUND: Final = 2000  # documents whose texts are held at a time
_BUNDLE: Final = 20  # documents of a repository that are executed one after the other
_DONE: Final = ("executed", "no_functions")  # reasons of rows about whole documents, not calls

_Key = tuple[str, str]  # dataset and doc_id; of a group, dataset and repository
_log = logging.getLogger(__name__)


class ExecutedKind(PagedKind[ExecutedSource]):
    """Executions of code: `fetch` executes it, and the listing has the pages of results."""

    def fetch(self, dataset: str, catalogue: Catalog, objects: ObjectFolder, wait_seconds: float) -> None:
        """Execute the documents that were not executed yet; see `fetch_executions`."""
        fetch_executions(dataset, self.source, catalogue, objects, wait_seconds)


def fetch_executions(
    dataset: str, source: ExecutedSource, catalogue: Catalog, objects: ObjectFolder, wait_seconds: float
) -> dict[str, int]:
    """Execute the documents that were not executed yet, and make pages of the records.

    Returns:
        How many rows there are by reason, over all runs; records have an empty one.

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
    """Execute bundles side by side; the rows of a document are written together, so a kill loses whole documents."""
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
    """A bundle without the documents that were executed before; None where all were. Equal texts are executed once."""
    keys = {document_key(source, one.text): one for one in reversed(bundle.documents)}
    known = store.answered(keys)
    documents = tuple(one for key, one in reversed(keys.items()) if key not in known)
    return dataclasses.replace(bundle, documents=documents) if documents else None


class _About(NamedTuple):
    """Where a document is in its dataset, and its language."""

    repository: str | None
    path: str
    language: str | None


def _rounds(catalogue: Catalog, source: ExecutedSource) -> Iterator[list[Bundle]]:
    """Bundles of all documents, by repository, in the order of a hash; a round is small enough for memory."""
    ranked = ranked_parents(catalogue, source.parents, source.seed)
    about = {key: one for dataset in {dataset for dataset, _ in ranked} for key, one in _documents(catalogue, dataset)}

    def group_of(key: _Key) -> _Key:
        repository = about[key].repository
        return key[0], f"d {key[1]}" if repository is None else f"r {repository}"

    wanted, files = defaultdict[_Key, list[_Key]](list), defaultdict[_Key, list[_Key]](list)  # both by group
    for key in about:
        files[group_of(key)].append(key)
    for key in ranked:
        if key in about and (about[key].language or "").casefold() == source.language.casefold():
            wanted[group_of(key)].append(key)
    groups, count = dict[_Key, list[_Key]](), 0
    for number, group in enumerate(wanted, start=1):
        groups[group] = wanted[group]
        count += len(files[group])
        if count >= _ROUND or number == len(wanted):
            yield list(_bundles(catalogue, groups, files, about))
            groups, count = {}, 0


def _bundles(
    catalogue: Catalog,
    wanted: Mapping[_Key, Sequence[_Key]],
    files: Mapping[_Key, Sequence[_Key]],
    about: Mapping[_Key, _About],
) -> Iterator[Bundle]:
    """The bundles of some repositories, each with all texts of its repository.

    Args:
        catalogue: of the lake.
        wanted: the documents to execute, by dataset and repository.
        files: all documents of those repositories, likewise.
        about: where each of them is.
    """
    keys = [key for group in wanted for key in files[group]]
    texts = {(dataset, doc_id): text for dataset, doc_id, text in texts_of(catalogue, keys)}
    for group, chosen in wanted.items():
        there = {about[key].path: texts[key] for key in files[group] if key in texts}
        documents = [Document(*key, about[key].path, texts[key]) for key in chosen if key in texts]
        for at in range(0, len(documents), _BUNDLE):
            some = tuple(documents[at : at + _BUNDLE])
            own = {one.path: one.text for one in some}  # of two revisions at a path each is executed as it is
            yield Bundle(about[chosen[0]].repository, {**there, **own}, some)


def _documents(catalogue: Catalog, dataset: str) -> Iterator[tuple[_Key, _About]]:
    """Every document of a dataset by dataset and doc_id."""
    names = ("doc_id", "repository", "path", "language")
    found = read_columns(catalogue, f"{dataset}.documents", names, EVERYTHING)
    for doc_id, *fields in zip(*(found[name].to_pylist() for name in names), strict=True) if found is not None else ():
        yield (dataset, doc_id), _About(*fields)


def _tell(dataset: str, before: Mapping[str, int], after: Mapping[str, int]) -> None:
    """Log how many documents this run executed, and what came of them."""
    new = {reason: count - before.get(reason, 0) for reason, count in after.items()}
    documents = sum(new.get(reason, 0) for reason in (*_DONE, "not_importable"))
    if documents:
        refused = ", ".join(f"{reason} {n:,}" for reason, n in sorted(new.items()) if n and reason not in ("", *_DONE))
        _log.warning(
            "%s: %s documents executed, %s records%s",
            dataset, f"{documents:,}", f"{new.get('', 0):,}", f", no record: {refused}" if refused else "",
        )  # fmt: skip

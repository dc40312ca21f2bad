"""Execute what a dataset lacks, and seal the records as pages, landing like those of an API."""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog

from headrace.tables.catalogue import load_table
from headrace_features.synthetic.attempts import AnswerStore
from headrace_features.synthetic.buckets import KEY, KEY_TYPE, BucketedRows, in_buckets, key_of
from headrace_features.synthetic.executed.checks import require_sandbox
from headrace_features.synthetic.executed.execution import Bundle, execute
from headrace_features.synthetic.executed.rows import CodeDocument, document_key
from headrace_features.synthetic.executed_config import ExecutedSource
from headrace_features.synthetic.fetch import AnswerPages
from headrace_features.synthetic.parents import kept_datasets, kept_documents, text_bytes, texts_in, with_rank
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.files.wide_values import placed_batches
from spark_jobs.lake.ledger.lease import table_leases
from spark_jobs.sources.paged.checkpoints import Checkpoints
from spark_jobs.sources.paged.pages import PagedKind

_BUNDLE: Final = 20  # documents of a repository that are executed one after the other
_DONE: Final = ("executed", "no_functions")  # reasons of rows about whole documents, not calls

_ROWS: Final = 256  # files that are in memory at a time beside those of a bucket
_ABOUT: Final = ("doc_id", "repository", "path", "language", "increment")
_log = logging.getLogger(__name__)


class ExecutedKind(PagedKind[ExecutedSource]):
    """Executions of code: `fetch` executes it, and the listing has the pages of results."""

    def fetch(self, dataset: str, catalogue: Catalog, objects: ObjectFolder, wait_seconds: float) -> None:
        """Execute the documents not executed yet; see `fetch_executions`."""
        fetch_executions(dataset, self.source, catalogue, objects, wait_seconds)


def fetch_executions(
    dataset: str, source: ExecutedSource, catalogue: Catalog, objects: ObjectFolder, wait_seconds: float
) -> dict[str, int]:
    """Execute the documents not executed yet, and make pages of the records.

    Returns:
        How many rows there are by reason, over all runs; records have an empty one.

    Raises:
        SetupError: the sandbox does not hold on this machine.
        InputError: the parents were not judged yet, or the catalogue has no database.
        LeaseError: another process is at it, and goes on for longer than `wait_seconds`.
    """
    store, pages = AnswerStore(catalogue, dataset), Checkpoints(catalogue, dataset)
    with table_leases(catalogue, [f"{dataset}.fetched"], wait_seconds):
        before = store.outcomes()
        _seal(store, pages, objects)  # what a killed run left
        for bundles in rounds(catalogue, source):
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
    """A bundle without the documents executed before; None where all were. Equal texts are executed once."""
    keys = {document_key(source, document.text): document for document in reversed(bundle.documents)}
    answered = store.answered(keys)
    documents = tuple(document for key, document in reversed(keys.items()) if key not in answered)
    return dataclasses.replace(bundle, documents=documents) if documents else None


class _FetchedDocument(NamedTuple):
    """A document with its text; `is_wanted` where it is to be executed."""

    dataset: str
    doc_id: str
    repository: str | None
    path: str
    language: str | None
    increment: int
    content: str
    is_wanted: bool


def rounds(catalogue: Catalog, source: ExecutedSource) -> Iterator[list[Bundle]]:
    """Bundles of all documents, by repository, in the order of a hash; a round is small enough for memory.

    Tables are read once: ids, places and texts of documents are joined by the hash of the document, and what comes of
    that is put together by the hash of the repository, both on disk.
    """
    datasets = kept_datasets(catalogue, source.parents)
    with in_buckets(text_bytes(catalogue, datasets)) as groups:
        with in_buckets(text_bytes(catalogue, datasets)) as documents:
            documents.add("kept", kept_documents(catalogue, source.parents, source.seed))
            for dataset in datasets:
                documents.add("about", _about(catalogue, dataset, source.seed))
                documents.add("texts", texts_in(catalogue, dataset, source.seed))
            for number in range(documents.count):
                groups.add("files", _grouped(documents, number, source))
        for number in range(groups.count):
            files = groups.read("files", number)
            if files is not None:
                yield list(_bundles(files.drop_columns([KEY])))


def _about(catalogue: Catalog, dataset: str, seed: int) -> Iterator[pa.RecordBatch]:
    """Where every document of a dataset is, by rank."""
    table = load_table(catalogue, f"{dataset}.documents")
    if table is None or table.current_snapshot() is None:
        return
    for _, _, batch in placed_batches(table, None, _ABOUT, _ROWS):
        yield with_rank(batch.select(_ABOUT), seed)


def _grouped(documents: BucketedRows, number: int, source: ExecutedSource) -> Iterator[pa.RecordBatch]:
    """The files of a bucket by the hash of their repository; one of no repository only where it is to be executed."""
    kept, about, texts = (documents.read(name, number) for name in ("kept", "about", "texts"))
    if about is None or texts is None:
        return
    rows = texts.join(about.drop_columns(["doc_id"]), KEY)
    is_kept = pc.is_in(rows[KEY], kept[KEY].combine_chunks()) if kept is not None else pa.repeat(False, rows.num_rows)
    is_language = pc.equal(pc.utf8_lower(rows["language"].fill_null("")), source.language.casefold())
    rows = rows.append_column("is_wanted", pc.and_(is_kept, is_language))
    rows = rows.filter(pc.or_(rows["is_wanted"], rows["repository"].is_valid()))
    for batch in rows.select(_FetchedDocument._fields).to_batches(_ROWS):
        places = zip(*(batch[name].to_pylist() for name in ("dataset", "doc_id", "repository")), strict=True)
        keys = [key_of(f"{source.seed} {dataset} {repository or doc_id}") for dataset, doc_id, repository in places]
        yield pa.RecordBatch.from_arrays([pa.array(keys, KEY_TYPE), *batch.columns], [KEY, *batch.schema.names])


def _bundles(rows: pa.Table) -> Iterator[Bundle]:
    """The bundles of the repositories in a bucket, each with all texts of its repository, the newest of a path."""
    files = defaultdict[tuple[str, str], list[_FetchedDocument]](list)
    for batch in rows.to_batches(_ROWS):
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            file = _FetchedDocument(*values)
            group = f"d {file.doc_id}" if file.repository is None else f"r {file.repository}"
            files[file.dataset, group].append(file)
    for revisions in files.values():
        revisions.sort(key=lambda file: (file.increment, file.doc_id))
        there = {file.path: file.content for file in revisions}
        wanted = [
            CodeDocument(file.dataset, file.doc_id, file.path, file.content) for file in revisions if file.is_wanted
        ]
        for at in range(0, len(wanted), _BUNDLE):
            some = tuple(wanted[at : at + _BUNDLE])
            executed = {
                document.path: document.text for document in some
            }  # of two revisions at a path each is executed as it is
            yield Bundle(revisions[0].repository, {**there, **executed}, some)


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

"""Documents that opt-outs name: by dataset, repository, path, hash, record, address or author, in all increments.

Tables are read a batch at a time, only the columns that an entry needs. A column's distinct values are asked about once
each, addresses only where their host is that of an entry.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog

from dagster_project.inspect.lake.corpus_facts import namespaces_with
from headrace.tables.quarantine import is_quarantine
from headrace_features.rights.hits.git_authors import paths_of_authors
from headrace_features.rights.hits.matching import ADDRESSES, AUTHORS, BEGINNING, Matcher, url_host
from headrace_features.rights.hits.repositories import Repositories, reached_repositories, repository_names
from spark_jobs.lake.files.lookups import read_batches

_HOST = rf"{BEGINNING}(?:[^/?#@]*@)?(?P<host>\[[^\]]*\]|[^/?#:]*)"


@dataclass(frozen=True)
class Reached:
    """How an entry reaches a document.

    Attributes:
        how: dataset, repository, path, sha256, record, url, author; fork or repository copy; or exact copy, near copy,
            passage, derived.
        of: the document, repository or value that led here.
        detail: such as J.
        whole: whether near copies and passages of it count too. They do not of what is itself only near: similarity
            to a copy says nothing about the original.
    """

    how: str
    of: str = ""
    detail: str = ""
    whole: bool = True

    def __str__(self) -> str:
        """Write it as plans do."""
        return " ".join(part for part in (self.how, self.of and f"of {self.of}", self.detail) if part)


@dataclass
class Hits:
    """Documents by entry, and what could not be asked."""

    documents: dict[str, dict[str, Reached]] = field(default_factory=dict)
    not_asked: list[str] = field(default_factory=list)

    def add(self, entry: str, doc_id: str, reached: Reached) -> bool:
        """Note a document; whether that is news: it was not reached, or only in part."""
        documents = self.documents.setdefault(entry, {})
        before = documents.get(doc_id)
        if before is not None and (before.whole or not reached.whole):
            return False
        documents[doc_id] = reached
        return True

    @property
    def doc_ids(self) -> set[str]:
        """All documents of all entries."""
        return {doc_id for documents in self.documents.values() for doc_id in documents}


def named_documents(catalogue: Catalog, matcher: Matcher) -> Hits:
    """The documents that entries name, in all datasets, and those of forks and copies of repositories named."""
    hits, datasets = Hits(), namespaces_with(catalogue, "documents")
    is_by_repository = bool(matcher.kinds() & {"repository", "author"})
    names = {dataset: repository_names(catalogue, dataset) for dataset in datasets if is_by_repository}
    repositories = reached_repositories(catalogue, names, matcher)
    spaces = (name[0] for name in catalogue.list_namespaces() if is_quarantine(name[0]))
    hits.not_asked += [f"{space}: what waits there was asked when it landed" for space in sorted(spaces)]
    for dataset in datasets:
        authors: dict[tuple[str, str], tuple[str, ...]] = {}
        if "author" in matcher.kinds():
            authors = paths_of_authors(catalogue, dataset, names[dataset], matcher, hits.not_asked)
        files = _files_of_hashes(catalogue, dataset, matcher) if "sha256" in matcher.kinds() else {}
        columns = _columns(matcher, bool(authors or files), any(name == dataset for name, _ in repositories))
        asked = _Asked(dataset, matcher, repositories, authors, files)
        for batch in read_batches(catalogue, f"{dataset}.documents", columns) if columns else ():
            doc_ids = batch["doc_id"]
            for row, entry, reached in asked.rows(batch):
                hits.add(entry, doc_ids[row].as_py(), reached)
    return hits


def _columns(matcher: Matcher, files: bool, repositories: bool) -> list[str]:
    """The columns that entries of these kinds need."""
    kinds = matcher.kinds()
    needed = {
        "increment": files,
        "repository": repositories or files,
        "path": files or kinds & {"path", "record", "domain", "url_prefix"},
        "content_sha256": "sha256" in kinds,
        "metadata": kinds & {"domain", "url_prefix", "author"},
    }
    chosen = [name for name, wanted in needed.items() if wanted]
    return ["doc_id", *chosen] if chosen or kinds & {"dataset", "record"} else []


@dataclass
class _Asked:
    """What is asked about each batch of a dataset's documents; answers about hosts are kept between batches."""

    dataset: str
    matcher: Matcher
    repositories: Repositories
    authors: dict[tuple[str, str], tuple[str, ...]]
    files: dict[tuple[int, str], tuple[str, ...]]
    hosts: dict[str, bool] = field(default_factory=dict)

    def rows(self, batch: pa.RecordBatch) -> Iterator[tuple[int, str, Reached]]:
        """Row, entry, and how it is reached, of all rows that entries name."""
        columns, matcher, kinds = set(batch.schema.names), self.matcher, self.matcher.kinds()
        for entry in matcher.hits("dataset", self.dataset):
            yield from ((row, entry, Reached("dataset", self.dataset)) for row in range(batch.num_rows))
        if "repository" in columns:
            for row, name in _matched(batch["repository"], lambda name: (self.dataset, name) in self.repositories):
                for entry, (how, of) in self.repositories[self.dataset, name].items():
                    yield row, entry, Reached(how, of, whole=how in ("repository", "author"))
        for column, kind in (("path", "path"), ("path", "record"), ("doc_id", "record"), ("content_sha256", "sha256")):
            if column in columns and kind in kinds:
                yield from self._entries(batch[column], kind, kind)
        if kinds & {"domain", "url_prefix"}:
            for values in (batch["path"], *(_fact(batch, key) for key in ADDRESSES)):
                for kind in ("domain", "url_prefix"):
                    yield from self._entries(self._on_hosts(values), kind, "url")
        if "author" in kinds:
            for key in AUTHORS:
                yield from self._entries(_fact(batch, key), "author", "author")
        yield from self._of_files(batch) if self.authors or self.files else ()

    def _entries(self, values: pa.Array, kind: Any, how: str) -> Iterator[tuple[int, str, Reached]]:
        answers: dict[str, tuple[str, ...]] = {}
        for row, value in _matched(
            values, lambda value: bool(answers.setdefault(value, self.matcher.hits(kind, value)))
        ):
            for entry in answers[value]:
                shown = "" if kind == "author" else value  # a register of hashes must not write names
                yield row, entry, Reached(how, shown)

    def _on_hosts(self, values: pa.Array) -> pa.Array:
        """The values that are addresses on hosts of entries, null in place of all others."""
        hosts = pc.struct_field(pc.extract_regex(values, _HOST), "host").dictionary_encode()
        for host in hosts.dictionary.to_pylist():
            if host not in self.hosts:
                self.hosts[host] = self.matcher.has_host(url_host(f"http://{host}/") or host)
        chosen = [host for host in hosts.dictionary.to_pylist() if self.hosts[host]]
        plain = hosts.cast(hosts.type.value_type)
        return pc.if_else(pc.is_in(plain, value_set=pa.array(chosen, plain.type)), values, None)

    def _of_files(self, batch: pa.RecordBatch) -> Iterator[tuple[int, str, Reached]]:
        """Documents of files by their hash, and of files in commits of authors."""
        wanted = {path for _, path in (*self.files, *self.authors)}
        for row, path in _matched(batch["path"], lambda path: path in wanted or path.partition("#")[0] in wanted):
            increment, repository = batch["increment"][row].as_py(), batch["repository"][row].as_py() or ""
            for name in dict.fromkeys((path, path.partition("#")[0])):
                for entry in self.files.get((increment, name), ()):
                    yield row, entry, Reached("sha256", "", "of its file")
                for entry in self.authors.get((repository, name), ()):
                    yield row, entry, Reached("author", repository, "in a commit")


def _fact(batch: pa.RecordBatch, key: str) -> pa.Array:
    """A value of the metadata of each row."""
    metadata = batch["metadata"]
    return pc.map_lookup(metadata, pa.scalar(key, metadata.type.key_type), "first")


def rows_among(batch: pa.RecordBatch, columns: Iterable[str], wanted: pa.Array) -> pa.RecordBatch:
    """The rows with a wanted value in one of some columns."""
    masks = [pc.is_in(batch[name], value_set=wanted.cast(batch[name].type)) for name in columns]
    return batch.filter(functools.reduce(pc.or_, masks))


def _matched(values: pa.Array, is_wanted: Callable[[str], bool]) -> Iterator[tuple[int, str]]:
    """Rows whose value is wanted, with it; each distinct value is asked about once."""
    encoded = values.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    chosen = [number for number, name in enumerate(names) if name and is_wanted(name)]
    if chosen:
        numbers = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(np.isin(numbers, chosen)).tolist():
            yield row, names[numbers[row]]


def _files_of_hashes(catalogue: Catalog, dataset: str, matcher: Matcher) -> dict[tuple[int, str], tuple[str, ...]]:
    """Entries about the bytes of files that landed, by increment and path: documents have hashes of their own."""
    files: dict[tuple[int, str], tuple[str, ...]] = {}
    for batch in read_batches(catalogue, f"{dataset}.arrivals", ("increment", "path", "content_sha256")):
        for row, digest in _matched(batch["content_sha256"], lambda digest: bool(matcher.hits("sha256", digest))):
            if path := batch["path"][row].as_py():
                files[batch["increment"][row].as_py(), path] = matcher.hits("sha256", digest)
    return files


def facts_of(catalogue: Catalog, doc_ids: Collection[str]) -> dict[str, dict[str, Any]]:
    """Dataset, repository and path of documents; of those that were deleted nothing."""
    facts, wanted = {}, pa.array(sorted(doc_ids), pa.string())
    for dataset in namespaces_with(catalogue, "documents") if doc_ids else ():
        for batch in read_batches(catalogue, f"{dataset}.documents", ("doc_id", "repository", "path")):
            for row in rows_among(batch, ("doc_id",), wanted).to_pylist():
                facts[row["doc_id"]] = {"dataset": dataset, "repository": row["repository"], "path": row["path"]}
    return facts

"""What entries of the opt-out register are about in a lake: documents, the repositories' forks, authors' files.

Tables are read column by column, and each distinct value is looked up once, so 13,000 entries against a million
documents are some seconds. Authors are hashes, compared with the names and addresses that metadata hold, with owners of
repositories (`owner/name`), and with the commits of git repositories that are still there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog

from dagster_project.inspect.lake.corpus_facts import namespaces_with
from headrace_features.rights.matching import ADDRESSES, AUTHORS, Matcher
from headrace_features.rights.register import Kind
from spark_jobs.exceptions import SparkJobsError
from spark_jobs.lake.files.lookups import read_batches, read_columns
from spark_jobs.lake.ledger.ledger import Ledger

_NAMED_BY: Final[tuple[tuple[Kind, str], ...]] = (
    *(("repository", "repository"), ("path", "path"), ("sha256", "content_sha256")),
    *(("record", "doc_id"), ("record", "path")),
)
_HOST: Final = r"^(?i:https?)://(?:[^/@]*@)?(?P<host>\[[^\]]*\]|[^/:?#]+)"


class Hit(NamedTuple):
    """A document that an entry is about, and how that is known."""

    entry: str
    doc_id: str
    dataset: str
    path: str
    how: str


class NotAsked(NamedTuple):
    """Something that could not be looked at, and why: no hit is claimed and none denied."""

    dataset: str
    what: str


def direct_hits(catalogue: Catalog, matcher: Matcher, not_asked: list[NotAsked]) -> Iterator[Hit]:
    """The documents of all datasets and increments that entries name; `not_asked` gets what could not be looked at."""
    ledger = Ledger.fresh(catalogue)
    for dataset in namespaces_with(catalogue, "documents"):
        of_dataset = matcher.hits("dataset", dataset)
        forks = _forks(catalogue, dataset, matcher)
        files = _files_by_hash(catalogue, dataset, matcher)
        commits = _committed(ledger, dataset, matcher, not_asked) if "author" in matcher.kinds() else {}
        columns = ("doc_id", "repository", "path", "content_sha256", "metadata")
        for batch in read_batches(catalogue, f"{dataset}.documents", columns):
            named = _Batch(dataset, batch)
            yield from (named.hit(row, entry, "dataset") for row in range(len(batch)) for entry in of_dataset)
            yield from named.named(matcher)
            yield from named.among(batch["repository"], forks, "fork of")
            yield from named.among(pc.replace_substring_regex(batch["path"], "#.*", ""), files, "file")
            if commits:
                yield from named.committed(commits)


class _Batch:
    """The documents of a batch."""

    def __init__(self, dataset: str, batch: pa.RecordBatch) -> None:
        self.dataset, self.batch = dataset, batch

    def hit(self, row: int, entry: str, how: str) -> Hit:
        return Hit(entry, self.batch["doc_id"][row].as_py(), self.dataset, self.batch["path"][row].as_py(), how)

    def named(self, matcher: Matcher) -> Iterator[Hit]:
        """Those that an entry names by one of their columns."""
        batch = self.batch
        for kind, column in _NAMED_BY:
            if kind in matcher.kinds():
                yield from self._looked_up(batch[column], partial(matcher.hits, kind), kind)
        if matcher.kinds() & {"domain", "url_prefix"}:
            yield from self._addresses(matcher)
        if "author" in matcher.kinds():
            yield from self._authors(matcher)

    def among(self, values: pa.Array, entries: Mapping[str, tuple[tuple[str, str], ...]], how: str) -> Iterator[Hit]:
        """Those whose value is a key; each has entries, with what is said of them."""
        if entries:
            rows = pc.indices_nonzero(pc.is_in(values, pa.array(entries, values.type))).to_pylist()
            for row in rows:
                for entry, about in entries[values[row].as_py()]:
                    yield self.hit(row, entry, f"{how} {about}")

    def committed(self, commits: Mapping[tuple[str, str], tuple[str, ...]]) -> Iterator[Hit]:
        """Those whose file an author has changed."""
        names = self.batch["repository"].to_pylist()
        paths = pc.replace_substring_regex(self.batch["path"], "#.*", "").to_pylist()
        for row, place in enumerate(zip(names, paths, strict=True)):
            yield from (self.hit(row, entry, "author of a commit") for entry in commits.get(place, ()))

    def _looked_up(self, values: pa.Array, entries_of: Callable[[str], Iterable[str]], how: str) -> Iterator[Hit]:
        """Documents by their value, each distinct one looked up once."""
        encoded = values.dictionary_encode()
        found = {}
        for number, value in enumerate(encoded.dictionary.to_pylist()):
            if value is not None and (entries := tuple(dict.fromkeys(entries_of(value)))):
                found[number] = entries
        if found:
            numbers = pa.array(found, encoded.indices.type)
            for row in pc.indices_nonzero(pc.is_in(encoded.indices, numbers)).to_pylist():
                yield from (self.hit(row, entry, how) for entry in found[encoded.indices[row].as_py()])

    def _addresses(self, matcher: Matcher) -> Iterator[Hit]:
        """By the addresses in their metadata, else that in their path; canonical forms only of hosts that are named."""

        def entries_of(url: str) -> tuple[str, ...]:
            return matcher.hits("domain", url) + matcher.hits("url_prefix", url)

        metadata, found = self.batch["metadata"], pc.match_substring_regex(self.batch["path"], "^(?i:https?)://")
        paths = pc.if_else(found, self.batch["path"].cast(pa.string()), pa.scalar(None, pa.string()))
        keys = set(pc.unique(metadata.keys.cast(pa.string())).to_pylist())
        values = [_value(metadata, key) for key in ADDRESSES if key in keys]
        for urls in (*values, paths):
            hosts = pc.struct_field(pc.extract_regex(urls, _HOST), "host").dictionary_encode()
            may_match = [host is not None and _may_match(matcher, host) for host in hosts.dictionary.to_pylist()]
            chosen = pc.fill_null(pc.take(pa.array(may_match, pa.bool_()), hosts.indices), False)
            yield from self._looked_up(pc.if_else(chosen, urls, pa.scalar(None, pa.string())), entries_of, "url")

    def _authors(self, matcher: Matcher) -> Iterator[Hit]:
        metadata = self.batch["metadata"]
        keys = pc.unique(metadata.keys.cast(pa.string())).to_pylist()
        for key in (key for key in keys if key.lower() in AUTHORS):
            yield from self._looked_up(_value(metadata, key), partial(matcher.hits, "author"), f"author ({key})")
        owners = pc.struct_field(pc.extract_regex(self.batch["repository"].cast(pa.string()), r"^(?P<o>[^/]+)/"), "o")
        yield from self._looked_up(owners, partial(matcher.hits, "author"), "author (owner)")


def _value(metadata: pa.MapArray, key: str) -> pa.Array:
    """The values of a key, null where a document has none."""
    return pc.map_lookup(metadata, pa.scalar(key, metadata.type.key_type), "first").cast(pa.string())


def _may_match(matcher: Matcher, host: str) -> bool:
    """Whether an entry may be about an address of a host as it is written; one that is not plain is looked up whole."""
    name = host.lower()
    is_plain = name.isascii() and "%" not in name
    return not is_plain or name in matcher.hosts or bool(matcher.host(name.rstrip(".")))


def _forks(catalogue: Catalog, dataset: str, matcher: Matcher) -> dict[str, tuple[tuple[str, str], ...]]:
    """Forks of repositories that entries name, through any number of forks."""
    facts = read_columns(catalogue, f"{dataset}.repositories", ("repository", "fork_of"))
    if facts is None or "repository" not in matcher.kinds():
        return {}
    origin = {name: of for name, of in zip(*(column.to_pylist() for column in facts.columns), strict=True) if of}
    found = {}
    for name in origin:
        seen, at = {name}, origin.get(name)
        while at is not None and at not in seen:
            if entries := tuple((entry, str(at)) for entry in matcher.hits("repository", at)):
                found[name] = entries
                break
            seen.add(at)
            at = origin.get(at)
    return found


def _files_by_hash(catalogue: Catalog, dataset: str, matcher: Matcher) -> dict[str, tuple[tuple[str, str], ...]]:
    """Paths of files whose bytes an entry names; a document inside of such a file has another hash."""
    if "sha256" not in matcher.kinds():
        return {}
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    wanted = pa.array([value for kind, value in matcher.named if kind == "sha256"], pa.string())
    for batch in read_batches(catalogue, f"{dataset}.arrivals", ("path", "content_sha256")):
        hashes = batch["content_sha256"].cast(pa.string())
        rows = batch.filter(pc.is_in(hashes, wanted)).to_pylist()
        for row in (row for row in rows if row["path"]):
            digest = row["content_sha256"]
            found[row["path"].partition("#")[0]] = tuple((entry, digest) for entry in matcher.hits("sha256", digest))
    return found


def _committed(
    ledger: Ledger, dataset: str, matcher: Matcher, not_asked: list[NotAsked]
) -> dict[tuple[str, str], tuple[str, ...]]:
    """Entries by (repository, path) of files that an author's commits have changed, of git repositories still there."""
    increments = ledger.increments(f"{dataset}.documents")
    source = json.loads(increments[max(increments)].config).get("source", {}) if increments else {}
    if source.get("kind") != "git":
        return {}
    from spark_jobs.sources.config.source_config import GitSource
    from spark_jobs.sources.git.repositories import allowed_folders, find_repositories
    from spark_jobs.sources.git.store import IsolatedGit, RefusedRepositoryError, open_store
    from spark_jobs.sources.opening.file_trees import absolute

    found: dict[tuple[str, str], set[str]] = {}
    try:
        declared = GitSource.model_validate({name: value for name, value in source.items() if name != "cache"})
        repositories = find_repositories(declared)
    except (SparkJobsError, ValueError, OSError) as error:
        not_asked.append(NotAsked(dataset, f"authors of commits: {str(error).splitlines()[0]}"))
        return {}
    for repository in repositories:
        try:
            store = open_store(repository.root, absolute(declared.cache), allowed_folders(repositories))
            with IsolatedGit(store) as git:
                tips = [*store.refs.values(), *filter(None, [store.head])]
                log = git.output("log", "-z", "--name-only", "--no-renames", "--format=%x01%an%x02%ae", *set(tips))
        except (RefusedRepositoryError, OSError) as error:
            not_asked.append(NotAsked(dataset, f"authors of the commits of {repository.name}: {error}"))
            continue
        for entries, path in _commit_paths(log, matcher):
            found.setdefault((repository.name, path), set()).update(entries)
    return {place: tuple(sorted(entries)) for place, entries in found.items()}


def _commit_paths(log: bytes, matcher: Matcher) -> Iterator[tuple[Collection[str], str]]:
    """The paths of commits by authors that entries are about."""
    known: dict[bytes, frozenset[str]] = {}
    for commit in log.split(b"\x01")[1:]:
        author, _, paths = commit.partition(b"\0")
        if author not in known:
            names = author.decode(errors="replace").split("\x02")
            known[author] = frozenset(entry for name in names for entry in matcher.hits("author", name))
        if known[author]:
            for path in paths.removeprefix(b"\n").split(b"\0"):
                if path:
                    yield known[author], path.decode(errors="replace")

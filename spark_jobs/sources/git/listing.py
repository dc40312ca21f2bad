"""List the new versions of files in git repositories, and the removed paths.

    refs read -> as before? nothing more
              -> commits -> versions of paths (history.py) -> rows for those that are new
                         -> facts about the repository -> `select` -> refused, with the reason

The location of a version is `REPOSITORY@BLOB:PATH`; `git cat-file blob BLOB` in the repository prints its bytes. So a
version lands once, whichever commits have it. A gone path is at `REPOSITORY@000..:PATH`. The repository itself has a
row at its own path, with the digest of the commits deciding the selection as its `content_sha256`: while it stays, the
repository is not looked into again. Rows are written for what is new and gone alone; the others are known by their
increment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.exceptions import InputError
from spark_jobs.sources import linguist
from spark_jobs.sources.config.permissions import OptOuts
from spark_jobs.sources.config.source_config import DocumentsConfig, EveryNth, GitSource
from spark_jobs.sources.git.arrived import Arrived, arrived_of, damaged
from spark_jobs.sources.git.facts import described_licence, failed_rule, original_of, quality_facts
from spark_jobs.sources.git.history import (
    LINK,
    SUBMODULE,
    FileVersion,
    PathHistory,
    author_marks,
    blob_sizes,
    commits,
    path_histories,
    selected,
    tips,
    tree_files,
)
from spark_jobs.sources.git.repositories import GitRepository, allowed_folders, find_repositories, written
from spark_jobs.sources.git.store import IsolatedGit, RefusedRepositoryError, Store, open_store
from spark_jobs.sources.identity import sha256_hex
from spark_jobs.sources.languages import Language, language_columns, language_of
from spark_jobs.sources.listing.changes import LatestArrivals
from spark_jobs.sources.listing_rows import LISTING, listing_row, why
from spark_jobs.sources.opening.file_trees import absolute
from spark_jobs.sources.records.facts import Facts, facts_json
from spark_jobs.sources.refusals import TRIED_AGAIN, Reason, Refusal
from spark_jobs.sources.taken import BY_PATH, is_taken_as_before, left_out

Row = dict[str, Any]

_LAST_SECOND = 253_402_300_799  # of the year 9999: times of commits may be forged
_CHUNK_FILES = 500  # files of one repository that one task reads, so that git finds what their deltas share
_CHUNK_BYTES = 16 << 20
_NO_NAMES = frozenset({"", ".", ".."})
_MARKED = str(Reason.MARKED)


@dataclass(frozen=True)
class _Path:
    """A path as text, with its language by name, and why none of its versions is read.

    Of a path left out, whatever is in its versions, the one in HEAD gets a row, once.
    """

    shown: str
    language: Language | None
    refusal: Refusal | None

    @property
    def is_left_out(self) -> bool:
        """Whether the path itself says that it is not taken."""
        return self.refusal is not None and self.refusal.reason in BY_PATH


def discover_git(
    config: DocumentsConfig, source: GitSource, arrivals: pa.Table, reread: bool, opt_outs: OptOuts | None = None
) -> pa.Table | None:
    """List what is new or gone in the repositories of a source; one that opted out is refused once it changes.

    Raises:
        InputError: the source names no repository, or two of one name.
    """
    repositories = find_repositories(source)
    states = LatestArrivals(arrivals.filter(pc.field("path").is_null() & pc.field("repository").is_valid()))
    roots = {written(repository.root) for repository in repositories}
    vanished = sorted(root for root, row in states.items() if row["status"] != "gone" and root not in roots)
    if not repositories and not config.allow_empty:
        raise InputError(
            f"dataset {config.dataset}: no repository matches {', '.join(source.repositories)}; check the paths, or "
            "declare `allow_empty: true` if all of them were deleted"
        )
    allowed = allowed_folders(repositories)
    opened = [_opened(repository, config, source, allowed) for repository in repositories]
    broken = damaged(arrivals)
    changed = [
        repository
        for repository in opened
        if reread or repository.name in broken or not _is_as_before(repository, states)
    ]
    if opt_outs is not None:
        changed = [
            replace(each, refusal=each.refusal or opt_outs.refusal({"repository": each.name})) for each in changed
        ]
    if not changed and not vanished:
        return None
    names = [repository.name for repository in changed] + [states[root]["repository"] for root in vanished]
    arrived = arrived_of(arrivals, names)
    rows: list[Row] = []
    forks = _forks(opened) if any(repository.refusal is None for repository in changed) and len(opened) > 1 else {}
    for repository in changed:
        rows += _repository_rows(
            repository, config, source, arrived.get(repository.name, Arrived()), forks.get(repository.name), reread
        )
    for root in vanished:
        before, name = arrived.get(states[root]["repository"], Arrived()), states[root]["repository"]
        lost = Refusal(Reason.NO_REPOSITORY, f"no repository is there any more; its {len(before.live)} files are gone")
        rows += [listing_row(location=root, repository=name, gone=True, **why(lost))]
        rows += _gone(root, name, sorted(before.paths))
    rows = [row for row in rows if not _is_refused_as_before(row, states)]
    if not rows:
        return None
    rows.sort(key=lambda row: (row["repository"], row["path"] or "", row["version"] or 0, row["location"]))
    _add_chunks(rows)
    return pa.Table.from_pylist(rows, LISTING)


def _opened(
    repository: GitRepository, config: DocumentsConfig, source: GitSource, allowed: frozenset[str]
) -> GitRepository:
    """A repository with its refs, and the digest behind the choice of its files; or with its refusal."""
    try:
        repository.root.encode()
        store = open_store(repository.root, absolute(source.cache), allowed)
    except RefusedRepositoryError as error:
        return replace(repository, refusal=error.refusal)
    except UnicodeEncodeError:
        return replace(repository, refusal=Refusal(Reason.BAD_NAME, "its name is not UTF-8; rename it"))
    refs = store.refs if source.revisions == "tags" else {}
    tags = sorted(f"{oid} {name}" for name, oid in refs.items() if name.startswith("refs/tags/"))
    declared = source.model_copy(update={"kinds": tuple(sorted(source.kinds))})
    taken = declared.model_dump_json(exclude={"repositories", "cache"})
    decides = "\n".join([str(store.head), *tags, taken, str(config.max_document_bytes), linguist.tables().source])
    return replace(repository, store=store, digest=sha256_hex(decides.encode(errors="replace")))


def _is_as_before(repository: GitRepository, states: Mapping[str, Row]) -> bool:
    """Whether the commits of a repository are those of its last arrival; what was damaged is tried again."""
    state = states.get(written(repository.root))
    if state is None or state["status"] == "gone" or repository.digest is None:
        return False
    return bool(state["content_sha256"] == repository.digest) and state["reason"] in (None, str(Reason.NOT_SELECTED))


def _is_refused_as_before(row: Row, states: Mapping[str, Row]) -> bool:
    """Whether a row refuses a repository as its last arrival did, so that it is left out."""
    state = states.get(row["location"])
    compared = ("content_sha256", "reason", "detail")
    return (
        state is not None
        and state["status"] == "rejected"
        and row["reason"] is not None
        and not row["gone"]
        and all(row[name] == state[name] for name in compared)
    )


def _forks(opened: list[GitRepository]) -> dict[str, str]:
    """The original of each repository with a shared first root commit, by name."""
    groups: dict[str, list[GitRepository]] = {}
    for repository in opened:
        if repository.store is not None and repository.store.head is not None:
            try:
                with IsolatedGit(repository.store) as git:
                    roots = git.output("rev-list", "--max-parents=0", repository.store.head).split()
            except RefusedRepositoryError:
                continue  # its own row says why
            if roots and not repository.store.shallow:
                groups.setdefault(min(roots).decode(), []).append(repository)
    forks: dict[str, str] = {}
    for group in groups.values():
        if len(group) > 1:
            histories = {}
            for repository in group:
                assert repository.store is not None and repository.store.head is not None
                with IsolatedGit(repository.store) as git:
                    histories[repository.name] = commits(git, [repository.store.head])
            original = original_of(histories)
            forks |= {name: original for name in histories if name != original}
    return forks


def _repository_rows(
    opened: GitRepository,
    config: DocumentsConfig,
    source: GitSource,
    arrived: Arrived,
    fork_of: str | None,
    reread: bool,
) -> list[Row]:
    """The rows of one repository: its own, those of new versions, and those of removed paths."""
    root, name = written(opened.root), opened.name
    repository_row = listing_row(location=root, repository=name, reader="git", content_sha256=opened.digest)
    if opened.store is None or opened.refusal is not None:
        return [repository_row | why(opened.refusal)]
    try:
        with IsolatedGit(opened.store) as git:
            return _rows_of_store(git, opened.store, repository_row, config, source, arrived, fork_of, reread)
    except RefusedRepositoryError as error:
        return [repository_row | why(error.refusal)]


def _rows_of_store(
    git: IsolatedGit,
    store: Store,
    repository_row: Row,
    config: DocumentsConfig,
    source: GitSource,
    arrived: Arrived,
    fork_of: str | None,
    reread: bool,
) -> list[Row]:
    """The rows of an opened repository.

    Raises:
        RefusedRepositoryError: its commits or trees are missing or damaged.
    """
    root, name = repository_row["location"], repository_row["repository"]
    revisions = source.revisions.every if isinstance(source.revisions, EveryNth) else source.revisions
    starts = tips(git, store, revisions)
    history = commits(git, starts)
    chosen = selected(history, starts, revisions)
    newest = chosen[-1][0]
    live = tree_files(git, newest.tree)
    sizes = blob_sizes(git, [oid for mode, oid in live.values() if mode not in (LINK, SUBMODULE)])
    histories = path_histories(git, chosen, live)
    marked = author_marks(git, live, histories)
    files = {path.decode(errors="replace"): sizes[oid] for path, (_, oid) in live.items() if oid in sizes}
    stated = described_licence(git, live, sizes)
    facts = Facts(
        repository=name,
        revision=newest.oid,
        licence=stated.licence,
        fork_of=fork_of,
        metadata=quality_facts(history, files, {path.decode(errors="replace"): mark for path, mark in marked.items()})
        | stated.metadata,
    )
    repository_row = repository_row | {
        "revision": newest.oid,
        "licence": stated.licence,
        "modified": _microseconds(newest.time),
    }
    failed = failed_rule(source.select, facts)
    if failed is not None:
        lost = _gone(root, name, sorted(arrived.paths))
        return [repository_row | why(Refusal(Reason.NOT_SELECTED, failed)), *lost]
    paths = _paths(histories, source, marked if source.marked == "leave_out" else {})
    rows: list[Row] = []
    gone: list[str] = []
    for raw, path in paths.items():
        if path.is_left_out:
            assert path.refusal is not None
            if histories[raw].live is not None and arrived.refused.get(path.shown) != _told(path.refusal):
                version = histories[raw].ordered()[-1]
                row = _version_row(root, path, version) | {"byte_count": sizes.get(version.blob)}
                rows.append(row | {"repository": name, "licence": stated.licence, "version": 0, "past": False})
            continue
        versions = [_version_row(root, path, version) for version in histories[raw].ordered()]
        is_live = histories[raw].live is not None
        for number, row in enumerate(versions):
            past = not is_live or number < len(versions) - 1
            row |= {"repository": name, "licence": stated.licence, "version": number, "past": past}
        fresh = versions if reread else versions[_first_to_read(versions, arrived, is_live, config, source) :]
        rows += fresh
        if not is_live and (fresh or path.shown in arrived.paths):
            gone.append(path.shown)
    listed = {path.shown for raw, path in paths.items() if not path.is_left_out or histories[raw].live is not None}
    gone += sorted(arrived.paths - listed)
    repository_row["repository_facts"] = facts_json(facts)
    return [repository_row, *_with_sizes(git, rows), *_gone(root, name, gone)]


def _told(refusal: Refusal) -> tuple[str, str]:
    """Reason and detail as they stand in arrivals."""
    return str(refusal.reason), refusal.detail


def _paths(histories: dict[bytes, PathHistory], source: GitSource, marked: dict[bytes, str]) -> dict[bytes, _Path]:
    """Every path, with its language by name, and why it is not read, if it is not."""
    by_raw_path = {}
    for raw, history in histories.items():
        shown = raw.decode(errors="backslashreplace")
        refusal = left_out(shown, source.kinds)
        if any(version.mode == SUBMODULE for version in history.versions.values()):
            refusal = None  # its row says that it is one
        if refusal is None and shown.encode() != raw:
            refusal = Refusal(Reason.BAD_NAME, "the name is not UTF-8; rename the file")
        elif refusal is None and not _NO_NAMES.isdisjoint(shown.split("/")):
            refusal = Refusal(Reason.BAD_NAME, "a part of the path is empty, . or ..; no file of a checkout has it")
        elif refusal is None and raw in marked:
            refusal = Refusal(Reason.MARKED, f"{marked[raw]} in .gitattributes; `marked: take` takes such files")
        by_raw_path[raw] = _Path(shown, language_of(shown), refusal)
    return by_raw_path


def _version_row(root: str, path: _Path, version: FileVersion) -> Row:
    """The row of one version of a file, or of what is no content."""
    refusal = path.refusal
    if version.mode == SUBMODULE and not path.is_left_out:
        refusal = Refusal(Reason.NOT_A_FILE, f"a submodule at commit {version.blob}; name its repository in the source")
    elif version.mode == LINK and not path.is_left_out:
        refusal = Refusal(Reason.NOT_A_FILE, "a symbolic link; what it leads to lands by its own path")
    return listing_row(
        location=f"{root}@{version.blob}:{path.shown}",
        path=path.shown,
        revision=version.revision,
        modified=_microseconds(version.time),
        blob=version.blob,
        **language_columns(None if refusal else "text", path.language),
        **why(refusal),
    )


def _first_to_read(
    versions: list[Row], arrived: Arrived, is_live: bool, config: DocumentsConfig, source: GitSource
) -> int:
    """The number of the first version of a path to be read; those after it are read again, to know which is the last.

    Where all have arrived that is the last one alone if the path had another one, or none, until now. What was missing,
    marked, too large, of another kind or of no known language may not be so any more.
    """
    limit = f"max_document_bytes is {config.max_document_bytes}"

    def is_new(row: Row) -> bool:
        reason, detail = arrived.reasons.get(row["location"], (TRIED_AGAIN[0], ""))
        if row["reason"] or reason in TRIED_AGAIN:
            return reason in TRIED_AGAIN
        is_named_now = reason == Reason.UNKNOWN_FORMAT and row["kind"] is not None
        has_room = reason == Reason.TOO_LARGE and not detail.endswith(limit)
        return reason == _MARKED or is_named_now or has_room or not is_taken_as_before(reason, detail, source)

    new = [is_new(row) for row in versions]
    if any(new):
        return new.index(True)
    last = versions[-1]
    reason = last["reason"] or arrived.reasons[last["location"]][0]
    document = last["location"] if reason in (None, str(Reason.DELETED)) else None
    is_as_before = last["path"] in arrived.paths and arrived.live.get(last["path"]) == document
    return len(versions) - (is_live and not is_as_before)


def _with_sizes(git: IsolatedGit, rows: list[Row]) -> list[Row]:
    """The rows with the sizes of their blobs; a missing blob is refused."""
    sizes = blob_sizes(git, [row["blob"] for row in rows if row["reader"] == "text"])
    missing = why(Refusal(Reason.MISSING_OBJECT, "git has no such blob; fetch it, or try git fsck"))
    return [
        row | ({"byte_count": sizes[row["blob"]]} if row["blob"] in sizes else {"reader": None, **missing})
        if row["reader"] == "text"
        else row
        for row in rows
    ]


def _gone(root: str, repository: str, paths: Iterable[str]) -> list[Row]:
    """Rows of a repository's removed paths; as in git, their blob is written as zeros."""
    none = "0" * 40
    return [
        listing_row(location=f"{root}@{none}:{path}", repository=repository, path=path, gone=True, version=0)
        for path in paths
    ]


def _microseconds(seconds: int) -> int:
    """Microseconds since 1970 of the time of a commit; it may be forged."""
    return min(max(seconds, 0), _LAST_SECOND) * 1_000_000


def _add_chunks(rows: list[Row]) -> None:
    """Give neighbours in a repository, by path and version, one rank, so that one task reads them from one process."""
    rank, files, byte_count, repository = -1, 0, 0, None
    for row in rows:
        if rank < 0 or row["repository"] != repository or files >= _CHUNK_FILES or byte_count >= _CHUNK_BYTES:
            rank, files, byte_count, repository = rank + 1, 0, 0, row["repository"]
        row["size_rank"] = rank
        files += 1
        byte_count += row["byte_count"] or 0

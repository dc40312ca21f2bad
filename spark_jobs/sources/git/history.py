"""The versions of files in selected revisions of a git repository, found without a checkout.

A version is a path with a blob. The versions of a repository are those in the trees of the selected revisions; each is
found once, in the first revision of the order with it:

    revision   a.py   b.py   versions found
    c1         A      -      (a.py, A) in c1
    c2         B      X      (a.py, B) and (b.py, X) in c2
    c3         A      -      none: a.py is (a.py, A) again, b.py was deleted

The order is that of commits (a parent before its children, else by date). Every revision is compared with one other
before it: its first parent where all commits are selected, else the revision selected before it. So a version in a tree
and in none of those before it is always among the differences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, Final, NamedTuple

from spark_jobs.sources.git.store import IsolatedGit, RefusedRepositoryError, Store
from spark_jobs.sources.refusals import Reason

LINK: Final = "120000"
SUBMODULE: Final = "160000"
_MAX_PATHS = 2_000_000  # of one repository; only trees that hold one tree again and again have more
_FORMAT = "--format=%H%x00%T%x00%P%x00%ct%x00%ae"
_CHUNK_BYTES = 1 << 20
_FOREIGN_PARTS = frozenset({b"", b".", b"..", b".git"})
_MARKS = ("linguist-generated", "linguist-vendored", "diff")


class Commit(NamedTuple):
    """A commit: its id, tree, parents, time (seconds since 1970 UTC) and the address of its author."""

    oid: str
    tree: str
    parents: tuple[str, ...]
    time: int
    author: str


class FileVersion(NamedTuple):
    """A blob at a path: its first revision, the time of that, and its mode in the tree."""

    blob: str
    mode: str
    revision: str
    time: int


@dataclass
class PathHistory:
    """The versions of one path in order, and its blob in the newest revision (None: it was deleted)."""

    versions: dict[str, FileVersion] = field(default_factory=dict)
    last: str = ""
    live: str | None = None

    def ordered(self) -> list[FileVersion]:
        """The versions in order, but with the path's present or last one at the end."""
        last = self.versions[self.last]
        return [version for version in self.versions.values() if version is not last] + [last]


def tips(git: IsolatedGit, store: Store, revisions: object) -> list[str]:
    """The commits behind a selection: those of all tags, or that of HEAD.

    Raises:
        RefusedRepositoryError: there is none.
    """
    if revisions == "tags":
        tagged = _commits_at(git, {oid for name, oid in store.refs.items() if name.startswith("refs/tags/")})
        if not tagged:
            raise RefusedRepositoryError(Reason.EMPTY, "it has no tag of a commit; select other `revisions`")
        return tagged
    if store.head is None:
        raise RefusedRepositoryError(Reason.EMPTY, "HEAD names a branch without a commit")
    if not (head := _commits_at(git, {store.head})):
        raise RefusedRepositoryError(Reason.CORRUPT_REPOSITORY, f"HEAD is {store.head}, no commit; try git fsck")
    return head


def _commits_at(git: IsolatedGit, objects: Iterable[str]) -> list[str]:
    """The commits among some objects, and those behind their tags, each once."""
    queries = (f"{oid}^{{commit}}\n".encode() for oid in sorted(objects))
    lines = (line.split() for line in git.output("cat-file", "--batch-check", parts=queries).split(b"\n"))
    return sorted({line[0].decode() for line in lines if line[1:2] == [b"commit"]})


def commits(git: IsolatedGit, starts: list[str]) -> list[Commit]:
    """All reachable commits, a parent before its children, else by date.

    Raises:
        RefusedRepositoryError: commits are missing or damaged.
    """
    arguments = ("rev-list", "--date-order", "--reverse", "--no-commit-header", _FORMAT, "--stdin")
    printed = git.output(*arguments, parts=(f"{start}\n".encode() for start in starts))
    listed = []
    for line in printed.decode(errors="replace").split("\n"):
        if line.count("\0") >= 4:
            oid, tree, parents, time, author = line.split("\0", 4)
            listed.append(Commit(oid, tree, tuple(parents.split()), int(time or 0), author))  # no time: as git
    return listed


def selected(history: list[Commit], starts: list[str], revisions: object) -> list[tuple[Commit, str | None]]:
    """The selected revisions in order, each with the tree to compare with (None: an empty one).

    Args:
        history: all commits from the tips.
        starts: the tips.
        revisions: `latest`, `tags`, `all`, or the number N: every Nth commit of the first parents' line, from its root,
            and its newest.
    """
    by_oid = {commit.oid: commit for commit in history}
    if revisions == "all":
        first = ((commit, by_oid.get(commit.parents[0]) if commit.parents else None) for commit in history)
        return [(commit, parent and parent.tree) for commit, parent in first]
    if isinstance(revisions, int):
        line = [by_oid[starts[0]]]
        while line[-1].parents and line[-1].parents[0] in by_oid:
            line.append(by_oid[line[-1].parents[0]])
        line.reverse()
        chosen = [commit for number, commit in enumerate(line, 1) if number % revisions == 0 or number == len(line)]
    else:
        wanted = set(starts)
        chosen = [commit for commit in history if commit.oid in wanted]
    before: list[str | None] = [None, *(commit.tree for commit in chosen)]
    return list(zip(chosen, before[:-1], strict=True))


def path_histories(
    git: IsolatedGit, chosen: list[tuple[Commit, str | None]], live: dict[bytes, tuple[str, str]]
) -> dict[bytes, PathHistory]:
    """The versions of every path in the selected revisions.

    Args:
        git: on the repository.
        chosen: what `selected` gives.
        live: mode and object id of each path of the newest revision.

    Raises:
        RefusedRepositoryError: trees are missing or damaged, or there are far too many files.
    """
    empty = git.output("hash-object", "-t", "tree", "--stdin").decode().strip()
    pairs = [f"{before or empty} {commit.tree}" for commit, before in chosen]
    histories: dict[bytes, PathHistory] = {}
    arguments = ("diff-tree", "--stdin", "-r", "-z", "--raw", "--no-renames", "--no-ext-diff", "--no-textconv")
    with git.stream(*arguments, parts=(f"{pair}\n".encode() for pair in pairs)) as printed:
        number = -1
        tokens = _tokens(printed)
        for token in tokens:
            headers, _, change = token.rpartition(b"\n")
            number += headers.count(b"\n") + 1 if headers else 0
            if not change.startswith(b":"):
                continue
            path = next(tokens)
            _, mode, _, blob, letter = change.decode().split()
            if letter != "D":
                history = histories.setdefault(path, PathHistory())
                _require_bounded(len(histories))
                if blob not in history.versions:
                    commit = chosen[number][0]
                    history.versions[blob] = FileVersion(blob, mode, commit.oid, commit.time)
                history.last = blob
    for path, (_, blob) in live.items():
        histories[path].live = histories[path].last = blob
    return histories


def _tokens(printed: IO[bytes]) -> Iterator[bytes]:
    """The parts of a stream between null bytes."""
    rest = b""
    while chunk := printed.read(_CHUNK_BYTES):
        *whole, rest = (rest + chunk).split(b"\0")
        yield from whole
    if rest:
        yield rest


def _require_bounded(paths: int) -> None:
    """Refuse a repository with too many paths.

    Raises:
        RefusedRepositoryError: there are more than `_MAX_PATHS`.
    """
    if paths > _MAX_PATHS:
        raise RefusedRepositoryError(Reason.CORRUPT_REPOSITORY, f"more than {_MAX_PATHS:,} paths; split the repository")


def tree_files(git: IsolatedGit, tree: str) -> dict[bytes, tuple[str, str]]:
    """Mode and object id of every file, link and submodule of a tree, by path.

    Raises:
        RefusedRepositoryError: trees are missing or damaged, or there are far too many files.
    """
    files: dict[bytes, tuple[str, str]] = {}
    with git.stream("ls-tree", "-r", "-z", tree) as printed:
        for token in _tokens(printed):
            about, _, path = token.partition(b"\t")
            mode, _, oid = about.decode().split()
            files[path] = mode, oid
            _require_bounded(len(files))
    return files


def blob_sizes(git: IsolatedGit, blobs: list[str]) -> dict[str, int]:
    """The sizes of blobs in bytes, without missing ones."""
    ordered = sorted(set(blobs))
    sizes = {}
    for line in git.output("cat-file", "--batch-check", parts=(f"{blob}\n".encode() for blob in ordered)).split(b"\n"):
        parts = line.split()
        if len(parts) == 3 and parts[1] == b"blob":
            sizes[parts[0].decode()] = int(parts[2])
    return sizes


def author_marks(git: IsolatedGit, live: dict[bytes, tuple[str, str]], paths: Iterable[bytes]) -> dict[bytes, str]:
    """The paths marked by .gitattributes as generated, vendored or without a diff, with the mark.

    Args:
        git: on the repository.
        live: mode and object id of each path of the revision with the .gitattributes that count; only those become an
            index of git's, since a hostile tree may have paths invalid in an index.
        paths: what is asked about.
    """
    files = {path: oid for path, (mode, oid) in live.items() if path.rpartition(b"/")[2] == b".gitattributes"}
    rules = [b"100644 %s\t%s" % (oid.encode(), path) for path, oid in files.items() if _is_plain(path)]
    if not rules:
        return {}
    git.output("update-index", "-z", "--index-info", parts=[b"\0".join(rules) + b"\0"])
    queries = b"\0".join(path for path in paths if _is_plain(path))
    answered = git.output("check-attr", "--cached", "--stdin", "-z", *_MARKS, parts=[queries + b"\0"]).split(b"\0")
    marked: dict[bytes, str] = {}
    for path, name, value in zip(answered[0::3], answered[1::3], answered[2::3], strict=False):
        if name == b"diff":
            if value == b"unset":
                marked.setdefault(path, "-diff")
        elif value in (b"set", b"true"):
            marked.setdefault(path, name.decode())
    return marked


def _is_plain(path: bytes) -> bool:
    """Whether git would write such a path into a work tree."""
    return _FOREIGN_PARTS.isdisjoint(path.lower().split(b"/"))

"""The repositories of a source of git, by patterns, folders and files; none of them is opened here."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from spark_jobs.exceptions import InputError
from spark_jobs.sources.config.source_config import GitSource
from spark_jobs.sources.git.store import Store
from spark_jobs.sources.opening.file_trees import absolute
from spark_jobs.sources.refusals import Refusal

_PATTERN_SIGN = re.compile(r"[*?[]")


@dataclass(frozen=True)
class GitRepository:
    """A repository of the source.

    Attributes:
        name: of its folder or file, without .git or .bundle.
        root: its path.
        is_linked: whether a link leads to it that the source does not name itself, but by a pattern or a folder.
        store: once it was opened: its refs and objects.
        refusal: why it could not be opened.
        digest: SHA-256 over the refs deciding the selection.
    """

    name: str
    root: str
    is_linked: bool = False
    store: Store | None = None
    refusal: Refusal | None = None
    digest: str | None = None


def find_repositories(source: GitSource) -> list[GitRepository]:
    """The repositories of a source, by the name of the folder or file, without .git or .bundle.

    For a folder other than a repository, those right below it are taken.

    Raises:
        InputError: two have one name.
    """
    by_name: dict[str, GitRepository] = {}
    for pattern in source.repositories:
        full = absolute(pattern)
        is_pattern = _PATTERN_SIGN.search(full) is not None and not os.path.exists(full)
        named = sorted(glob.glob(full)) if is_pattern else [full]
        stated = os.path.dirname(_PATTERN_SIGN.split(full)[0]) if is_pattern else full
        for root in (inner for root_or_parent in named for inner in _repositories_in(root_or_parent)):
            name = os.path.basename(root).removesuffix(".git").removesuffix(".bundle")
            name = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
            there = os.path.join(os.path.realpath(stated), os.path.relpath(root, stated))
            repository = GitRepository(name, root, os.path.realpath(root) != os.path.normpath(there))
            if by_name.setdefault(name, repository).root != root:
                raise InputError(
                    f"{by_name[name].root} and {root} are both named {name}; a dataset needs distinct names"
                )
    return [repository for _, repository in sorted(by_name.items())]


def allowed_folders(repositories: Iterable[GitRepository]) -> frozenset[str]:
    """Real paths of a source's repositories; nothing outside of these is read."""
    return frozenset(os.path.realpath(repository.root) for repository in repositories if not repository.is_linked)


def _repositories_in(root: str) -> list[str]:
    """The repositories right below a plain folder; the root itself where there are none."""
    if _is_repository(root) or not os.path.isdir(root) or not os.access(root, os.R_OK | os.X_OK):
        return [root]
    return [path for path in sorted(glob.glob(f"{glob.escape(root)}/*")) if _is_repository(path)] or [root]


def _is_repository(path: str) -> bool:
    """Whether a path looks like a work tree, a bare repository or a bundle."""
    if os.path.isfile(path):
        return path.endswith(".bundle")
    is_bare = os.path.isfile(os.path.join(path, "HEAD")) and os.path.isdir(os.path.join(path, "objects"))
    return is_bare or os.path.lexists(os.path.join(path, ".git"))


def written(path: str) -> str:
    """A path as text, with bytes outside of UTF-8 as escapes."""
    return os.fsencode(path).decode(errors="backslashreplace")

"""Files in commits of authors who opted out, asked of the git repositories that a dataset landed from."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Set

from pyiceberg.catalog import Catalog

from headrace_features.rights.hits.matching import Matcher
from spark_jobs.exceptions import SparkJobsError
from spark_jobs.lake.files.lookups import read_columns
from spark_jobs.sources.config.source_config import GitSource
from spark_jobs.sources.git.history import tips
from spark_jobs.sources.git.repositories import GitRepository, allowed_folders, find_repositories
from spark_jobs.sources.git.store import IsolatedGit, RefusedRepositoryError, open_store
from spark_jobs.sources.opening.file_trees import absolute

_LOG = ("log", "--no-renames", "--name-only", "-z", "--format=%x01%an%x00%ae%x00", "--stdin")


def paths_of_authors(
    catalogue: Catalog, dataset: str, names: Set[str], matcher: Matcher, not_asked: list[str]
) -> dict[tuple[str, str], tuple[str, ...]]:
    """Entries by repository and path of files that their authors committed; what cannot be read goes to `not_asked`.

    Args:
        catalogue: of the lake.
        dataset: that landed from git.
        names: of its repositories.
        matcher: of the entries.
        not_asked: gets a line for each repository that cannot be read.
    """
    by_file: dict[tuple[str, str], set[str]] = defaultdict(set)
    source = _git_source(catalogue, dataset) if names else None
    repositories: list[GitRepository] = []
    try:
        repositories = (
            [repository for repository in find_repositories(source) if repository.name in names] if source else []
        )
    except (SparkJobsError, OSError) as error:
        not_asked.append(f"{dataset}: authors of commits: {error}")
    allowed = allowed_folders(repositories)
    for repository in repositories:
        try:
            for path, authors in _commits(repository, source, allowed):  # type: ignore[arg-type] # there are some
                for entry in {entry for author in authors for entry in matcher.hits("author", author)}:
                    by_file[repository.name, path].add(entry)
        except (RefusedRepositoryError, SparkJobsError, OSError) as error:
            not_asked.append(f"{dataset}: authors of commits of {repository.name}: {error}")
    if away := sorted(names - {repository.name for repository in repositories}):
        what = f"authors of commits of {len(away):,} repositories, first {away[0]}"
        not_asked.append(f"{dataset}: {what}: no git repository of them can be read here")
    return {file: tuple(sorted(entries)) for file, entries in by_file.items()}


def _git_source(catalogue: Catalog, dataset: str) -> GitSource | None:
    """The source of the newest increment, where it is one of git."""
    rows = read_columns(catalogue, f"{dataset}.provenance", ("increment", "source"))
    if rows is None or not rows.num_rows:
        return None
    source = json.loads(rows.sort_by("increment")["source"][-1].as_py())
    return GitSource.model_validate(source) if source.get("kind") == "git" else None


def _commits(
    repository: GitRepository, source: GitSource, allowed: frozenset[str]
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Each path in each commit, with name and address of its author."""
    store = open_store(repository.root, absolute(source.cache), allowed)
    with IsolatedGit(store) as git:
        starts = (f"{start}\n".encode() for start in tips(git, store, source.revisions))
        for commit in git.output(*_LOG, parts=starts).split(b"\x01")[1:]:
            name, address, *paths = (part.decode(errors="backslashreplace").strip("\n") for part in commit.split(b"\0"))
            yield from ((path, (name, address)) for path in paths if path)

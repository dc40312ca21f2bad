"""Repositories made of a few lines, and their dependencies as paths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_jobs.code.dependency import Dependency, Repository
from spark_jobs.sources.languages import language_of


def repository_of(files: Mapping[str, str]) -> Repository:
    """A repository with these files, languages by their names."""
    paths = tuple(sorted(files, key=str.encode))
    found = [language_of(path) for path in paths]
    return Repository(
        paths, tuple(files[path] for path in paths), tuple(language.name if language else None for language in found)
    )


def as_paths(repository: Repository, dependencies: Iterable[Dependency]) -> set[tuple[str, str, str]]:
    """(needs, needed, kind) with paths, once none of them is given twice or to itself."""
    listed = list(dependencies)
    assert all(found.needs != found.needed and 0 < len(found.evidence) <= 200 for found in listed)
    pairs = {(repository.paths[found.needs], repository.paths[found.needed], found.kind) for found in listed}
    assert len(pairs) == len(listed)
    return pairs

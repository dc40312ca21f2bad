"""Repositories written by hand, and their dependencies as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_jobs.code.imports.dependency import Dependency, RepositoryTexts, Resolver
from spark_jobs.sources.languages import language_of


def repository_of(files: Mapping[str, str]) -> RepositoryTexts:
    """Files by path as a repository, with the languages that ingest gives them."""
    paths = sorted(files, key=lambda path: path.encode())
    found = [language_of(path) for path in paths]
    languages = tuple(language.name if language else None for language in found)
    return RepositoryTexts(tuple(paths), tuple(files[path] for path in paths), languages)


def as_paths(repository: RepositoryTexts, dependencies: Iterable[Dependency]) -> set[tuple[str, str, str]]:
    """(needs, needed, kind) with paths, once none of them is given twice or to itself."""
    listed = list(dependencies)
    assert all(found.needs != found.needed and 0 < len(found.evidence) <= 200 for found in listed)
    pairs = {(repository.paths[found.needs], repository.paths[found.needed], found.kind) for found in listed}
    assert len(pairs) == len(listed)
    return pairs


def edges(resolver: Resolver, files: dict[str, str]) -> set[tuple[str, str, str]]:
    """What a resolver finds, as (needs, needed, kind) with paths."""
    made = repository_of(files)
    found = list(resolver(made))
    check(made, found)
    return {(made.paths[edge.needs], made.paths[edge.needed], edge.kind) for edge in found}


def targets(resolver: Resolver, files: dict[str, str], path: str) -> list[str]:
    """Paths that one file needs."""
    return sorted({needed for needs, needed, _ in edges(resolver, files) if needs == path})


def check(made: RepositoryTexts, found: Iterable[Dependency]) -> None:
    """What every resolver promises: ends inside the repository, never the same, and evidence of bounded length."""
    for edge in found:
        assert 0 <= edge.needs < len(made.paths) and 0 <= edge.needed < len(made.paths)
        assert edge.needs != edge.needed
        assert 0 < len(edge.evidence) <= 200

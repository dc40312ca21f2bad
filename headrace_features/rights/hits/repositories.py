"""Repositories that opt-outs reach: by name, by owner, as forks of such ones, or as copies of most of their files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import GreaterThanOrEqual, NotNull

from dagster_project.inspect.lake.corpus_facts import namespaces_with
from headrace_features.rights.hits.matching import Matcher, owner_of
from spark_jobs.lake.files.lookups import EVERYTHING, read_batches, read_rows

Repositories = dict[tuple[str, str], dict[str, tuple[str, str]]]
"""By dataset and repository: by entry, how it is reached and from which repository or owner."""
_COPY = 0.7  # J from which on one repository counts as the other: what `corpus` asks of a containment by default


def repository_names(catalogue: Catalog, dataset: str) -> set[str]:
    """The repositories of a dataset's documents."""
    batches = read_batches(catalogue, f"{dataset}.documents", ("repository",))
    return {name for batch in batches for name in batch["repository"].unique().to_pylist() if name}


def reached_repositories(catalogue: Catalog, names: Mapping[str, Collection[str]], matcher: Matcher) -> Repositories:
    """All repositories that entries about repositories and authors reach, of those of some datasets."""
    reached: Repositories = {}
    if not names:
        return reached
    for dataset, of_dataset in names.items():
        for name in of_dataset:
            if entries := _named(matcher, name):
                reached[dataset, name] = entries
    by_name: dict[str, set[str]] = defaultdict(set)
    for (_, name), entries in reached.items():
        by_name[name.lower()] |= entries.keys()
    forks = list(_forks(catalogue, names))
    while sum(_follow(reached, by_name, matcher, *fork) for fork in forks):
        pass  # forks of forks
    for pair in list(_copies(catalogue)):
        for source, copy in (pair, pair[::-1]):
            for entry in [entry for entry, (how, _) in reached.get(source, {}).items() if how != "repository copy"]:
                reached.setdefault(copy, {}).setdefault(entry, ("repository copy", source[1]))
    return reached


def _named(matcher: Matcher, name: str) -> dict[str, tuple[str, str]]:
    """Entries about a repository or its owner."""
    owner = owner_of(name)
    authors = matcher.hits("author", owner) if owner else ()
    named = dict.fromkeys(matcher.hits("repository", name), ("repository", name))
    return dict.fromkeys(authors, ("author", name)) | named


def _follow(
    reached: Repositories, by_name: dict[str, set[str]], matcher: Matcher, dataset: str, name: str, original: str
) -> bool:
    """Have a fork reached by what reaches its original, be that in the lake or not; whether that is news."""
    entries = _named(matcher, original).keys() | by_name.get(original.lower(), set())
    news = entries - reached.get((dataset, name), {}).keys()
    if news:
        reached.setdefault((dataset, name), {}).update(dict.fromkeys(news, ("fork", original)))
        by_name[name.lower()] |= news
    return bool(news)


def _forks(catalogue: Catalog, datasets: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Dataset, name and original of all forks."""
    for dataset in datasets:
        columns = ("repository", "fork_of")
        for row in read_rows(catalogue, f"{dataset}.repositories", columns, NotNull("fork_of")):
            if row["fork_of"] != row["repository"]:
                yield dataset, row["repository"], row["fork_of"]


def _copies(catalogue: Catalog) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Pairs of repositories that are much the same: removed for another, or contained at a high similarity.

    A repository that is merely contained in a larger one is no copy of that: it is often the original.
    """
    for corpus in namespaces_with(catalogue, "members"):
        for table, side, condition in (
            ("repository_removals", "witness", EVERYTHING),
            ("repository_containments", "container", GreaterThanOrEqual("similarity", _COPY)),
        ):
            columns = ("dataset", "repository", f"{side}_dataset", f"{side}_repository")
            for row in read_rows(catalogue, f"{corpus}.{table}", columns, condition):
                yield (row["dataset"], row["repository"]), (row[f"{side}_dataset"], row[f"{side}_repository"])

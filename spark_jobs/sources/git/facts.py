"""Facts about a git repository, out of its history and its newest revision, and the rules of `select` on them."""

from __future__ import annotations

import contextlib
import datetime
import re
from collections import Counter

from spark_jobs.sources.config.source_config import RepositorySelection
from spark_jobs.sources.git.history import Commit
from spark_jobs.sources.git.store import IsolatedGit
from spark_jobs.sources.languages import VENDORED
from spark_jobs.sources.licences.expressions import allows
from spark_jobs.sources.licences.statements import MAX_LICENCE_BYTES, LicenceStatement, of_repository
from spark_jobs.sources.records.facts import Facts

_TESTS = re.compile(
    r"(?i)(^|/)(tests?|specs?|__tests__|testing|testdata)/|(^|/)(test_[^/]*|[^/]*[._-](test|spec))\.[^./]+$"
)
_VENDORED = re.compile(VENDORED)


def quality_facts(history: list[Commit], live: dict[str, int], marked: dict[str, str]) -> dict[str, str]:
    """What the history and the newest revision say about a repository, as texts for `repositories.metadata`.

    Args:
        history: its commits.
        live: sizes of the files of the newest revision, by path.
        marked: paths marked by its authors, with the mark.
    """
    size = sum(live.values())
    tests = sum(size for path, size in live.items() if _TESTS.search(path))
    vendored = sum(
        size for path, size in live.items() if _VENDORED.search(path) or marked.get(path) == "linguist-vendored"
    )
    times = [commit.time for commit in history]
    return {
        "commits": str(len(history)),
        "authors": str(len({commit.author.lower() for commit in history})),
        "first_commit": _day(min(times)),
        "last_commit": _day(max(times)),
        "files": str(len(live)),
        "bytes": str(size),
        "tests_share": f"{tests / size if size else 0:.4f}",
        "vendored_share": f"{vendored / size if size else 0:.4f}",
        "root_commits": " ".join(sorted(commit.oid for commit in history if not commit.parents)),
    }


def _day(seconds: int) -> str:
    """The day of a time, in UTC; a forged time beyond the calendar gives its first or last day."""
    with contextlib.suppress(OverflowError, ValueError, OSError):
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC).date().isoformat()
    return "9999-12-31" if seconds > 0 else "0001-01-01"


def original_of(histories: dict[str, list[Commit]]) -> str:
    """The original of a group of forks, by the authors of its later commits.

    All of them share a root commit. The author of most of their common commits decides: the original is where that
    author went on the most. Where the author went on nowhere, it is the one with the fewest commits of its own, since a
    fork adds to what it took; then the first by name. A source with better knowledge states `fork_of` itself.

    Args:
        histories: commits by the name of the repository; at least two.
    """
    shared = set.intersection(*({commit.oid for commit in history} for history in histories.values()))
    some = next(iter(histories.values()))
    counts = Counter(commit.author for commit in some if commit.oid in shared)
    founder = min(counts, key=lambda author: (-counts[author], author))

    def rank(name: str) -> tuple[int, int, str]:
        unshared = [commit for commit in histories[name] if commit.oid not in shared]
        return -sum(commit.author == founder for commit in unshared), len(unshared), name

    return min(histories, key=rank)


def described_licence(git: IsolatedGit, live: dict[bytes, tuple[str, str]], sizes: dict[str, int]) -> LicenceStatement:
    """What a revision states about its licence, by the manifests and texts at its root.

    Args:
        git: on the repository.
        live: mode and object id of each path of the revision.
        sizes: of its blobs, in bytes.
    """
    files = {path: oid for path, (_, oid) in live.items() if oid in sizes}  # neither links nor submodules
    names = [path.decode(errors="surrogateescape") for path in files if b"/" not in path]

    def content(name: str) -> bytes | None:
        oid = files.get(name.encode(errors="surrogateescape"))
        is_small = oid is not None and sizes[oid] < MAX_LICENCE_BYTES
        return git.output("cat-file", "blob", oid) if oid is not None and is_small else None

    return of_repository(content, names)


def failed_rule(rules: RepositorySelection, facts: Facts) -> str | None:
    """The first failed rule of a repository, with its value and the one wanted; None without any."""
    stated = facts.metadata
    for name, key in (("min_commits", "commits"), ("min_authors", "authors"), ("min_files", "files")):
        if int(stated[key]) < getattr(rules, name):
            return f"{stated[key]} {key}; {name} is {getattr(rules, name)}"
    if float(stated["tests_share"]) < rules.min_tests_share:
        return f"tests_share {stated['tests_share']}; min_tests_share is {rules.min_tests_share}"
    if float(stated["vendored_share"]) > rules.max_vendored_share:
        return f"vendored_share {stated['vendored_share']}; max_vendored_share is {rules.max_vendored_share}"
    if rules.active_since is not None and stated["last_commit"] < rules.active_since.isoformat():
        return f"last commit {stated['last_commit']}; active_since is {rules.active_since}"
    if rules.licences and not (facts.licence and allows(facts.licence, frozenset(rules.licences))):
        return f"licence {facts.licence or 'not recognised'}; licences are {', '.join(rules.licences)}"
    if facts.fork_of is not None and not rules.forks:
        return f"a fork of {facts.fork_of}; forks is false"
    return None

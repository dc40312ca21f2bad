"""How well files are ordered by what they need, against foreign tools on real packages; and how fast.

    python benchmarks/bench_depsort.py [--packages DIR] [--only LANGUAGE] [--rounds 3]

Packages are fetched at pinned versions into DIR (default: a folder of the system's for temporary files). Shares are of
true edges between components of the truth whose needed end comes first: by path, by chance, by symbols alone, by
imports and plain depth-first search, by imports, and by both; `circles` are those inside a component, by imports.
Recall and precision compare edges on files that both sides know. Times are CPU seconds of this process, the best of
some rounds; megabytes are of UTF-8.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import command
import numpy as np
from cpu_time import megabytes, peak_mib, seconds
from depsort_orders import HEADER, arrays_of, table_row
from depsort_truth import (
    JAVASCRIPT,
    PYTHON,
    TYPESCRIPT,
    C,
    Truth,
    c_truth,
    javascript_truth,
    python_truth,
)

from spark_jobs.code.imports.dependency import KINDS, Dependency, RepositoryTexts
from spark_jobs.code.order.dependency_order import Edges, order_files
from spark_jobs.code.order.file_graph import strong_components
from spark_jobs.code.repository_edges import RESOLVERS, merged

SETS: dict[str, tuple[Callable[[str, Path], Truth], Sequence[str]]] = {
    "Python": (python_truth, tuple(PYTHON)),
    "JavaScript": (javascript_truth, tuple(JAVASCRIPT)),
    "TypeScript": (javascript_truth, tuple(TYPESCRIPT)),
    "C": (c_truth, tuple(C)),
}


def dependencies_of(repository: RepositoryTexts) -> list[Dependency]:
    """What all resolvers find, without symbols."""
    found = (edge for resolver in RESOLVERS for edge in resolver(repository))
    return merged(edge for edge in found if edge.kind != "symbol")


def closure_pairs(
    repository: RepositoryTexts, found: Sequence[Dependency], known: Sequence[bool]
) -> set[tuple[int, int]]:
    """All (unit, file) where a C unit needs the file, directly or through others."""
    needs: dict[int, set[int]] = {}
    for edge in found:
        needs.setdefault(edge.needs, set()).add(edge.needed)
    pairs = set()
    for unit, path in enumerate(repository.paths):
        if not path.endswith(".c") or not known[unit]:
            continue
        seen: set[int] = set()
        waiting = [unit]
        while waiting:
            fresh = needs.get(waiting.pop(), set()) - seen
            seen |= fresh
            waiting += fresh
        pairs |= {(unit, file) for file in seen - {unit}}
    return pairs


def row(language: str, package: str, truth: Truth) -> str:
    """One line of the table."""
    repository = truth.repository
    found = dependencies_of(repository)
    own = (
        closure_pairs(repository, found, truth.known)
        if truth.transitive
        else {(edge.needs, edge.needed) for edge in found if truth.known[edge.needs] and truth.known[edge.needed]}
    )
    return table_row(language, package, repository, found, own, {*truth.pairs})


def speed(repositories: Sequence[RepositoryTexts], rounds: int) -> tuple[float, float]:
    """Megabytes, and the least CPU seconds in which imports of all of them are found and their files ordered."""

    def order() -> None:
        for repository in repositories:
            order_files(repository.paths, arrays_of(dependencies_of(repository)))

    return sum(megabytes(repository.texts) for repository in repositories), seconds(order, rounds)


def worst_case(files: int) -> str:
    """One component of nearly all files, random edges of all kinds."""
    draw, edges = np.random.default_rng(0), 8 * files
    needs, needed = draw.integers(0, files, (2, edges))
    made = Edges(needs, needed, draw.integers(0, len(KINDS), edges))
    paths = sorted(f"{number % 997}/{number}.py" for number in range(files))
    circle = np.bincount(strong_components(made.needs, made.needed, files)).max()
    order_files(paths, made)
    started = time.process_time()
    order_files(paths, made)
    spent, peak = time.process_time() - started, peak_mib() / 1e3
    return f"{files:,} files, {edges:,} edges, {circle:,} in one circle: {spent:.2f} s, process peak {peak:.2f} GB"


def main() -> None:
    """Print the tables."""
    parser = command.parser(__doc__)
    parser.add_argument("--packages", type=Path, default=Path(tempfile.gettempdir()) / "headrace-depsort")
    parser.add_argument("--only", choices=tuple(SETS), action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.set_defaults(files=50_000, sets=SETS)
    small = {"Python": (python_truth, ("jinja2",))}  # installed, so that nothing is fetched
    given = command.read(parser, rounds=1, files=1000, sets=small)
    print(worst_case(given.files))
    print(f"\n{HEADER}")
    repositories: dict[str, list[RepositoryTexts]] = {}
    for language, (truth_of, packages) in given.sets.items():
        if given.only and language not in given.only:
            continue
        for package in packages:
            truth = command.attempt(truth_of, package, given.packages)
            if truth is None:
                continue
            repositories.setdefault(language, []).append(truth.repository)
            print(row(language, package, truth), flush=True)
    print("\n| language | MB | CPU s | MB/s and core |\n|---|---|---|---|")
    for language, parts in repositories.items():
        size, spent = speed(parts, given.rounds)
        print(f"| {language} | {size:.1f} | {spent:.2f} | {size / spent:.0f} |")


if __name__ == "__main__":
    main()

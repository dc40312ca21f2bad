"""How well files are ordered by what they need, against foreign tools on real packages; and how fast.

    python benchmarks/bench_depsort.py [--packages DIR] [--only LANGUAGE] [--rounds 3]

Packages are fetched at pinned versions into DIR (default: a folder of the system's for temporary files). Shares are of
true edges between components of the truth whose needed end comes first: by path, by chance, by symbols alone, by
imports and plain depth-first search, by imports, and by both; `circles` are those inside a component, by imports.
Recall and precision compare edges on files that both sides know. Times are CPU seconds of this process, the best of
some rounds; megabytes are of UTF-8.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from depsort_orders import arrays_of, order_shares
from depsort_truth import (
    JAVASCRIPT,
    PYTHON,
    TYPESCRIPT,
    C,
    Skipped,
    Truth,
    c_truth,
    javascript_truth,
    python_truth,
)

from spark_jobs.code.imports.dependency import KINDS, Dependency, Repository
from spark_jobs.code.order.dependency_order import Edges, order_files
from spark_jobs.code.order.file_graph import strong_components
from spark_jobs.code.repository_edges import RESOLVERS, merged

SETS: dict[str, tuple[Callable[[str, Path], Truth], Sequence[str]]] = {
    "Python": (python_truth, tuple(PYTHON)),
    "JavaScript": (javascript_truth, tuple(JAVASCRIPT)),
    "TypeScript": (javascript_truth, tuple(TYPESCRIPT)),
    "C": (c_truth, tuple(C)),
}
HEADER = (
    "| language | package | files | MB | edges | recall | precision | path | random | symbols | depth first | imports "
    "| both | circles |"
)


def dependencies_of(repository: Repository, symbols: bool) -> list[Dependency]:
    """What all resolvers find, without symbols unless they are wanted."""
    found = (edge for resolver in RESOLVERS for edge in resolver(repository))
    return merged(edge for edge in found if symbols or edge.kind != "symbol")


def closure_pairs(repository: Repository, found: Sequence[Dependency], known: Sequence[bool]) -> set[tuple[int, int]]:
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
    count = len(repository.paths)
    found = dependencies_of(repository, symbols=False)
    own = (
        closure_pairs(repository, found, truth.known)
        if truth.transitive
        else {(edge.needs, edge.needed) for edge in found if truth.known[edge.needs] and truth.known[edge.needed]}
    )
    hits = len(own & truth.pairs)

    megabytes = sum(len(text.encode()) for text in repository.texts) / 1e6
    return (
        f"| {language} | {package} | {count:,} | {megabytes:.1f} | {len(truth.pairs):,} | "
        f"{hits / max(1, len(truth.pairs)):.4f} | {hits / max(1, len(own)):.4f} | "
        f"{order_shares(repository, found, truth.pairs).cells()} |"
    )


def speed(repositories: Sequence[Repository], rounds: int) -> tuple[float, float]:
    """Megabytes, and the least CPU seconds in which imports of all of them are found and their files ordered."""
    best = float("inf")
    for _ in range(rounds):
        started = time.process_time()
        for repository in repositories:
            found = dependencies_of(repository, symbols=False)
            order_files(repository.paths, arrays_of(found))
        best = min(best, time.process_time() - started)
    return sum(len(text.encode()) for repository in repositories for text in repository.texts) / 1e6, best


def worst_case(files: int = 50_000, edges: int = 400_000) -> str:
    """One component of nearly all files, random edges of all kinds."""
    draw = np.random.default_rng(0)
    needs, needed = draw.integers(0, files, (2, edges))
    made = Edges(needs, needed, draw.integers(0, len(KINDS), edges))
    paths = sorted(f"{number % 997}/{number}.py" for number in range(files))
    circle = np.bincount(strong_components(made.needs, made.needed, files)).max()
    order_files(paths, made)
    started = time.process_time()
    order_files(paths, made)
    seconds = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return f"{files:,} files, {edges:,} edges, {circle:,} in one circle: {seconds:.2f} s, process peak {peak:.2f} GB"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--packages", type=Path, default=Path(tempfile.gettempdir()) / "headrace-depsort")
    parser.add_argument("--only", choices=tuple(SETS), action="append")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    print(worst_case())
    print(f"\n{HEADER}\n|{'---|' * HEADER.count(' | ')}---|")
    repositories: dict[str, list[Repository]] = {}
    for language, (truth_of, packages) in SETS.items():
        if given.only and language not in given.only:
            continue
        for package in packages:
            try:
                truth = truth_of(package, given.packages)
            except Skipped as reason:
                print(f"| {language} | {package} | skipped: {reason} |")
                continue
            repositories.setdefault(language, []).append(truth.repository)
            print(row(language, package, truth), flush=True)
    print("\n| language | MB | CPU s | MB/s and core |\n|---|---|---|---|")
    for language, parts in repositories.items():
        megabytes, seconds = speed(parts, given.rounds)
        print(f"| {language} | {megabytes:.1f} | {seconds:.2f} | {megabytes / seconds:.0f} |")


if __name__ == "__main__":
    main()

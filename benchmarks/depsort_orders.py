"""How many true edges each way of ordering satisfies: path, chance, symbols, depth first, imports, both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from cpu_time import megabytes

from spark_jobs.code.imports.dependency import KINDS, Dependency, RepositoryTexts
from spark_jobs.code.order.dependency_order import Edges, order_files
from spark_jobs.code.order.file_graph import strong_components
from spark_jobs.code.order.policy import Policy
from spark_jobs.code.repository_edges import merged
from spark_jobs.code.syntax.symbols import symbol_edges
from spark_jobs.code.syntax.syntax_child import SyntaxLimits, SyntaxParser

Int64Array = npt.NDArray[np.int64]
Pairs = Iterable[tuple[int, int]]
RANDOM_SEEDS = 5
HEADER = (
    "| language | package | files | MB | edges | recall | precision | path | random | symbols | depth first | imports "
    "| both | circles | MB/s |"
)
HEADER += f"\n|{'---|' * HEADER.count(' | ')}---|"


@dataclass(frozen=True)
class Nodes:
    """What the truth speaks of: files, or packages that stand where their first file stands.

    Attributes:
        of_file: (N,) node of every file, -1 for a file that places none.
        count: nodes.
    """

    of_file: Int64Array
    count: int

    @classmethod
    def files(cls, count: int) -> Nodes:
        """Every file is a node."""
        return cls(np.arange(count), count)

    def places(self, file_places: Int64Array) -> Int64Array:
        """(count,) place of every node; one without files comes last."""
        found = np.full(self.count, len(file_places), dtype=np.int64)
        placing = self.of_file >= 0
        np.minimum.at(found, self.of_file[placing], file_places[placing])
        return found


@dataclass(frozen=True)
class Shares:
    """Shares of the true edges between components whose needed end comes first, by the way of ordering."""

    path: float
    random: float
    symbols: float
    depth_first: float
    imports: float
    both: float
    acyclic_count: int
    circle_share: float
    circle_count: int

    def cells(self) -> str:
        """Cells of a Markdown row, from `path` to `circles`."""
        circles = f"{self.circle_share:.2f} of {self.circle_count:,}" if self.circle_count else "none"
        return (
            f"{self.path:.3f} | {self.random:.3f} | {self.symbols:.3f} | {self.depth_first:.4f} | "
            f"**{self.imports:.4f}** | {self.both:.4f} | {circles}"
        )


def order_shares(
    repository: RepositoryTexts,
    found: Sequence[Dependency],
    truth: Pairs,
    nodes: Nodes | None = None,
    policy: Policy = "dependencies_first",
) -> Shares:
    """Order a repository in every way, and count.

    Args:
        repository: its files.
        found: what the language's own rules find.
        truth: (needs, needed) by node.
        nodes: what the truth speaks of; files by default.
        policy: that of `symbols`, `imports` and `both`.

    Returns:
        The shares; of edges inside components that of `imports`.
    """
    nodes = nodes or Nodes.files(len(repository.paths))
    pairs = np.array(sorted(truth), dtype=np.int64).reshape(-1, 2)
    component = strong_components(pairs[:, 0].copy(), pairs[:, 1].copy(), nodes.count)
    inside = component[pairs[:, 0]] == component[pairs[:, 1]]
    parse = SyntaxParser(SyntaxLimits()).definitions
    named = symbol_edges(repository, (), parse, alone=True).dependencies
    imports, symbols, both = arrays_of(found), arrays_of(named), arrays_of(merged([*found, *named]))

    def share(of: Int64Array, by: Edges, how: Policy, seed: int = 0) -> float:
        return satisfied(nodes.places(order_files(repository.paths, by, how, seed)), of)

    acyclic, circles = pairs[~inside], pairs[inside]
    return Shares(
        path=share(acyclic, imports, "path"),
        random=float(np.mean([share(acyclic, imports, "random", seed) for seed in range(RANDOM_SEEDS)])),
        symbols=share(acyclic, symbols, policy),
        depth_first=share(acyclic, imports, "depth_first"),
        imports=share(acyclic, imports, policy),
        both=share(acyclic, both, policy),
        acyclic_count=len(acyclic),
        circle_share=share(circles, imports, policy),
        circle_count=len(circles),
    )


def table_row(
    language: str,
    package: str,
    repository: RepositoryTexts,
    found: Sequence[Dependency],
    own: set[tuple[int, int]],
    truth: set[tuple[int, int]],
    speed: float | None = None,
    nodes: Nodes | None = None,
    policy: Policy = "dependencies_first",
) -> str:
    """A row under `HEADER`: `own` are the edges found between what the truth speaks of; speed in MB/s, if measured."""
    right = len(own & truth)
    return (
        f"| {language} | {package} | {len(repository.paths):,} | {megabytes(repository.texts):.1f} | {len(truth):,} | "
        f"{right / max(1, len(truth)):.4f} | {right / max(1, len(own)):.4f} | "
        f"{order_shares(repository, found, truth, nodes, policy).cells()} | {f'{speed:.1f}' if speed else ''} |"
    )


def arrays_of(found: Sequence[Dependency]) -> Edges:
    """Dependencies as the order takes them."""
    table = np.array([(edge.needs, edge.needed, KINDS.index(edge.kind)) for edge in found], dtype=np.int64)
    return Edges(*table.reshape(-1, 3).T.copy())


def satisfied(places: Int64Array, pairs: Int64Array) -> float:
    """Share of (E, 2) pairs (needs, needed) whose needed end comes first; 1 for none."""
    return float((places[pairs[:, 1]] < places[pairs[:, 0]]).mean()) if len(pairs) else 1.0

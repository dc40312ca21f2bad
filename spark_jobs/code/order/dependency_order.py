"""Order the files of a repository by one of five policies.

    dependencies_first   by `arrangement`; files of a directory stay together as far as edges allow
    two_level            directories in that order, then the files inside each; exact where packages cannot import each
                         other in a circle (Go)
    depth_first          post-order of a plain depth-first search, as in published descriptions
    path                 by the UTF-8 bytes of the path
    random               by a hash of seed and path

Under the first two, tests, examples and documentation come last, except for those imported by other files.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from spark_jobs.arrays import BoolArray, Int64Array
from spark_jobs.code.imports.dependency import KINDS
from spark_jobs.code.order.arrangement import FileGraph, arranged_positions, file_graph
from spark_jobs.code.order.file_graph import MAX_VERTICES, depth_first_positions, reachable
from spark_jobs.code.order.policy import Policy
from spark_jobs.exceptions import InputError

STRENGTH: Final = {"import": 3, "import_inner": 2, "import_type": 1, "module": 1, "symbol": 0}
"""Strength of the edges of each kind: strongest for code that runs when a file is loaded, weakest for a mere name."""
_PROMOTES: Final = STRENGTH["import_inner"]


@dataclass(frozen=True)
class Edges:
    """Dependencies as arrays, in any order, repeated or not.

    Attributes:
        needs: (E,) index of the depending file, in 0..V-1.
        needed: (E,) index of the file it depends on.
        kind: (E,) index into `KINDS`.
    """

    needs: Int64Array
    needed: Int64Array
    kind: Int64Array


def order_files(paths: Sequence[str], edges: Edges, policy: Policy = "dependencies_first", seed: int = 0) -> Int64Array:
    """Position of every file of a repository.

    Args:
        paths: (V,) ascending by UTF-8 bytes, unique.
        edges: which file needs which, by index into `paths`.
        policy: see the module.
        seed: of the policy `random`.

    Returns:
        (V,) a permutation: 0 for the file to read first. A function of the set of edges, not of their order.

    Raises:
        InputError: more files than 2^24, or an edge to a missing file.
    """
    count = len(paths)
    _check(paths, edges)
    if policy == "path" or not count:
        return np.arange(count)
    if policy == "random":
        return _random_positions(paths, seed)
    strengths = np.array([STRENGTH[kind] for kind in KINDS])
    graph = file_graph(count, edges.needs, edges.needed, strengths[edges.kind])
    if policy == "depth_first":
        positions: Int64Array = depth_first_positions(graph.needs, graph.needed, count)
        return positions
    late = late_files(paths, graph)
    graph = graph.only(late[graph.needs] | ~late[graph.needed])
    directories = _directories(paths, late)
    if policy == "two_level":
        return _two_level_positions(graph, directories)
    return _flat_positions(graph, directories, late)


def late_files(paths: Sequence[str], graph: FileGraph) -> BoolArray:
    """(V,) whether a file comes last: tests, examples and documentation, unless other files import them.

    Imports inside functions and indirect imports count.
    """
    late = np.fromiter((is_late(path) for path in paths), dtype=np.bool_, count=len(paths))
    binding = graph.only(graph.strength >= _PROMOTES)
    wanted: BoolArray = reachable(binding.needs, binding.needed, ~late)
    return late & ~wanted


def _check(paths: Sequence[str], edges: Edges) -> None:
    if len(paths) > MAX_VERTICES:
        raise InputError(f"order: {len(paths)} files, at most {MAX_VERTICES} can be ordered; split the repository")
    ends = np.concatenate([edges.needs, edges.needed])
    if ends.size and (ends.min() < 0 or ends.max() >= len(paths)):
        raise InputError(
            f"order: an edge names file {int(ends.max())}, there are {len(paths)}; materialize dependencies again"
        )


def _random_positions(paths: Sequence[str], seed: int) -> Int64Array:
    """Positions by a keyed hash of the path, so that the order of two files does not depend on other files."""
    key = seed.to_bytes(8, "little", signed=False)
    hashed = [hashlib.blake2b(path.encode(errors="surrogatepass"), digest_size=16, key=key).digest() for path in paths]
    positions = np.empty(len(paths), dtype=np.int64)
    positions[sorted(range(len(paths)), key=hashed.__getitem__)] = np.arange(len(paths))
    return positions


def _directories(paths: Sequence[str], late: BoolArray) -> Int64Array:
    """(V,) number of each file's directory, by path; directories of late files have numbers after all others."""
    numbers: dict[tuple[bool, str], int] = {}
    keys = [(flag, posixpath.dirname(path)) for path, flag in zip(paths, late.tolist(), strict=True)]
    for key in sorted(set(keys)):
        numbers[key] = len(numbers)
    return np.fromiter((numbers[key] for key in keys), dtype=np.int64, count=len(keys))


def _flat_positions(graph: FileGraph, directories: Int64Array, late: BoolArray) -> Int64Array:
    """Positions of all files as one graph; late files are numbered last, and no other file depends on them."""
    order = np.argsort(late, kind="stable")
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(len(order))
    renumbered = file_graph(graph.vertex_count, number[graph.needs], number[graph.needed], graph.strength)
    return arranged_positions(renumbered, directories[order])[number]


def _two_level_positions(graph: FileGraph, directories: Int64Array) -> Int64Array:
    """Positions: directories in the order as if each were one file, and inside each its files by their edges."""
    directory_count = int(directories.max()) + 1
    needs, needed = directories[graph.needs], directories[graph.needed]
    between = file_graph(directory_count, needs, needed, graph.strength)
    of_directory = arranged_positions(between, np.zeros(directory_count, dtype=np.int64))
    inside = arranged_positions(graph.only(needs == needed), directories)
    positions = np.empty(len(directories), dtype=np.int64)
    positions[np.lexsort((inside, of_directory[directories]))] = np.arange(len(directories))
    return positions


_DIRECTORY = re.compile(
    r"(?:^|[/#])(?:tests?|testing|unit_?tests?|__tests__|__mocks__|specs?|e2e|fixtures?|testdata|"
    r"examples?|samples?|demos?|tutorials?|notebooks?|bench|benchmarks?|docs?|documentation)/",
    re.IGNORECASE,
)
_NAME = re.compile(
    r"(?:^|[/#])(?:test_[^/]*|[^/]*_tests?|[^/]*\.(?:test|spec|stories)|[^/]*[a-z0-9](?:Tests?|Spec|IT)|conftest|"
    r"readme|changelog|changes|contributing|history|news)\.[A-Za-z0-9]+$"
)
_PROSE = re.compile(r"\.(?:mdx?|markdown|rst|txt|text|adoc)$", re.IGNORECASE)


def is_late(path: str) -> bool:
    """Whether a path is that of a test, an example, a benchmark or documentation.

    Case matters in names of files (`HttpTest.java`, not `latest.py`), not in those of directories.
    """
    return bool(_DIRECTORY.search(path) or _NAME.search(path) or _PROSE.search(path))

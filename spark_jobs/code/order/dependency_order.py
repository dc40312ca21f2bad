"""The order of the files of a repository: what they need first, by one of five policies.

    dependencies_first   flat: see `arrangement`; files of a directory stay together as far as edges allow
    two_level            directories in that order, then the files inside each; exact where packages need no circle (Go)
    depth_first          post-order of a plain depth-first search, as published descriptions have it
    path                 by the UTF-8 bytes of the path
    random               by a hash of seed and path

Under the first two, tests, examples and documentation come last, except for what other files import.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from spark_jobs.arrays import BoolArray, Int64Array
from spark_jobs.code.imports.dependency import KINDS
from spark_jobs.code.order.arrangement import FileGraph, arranged_places, file_graph
from spark_jobs.code.order.file_graph import MAX_VERTICES, depth_first_places, reachable
from spark_jobs.code.order.late_files import is_late
from spark_jobs.code.order.policy import Policy
from spark_jobs.exceptions import InputError

STRENGTH: Final = {"import": 3, "import_inner": 2, "import_type": 1, "module": 1, "symbol": 0}
"""How firmly a kind binds: what runs first when a file is loaded binds most, a mere name least."""
_PROMOTES: Final = STRENGTH["import_inner"]


@dataclass(frozen=True)
class Edges:
    """Dependencies as arrays, in any order, repeated or not.

    Attributes:
        needs: (E,) index of the file that depends, in 0..V-1.
        needed: (E,) index of the file it depends on.
        kind: (E,) index into `KINDS`.
    """

    needs: Int64Array
    needed: Int64Array
    kind: Int64Array


def order_files(paths: Sequence[str], edges: Edges, policy: Policy = "dependencies_first", seed: int = 0) -> Int64Array:
    """Place every file of a repository.

    Args:
        paths: (V,) ascending by UTF-8 bytes, unique.
        edges: which file needs which, by index into `paths`.
        policy: see the module.
        seed: of the policy `random`.

    Returns:
        (V,) a permutation: 0 for the file that is read first. A function of the set of edges, not of their order.

    Raises:
        InputError: more files than 2^24, or an edge to a file that is not there.
    """
    count = len(paths)
    _check(paths, edges)
    if policy == "path" or not count:
        return np.arange(count)
    if policy == "random":
        return _random_places(paths, seed)
    strengths = np.array([STRENGTH[kind] for kind in KINDS])
    graph = file_graph(count, edges.needs, edges.needed, strengths[edges.kind])
    if policy == "depth_first":
        places: Int64Array = depth_first_places(graph.needs, graph.needed, count)
        return places
    late = late_files(paths, graph)
    graph = graph.only(late[graph.needs] | ~late[graph.needed])
    homes = _homes(paths, late)
    if policy == "two_level":
        return _two_level_places(graph, homes)
    return _flat_places(graph, homes, late)


def late_files(paths: Sequence[str], graph: FileGraph) -> BoolArray:
    """(V,) which files come last: tests, examples and documentation, unless other files import them.

    Imports inside functions count too, and so does what an import needs in turn.

    Args:
        paths: (V,) the files.
        graph: what they need.
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


def _random_places(paths: Sequence[str], seed: int) -> Int64Array:
    """By a keyed hash of the path, so that a file's place among others does not depend on these."""
    key = seed.to_bytes(8, "little", signed=False)
    hashed = [hashlib.blake2b(path.encode(errors="surrogatepass"), digest_size=16, key=key).digest() for path in paths]
    places = np.empty(len(paths), dtype=np.int64)
    places[sorted(range(len(paths)), key=hashed.__getitem__)] = np.arange(len(paths))
    return places


def _homes(paths: Sequence[str], late: BoolArray) -> Int64Array:
    """(V,) number of each file's directory, by first path; those of late files are others, and come after."""
    numbers: dict[tuple[bool, str], int] = {}
    own = [(flag, posixpath.dirname(path)) for path, flag in zip(paths, late.tolist(), strict=True)]
    for key in sorted(set(own)):
        numbers[key] = len(numbers)
    return np.fromiter((numbers[key] for key in own), dtype=np.int64, count=len(own))


def _flat_places(graph: FileGraph, homes: Int64Array, late: BoolArray) -> Int64Array:
    """All files by one graph; late ones get the last numbers, and nothing before them needs them."""
    order = np.argsort(late, kind="stable")
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(len(order))
    renumbered = file_graph(graph.vertex_count, number[graph.needs], number[graph.needed], graph.strength)
    return arranged_places(renumbered, homes[order])[number]


def _two_level_places(graph: FileGraph, homes: Int64Array) -> Int64Array:
    """Directories as one file each, and the files of each directory by the edges inside it."""
    home_count = int(homes.max()) + 1
    needs, needed = homes[graph.needs], homes[graph.needed]
    directories = file_graph(home_count, needs, needed, graph.strength)
    of_home = arranged_places(directories, np.zeros(home_count, dtype=np.int64))
    inside = arranged_places(graph.only(needs == needed), homes)
    places = np.empty(len(homes), dtype=np.int64)
    places[np.lexsort((inside, of_home[homes]))] = np.arange(len(homes))
    return places

"""The order of the files of a repository: laws, small cases by hand, and a slow version of the arrangement."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.code.imports.dependency import KINDS
from spark_jobs.code.order.arrangement import arranged_positions, file_graph
from spark_jobs.code.order.dependency_order import Edges, is_late, order_files
from spark_jobs.code.order.policy import Policy
from spark_jobs.exceptions import InputError
from tests.spark_jobs.code.graphs import Edge, arrange, closure, columns, components, graphs, strongest
from tests.tiers import sampled

POLICIES: tuple[Policy, ...] = ("dependencies_first", "two_level", "depth_first", "path", "random")
IMPORT = KINDS.index("import")


def edges_of(pairs: list[tuple[int, int]], kind: str = "import") -> Edges:
    """Pairs (needs, needed) of one kind."""
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Edges(table[:, 0].copy(), table[:, 1].copy(), np.full(len(table), KINDS.index(kind)))


def joined(*parts: Edges) -> Edges:
    """Edges of several kinds."""
    return Edges(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("needs", "needed", "kind")))


def read_order(paths: list[str], edges: Edges, policy: Policy = "dependencies_first", seed: int = 0) -> list[str]:
    """Paths in the order they are read."""
    return [paths[place] for place in np.argsort(order_files(paths, edges, policy, seed))]


def flat_paths(count: int) -> list[str]:
    """Paths of source files in three directories."""
    return sorted(f"{'abc'[number % 3]}/f{number:02}.py" for number in range(count))


@st.composite
def repositories(draw: st.DrawFn) -> tuple[list[str], Edges]:
    """Up to a dozen files in source and test directories, and edges of all kinds."""
    names = st.builds(
        lambda directory, number: f"{directory}f{number}.py",
        st.sampled_from(["", "a/", "a/b/", "tests/"]),
        st.integers(0, 5),
    )
    paths = sorted(draw(st.sets(names, min_size=1, max_size=12)))
    end = st.integers(0, len(paths) - 1)
    table = draw(st.lists(st.tuples(end, end, st.integers(0, len(KINDS) - 1)), max_size=40))
    return paths, Edges(*columns(table))


@given(graphs(9), st.lists(st.integers(0, 2), min_size=9, max_size=9))
def test_arrangement_is_that_of_the_recursive_definition(case: tuple[int, list[Edge]], homes: list[int]) -> None:
    """Inside every component: greed over all its edges, then tier by tier, one component after the other."""
    count, edges = case
    places = arranged_positions(file_graph(count, *columns(edges)), np.array(homes[:count]))
    pairs = strongest(edges)
    for component in components(set(range(count)), set(pairs), count):
        expected = arrange(set(component), pairs, count)
        assert sorted(component, key=lambda v: places[v]) == expected
        taken = sorted(places[v] for v in component)
        assert taken == list(range(taken[0], taken[0] + len(taken))), "a component is read in one go"


@given(graphs(), st.lists(st.integers(0, 2), min_size=12, max_size=12))
def test_every_edge_between_components_is_satisfied(case: tuple[int, list[Edge]], homes: list[int]) -> None:
    """All of them, of any strength: 100%, not 99.9%."""
    count, edges = case
    places = arranged_positions(file_graph(count, *columns(edges)), np.array(homes[:count]))
    assert sorted(places.tolist()) == list(range(count))
    reach = closure(count, set(strongest(edges)))
    assert all(places[b] < places[a] for a, b in strongest(edges) if not reach[b, a])


@sampled()
@pytest.mark.parametrize("policy", POLICIES)
@given(case=repositories(), data=st.data())
def test_every_file_has_one_place_whatever_the_order_of_edges(
    case: tuple[list[str], Edges], data: st.DataObject, policy: Policy
) -> None:
    """A permutation, the same for shuffled and repeated edges."""
    paths, edges = case
    places = order_files(paths, edges, policy)
    assert sorted(places.tolist()) == list(range(len(paths)))
    order = data.draw(st.permutations(range(len(edges.needs))))
    shuffled = Edges(*(np.tile(column[order], 2) for column in (edges.needs, edges.needed, edges.kind)))
    assert order_files(paths, shuffled, policy).tolist() == places.tolist()


@given(repositories())
def test_late_files_come_last_but_for_what_others_import(case: tuple[list[str], Edges]) -> None:
    """Promoted: all that a source file imports, directly or through others, at the top or inside functions."""
    paths, edges = case
    binding = {
        (a, b)
        for a, b, kind in zip(edges.needs.tolist(), edges.needed.tolist(), edges.kind.tolist(), strict=True)
        if KINDS[kind] in ("import", "import_inner")
    }
    reach = closure(len(paths), binding)
    sources = [v for v, path in enumerate(paths) if not path.startswith("tests/")]
    late = {v for v in range(len(paths)) if not any(reach[source, v] for source in sources)}
    for policy in ("dependencies_first", "two_level"):
        places = order_files(paths, edges, policy)
        assert {v for v in range(len(paths)) if places[v] >= len(paths) - len(late)} == late


def test_a_weaker_edge_gives_way_in_a_circle() -> None:
    """File a imports b, b imports c, and c names a for the type checker alone."""
    paths = ["a.py", "b.py", "c.py"]
    edges = joined(edges_of([(0, 1), (1, 2)]), edges_of([(2, 0)], "import_type"))
    assert read_order(paths, edges) == ["c.py", "b.py", "a.py"]


def test_files_of_a_directory_stay_together_where_nothing_binds_them() -> None:
    """`a/2` waits for `b/1`; once there, the rest of `b` is read before going back."""
    paths = ["a/1.py", "a/2.py", "b/1.py", "b/2.py"]
    assert read_order(paths, edges_of([(1, 2)])) == ["a/1.py", "b/1.py", "b/2.py", "a/2.py"]
    assert read_order(paths, edges_of([(0, 2), (1, 2)])) == ["b/1.py", "b/2.py", "a/1.py", "a/2.py"]


def test_two_level_reads_a_directory_in_one_go() -> None:
    """Flat order goes to and fro between directories in a circle; two levels do not."""
    paths = ["a/1.go", "a/2.go", "b/1.go", "b/2.go"]
    edges = edges_of([(0, 2), (3, 1)])
    order = read_order(paths, edges, "two_level")
    assert order in (["a/1.go", "a/2.go", "b/1.go", "b/2.go"], ["b/1.go", "b/2.go", "a/1.go", "a/2.go"])
    assert read_order(paths, edges_of([(0, 1), (0, 3)]), "two_level") == ["b/1.go", "b/2.go", "a/2.go", "a/1.go"]


def test_tests_of_a_package_are_a_package_of_their_own() -> None:
    """As in Go: p's tests import q, q's import p; the packages stay acyclic."""
    paths = ["p/p.go", "p/p_test.go", "q/q.go", "q/q_test.go"]
    order = read_order(paths, edges_of([(1, 2), (3, 0), (0, 2)]), "two_level")
    assert order[:2] == ["q/q.go", "p/p.go"]


def test_path_is_the_given_order_and_random_depends_on_the_seed_alone() -> None:
    """A path's hash is its own: leaving a file out keeps the order of the others."""
    paths = flat_paths(20)
    none = edges_of([])
    assert read_order(paths, none, "path") == paths
    order = read_order(paths, none, "random", seed=1)
    assert order != paths and order != read_order(paths, none, "random", seed=2)
    assert read_order(paths[1:], none, "random", seed=1) == [path for path in order if path != paths[0]]


@pytest.mark.parametrize("policy", POLICIES)
def test_no_file_and_one_file_have_an_order(policy: Policy) -> None:
    """The smallest repositories."""
    assert order_files([], edges_of([]), policy).tolist() == []
    assert order_files(["a.py"], edges_of([]), policy).tolist() == [0]
    assert order_files(["a.py"], edges_of([(0, 0)]), policy).tolist() == [0]


def test_an_edge_to_no_file_is_refused() -> None:
    """Edges of another repository would silently order this one."""
    with pytest.raises(InputError, match="an edge names file 3, there are 2"):
        order_files(["a.py", "b.py"], edges_of([(0, 3)]))


@pytest.mark.parametrize(
    ("path", "late"),
    [
        ("tests/helper.py", True),
        ("pkg/test_core.py", True),
        ("pkg/core_test.go", True),
        ("src/app.spec.ts", True),
        ("src/main/java/HttpTest.java", True),
        ("README.md", True),
        ("docs/conf.py", True),
        ("Examples/one.py", True),
        ("pkg/latest.py", False),
        ("docs.mdx", True),
        ("part-0.jsonl#tests/a.py", True),
        ("part-0.jsonl#test_a.py", True),
        ("part-0.jsonl#a.py", False),
        ("pkg/contest.py", False),
        ("src/Manifest.java", False),
        ("pkg/testing_tools.py", False),
        ("pkg/core.py", False),
        ("doctor/x.py", False),
    ],
)
def test_late_files_are_told_by_their_path(path: str, late: bool) -> None:
    """Directories and names of tests, examples and documentation; words that only contain them are not."""
    assert is_late(path) == late


@pytest.mark.nightly
def test_50000_files_in_one_component_take_less_than_three_seconds() -> None:
    """The worst case: 400,000 random edges make one component of nearly all files. The bar is 30 seconds."""
    count, draw = 50_000, np.random.default_rng(0)
    ends = draw.integers(0, count, (2, 400_000))
    edges = Edges(ends[0], ends[1], draw.integers(0, len(KINDS), 400_000))
    paths = sorted(f"{number % 997}/{number}.py" for number in range(count))
    order_files(paths[:10], edges_of([(0, 1)]))  # compiled
    order_files(paths[:10], joined(edges_of([(0, 1), (1, 0)]), edges_of([(0, 2), (2, 0)], "symbol")))
    started = time.process_time()
    places = order_files(paths, edges)
    assert time.process_time() - started < 3
    assert sorted(places.tolist()) == list(range(count))

"""The kept set of a growing graph is that of the whole graph, whenever it is looked at."""

from __future__ import annotations

import random

import numpy as np
import pytest

from spark_jobs.dedup.graph.growing_kept_set import GrowingKeptSet
from spark_jobs.exceptions import InputError
from tests.spark_jobs.dedup.graph.test_kept_set import one_after_another
from tests.spark_jobs.dedup.graphs import graphs, masked


@pytest.mark.parametrize("most", [1, 7, 1_000])
def test_what_is_removed_never_depends_on_how_the_edges_came(most: int) -> None:
    """Graphs of many shapes, each a group, in any order; after each part of their edges."""
    draw = random.Random(most)
    rows = masked([(group, worse, better) for group, graph in enumerate(graphs()) for worse, better in graph])
    draw.shuffle(rows)
    ids = np.arange(0, 3 * 61, 3)
    kept = GrowingKeptSet(ids)
    for start in range(0, len(rows), most):
        groups, *ends = (np.array(column) for column in zip(*rows[start : start + most], strict=True))
        kept.add(groups.astype(np.int32), *(3 * end for end in ends))
        if start % 35 and start + most < len(rows):
            continue
        so_far = [[row[1:] for row in rows[: start + most] if row[0] >> group & 1] for group in range(31)]
        expected = one_after_another(so_far, str)
        removed = {
            (group, str(vertex)) for vertex, bits in enumerate(kept.removed) for group in range(31) if bits >> group & 1
        }
        assert removed == expected


@pytest.mark.parametrize("length", [1, 3, 5])
def test_a_cycle_ends_in_an_error(length: int) -> None:
    """Of one edge from a document to itself, and of several, beside a graph without one."""
    kept = GrowingKeptSet(np.arange(20))
    kept.add(np.ones(9, np.int32), np.arange(11, 20), np.arange(10, 19))
    around = np.arange(length)
    with pytest.raises(InputError, match="cycle"):
        kept.add(np.ones(length, np.int32), around, np.roll(around, 1))

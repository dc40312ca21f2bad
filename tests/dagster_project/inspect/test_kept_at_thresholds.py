"""Components as they are now, from rows of which the newest counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_project.exceptions import CommandError
from dagster_project.inspect.corpora.kept_at_thresholds import component_sizes, kept_at_thresholds
from dagster_project.inspect.lake.corpus_facts import CorpusFacts
from spark_jobs.dedup.graph.threshold_pairs import KindThreshold, KindThresholds
from spark_jobs.dedup.removal.thresholds import THRESHOLDS
from spark_jobs.lake.session.catalogue import ensure_table, open_catalogue
from spark_jobs.lake.session.settings import settings_at

links = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)).filter(lambda pair: pair[0] != pair[1]), max_size=8)


def _components(edges: list[tuple[int, int]]) -> dict[int, set[int]]:
    """Members by least member, slowly."""
    groups = [{number} for number in range(13)]
    for a, b in edges:
        one, other = (next(group for group in groups if number in group) for number in (a, b))
        if one is not other:
            groups.remove(other)
            one |= other
    return {min(group): group for group in groups if len(group) > 1}


@given(st.lists(links, min_size=1, max_size=4))
def test_components_are_those_of_all_links_together(increments: list[list[tuple[int, int]]]) -> None:
    """Rows as the step writes them, a component anew whenever a link reaches it; what was merged is not counted."""
    rows, edges = [], []
    for increment, new in enumerate(increments):
        edges += new
        reached = {number for pair in new for number in pair}
        for name, group in _components(edges).items():
            if group & reached:
                rows += [(increment, 0.8, f"{one:02}", f"{name:02}", len(group)) for one in group]
    columns = ("increment", "threshold", "doc_id", "component", "document_count")
    types = (pa.int32(), pa.float64(), pa.string(), pa.string(), pa.int32())
    table = pa.table({name: pa.array([r[n] for r in rows], types[n]) for n, name in enumerate(columns)})
    expected = sorted(len(group) for group in _components(edges).values())
    assert sorted(component_sizes(table).get(0.8, {}).values()) == expected


def test_a_table_of_an_earlier_version_is_told_in_one_line(tmp_path: Path) -> None:
    """It counted no documents that went with their repositories: the message says how to have them counted."""
    catalogue = open_catalogue(settings_at(tmp_path))
    before = tuple(column for column in THRESHOLDS.columns if column.name != "repository_removed_count")
    table = ensure_table(catalogue, "main.thresholds", replace(THRESHOLDS, columns=before, checks=()), {})
    table.append(table.schema().as_arrow().empty_table())
    corpus = CorpusFacts("main", frozenset(["thresholds"]), ("notes",), KindThresholds(), KindThreshold())
    with pytest.raises(CommandError, match=r"no column repository_removed_count, .*table delete main\.thresholds"):
        kept_at_thresholds(catalogue, corpus)

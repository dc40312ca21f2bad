"""Components as they are now, from rows of which the newest counts."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dagster_project.inspect.corpora.kept_at_thresholds import component_sizes

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

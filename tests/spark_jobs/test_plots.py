"""Plots of all steps: each can be drawn of a table that has no rows."""

from __future__ import annotations

import pytest

from spark_jobs.packing.packed_table import PackedConfig
from spark_jobs.registry import config_model, find_step, step_names
from tests.tiers import sampled


@sampled(8)
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", step_names())
def test_a_table_without_rows_has_a_plot_too(name: str) -> None:
    """A corpus without duplicates has pairs, components and removals of no row; matplotlib has nothing to warn of."""
    config = PackedConfig(dataset="d", window_tokens=64) if name == "packed" else config_model(name).model_construct()
    step = find_step(name, config)
    if step.plot is None:
        return
    tables = {table.name: table for table in step.tables}
    drawn = tables[step.plot.table] if step.plot.table else step.table
    empty = drawn.schema().select(*step.plot.columns).as_arrow().empty_table()
    assert step.plot.draw(empty).startswith(b"\x89PNG")

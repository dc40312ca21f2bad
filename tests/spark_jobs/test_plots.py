"""Plots of all steps: each can be drawn of a table that has no rows, and shows all that it says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.figure import Figure

from spark_jobs.dedup.pictures import draw_background, draw_bands, draw_component_sizes
from spark_jobs.lake.declare.pictures import draw_bars
from spark_jobs.packing.packed_table import PackedConfig
from spark_jobs.packing.utilisation import draw_fill
from spark_jobs.registry import config_model, find_step, step_names
from spark_jobs.tokens.pictures import draw_token_statistics
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


def _bars(size: int) -> bytes:
    return draw_bars({"n" * length: size for length in (1, 12, 40)}, "documents")


def _bands(size: int) -> bytes:
    similarity = np.linspace(0, 1, 101)
    columns = {"increment": [0] * 101, "similarity": similarity, "candidate_probability": similarity**3}
    columns |= {"background_fraction": np.geomspace(0.1, 1e-3 / size, 101), "band_count": [size] * 101}
    return draw_bands(pa.table({**columns, "row_count": [4] * 101}))


def _background(size: int) -> bytes:
    counts = np.geomspace(size, 1, 100).astype(np.int64)
    return draw_background(
        pa.table({"kind": ["code"] * 100, "similarity": np.linspace(0, 0.99, 100), "pair_count": counts})
    )


def _components(size: int) -> bytes:
    names = [str(number) for number in range(4)]
    columns = {"threshold": [0.7] * 4, "doc_id": names, "component": names, "increment": [0] * 4}
    return draw_component_sizes(pa.table({**columns, "document_count": [2, 2, 3, 1 + size]}))


def _lengths(size: int) -> bytes:
    histogram = [0, 0, size, 3 * size, size]
    columns = {"dataset": ["notes"] * 2, "language": ["C++ header", "en"], "character_count": [4 * size, 3 * size]}
    return draw_token_statistics(pa.table({**columns, "token_count": [size] * 2, "length_histogram": [histogram] * 2}))


def _windows(size: int) -> bytes:
    return draw_fill(pa.table({"token_count": np.full(min(size, 100_000), 64)}), 64)


@pytest.mark.parametrize("size", [1, 40, 3_000, 10_000_000])
@pytest.mark.parametrize("draw", [_bars, _bands, _background, _components, _lengths, _windows])
def test_nothing_written_is_cut(draw: Callable[[int], bytes], size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Margins are fixed: numbers of any size, names of 40 letters, labels and titles lie within the picture."""
    figures = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda figure, *into, **how: (figures.append(figure), save(figure, *into, **how))
    )
    assert draw(size).startswith(b"\x89PNG")
    (figure,) = figures
    written, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert min(written.x0, written.y0, width - written.x1, height - written.y1) >= 0

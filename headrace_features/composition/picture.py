"""The picture of `cell_statistics` in Dagster: tokens by the two dimensions with the most values."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from headrace.tables.cells import CELL_COLUMN, Value, cell_values, in_order
from spark_jobs.lake.declare.pictures import margin, new_axes, png

_MOST: Final = 40  # values of a dimension that are named beside the picture
_LETTERS: Final = 9  # of each name


def draw_cells(rows: pa.Table) -> bytes:
    """Draw tokens by cell, of the columns `cell` and `tokens`; further dimensions are added up."""
    cells = [cell_values(cell) for cell in rows.column(CELL_COLUMN).to_pylist()]
    values = {name: in_order({cell.get(name) for cell in cells}) for name in dict.fromkeys(n for c in cells for n in c)}
    names = sorted(values, key=lambda name: -len(values[name]))
    down, across = names[0] if names else "", names[1] if len(names) > 1 else ""
    downs, acrosses = values.get(down, [None]), values.get(across, [None])
    tokens = np.zeros((len(downs), len(acrosses)))
    for cell, count in zip(cells, rows.column("tokens").to_pylist(), strict=True):
        tokens[downs.index(cell.get(down)), acrosses.index(cell.get(across))] += count
    left = margin(_written(value)[:_LETTERS] for value in downs[:_MOST])
    axes = new_axes(
        max(4, left + 1 + 0.35 * min(len(acrosses), _MOST)), max(2.4, 1 + 0.25 * min(len(downs), _MOST)), left
    )
    image = axes.imshow(tokens / 1e6, aspect="auto", cmap="Blues", vmin=0)
    for axis, shown, name in ((axes.yaxis, downs, down), (axes.xaxis, acrosses, across)):
        if len(shown) <= _MOST:
            axis.set_ticks(range(len(shown)), [_written(value)[:_LETTERS] for value in shown], fontsize=7)
        axis.set_label_text(name)
    axes.set_title(f"million tokens, {tokens.sum() / 1e6:,.1f} in {len(cells):,} cells", size=10)
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.colorbar(image, ax=axes)
    return png(axes)


def _written(value: Value) -> str:
    return "none" if value is None else str(value)

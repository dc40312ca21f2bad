"""What the plots of tables share: an empty figure of the UI's size, its labels, the PNG.

Margins are fixed, since measuring what stands beside the axes takes a third of a picture's time; logarithmic axes have
plain numbers, at powers alone, since formulas and small marks take half of it.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#2f6f9f", "#c2622d", "#4f8f4f", "#8f5fa8", "#7f7f7f")
_LEFT, _RIGHT, _BOTTOM, _TOP = 0.9, 0.2, 0.5, 0.3  # inches
_LETTER, _MOST_LETTERS = 0.09, 40


def new_axes(width: float = 5, height: float = 3, left: float = _LEFT, right: float = _RIGHT) -> Axes:
    """The axes of an empty figure, in inches of 80 pixels, with margins that hold numbers."""
    return new_figure(width, height, left, right).add_subplot()


def new_figure(width: float, height: float, left: float = _LEFT, right: float = _RIGHT) -> Figure:
    """An empty figure, in inches of 80 pixels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=80)
    figure.subplots_adjust(left / width, _BOTTOM / height, 1 - right / width, 1 - _TOP / height)
    FigureCanvasAgg(figure)
    return figure


def margin(names: Iterable[str]) -> float:
    """Inches that hold the longest of some names."""
    return 0.3 + _LETTER * min(max(map(len, names), default=0), _MOST_LETTERS)


def describe(axes: Axes, horizontal: str, vertical: str) -> None:
    """Write what the two axes show, and the legend of what has a label."""
    axes.set_xlabel(horizontal)
    axes.set_ylabel(vertical)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7)


def png(axes: Axes) -> bytes:
    """The figure of some axes as a PNG of a few kilobytes."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    from matplotlib.ticker import NullLocator

    for axis in (axis for part in figure.axes for axis in (part.xaxis, part.yaxis)):
        if axis.get_scale() != "linear":
            axis.set_major_formatter("{x:,g}")
            axis.set_minor_locator(NullLocator())
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    return stream.getvalue()


def draw_bars(counts: Mapping[str, int], label: str) -> bytes:
    """Counts by name as bars, the largest on top."""
    bars = sorted((count, name) for name, count in counts.items())
    axes = new_axes(6, 1 + 0.3 * len(bars), margin(counts), right=0.5)
    drawn = axes.barh([name for _, name in bars], [count for count, _ in bars])
    axes.bar_label(drawn, padding=2)
    axes.margins(x=0.1)
    axes.set_xlabel(label)
    return png(axes)

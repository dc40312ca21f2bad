"""Pictures of filters for the UI, each a PNG below 30 KB."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO


def draw_bars(counts: Mapping[str, int], label: str) -> bytes:
    """Counts by name as bars, the largest on top."""
    from matplotlib.figure import Figure

    bars = sorted((count, name) for name, count in counts.items())
    figure = Figure(figsize=(6, 1 + 0.3 * len(bars)), dpi=80, layout="constrained")
    axes = figure.subplots()
    drawn = axes.barh([name for _, name in bars], [count for count, _ in bars])
    axes.bar_label(drawn, padding=2)
    axes.margins(x=0.1)
    axes.set_xlabel(label)
    png = BytesIO()
    figure.savefig(png, format="png")
    return png.getvalue()

"""Charts as wide as the page, over offsets of a blend or sizes of clusters; each offset is a link."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from headrace_features.explore.answers import count, number
from headrace_features.explore.charts import RECT, with_axes

WIDE, TALL = 900, 180
COLOURS = 8  # classes c0, c1, .. of the style sheet
_STRIPS, _MARGIN = 60, 5
_CURVE = Markup('<polyline class="curve {}" points="{}"><title>{}</title></polyline>')
_AT = Markup('<line class="threshold" x1="{0:.1f}" x2="{0:.1f}" y1="0" y2="{1}"><title>{2}</title></line>')
_POINT = Markup('<a href="{}" aria-label="{}"><title>{}</title><path class="dot" d="M{:.1f} {:.1f}h0"/></a>')
_LINK = Markup('<a href="{}"><title>{}</title>{}</a>')


@dataclass(frozen=True)
class Series:
    """A line of a plot.

    Attributes:
        name: shown with its points.
        kind: class of the style sheet: c0, c1, ..
        x: (N) offsets, ascending.
        y: (N) values; those that are not finite are left out.
    """

    name: str
    kind: str
    x: Sequence[float]
    y: Sequence[float]


def plot(
    series: Sequence[Series],
    name: str,
    link: Callable[[float], str],
    points: Sequence[tuple[float, float, str]] = (),
    lines_at: Sequence[tuple[float, str]] = (),
    low: float | None = None,
) -> Markup:
    """Lines over offsets; each strip of the picture is a link to what is at its offset.

    Args:
        series: what is drawn.
        name: of the plot, for those who hear the page.
        link: address of what is at an offset.
        points: (offset, value, what it is), drawn as a link each.
        lines_at: offsets to mark, with what they are.
        low: the lowest value of the axis; None for that of the series.
    """
    values = np.concatenate([np.asarray(curve.y, float) for curve in series] or [np.zeros(0)])
    values = values[np.isfinite(values)]
    offsets = np.concatenate([np.asarray(curve.x, float) for curve in series] or [np.zeros(0)])
    first, last = (offsets.min(), offsets.max()) if len(offsets) else (0.0, 1.0)
    bottom, top = (values.min() if low is None else low, values.max()) if len(values) else (0.0, 1.0)

    def place(x: Sequence[float], y: Sequence[float]) -> list[tuple[float, float]]:
        across = WIDE * (np.asarray(x, float) - first) / ((last - first) or 1)
        up = (np.asarray(y, float) - bottom) / ((top - bottom) or 1)
        return list(zip(across.tolist(), (TALL - _MARGIN - (TALL - 2 * _MARGIN) * up).tolist(), strict=True))

    parts = []
    for at in range(_STRIPS):
        there = first + (last - first) * at / _STRIPS
        strip = RECT.format("hit", at * WIDE / _STRIPS, 0, WIDE / _STRIPS, TALL)
        parts.append(_LINK.format(link(there), f"at {there:,.0f}", strip))
    for curve in series:
        placed = " ".join(f"{x:.1f},{y:.1f}" for x, y in place(curve.x, curve.y) if np.isfinite(y))
        parts.append(_CURVE.format(curve.kind, placed, curve.name))
    parts += [_AT.format(place([at], [bottom])[0][0], TALL, text) for at, text in lines_at]
    for offset, value, text in points:
        parts.append(_POINT.format(link(offset), text, text, *place([offset], [value])[0]))
    return _wide(name, parts, map(number, np.linspace(top, bottom, 3)), map(count, np.linspace(first, last, 5)))


def columns(
    edges: Sequence[int],
    shares: Sequence[Sequence[float]],
    expected: Sequence[Sequence[float]],
    names: Sequence[str],
    link: Callable[[float], str],
) -> Markup:
    """Stacked columns: the shares of sources between two offsets, with dashed lines at the expected shares.

    Args:
        edges: (B + 1) offsets.
        shares: (B, S) of each source, each row with the sum 1.
        expected: (B, S) likewise.
        names: (S) of the sources.
        link: address of what is at an offset.
    """
    span, parts = (edges[-1] - edges[0]) or 1, []
    steps: list[list[str]] = [[] for _ in names]
    for at, (low, high) in enumerate(itertools.pairwise(edges)):
        left, right = (WIDE * (edge - edges[0]) / span for edge in (low, high))
        texts, rects, tops = [f"{low:,} to {high:,}"], [], [0.0, *np.cumsum(shares[at]).tolist()]
        for source, (label, due) in enumerate(zip(names, np.cumsum(expected[at]).tolist(), strict=True)):
            texts.append(f"{label} {shares[at][source]:.1%}, by its weight {expected[at][source]:.1%}")
            height = TALL * shares[at][source]
            rects.append(RECT.format(f"c{source % COLOURS}", left, TALL * tops[source], right - left, height))
            steps[source] += [f"{left:.1f},{TALL * due:.1f}", f"{right:.1f},{TALL * due:.1f}"]
        parts.append(_LINK.format(link(low), "\n".join(texts), Markup("").join(rects)))
    parts += [Markup('<polyline class="threshold" points="{}"/>').format(" ".join(corners)) for corners in steps[:-1]]
    return _wide("mix over offsets", parts, ("100%", "50%", "0%"), map(count, np.linspace(edges[0], edges[-1], 5)))


def scatter(points: Sequence[tuple[float, float, float, str, str, str]], name: str) -> Markup:
    """Points that are links, the axis to the right logarithmic.

    Args:
        points: (x > 0, y, y before, class, address, what it is) of each; a line leads from the y before to the y.
        name: of the chart.
    """
    across = np.log([max(point[0], 1) for point in points] or [1.0])
    heights = np.array([point[1:3] for point in points] or [(0.0, 1.0)])
    low, span = heights.min(), (heights.max() - heights.min()) or 1
    right = WIDE * (0.02 + 0.96 * (across - across.min()) / ((across.max() - across.min()) or 1))
    up = TALL - _MARGIN - (TALL - 2 * _MARGIN) * (heights - low) / span
    parts = []
    for x, (y, before), (*_, kind, link, text) in zip(right.tolist(), up.tolist(), points, strict=False):
        parts.append(
            Markup(
                '<a href="{0}" aria-label="{1}"><title>{1}</title><line class="before {2}" x1="{3:.1f}" x2="{3:.1f}" '
                'y1="{4:.1f}" y2="{5:.1f}"/><path class="dot {2}" d="M{3:.1f} {4:.1f}h0"/></a>'
            ).format(link, text, kind, x, y, before)
        )
    sizes = np.exp(np.linspace(across.min(), across.max(), 5))
    return _wide(name, parts, map(number, np.linspace(heights.max(), low, 3)), map(count, sizes))


def _wide(name: str, parts: Sequence[Markup], up: Iterable[str], across: Iterable[str]) -> Markup:
    drawing = Markup(
        '<svg class="wide" viewBox="0 0 {} {}" role="group" aria-label="{}" preserveAspectRatio="none">{}</svg>'
    ).format(WIDE, TALL, name, Markup("").join(parts))
    return with_axes(drawing, [*up], [*across])

"""Charts as SVG in the page: no script is needed, and colours come from the style sheet."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
from markupsafe import Markup

from headrace_features.explore.answers import number

WIDTH, HEIGHT = 220, 48
_FEW_TICKS, _TICKS, _TICKS_FROM = 3, 5, 400  # values of an axis, more of them from so many pixels on
RECT = Markup('<rect class="{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"/>')


def histogram(
    edges: Sequence[float],
    counts: Sequence[int],
    rejected: Sequence[int],
    link: Callable[[float | None, float | None], str],
    name: str,
    line: float | None = None,
    width: int = WIDTH,
    height: int = HEIGHT,
) -> Markup:
    """Bars of documents, of which the lower part was rejected; each bar is a link to the documents in it.

    Args:
        edges: (B + 1) of the bins; the first and the last bin hold what lies outside too.
        counts: (B) documents.
        rejected: (B) of these that were rejected.
        link: address of the documents from a value to another, None for no bound.
        name: of the column, for those who hear the page.
        line: a threshold to draw, None for none.
        width: of the picture, in pixels.
        height: likewise.
    """
    most, step = max(1, *counts), width / len(counts)
    bars = []
    for at, (low, high) in enumerate(itertools.pairwise(edges)):
        tall = 0.0 if not counts[at] else max(1.0, height * counts[at] / most)
        lower = tall * rejected[at] / counts[at] if counts[at] else 0.0
        text = f"{low:,.4g} to {high:,.4g}: {counts[at]:,} documents, {rejected[at]:,} rejected"
        rects = (("hit", 0.0, height), ("all", height - tall, tall - lower), ("rejected", height - lower, lower))
        bar = Markup("").join(RECT.format(kind, at * step, y, max(step - 1, 1), part) for kind, y, part in rects)
        there = link(low if at else None, high if at < len(counts) - 1 else None)
        bars.append(Markup('<a href="{}" aria-label="{}"><title>{}</title>{}</a>').format(there, text, text, bar))
    drawn = Markup("")
    if line is not None and edges[-1] > edges[0]:
        x = float(np.interp(line, edges, np.linspace(0, width, len(edges))))
        drawn = Markup('<line class="threshold" x1="{:.1f}" x2="{:.1f}" y1="0" y2="{}"/>').format(x, x, height)
    drawing = Markup(
        '<svg class="histogram" viewBox="0 0 {} {}" width="{}" height="{}" role="group" aria-label="{}" '
        'data-edges="{}" data-name="{}" preserveAspectRatio="none">{}{}</svg>'
    ).format(
        width, height, width, height, f"histogram of {name}", ",".join(f"{edge:.6g}" for edge in edges), name,
        Markup("").join(bars), drawn,
    )  # fmt: skip
    ticks = np.linspace(0, len(edges) - 1, _TICKS if width >= _TICKS_FROM else _FEW_TICKS).round().astype(int)
    return with_axes(drawing, (number(most), "0"), [number(edges[at]) for at in ticks])


def with_axes(drawing: Markup, up: Sequence[str], across: Sequence[str]) -> Markup:
    """A picture with the values of its axes, of each at even distances: from the top down, from the left."""
    sides = (Markup("").join(Markup("<span>{}</span>").format(text) for text in texts) for texts in (up, across))
    return Markup('<div class="axes"><div class="up">{1}</div>{0}<div class="ends">{2}</div></div>').format(
        drawing, *sides
    )


def share_bar(parts: Sequence[tuple[str, float]], name: str) -> Markup:
    """A bar of shares, such as of a blend's sources: (class, share) from the left."""
    out, at = [], 0.0
    for kind, share in parts:
        out.append(RECT.format(kind, 100 * at, 0, 100 * share, 8))
        at += share
    return Markup(
        '<svg class="shares" viewBox="0 0 100 8" role="img" aria-label="{}" preserveAspectRatio="none">{}</svg>'
    ).format(name, Markup("").join(out))

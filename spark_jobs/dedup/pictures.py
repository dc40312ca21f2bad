"""Pictures of what deduplication found: sizes of components, similarity to the witness, what thresholds keep."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = ("#2f6f9f", "#c2622d", "#4f8f4f", "#8f5fa8", "#7f7f7f")


def draw_component_sizes(rows: pa.Table) -> bytes:
    """Draw how many components have how many documents, one line per threshold, both axes logarithmic.

    Args:
        rows: increment, threshold, doc_id, component and document_count of `components`; of a document the row of the
            highest increment counts.
    """
    figure, axes = new_axes()
    for place, (threshold, sizes) in enumerate(component_sizes(rows).items()):
        size, count = np.unique(sizes, return_counts=True)
        label = f"J >= {threshold:g}: {len(sizes):,} components, the largest of {sizes.max():,}"
        axes.plot(size, count, "o-", markersize=3, linewidth=0.8, color=_COLOURS[place % len(_COLOURS)], label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,.0f}")
    _describe(axes, "documents in a component", "components")
    return png(figure)


def component_sizes(rows: pa.Table) -> dict[float, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Sizes of the components as they are after the last increment, by threshold ascending.

    Args:
        rows: increment, threshold, doc_id, component and document_count of `components`.
    """
    # The document that a component is named by has one row of every increment that touched it.
    keys = ["threshold", "doc_id"]
    newest = rows.group_by(keys).aggregate([("increment", "max")]).rename_columns([*keys, "increment"])
    current = rows.join(newest, [*keys, "increment"], join_type="left semi")
    named = current.filter(pc.equal(current["doc_id"], current["component"]))
    found = {}
    for threshold in sorted(pc.unique(named["threshold"]).to_pylist()):
        chosen = named.filter(pc.equal(named["threshold"], threshold))
        found[threshold] = chosen["document_count"].to_numpy().astype(np.int64)
    return found


def draw_witness_similarities(rows: pa.Table) -> bytes:
    """Draw how similar removed documents are to their witness: a histogram per threshold.

    Args:
        rows: threshold and similarity of `removals`.
    """
    figure, axes = new_axes()
    thresholds = sorted(pc.unique(rows["threshold"]).to_pylist())
    bins = np.linspace(min(thresholds, default=0.0), 1, 51).tolist()
    for place, threshold in enumerate(thresholds):
        similarity = rows.filter(pc.equal(rows["threshold"], threshold))["similarity"].to_numpy()
        colour = _COLOURS[place % len(_COLOURS)]
        label = f"J >= {threshold:g}: {len(similarity):,} removed"
        axes.hist(similarity, bins=bins, histtype="step", color=colour, label=label)
    _describe(axes, "weighted Jaccard similarity J to the witness", "removed documents")
    return png(figure)


def draw_pair_similarities(rows: pa.Table) -> bytes:
    """Draw how similar the verified pairs are.

    Args:
        rows: similarity of `pairs`.
    """
    figure, axes = new_axes()
    similarity = rows["similarity"].to_numpy()
    bins = np.linspace(similarity.min(initial=1.0), 1, 51).tolist()
    axes.hist(similarity, bins=bins, color=_COLOURS[0])
    axes.set_title(f"{len(similarity):,} pairs", size=10)
    _describe(axes, "weighted Jaccard similarity J", "pairs")
    return png(figure)


def draw_kept(rows: pa.Table) -> bytes:
    """Draw which share of documents and bytes each threshold keeps, over all increments.

    Args:
        rows: threshold, member_count, kept_count, kept_byte_count and removed_byte_count of `thresholds`.
    """
    figure, axes = new_axes()
    names = ["member_count", "kept_count", "kept_byte_count", "removed_byte_count"]
    sums = rows.group_by("threshold").aggregate([(name, "sum") for name in names]).sort_by("threshold")
    members, kept, kept_bytes, removed_bytes = (sums[f"{name}_sum"].to_numpy().astype(np.float64) for name in names)
    threshold = sums["threshold"].to_numpy()
    total = int(members.max(initial=0))
    for place, (label, part, whole) in enumerate(
        (("documents", kept, members), ("bytes", kept_bytes, kept_bytes + removed_bytes))
    ):
        share = 100 * part / np.maximum(whole, 1)
        axes.plot(threshold, share, "o-", color=_COLOURS[place], label=f"{label} kept, of {total:,} members")
    _describe(axes, "threshold of J", "% kept")
    return png(figure)


def new_axes() -> tuple[Figure, Axes]:
    """An empty figure of the size that the UI shows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3), dpi=80, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def _describe(axes: Axes, horizontal: str, vertical: str) -> None:
    axes.set_xlabel(horizontal)
    axes.set_ylabel(vertical)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7)


def png(figure: Figure) -> bytes:
    """A figure as a PNG of a few kilobytes."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    return stream.getvalue()

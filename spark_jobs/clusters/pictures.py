"""The plot of `cluster_losses`: the loss of each cluster by its size."""

from __future__ import annotations

import io

import pyarrow as pa


def draw_losses(rows: pa.Table) -> bytes:
    """Draw a point for each cluster, and a line up to what its loss was before the training; a PNG.

    Args:
        rows: document_count, loss_before and loss of `cluster_losses`.
    """
    from matplotlib.figure import Figure

    measured = rows.drop_null()
    sizes, before, after = (measured.column(name).to_numpy() for name in ("document_count", "loss_before", "loss"))
    figure = Figure(figsize=(6, 4), dpi=80, layout="constrained")
    axes = figure.subplots()
    axes.vlines(sizes, after, before, color="#c0c0c0", linewidth=0.6, label="before the training")
    axes.plot(sizes, after, ".", markersize=4, color="#2f6f9f", label="after it")
    axes.set_xscale("log")
    axes.set_xlabel("documents in the cluster")
    axes.set_ylabel("loss, nats a byte")
    axes.legend(fontsize=7)
    png = io.BytesIO()
    figure.savefig(png, format="png")
    return png.getvalue()

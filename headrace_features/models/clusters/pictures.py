"""The plot of `cluster_losses`: the loss of each cluster by its size."""

from __future__ import annotations

import pyarrow as pa

from spark_jobs.lake.declare.pictures import describe, new_axes, png


def draw_losses(rows: pa.Table) -> bytes:
    """Draw for each cluster a point at its loss after training and a line up to its loss before; a PNG."""
    measured = rows.drop_null()
    sizes, before, after = (measured.column(name).to_numpy() for name in ("document_count", "loss_before", "loss"))
    axes = new_axes(6, 4)
    axes.vlines(sizes, after, before, color="#c0c0c0", linewidth=0.6, label="before the training")
    axes.plot(sizes, after, ".", markersize=4, color="#2f6f9f", label="after it")
    axes.set_xscale("log")
    describe(axes, "documents in the cluster", "loss, nats a byte")
    return png(axes)

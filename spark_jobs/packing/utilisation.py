"""How full the windows of a packed table are: utilisation, and the plot of the step `packed`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_jobs.lake.declare.pictures import describe, new_axes, png


def utilisation(token_counts: pa.ChunkedArray | pa.Array, window_tokens: int) -> float:
    """Share of all positions with a token: (tokens + specials) / (windows * L); 1.0 for no windows."""
    if not len(token_counts):
        return 1.0
    total = int(np.sum(token_counts.to_numpy(), dtype=np.int64))
    return total / (len(token_counts) * window_tokens)


def draw_fill(rows: pa.Table, window_tokens: int) -> bytes:
    """Draw a histogram of the windows' token counts, the column `token_count`; a PNG of a few kilobytes."""
    counts = rows.column("token_count").to_numpy()
    bins = np.linspace(0, window_tokens, 51)
    axes = new_axes(5, 2.4)
    axes.hist(counts, bins=bins.tolist(), color="#2f6f9f")
    axes.set_yscale("symlog", linthresh=1)
    axes.set_xlim(0, window_tokens)
    describe(axes, f"tokens in a window of {window_tokens:,}", "windows")
    axes.set_title(
        f"{len(counts):,} windows, {utilisation(rows.column('token_count'), window_tokens):.3%} full", size=10
    )
    return png(axes)

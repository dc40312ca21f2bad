"""Pictures of the bands: how similar unrelated documents are, and which pairs the bands find."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_jobs.dedup.pictures import new_axes, png


def draw_background(rows: pa.Table) -> bytes:
    """Pairs by similarity, one line a kind; a PNG.

    Args:
        rows: kind, similarity, pair_count.
    """
    figure, axes = new_axes()
    for kind in sorted(set(rows.column("kind").to_pylist())):
        part = rows.filter(pa.compute.equal(rows.column("kind"), kind)).sort_by("similarity")
        counts = part.column("pair_count").to_numpy()
        similarity = part.column("similarity").to_numpy()
        axes.plot(similarity, counts[::-1].cumsum()[::-1] / max(1, counts.sum()), label=kind)
    axes.set_yscale("log")
    axes.set_xlim(0, 1)
    axes.set_xlabel("similarity of two random documents, at least")
    axes.set_ylabel("share of pairs")
    if rows.num_rows:
        axes.legend(fontsize=8)
    return png(figure)


def draw_bands(rows: pa.Table) -> bytes:
    """Candidate probability by similarity under the newest bands, over the background; a PNG.

    Args:
        rows: increment, similarity, candidate_probability, background_fraction, band_count, row_count.
    """
    figure, axes = new_axes()
    increments = rows.column("increment").to_numpy()
    newest = rows.filter(pa.array(increments == increments.max())) if rows.num_rows else rows
    newest = newest.sort_by("similarity")
    similarity = newest.column("similarity").to_numpy()
    axes.plot(similarity, newest.column("candidate_probability").to_numpy(), color="#2f6f9f")
    axes.set_ylabel("probability of a candidate")
    axes.set_xlabel("weighted Jaccard similarity")
    axes.set_xlim(0, 1)
    beside = axes.twinx()
    shares = newest.column("background_fraction").to_numpy()
    beside.bar(similarity, np.where(shares > 0, shares, np.nan), width=0.009, color="#bbbbbb")
    beside.set_yscale("log")
    beside.set_ylabel("share of random pairs")
    if newest.num_rows:
        bands, values = newest.column("band_count")[0].as_py(), newest.column("row_count")[0].as_py()
        axes.set_title(f"{bands} bands of {values} rows", size=10)
    return png(figure)

"""Plots of deduplication's tables as PNG images: background, bands, pairs, components, removals, thresholds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.lake.declare.pictures import COLOURS, describe, new_axes, png


def draw_component_sizes(rows: pa.Table) -> bytes:
    """Draw how many components have each size, one line per threshold, both axes logarithmic; a PNG."""
    axes = new_axes(right=0.45)
    for index, (threshold, sizes) in enumerate(component_sizes(rows).items()):
        size, count = np.unique(sizes, return_counts=True)
        label = f"J >= {threshold:g}: {len(sizes):,} components, the largest of {sizes.max():,}"
        axes.plot(size, count, "o-", markersize=3, linewidth=0.8, color=COLOURS[index % len(COLOURS)], label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    describe(axes, "documents in a component", "components")
    return png(axes)


def component_sizes(rows: pa.Table) -> dict[float, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Threshold, ascending -> sizes of its components after the last increment."""
    # The document that a component is named by has one row of every increment that touched it.
    keys = ["threshold", "doc_id"]
    newest = rows.group_by(keys).aggregate([("increment", "max")]).rename_columns([*keys, "increment"])
    current = rows.join(newest, [*keys, "increment"], join_type="left semi")
    named = current.filter(pc.equal(current["doc_id"], current["component"]))
    by_threshold = {}
    for threshold in sorted(pc.unique(named["threshold"]).to_pylist()):
        chosen = named.filter(pc.equal(named["threshold"], threshold))
        by_threshold[threshold] = chosen["document_count"].to_numpy().astype(np.int64)
    return by_threshold


def draw_witness_similarities(rows: pa.Table) -> bytes:
    """Draw histograms of removed documents by similarity to their witness, one per threshold; a PNG."""
    axes = new_axes()
    thresholds = sorted(pc.unique(rows["threshold"]).to_pylist())
    bins = np.linspace(min(thresholds, default=0.0), 1, 51).tolist()
    for index, threshold in enumerate(thresholds):
        similarity = rows.filter(pc.equal(rows["threshold"], threshold))["similarity"].to_numpy()
        colour = COLOURS[index % len(COLOURS)]
        label = f"J >= {threshold:g}: {len(similarity):,} removed"
        axes.hist(similarity, bins=bins, histtype="step", color=colour, label=label)
    describe(axes, "weighted Jaccard similarity J to the witness", "removed documents")
    return png(axes)


def draw_pair_similarities(rows: pa.Table) -> bytes:
    """Draw a histogram of verified pairs by similarity; a PNG."""
    axes = new_axes()
    similarity = rows["similarity"].to_numpy()
    bins = np.linspace(similarity.min(initial=1.0), 1, 51).tolist()
    axes.hist(similarity, bins=bins, color=COLOURS[0])
    axes.set_title(f"{len(similarity):,} pairs", size=10)
    describe(axes, "weighted Jaccard similarity J", "pairs")
    return png(axes)


def draw_kept(rows: pa.Table) -> bytes:
    """Draw the shares of documents and bytes that each threshold keeps, and of duplicates that it found; a PNG."""
    axes = new_axes()
    names = [name for name in rows.column_names if name != "threshold"]
    sums = rows.group_by("threshold").aggregate([(name, "sum") for name in names]).sort_by("threshold")
    of = {name: sums[f"{name}_sum"].to_numpy().astype(np.float64) for name in names}
    threshold = sums["threshold"].to_numpy()
    members, similar = of["member_count"], of["similar_count"]
    lines = (
        (f"documents kept, of {int(members.max(initial=0)):,} members", of["kept_count"], members),
        ("bytes kept", of["kept_byte_count"], of["kept_byte_count"] + of["removed_byte_count"]),
        (f"duplicates of sampled documents found, of {int(similar.max(initial=0)):,}", of["found_count"], similar),
    )
    for index, (label, part, whole) in enumerate(lines):
        some = whole > 0
        axes.plot(threshold[some], 100 * part[some] / whole[some], "o-", color=COLOURS[index], label=label)
    describe(axes, "threshold of J", "%")
    return png(axes)


def draw_background(rows: pa.Table) -> bytes:
    """Draw the share of random pairs at or above each similarity, one line per kind; a PNG."""
    axes = new_axes()
    for kind in sorted(set(rows.column("kind").to_pylist())):
        part = rows.filter(pc.equal(rows.column("kind"), kind)).sort_by("similarity")
        counts = part.column("pair_count").to_numpy()
        similarity = part.column("similarity").to_numpy()
        axes.plot(similarity, counts[::-1].cumsum()[::-1] / max(1, counts.sum()), label=kind)
    axes.set_yscale("log")
    axes.set_xlim(0, 1)
    describe(axes, "similarity of two random documents, at least", "share of pairs")
    return png(axes)


def draw_bands(rows: pa.Table) -> bytes:
    """Draw the candidate probability by similarity under the newest bands, over the background; a PNG."""
    axes = new_axes(right=0.9)
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
    beside.bar(similarity, np.where(shares > 0, shares, np.nan), width=0.01, color="#bbbbbb")
    beside.set_yscale("log")
    beside.set_ylabel("share of random pairs")
    if newest.num_rows:
        bands, values = newest.column("band_count")[0].as_py(), newest.column("row_count")[0].as_py()
        axes.set_title(f"{bands} bands of {values} rows", size=10)
    return png(axes)

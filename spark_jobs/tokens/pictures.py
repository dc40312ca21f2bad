"""The plot of `token_statistics`: lengths of documents by dataset, and characters per token by language."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_jobs.lake.declare.pictures import COLOURS, describe, margin, new_figure, png

_MOST_BARS = 10


def draw_token_statistics(rows: pa.Table) -> bytes:
    """Draw lengths of documents by dataset, and characters per token of the languages with most tokens; a PNG.

    Args:
        rows: dataset, language, token_count, character_count and length_histogram of `token_statistics`.
    """
    named = characters_per_token(rows)
    lengths, sizes = new_figure(9, 3).subplots(1, 2, gridspec_kw={"wspace": 0.15 + margin(named) / 4})
    for number, (dataset, histogram) in enumerate(length_histograms(rows).items()):
        counts = np.trim_zeros(histogram, "b")
        label = f"{dataset}: {histogram.sum():,} documents"
        lengths.step(range(len(counts)), counts, where="mid", label=label, color=COLOURS[number % len(COLOURS)])
    describe(lengths, "bits of the token count (11: 1,024 to 2,047 tokens)", "documents")
    sizes.barh(list(named), list(named.values()), color=COLOURS[0])
    sizes.invert_yaxis()
    sizes.tick_params(labelsize=7)
    sizes.set_xlabel("characters per token")
    return png(sizes)


def length_histograms(rows: pa.Table) -> dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Per dataset a histogram over all its rows: element b counts documents with a token count of b bits."""
    by_dataset: dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}
    for row in rows.select(["dataset", "length_histogram"]).to_pylist():
        histogram = np.array(row["length_histogram"], dtype=np.int64)
        by_dataset[row["dataset"]] = by_dataset.get(row["dataset"], np.zeros_like(histogram)) + histogram
    return dict(sorted(by_dataset.items()))


def characters_per_token(rows: pa.Table) -> dict[str, float]:
    """Characters per token of the ten languages with most tokens, most first."""
    names = ["token_count", "character_count"]
    sums = rows.group_by("language").aggregate([(name, "sum") for name in names])
    ordered = sums.sort_by([("token_count_sum", "descending"), ("language", "ascending")]).slice(0, _MOST_BARS)
    return {
        row["language"]: row["character_count_sum"] / row["token_count_sum"]
        for row in ordered.to_pylist()
        if row["token_count_sum"]
    }

"""Bins of histograms: of one width, or growing with the value where values spread over powers of ten."""

from __future__ import annotations

from typing import Final

import numpy as np

from spark_jobs.arrays import Float64Array

_SPREAD: Final = 50


def is_spread(low: float, high: float) -> bool:
    """Whether almost all values would fall into the first of equally wide bins, as sizes and counts do."""
    return low >= 0 and high > _SPREAD * (low + 1)


def bin_edges(low: float, high: float, bins: int) -> Float64Array:
    """(bins + 1) edges from the lowest value to the highest; evenly in ln(1 + value) where they are spread."""
    high = high if high > low else low + 1
    if is_spread(low, high):
        return np.expm1(np.linspace(np.log1p(low), np.log1p(high), bins + 1))
    return np.linspace(low, high, bins + 1)

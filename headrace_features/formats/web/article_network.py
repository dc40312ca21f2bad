"""Which blocks of a page are its article: a small network over what blocks look like, in their order.

Each block is seen with what stands around it: features to 32 numbers, the page's mean of these added, then three
convolutions reaching 1, 3 and 9 blocks to each side, and one number out: the log odds of the block being of it.
The weights are learned from pages whose text people have marked (benchmarks/bench_main_text.py says which, learns them
anew and measures pages left out). Sums are of float64 and rounded, so that machines agree.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

REACHES = (1, 3, 9)
WEIGHTS = "article_weights.npz"
_DIGITS = 6
_ROWS = 4096
_CLIPPED = 12.0

Doubles = NDArray[np.float64]


@lru_cache(maxsize=1)
def network_weights() -> dict[str, Doubles]:
    """The learned weights, by the name of their layer."""
    data = files("headrace_features.formats.web").joinpath(WEIGHTS).read_bytes()
    with np.load(BytesIO(data)) as arrays:
        return {name: arrays[name].astype(np.float64) for name in arrays.files}


def article_odds(features: NDArray[np.float32], words: NDArray[np.float32], weights: dict[str, Doubles]) -> Doubles:
    """(N,) log odds of each block belonging to the article.

    Args:
        features: (N, F) of the page's blocks, in order.
        words: (N,) how many words each has.
        weights: of the network's layers.
    """
    parts = [features[start : start + _ROWS] for start in range(0, len(features), _ROWS)]  # as doubles they are large
    first = np.concatenate([part.astype(np.float64) @ weights["features"] for part in parts])
    hidden = _positive(first + weights["features_bias"])
    share = (words + 1.0) / (words + 1.0).sum()
    hidden = hidden + _positive(share @ hidden @ weights["page"] + weights["page_bias"])
    for reach in REACHES:
        around = np.pad(hidden, ((reach, reach), (0, 0)))
        neighbours = np.concatenate([around[: -2 * reach], hidden, around[2 * reach :]], axis=1)
        hidden = hidden + _positive(neighbours @ weights[f"around{reach}"] + weights[f"around{reach}_bias"])
    odds = hidden @ weights["odds"] + weights["odds_bias"]
    return np.round(np.clip(odds, -_CLIPPED, _CLIPPED), _DIGITS).astype(np.float64)


def _positive(values: Doubles) -> Doubles:
    """Values, or 0 where they are negative."""
    return np.maximum(values, 0.0)

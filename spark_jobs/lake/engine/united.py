"""Many frames as one: an engine walks a plan by recursion, and a chain of unions is as deep as it is long."""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.spark_sql import DataFrame


def united(frames: Sequence[DataFrame]) -> DataFrame:
    """The rows of frames with the same columns, in the order of the first one's.

    A tree of unions is as deep as the logarithm of their number. A chain of some 150 ends Sail (0.7.2) without a word,
    for its stack is too small, and fewer do where the frames themselves are deep.

    Args:
        frames: one or more.
    """
    if len(frames) == 1:
        return frames[0]
    half = len(frames) // 2
    return united(frames[:half]).unionByName(united(frames[half:]))

"""The keep order of documents, or of repositories, as one number: their `place`. The lowest is kept first.

    place = priority << 59 | the first 59 bits of the identity

The priority is one of at most 16 classes, 0 the best: the levels of the criteria as digits of a number in mixed radix,
the first criterion the most significant. Inside a class the identity decides, which is a hash: the kept set of an order
that is as good as random takes few parallel rounds (see `kept_set`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_jobs.spark_sql import Column, F

CLASSES = 16
HASH_BITS = 59


def place(priority: Column, identity: Column) -> Column:
    """The place of an identity (at least 15 hex digits) with a priority from 0 to 15."""
    first_bits = F.shiftright(F.conv(F.substring(identity, 1, 15), 16, 10).cast("long"), 60 - HASH_BITS)
    return F.shiftleft(priority, HASH_BITS) + first_bits


def priority(criteria: Sequence[str], levels: Mapping[str, tuple[int, Column]]) -> Column:
    """The class of a row: criteria are used from the front, as long as their levels fit into 16 classes.

    Args:
        criteria: names, the most important first.
        levels: how many levels each criterion has, and the level of a row from 0, the best; one level decides nothing.
    """
    found, classes = F.lit(0).cast("long"), 1
    for criterion in criteria:
        count, level = levels[criterion]
        if count > 1 and classes * count <= CLASSES:
            found, classes = found * count + level, classes * count
    return found

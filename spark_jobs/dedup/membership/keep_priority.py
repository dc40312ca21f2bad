"""`place`: the keeping order of documents, or of repositories, as one number. The lowest is kept first.

    place = priority << 59 | the first 59 bits of the identity
          = priority << 59 | 20 bits of the repository << 39 | the first 39 bits of the identity

The priority is one of at most 16 classes, 0 the best: the levels of the criteria as digits of a number in mixed radix,
the first criterion the most significant. Inside a class hashes decide: the kept set of a random order takes few
parallel rounds (see `kept_set`). The repository's hash comes first, so that of two repositories with the same files
one keeps them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_jobs.spark_sql import Column, F

CLASSES = 16
HASH_BITS = 59  # with four bits of a class they leave the sign of 64
_REPOSITORY_BITS = 20


def place(priority: Column, identity: Column) -> Column:
    """The place of an identity (at least 15 hex digits) with a priority from 0 to 15, in the row's repository.

    The row has `dataset` and `repository`; where the latter is null, the identity alone decides.
    """
    alone = _bits(identity, HASH_BITS)
    first = _bits(F.sha2(F.concat_ws("\n", "dataset", "repository"), 256), _REPOSITORY_BITS)
    rest = HASH_BITS - _REPOSITORY_BITS
    together = F.shiftleft(first, rest) + _bits(identity, rest)
    return F.shiftleft(priority, HASH_BITS) + F.when(F.col("repository").isNull(), alone).otherwise(together)


def sampled(share: float) -> Column:
    """Whether a row is in a sample of a share of all rows, by its `doc_id`, a hash."""
    return _bits(F.col("doc_id"), HASH_BITS) < F.lit(int(min(1.0, share) * (1 << HASH_BITS)))


def _bits(identity: Column, count: int) -> Column:
    """The first `count` bits, at most 60, of a hash in hex digits, as a long."""
    return F.shiftright(F.conv(F.substring(identity, 1, 15), 16, 10).cast("long"), 60 - count)


def priority(criteria: Sequence[str], levels: Mapping[str, tuple[int, Column]]) -> Column:
    """The class of a row, 0 to 15: criteria are used from the first on, as long as their levels fit into 16 classes.

    Args:
        criteria: names, the most important first.
        levels: for each criterion its number of levels, and a row's level, from 0, the best.
    """
    rank, classes = F.lit(0).cast("long"), 1
    for criterion in criteria:
        count, level = levels[criterion]
        if count > 1 and classes * count <= CLASSES:
            rank, classes = rank * count + level, classes * count
    return rank

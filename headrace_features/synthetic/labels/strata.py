"""How many documents of each stratum are sampled: more of large ones, but less than in proportion.

stratum    documents    in proportion    by square root    a document stands for
en short       8,100               81                62                     130.6
en long        1,600               16                27                      59.3
de short         300                3                11                      27.3
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

REST: Final = "rest"


@dataclass(frozen=True)
class Stratum:
    """Documents sampled together.

    Attributes:
        name: of the stratum; `rest` for small ones together.
        count: documents in it.
        sampled: how many of them are sampled, at least one.
    """

    name: str
    count: int
    sampled: int


def allocate(counts: Mapping[str, int], sample: int) -> dict[str, Stratum]:
    """Share a sample among strata, by the square root of their sizes.

    Strata with less than a document in proportion are sampled together, so there are never more strata than documents
    in the sample, and every document has a chance. A document goes to the stratum with the largest root for each one
    that it has; ties go by name.

    Source: Bankier 1988, "Power Allocations: Determining Sample Sizes for Subnational Areas", with the power 1/2.

    Args:
        counts: documents by stratum.
        sample: documents to sample; all where there are no more.

    Returns:
        By the name of each stratum, the one sampled with it.
    """
    total = sum(counts.values())
    name_of = {value: REST if count * sample < total else value for value, count in counts.items()}
    sizes: dict[str, int] = {}
    for value, count in counts.items():
        sizes[name_of[value]] = sizes.get(name_of[value], 0) + count
    sampled = dict.fromkeys(sizes, 1)
    waiting = [(-math.sqrt(size) / 2, name) for name, size in sizes.items() if size > 1]
    heapq.heapify(waiting)
    for _ in range(min(sample, total) - len(sizes)):
        _, name = heapq.heappop(waiting)
        sampled[name] += 1
        if sampled[name] < sizes[name]:
            heapq.heappush(waiting, (-math.sqrt(sizes[name]) / (sampled[name] + 1), name))
    strata = {name: Stratum(name, size, sampled[name]) for name, size in sizes.items()}
    return {value: strata[name] for value, name in name_of.items()}

"""Random `pairs` over increments, as the steps that read them see them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAIRS_DDL = (
    "increment int, kind string, dataset string, doc_id string, better_dataset string, better_doc_id string, "
    "better_increment int, shared_weight bigint, united_weight bigint, similarity double"
)
THRESHOLDS = (0.7, 0.8, 0.9)


class Document(NamedTuple):
    """What orders documents: the first is the best."""

    increment: int
    place: int
    doc_id: str
    dataset: str


class Pair(NamedTuple):
    """Two documents, the worse first, and their weights."""

    worse: Document
    better: Document
    shared: int
    united: int

    @property
    def similarity(self) -> Fraction:
        """J."""
        return Fraction(self.shared, self.united)


def at_least(threshold: float) -> Fraction:
    """A threshold as a fraction."""
    return Fraction(str(threshold))


def planted(seed: int, documents: int = 60, increments: int = 3, pairs: int = 110) -> list[Pair]:
    """Pairs between random documents; small weights, so that many have the same J."""
    draw = random.Random(seed)
    made = [
        Document(draw.randrange(increments), draw.randrange(40), f"d{number:03}", draw.choice(["code", "docs"]))
        for number in draw.sample(range(1000), documents)
    ]
    found: dict[tuple[str, str], Pair] = {}
    while len(found) < pairs:
        better, worse = sorted(draw.sample(made, 2))
        united = draw.choice([10, 20, 30, 50])
        found[worse.doc_id, better.doc_id] = Pair(worse, better, draw.randint(7 * united // 10, united), united)
    return list(found.values())


def pairs_frame(spark: SparkSession, pairs: Sequence[Pair], increment: int, partitions: int = 2) -> DataFrame:
    """Rows of `pairs` of the increments 0 to `increment`."""
    rows = [
        (
            worse.increment,
            "code",
            worse.dataset,
            worse.doc_id,
            better.dataset,
            better.doc_id,
            better.increment,
            shared,
            united,
            shared / united,
        )
        for worse, better, shared, united in pairs
        if worse.increment <= increment
    ]
    return spark.createDataFrame(rows, PAIRS_DDL).repartition(partitions)

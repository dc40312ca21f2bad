"""A small corpus with planted near-duplicates, its steps run one after another, and the truth by brute force.

The truth shares no code with the kernels: words by a regular expression, fractions by Python's integers.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_jobs.dedup.bags.bags import BagsConfig, bags
from spark_jobs.dedup.bags.vocabulary import VocabularyConfig, vocabulary
from spark_jobs.dedup.near.buckets import BucketsConfig, buckets
from spark_jobs.dedup.near.pairs import PAIRS, PairsConfig, pairs
from spark_jobs.dedup.removal.removals import REMOVALS, RemovalsConfig, removals
from spark_jobs.dedup.sketches.background import BackgroundConfig, background
from spark_jobs.dedup.sketches.signatures import SignaturesConfig, signatures
from spark_jobs.lake.declare.step import Output
from spark_jobs.lake.declare.tables import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TEXTS_SCHEMA = (
    "dataset string, shard int, doc_id string, kind string, language string, content string, place bigint, "
    "increment int"
)


class Document(NamedTuple):
    """A document of the corpus."""

    increment: int
    kind: str
    content: str

    @property
    def doc_id(self) -> str:
        """Identity, a hash as in production."""
        return hashlib.sha256(f"{self.kind}\0{self.content}".encode()).hexdigest()[:32]

    @property
    def place(self) -> int:
        """Order of keeping: the hash alone."""
        return int(self.doc_id[:15], 16) >> 1


def planted(seed: int, originals: int, copies: int, increments: int = 1, words: int = 60) -> list[Document]:
    """Documents of random words, of which some are copied with one to twenty words changed."""
    draw = random.Random(seed)
    vocabulary = [f"word{number}" for number in range(800)]
    weights = [1 / (number + 3) for number in range(800)]
    texts = [
        (draw.choices(vocabulary, weights, k=draw.randrange(words // 2, words)), draw.choice(["prose", "markup"]))
        for _ in range(originals)
    ]
    for _ in range(copies):
        text, kind = texts[draw.randrange(len(texts))]
        copy = list(text)
        for _ in range(draw.randrange(1, words // 5)):
            copy[draw.randrange(len(copy))] = draw.choice(vocabulary)
        texts.append((copy, kind))
    documents = {}
    for text, kind in texts:
        one = Document(draw.randrange(increments), kind, " ".join(text))
        documents[one.doc_id] = one
    return list(documents.values())


def boilerplate(seed: int, copies: int, increments: int) -> list[Document]:
    """Two groups of near-identical documents that are about 0.8 alike across: some of one remove some of the other."""
    draw = random.Random(seed)
    base = [f"word{number}" for number in range(150)]
    other = [word if draw.random() > 0.11 else f"other{word}" for word in base]
    documents = []
    for number in range(copies):
        copy = list((base, other)[number % 2])
        for place in draw.sample(range(len(copy)), 1):
            copy[place] = f"word{draw.randrange(400)}"
        documents.append(Document(draw.randrange(increments), "prose", " ".join(copy)))
    return documents


def templated(seed: int, pages: int) -> list[Document]:
    """Pages that share a template (alike below 0.7), and in a second increment a twin of each (mostly 0.7 to 0.9)."""
    draw = random.Random(seed)
    template = " ".join([f"template{number}" for number in range(200)] * 3)
    common = [f"word{number}" for number in range(400)]
    documents = []
    for number in range(pages):
        own = draw.sample(common, 8) + [f"own{number}x{place}" for place in range(8)]
        lost = draw.uniform(0.15, 0.5)
        twin = [word for word in own if draw.random() > lost] + [f"twin{number}"]
        documents.append(Document(0, "prose", " ".join([template, *own])))
        documents.append(Document(1, "prose", " ".join([template, *twin])))
    documents += [Document(0, "prose", " ".join(draw.choices(common, k=60))) for _ in range(pages // 4)]
    return documents


def forms(seed: int, count: int) -> list[Document]:
    """Forms of the same labels, whose fields are filled from short lists, in two increments."""
    draw = random.Random(seed)
    labels = " ".join(f"label{number}" for number in range(150))
    filled = [" ".join(f"field{field}x{draw.randrange(4)}" for field in range(12)) for _ in range(count)]
    return [Document(draw.randrange(2), "prose", f"{labels} {own}") for own in filled]


def words_or_runs(
    words: Sequence[Any], few: bool = False, numbered: Mapping[Any, bool] | None = None
) -> Iterator[tuple[int, Any]]:
    """Features of a text with the place of their last word: words while enough of them differ, then runs as tuples.

    `numbered` are words with a digit, and whether they begin with it. Where they are a third of the different words,
    the others have to differ, whatever words that begin with something else occurred often.
    """
    counts: Counter[Any] = Counter()
    numbered = numbered or {}
    often = labels = with_digit = 0
    for at, word in enumerate(words):
        others = len(counts) - with_digit if len(counts) >= 8 and 3 * with_digit >= len(counts) else math.inf
        few = few or 5 * often > 2 * (len(counts) + 2) or 5 * (often - labels) > 2 * (others + 2)
        if not few:
            counts[word] += 1
            often += counts[word] == 4
            labels += counts[word] == 4 and not numbered.get(word, True)
            with_digit += counts[word] == 1 and word in numbered
            yield at, word
            continue
        for size in (3, 6, 12, 24):
            run = tuple(words[place] if place >= 0 else None for place in range(at, at - size, -1))
            counts[run] += 1
            yield at, run
            if counts[run] <= 2:
                break


def numbered_words(spelled: Mapping[Any, str]) -> dict[Any, bool]:
    """Of words and how they are spelled, those with a digit, and whether they begin with one."""
    return {word: text[0] in "0123456789" for word, text in spelled.items() if re.search("[0-9]", text)}


def true_pairs(documents: Sequence[Document], threshold: Fraction, cap: int = 4) -> dict[frozenset[str], Fraction]:
    """J of every two documents of a kind that reach the threshold; words weigh as in increment 0."""
    words = {one.doc_id: re.findall(r"\w+", one.content.lower()) for one in documents}
    counted = {
        doc_id: Counter(
            feature for _, feature in words_or_runs(own, numbered=numbered_words({one: one for one in own}))
        )
        for doc_id, own in words.items()
    }
    found = {}
    for kind in {one.kind for one in documents}:
        first = [one for one in documents if one.kind == kind and one.increment == 0]
        frequency = Counter(token for one in first for token in counted[one.doc_id])
        units = {
            token: min(255, max(1, round(8 * math.log((len(first) + 1) / (max(1, number) + 1)))))
            for token, number in frequency.items()
        }
        unknown = min(255, max(1, round(8 * math.log((len(first) + 1) / 2))))
        bags_of = {
            one.doc_id: {
                token: min(number, cap) * units.get(token, unknown) for token, number in counted[one.doc_id].items()
            }
            for one in documents
            if one.kind == kind
        }
        for (left, x), (right, y) in itertools.combinations(bags_of.items(), 2):
            shared = sum(min(weight, y.get(token, 0)) for token, weight in x.items())
            if shared:
                j = Fraction(shared, sum(x.values()) + sum(y.values()) - shared)
                if j >= threshold:
                    found[frozenset((left, right))] = j
    return found


def greedy_removed(documents: Sequence[Document], pairs_of: Mapping[frozenset[str], Fraction], t: Fraction) -> set[str]:
    """Who goes if documents are considered one after another by increment, place and id."""
    neighbours: dict[str, set[str]] = {}
    for pair, j in pairs_of.items():
        if j >= t:
            left, right = pair
            neighbours.setdefault(left, set()).add(right)
            neighbours.setdefault(right, set()).add(left)
    kept: set[str] = set()
    for one in sorted(documents, key=lambda one: (one.increment, one.place, one.doc_id)):
        if not neighbours.get(one.doc_id, set()) & kept:
            kept.add(one.doc_id)
    return {one.doc_id for one in documents} - kept


def near_steps(
    spark: SparkSession,
    documents: Sequence[Document],
    partitions: int = 2,
    config: Mapping[str, Mapping[str, Any]] | None = None,
    revisions: DataFrame | None = None,
) -> dict[str, DataFrame]:
    """Run vocabulary to removals over all increments; rows of every table with the column `increment`."""
    given = dict(config or {})
    rows = [("d", 0, one.doc_id, one.kind, None, one.content, one.place, one.increment) for one in documents]
    texts = spark.createDataFrame(rows, TEXTS_SCHEMA).repartition(partitions)
    members = texts.drop("content", "language")
    exact = spark.createDataFrame([], "doc_id string, increment int")
    tables: dict[str, DataFrame] = {}

    def of(frame: DataFrame, number: int) -> DataFrame:
        return frame.where(f"increment = {number}").drop("increment")

    def land(output: DataFrame | Output, number: int, names: Sequence[str]) -> None:
        whole = output if isinstance(output, Output) else Output({names[0]: output})
        for name in names:
            landed = whole.frames[name].selectExpr("*", f"{number} AS increment")
            schema, data = landed.schema, landed.toArrow()
            frame = spark.createDataFrame(data, schema) if data.num_rows else spark.createDataFrame([], schema)
            frame = frame.repartition(partitions)
            tables[name] = tables[name].unionByName(frame) if name in tables else frame
        for frame in whole.persisted:
            frame.unpersist()

    first = (of(members, 0), of(exact, 0), of(texts, 0))
    land(vocabulary(*first, VocabularyConfig(**given.get("vocabulary", {}))), 0, ["vocabulary"])
    words = tables["vocabulary"].drop("increment")
    for number in range(max((one.increment for one in documents), default=0) + 1):
        read = (of(members, number), of(exact, number), of(texts, number))
        land(bags(*read, words, BagsConfig(**given.get("bags", {}))), number, ["bags"])
        if number == 0:
            land(background(of(tables["bags"], 0), BackgroundConfig()), 0, ["background"])
        signing = SignaturesConfig(**given.get("signatures", {}))
        land(signatures(of(tables["bags"], number), words, signing), number, ["signatures"])
        found = buckets(
            tables["signatures"], of(tables["background"], 0), number, BucketsConfig(**given.get("buckets", {}))
        )
        land(found, number, ["buckets", "bands"])
        own = tables["pairs"] if "pairs" in tables else empty(spark, PAIRS)
        told = revisions.where(f"increment <= {number}") if revisions is not None else None
        found_in = (tables[name] for name in ("buckets", "signatures", "bags"))
        verified = pairs(*found_in, own, number, PairsConfig(**given.get("pairs", {})), told)
        land(verified, number, ["pairs", "large_buckets"])
        own = tables["removals"] if "removals" in tables else empty(spark, REMOVALS)
        removing = RemovalsConfig(**given.get("removals", {}))
        land(removals(tables["pairs"], own, number, removing, revisions=told), number, ["removals"])
    return tables


def empty(spark: SparkSession, table: Any) -> DataFrame:
    """A table without rows."""
    return spark.createDataFrame([], spark_schema(table))


def found_pairs(tables: Mapping[str, DataFrame]) -> dict[frozenset[str], Fraction]:
    """J of every stored pair."""
    rows = tables["pairs"].collect()
    found = {frozenset((row.doc_id, row.better_doc_id)): Fraction(row.shared_weight, row.united_weight) for row in rows}
    assert len(found) == len(rows)
    return found


def removed_at(tables: Mapping[str, DataFrame], threshold: float) -> set[str]:
    """Documents removed at a threshold."""
    return {row.doc_id for row in tables["removals"].collect() if row.threshold == threshold}


def rows_of(tables: Mapping[str, DataFrame]) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    """Every table's rows in a fixed order."""
    for name, frame in tables.items():
        columns = sorted(frame.columns)
        yield name, sorted((tuple(row) for row in frame.select(*columns).collect()), key=repr)

"""The level semantic from vectors to removals, compared with brute force over all pairs of planted documents.

Vectors are random directions, and paraphrases near them: no model is needed to plant what an encoder would say.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

from headrace_features.models.semantic.cells import (
    SEMANTIC_CELLS,
    SemanticCentroidsConfig,
    semantic_cells,
    semantic_centroids,
)
from headrace_features.models.semantic.compared import families, with_families
from headrace_features.models.semantic.pairs import SemanticPairsConfig, semantic_pairs
from headrace_features.models.semantic.recall import SemanticRecallConfig, semantic_recall
from headrace_features.models.semantic.removals import SEMANTIC_REMOVALS, SemanticRemovalsConfig, semantic_removals
from headrace_features.models.static_vectors import scaled
from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.step import Output
from spark_jobs.lake.declare.tables import spark_schema
from tests.headrace_features.models.semantic.test_cosine import cosine
from tests.tiers import sampled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LEAST = 0.9
MEMBERS_DDL = "dataset string, shard int, doc_id string, kind string, place bigint, increment int"
VECTORS_DDL = "dataset string, shard int, doc_id string, vector binary, reason string, encoder string, increment int"
DOCUMENTS_DDL = "doc_id string, metadata map<string, string>, increment int"
REVISIONS_DDL = (
    "dataset string, doc_id string, path_id string, standing string, other_doc_id string, leaves boolean, increment int"
)


class Document(NamedTuple):
    """A document with the vector that an encoder would give it; None where it would give none."""

    name: str
    increment: int
    vector: np.ndarray[Any, Any] | None
    parent: str = ""

    @property
    def doc_id(self) -> str:
        """Identity, a hash as in production."""
        return hashlib.sha256(self.name.encode()).hexdigest()[:32]

    @property
    def place(self) -> int:
        """Order of keeping: the hash alone."""
        return int(self.doc_id[:15], 16) >> 1


def planted(originals: int, copies: int, seed: int = 1) -> list[Document]:
    """Documents of two increments: alone, in groups of paraphrases, a large group, families of three, one without text.

    Of a family the child is written from the root and the grandchild from the child, all near each other.
    """
    rng = np.random.default_rng(seed)

    def near(vector: np.ndarray[Any, Any], noise: float) -> np.ndarray[Any, Any]:
        return np.asarray(vector + noise * rng.normal(size=vector.shape) * np.linalg.norm(vector) / 4)

    roots = rng.normal(size=(originals, 16))
    found = [(f"alone-{row}", row % 2, roots[row], "") for row in range(originals)]
    for number in range(copies):
        row = int(rng.integers(0, originals // 3))
        found.append((f"copy-{number}", int(rng.integers(0, 2)), near(roots[row], rng.uniform(0.05, 0.7)), ""))
    found += [(f"many-{number}", number % 2, near(roots[-1], 0.15), "") for number in range(40)]
    for number in range(5):
        root = rng.normal(size=16)
        found.append((f"root-{number}", 0, root, ""))
        found.append((f"child-{number}", 0, near(root, 0.05), f"root-{number}"))
        found.append((f"grandchild-{number}", 1, near(root, 0.05), f"child-{number}"))
    vectors = scaled(np.array([one[2] for one in found]))
    documents = [Document(one[0], one[1], vector, one[3]) for one, vector in zip(found, vectors, strict=True)]
    return [*documents, Document("empty", 0, None), Document("empty too", 1, None)]


def true_pairs(documents: Sequence[Document], families: bool = False) -> dict[frozenset[str], Fraction]:
    """The cosine of every two documents that reach the threshold, of one family only where asked."""
    whole = [one for one in documents if one.vector is not None]
    matrix = np.array([one.vector for one in whole], np.float64)
    products = matrix @ matrix.T / np.outer(*[np.linalg.norm(matrix, axis=1)] * 2)
    found = {}
    for row, other in zip(*np.nonzero(np.triu(products > LEAST - 0.001, 1)), strict=True):
        one, two = whole[row], whole[other]
        family = {name.partition("-")[2] for name in (one.name, two.name) if name.split("-")[0] in FAMILY}
        kin = len(family) == 1 and all(name.split("-")[0] in FAMILY for name in (one.name, two.name))
        assert one.vector is not None and two.vector is not None
        similarity = cosine(one.vector, two.vector)
        if similarity >= Fraction(str(LEAST)) and (families or not kin):
            found[frozenset((one.doc_id, two.doc_id))] = similarity
    return found


FAMILY = ("root", "child", "grandchild")


def kept_of(documents: Sequence[Document], pairs: Mapping[frozenset[str], Fraction]) -> set[str]:
    """Who is kept if documents are considered one after another by increment, place and id."""
    kept: set[str] = set()
    for one in sorted(documents, key=lambda one: (one.increment, one.place, one.doc_id)):
        if not any(frozenset((one.doc_id, other)) in pairs for other in kept):
            kept.add(one.doc_id)
    return kept


def steps(
    spark: SparkSession,
    documents: Sequence[Document],
    cells: int = 1,
    families: bool = False,
    revisions: DataFrame | None = None,
    partitions: int = 2,
    **pairing: Any,
) -> dict[str, list[Any]]:
    """Rows of every table over both increments; all proofs of the removals hold for them."""
    encoder = "e" * 64
    rows = [("d", 0, one.doc_id, "prose", one.place, one.increment) for one in documents]
    members = spark.createDataFrame(rows, MEMBERS_DDL).repartition(partitions)
    values = [None if one.vector is None else one.vector.astype("<i2").tobytes() for one in documents]
    of_texts = [
        ("d", 0, one.doc_id, value, None, encoder, one.increment) for one, value in zip(documents, values, strict=True)
    ]
    vectors = spark.createDataFrame(of_texts, VECTORS_DDL).repartition(partitions)
    ids = {one.name: one.doc_id for one in documents}
    told = [
        (one.doc_id, {"parent": ids[one.parent], "parent_dataset": "d"} if one.parent else {}, one.increment)
        for one in documents
    ]
    metadata = spark.createDataFrame(told, DOCUMENTS_DDL)
    tables: dict[str, DataFrame] = {}

    def land(made: DataFrame | Output, name: str, increment: int) -> None:
        frame = made.frames[name] if isinstance(made, Output) else made
        data = frame.selectExpr("*", f"{increment} AS increment")
        held = spark.createDataFrame(data.collect(), data.schema)
        tables[name] = tables[name].unionByName(held) if name in tables else held

    for number in (0, 1):
        here = [frame.where(f"increment = {number}").drop("increment") for frame in (members, members, vectors)]
        if number == 0:
            land(semantic_centroids(*here, SemanticCentroidsConfig(cells=cells)), "semantic_centroids", 0)
        frozen = tables["semantic_centroids"].drop("increment")
        land(semantic_cells(*here, frozen), "semantic_cells", number)
        read = None if families else metadata.where(f"increment <= {number}")
        land(
            semantic_pairs(tables["semantic_cells"], number, SemanticPairsConfig(**pairing), read),
            "semantic_pairs",
            number,
        )
        own = tables.get("semantic_removals", spark.createDataFrame([], spark_schema(SEMANTIC_REMOVALS)))
        config = SemanticRemovalsConfig()
        decided = semantic_removals(tables["semantic_pairs"], own, number, config, revisions)
        frames = {"semantic_pairs": tables["semantic_pairs"], "semantic_removals": own}
        frames |= {} if revisions is None else {"revisions": revisions}
        landed = spark.createDataFrame(decided.collect(), decided.schema)
        for proof in SEMANTIC_REMOVALS.proofs:
            assert proof.violations(landed, frames, number, config).count() == 0, proof.name
        land(landed, "semantic_removals", number)
        measured = semantic_recall(
            tables["semantic_cells"], tables["semantic_removals"], number, SemanticRecallConfig(), read, revisions
        )
        land(measured, "semantic_recall", number)
    return {name: frame.collect() for name, frame in tables.items()}


def pairs_in(rows: Mapping[str, list[Any]]) -> dict[frozenset[str], Fraction]:
    """Stored pairs; none is stored twice, and the better document comes first in the order."""
    found = {
        frozenset((row.doc_id, row.better_doc_id)): Fraction(row.shared_weight, row.united_weight)
        for row in rows["semantic_pairs"]
    }
    assert len(found) == len(rows["semantic_pairs"])
    for row in rows["semantic_pairs"]:
        better, worse = (row.better_increment, row.better_place), (row.increment, row.place)
        assert better < worse and row.similarity == row.shared_weight / row.united_weight
    return found


@sampled()
@pytest.mark.parametrize("tile_documents", [4096, 7])
def test_in_one_cell_pairs_and_removals_are_those_of_brute_force(spark: SparkSession, tile_documents: int) -> None:
    """All pairs across both increments, in one tile or many; kin are no pair; who is like a better kept one goes."""
    documents = planted(originals=120, copies=120)
    truth = true_pairs(documents)
    rows = steps(spark, documents, tile_documents=tile_documents, max_pairs=1000)
    assert pairs_in(rows) == truth and len(truth) > 300
    gone = {row.doc_id for row in rows["semantic_removals"]}
    assert {one.doc_id for one in documents} - gone == kept_of(documents, truth)
    assert all(row.witness_doc_id not in gone for row in rows["semantic_removals"])
    without = {one.doc_id for one in documents if one.vector is None}
    assert {row.doc_id for row in rows["semantic_cells"]} == {one.doc_id for one in documents} - without
    assert [(row.recall, row.least_recall) for row in rows["semantic_recall"]] == [(1.0, 0.9)] * 2
    assert sum(row.compared_count for row in rows["semantic_recall"]) == len(documents) - 2
    assert sum(row.removed_count for row in rows["semantic_recall"]) == len(gone)


@pytest.mark.nightly
def test_kin_are_pairs_where_it_is_asked(spark: SparkSession) -> None:
    """Root, child and grandchild of each family, across increments, and of each the best alone is kept."""
    documents = [one for one in planted(originals=12, copies=0) if not one.name.startswith("many")]
    kin = true_pairs(documents, families=True).keys() - true_pairs(documents).keys()
    assert len(kin) == 15
    assert pairs_in(steps(spark, documents, families=True)).keys() == true_pairs(documents, families=True).keys()
    rows = steps(spark, documents)
    assert not pairs_in(rows).keys() & kin and not {row.doc_id for row in rows["semantic_removals"]}


@pytest.mark.nightly
def test_many_that_are_alike_have_few_pairs_and_one_is_kept(spark: SparkSession) -> None:
    """With two better neighbours for each of 41 documents there are at most two pairs each, and the same are kept."""
    documents = planted(originals=12, copies=0)
    many = {one.doc_id for one in documents if one.name.startswith("many") or one.name == "alone-11"}
    whole, few = (steps(spark, documents, max_pairs=most) for most in (1000, 2))
    assert len(pairs_in(whole)) > 400 and len(pairs_in(few)) <= 2 * len(many)
    kept = [many - {row.doc_id for row in rows["semantic_removals"]} for rows in (whole, few)]
    assert kept[0] == kept[1] and len(kept[0]) <= 2


def test_recall_over_cells_is_what_brute_force_says(spark: SparkSession) -> None:
    """With many cells some pairs are missed: those found are true, and the recall is counted from all cosines."""
    documents = planted(originals=120, copies=120)
    truth = true_pairs(documents)
    rows = steps(spark, documents, cells=60)
    found = pairs_in(rows)
    assert found.items() < truth.items() and len(found) > 0.5 * len(truth)
    where = {row.doc_id: {row.cell, row.second_cell} for row in rows["semantic_cells"]}
    assert all(where[one] & where[two] for one, two in map(tuple, found))
    gone = {row.doc_id for row in rows["semantic_removals"]}
    increments = {one.doc_id: one.increment for one in documents}
    for row in rows["semantic_recall"]:
        ends = [
            two
            for pair in truth
            for one, two in (tuple(pair), tuple(pair)[::-1])
            if increments[one] == row.increment and increments[two] <= row.increment and one not in gone
        ]
        assert (row.similar_count, row.found_count) == (len(ends), sum(end in gone for end in ends))
        assert row.recall == row.found_count / row.similar_count


@pytest.mark.nightly
def test_revisions_and_members_that_left_justify_nothing(spark: SparkSession) -> None:
    """As among near-duplicates: an edit is not removed for what it corrects, nor for a document that has left."""
    vector = scaled(np.ones((1, 16)))[0]
    documents = [Document("old", 0, vector), Document("new", 1, vector)]
    told = [("d", one.doc_id, "path", "latest", None, False, 1) for one in documents]
    edited = spark.createDataFrame(told, REVISIONS_DDL)
    left = spark.createDataFrame([("d", documents[0].doc_id, None, "gone", None, True, 1)], REVISIONS_DDL)
    for revisions, gone in ((None, 1), (edited, 0), (left, 0)):
        rows = steps(spark, documents, revisions=revisions)
        assert len(pairs_in(rows)) == 1 and len(rows["semantic_removals"]) == gone
        assert rows["semantic_recall"][1].similar_count in ((1, 0) if gone else (0,))


def test_vectors_of_two_encoders_are_refused(spark: SparkSession) -> None:
    """In one line that says how to mend it."""
    members = spark.createDataFrame([("d", 0, "a" * 32, "prose", 1)], MEMBERS_DDL.rpartition(",")[0])
    vectors = spark.createDataFrame(
        [("d", 0, name * 32, b"\1\0" * 8, None, name * 64) for name in "ab"], VECTORS_DDL.rpartition(",")[0]
    )
    frozen = spark.createDataFrame([], "cell int, vector binary, encoder string")
    with pytest.raises(InputError, match=r"encoders aaaaaaaaaaaa and bbbbbbbbbbbb, .* headrace corpus refresh"):
        semantic_cells(members, members, vectors, frozen)


@pytest.mark.nightly
def test_rows_are_identical_for_1_2_and_7_partitions(spark: SparkSession) -> None:
    """Neither partitions nor tiles show in any table."""
    documents = planted(originals=60, copies=60)
    plain = {name: sorted(map(str, rows)) for name, rows in steps(spark, documents, cells=9).items()}
    for partitions in (1, 7):
        other = steps(spark, documents[::-1], cells=9, partitions=partitions, tile_documents=5)
        assert {name: sorted(map(str, rows)) for name, rows in other.items()} == plain
    names = [column.name for column in SEMANTIC_CELLS.columns]
    assert names == list(steps(spark, documents)["semantic_cells"][0].asDict())[:-1]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_families_are_told_apart_however_many_there_are(spark: SparkSession, count: int) -> None:
    """One too, whose name is the only value of its column; documents of none have 0."""
    rows: list[tuple[str, dict[str, str], int]] = [(f"{number:032x}", {}, 0) for number in range(9)]
    for family in range(count):
        parent = {"parent": rows[family][0], "parent_dataset": "d"}
        rows += [(f"{100 + 10 * family + child:032x}", parent, 0) for child in range(2)]
    documents = spark.createDataFrame(rows, DOCUMENTS_DDL)
    told = with_families(documents.select("doc_id"), families(documents, documents, 1000)).collect()
    family_of = {row["doc_id"]: row["family"] for row in told}
    assert len(told) == len(rows)
    for family in range(count):
        kin = {family_of[rows[family][0]], *(family_of[f"{100 + 10 * family + child:032x}"] for child in range(2))}
        assert len(kin) == 1 and 0 not in kin
    assert len(set(family_of.values())) == count + 1 and {family_of[row[0]] for row in rows[count:9]} == {0}

"""The step that removes near-duplicates, and its proofs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pytest

from spark_jobs.dedup.removal.removals import REMOVALS, RemovalsConfig, kept_pairs, removals, unjustified
from tests.spark_jobs.dedup.planted_pairs import THRESHOLDS, Document, Pair, at_least, pairs_frame, planted
from tests.tiers import on_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


CONFIG = RemovalsConfig()
OWN_DDL = (
    "threshold double, dataset string, doc_id string, witness_dataset string, witness_doc_id string, "
    "shared_weight bigint, united_weight bigint, similarity double, repository string"
)


class Removal(NamedTuple):
    """One row of the table."""

    threshold: float
    dataset: str
    doc_id: str
    witness_dataset: str
    witness_doc_id: str
    shared_weight: int
    united_weight: int
    similarity: float
    repository: str | None = None


def run(
    spark: SparkSession,
    pairs: Sequence[Pair],
    own: Collection[Removal],
    increment: int,
    leaving: Collection[str] | None = None,
    partitions: int = 2,
    driver_edges: int = 10**6,
) -> set[Removal]:
    """Rows of the step for one increment; its proofs hold for them."""
    frames = inputs(spark, pairs, own, increment, leaving, partitions)
    config = RemovalsConfig(thresholds=THRESHOLDS, driver_edges=driver_edges)
    rows = removals(**frames, increment=increment, config=config).collect()
    found = {Removal(*row) for row in rows}
    assert len(found) == len(rows)
    return found


def inputs(
    spark: SparkSession,
    pairs: Sequence[Pair],
    own: Collection[Removal],
    increment: int,
    leaving: Collection[str] | None = None,
    partitions: int = 2,
) -> dict[str, DataFrame]:
    """Input tables by name."""
    frames = {
        "pairs": pairs_frame(spark, pairs, increment, partitions),
        "removals": spark.createDataFrame(sorted(own), OWN_DDL),
    }
    if leaving is not None:
        frames["leaving"] = leaving_frame(spark, [(0, "code", doc_id, "r", None, None) for doc_id in leaving])
    return frames


def leaving_frame(
    spark: SparkSession, rows: Collection[tuple[int, str, str, str, str | None, str | None]]
) -> DataFrame:
    """Rows of `repository_removal_files`."""
    ddl = "dataset string, doc_id string, repository string, stand_in_dataset string, stand_in_doc_id string"
    return spark.createDataFrame(list(rows), f"increment int, {ddl}")


def broken(
    spark: SparkSession, landed: Collection[Removal], frames: dict[str, DataFrame], increment: int
) -> tuple[int, int]:
    """Violations of the two proofs."""
    rows = spark.createDataFrame(sorted(landed), OWN_DDL)
    return (
        kept_pairs(rows, frames, increment, CONFIG).count(),
        unjustified(rows, frames, increment, CONFIG).count(),
    )


def one_after_another(pairs: Sequence[Pair], leaving: Collection[str] = ()) -> dict[int, set[Removal]]:
    """Brute force: documents of all increments, the best first, leaving files last in theirs; rows by increment."""
    rows: dict[int, set[Removal]] = {}
    for threshold in THRESHOLDS:
        counted = []
        for pair in pairs:
            same = pair.worse.increment == pair.better.increment
            worse, better = pair.worse.doc_id in leaving, pair.better.doc_id in leaving and same
            if worse or better or pair.similarity >= at_least(threshold):
                turned = pair._replace(worse=pair.better, better=pair.worse)
                counted.append(turned if better and not worse else pair)
        removed: set[Document] = set()
        for document in sorted({pair.worse for pair in counted}, key=lambda d: (d.increment, d.doc_id in leaving, d)):
            kept = [pair for pair in counted if pair.worse == document and pair.better not in removed]
            if not kept:
                continue
            removed.add(document)
            best = min(kept, key=lambda pair: (-pair.similarity, pair.better.increment, pair.better.doc_id))
            witness = best.better
            rows.setdefault(document.increment, set()).add(
                Removal(
                    threshold,
                    document.dataset,
                    document.doc_id,
                    witness.dataset,
                    witness.doc_id,
                    best.shared,
                    best.united,
                    best.shared / best.united,
                    "r" if document.doc_id in leaving else None,
                )
            )
    return rows


@on_spark
@pytest.mark.parametrize(
    ("seed", "driver_edges", "increments"), [(1, 10**6, 3), pytest.param(3, 0, 2, marks=pytest.mark.nightly)]
)
def test_removals_over_increments_are_those_of_one_after_another(
    spark: SparkSession, seed: int, driver_edges: int, increments: int
) -> None:
    """Documents of an increment alone are decided, by the order (increment, place, doc_id); witnesses are the best."""
    pairs = planted(seed, increments=increments)
    expected = one_after_another(pairs)
    own: set[Removal] = set()
    for increment in range(increments):
        found = run(spark, pairs, own, increment, driver_edges=driver_edges)
        assert found == expected[increment]
        assert len(found) > 5
        if (seed, increment) == (1, 2):
            assert broken(spark, found, inputs(spark, pairs, own, increment), increment) == (0, 0)
        own |= found


def test_files_of_repositories_go_where_something_like_them_is_kept(spark: SparkSession) -> None:
    """They come last in their increment and go for any pair that is kept; what a later one is like, they stay for."""
    pairs = planted(4)
    leaving = sorted({pair.better.doc_id for pair in pairs})[::3]
    expected = one_after_another(pairs, leaving)
    assert expected != one_after_another(pairs)
    first = run(spark, pairs, [], 0, leaving)
    second = run(spark, pairs, first, 1, leaving)
    assert (first, second) == (expected[0], expected[1])
    named = {row.doc_id for row in first | second if row.repository == "r"}
    assert named and named < set(leaving)
    assert any(row.similarity < row.threshold for row in second)
    frames = inputs(spark, pairs, first, 1, leaving)
    assert broken(spark, second, frames, 1) == (0, 0)
    file = min(row for row in second if row.repository == "r" and row.similarity < row.threshold)
    kept = kept_pairs(spark.createDataFrame(sorted(second - {file}), OWN_DDL), frames, 1, CONFIG)
    assert (file.threshold, file.doc_id) in {(row.threshold, row.doc_id) for row in kept.collect()} | {
        (row.threshold, row.better_doc_id) for row in kept.collect()
    }
    bad = [file._replace(repository="other"), file._replace(witness_doc_id="nobody")]
    assert unjustified(spark.createDataFrame([file, *bad], OWN_DDL), frames, 1, CONFIG).count() == 2


def test_stand_ins_take_the_place_of_what_is_kept(spark: SparkSession) -> None:
    """As without them, but that the stand-in is every witness, and what it stands for goes for it where it was kept."""
    pairs = planted(4)
    documents = {one.doc_id: one for pair in pairs for one in (pair.worse, pair.better)}
    stood = [documents[name] for name in sorted({pair.better.doc_id for pair in pairs})[::2]]
    frame = [(one.increment, one.dataset, one.doc_id, "r", "twins", f"{one.doc_id}-twin") for one in stood]
    plain = one_after_another(pairs)

    def twin(row: Removal) -> Removal:
        named = row.witness_doc_id in {one.doc_id for one in stood}
        return row._replace(witness_dataset="twins", witness_doc_id=f"{row.witness_doc_id}-twin") if named else row

    expected = {
        increment: {twin(row) for row in plain[increment]}
        | {
            Removal(threshold, one.dataset, one.doc_id, "twins", f"{one.doc_id}-twin", 1, 1, 1.0, "r")
            for one in stood
            for threshold in THRESHOLDS
            if one.increment == increment
            and (threshold, one.doc_id) not in {(row.threshold, row.doc_id) for row in plain[increment]}
        }
        for increment in (0, 1)
    }
    own: set[Removal] = set()
    for increment in (0, 1):
        frames = inputs(spark, pairs, own, increment) | {"leaving": leaving_frame(spark, frame)}
        config = RemovalsConfig(thresholds=THRESHOLDS)
        found = {Removal(*row) for row in removals(**frames, increment=increment, config=config).collect()}
        assert found == expected[increment] != plain[increment]
        assert broken(spark, found, frames, increment) == (0, 0)
        own |= found
    wrong = next(row for row in found if row.similarity == 1 and row.repository)._replace(witness_doc_id="nobody")
    assert broken(spark, [wrong], frames, 1)[1] > 0


@pytest.mark.nightly
def test_what_only_a_removed_repository_has_stays(spark: SparkSession) -> None:
    """A file that is like nothing, and one that is like a removed document alone, have no counterpart."""
    a, b, file = (Document(0, place, name, "code") for place, name in enumerate(("a", "b", "file")))
    late = Document(1, 0, "late", "code")
    pairs = [Pair(b, a, 95, 100), Pair(file, b, 75, 100), Pair(late, file, 75, 100)]
    first = run(spark, pairs, [], 0, ["file"])
    assert {row.doc_id for row in first} == {"b"}
    assert {(row.doc_id, row.threshold) for row in run(spark, pairs, first, 1, ["file"])} == {("late", 0.7)}


def test_the_witness_has_the_highest_fraction_and_then_comes_first(spark: SparkSession) -> None:
    """Fractions that no float tells apart are; equal ones in other terms are equal, and order decides."""
    large = 10**11
    b0, b1, b2, b3 = (Document(n, 0, name, "code") for n, name in ((0, "z"), (1, "b"), (1, "a"), (0, "x")))
    close, equal, equals = (Document(2, 0, name, "code") for name in ("close", "equal", "equals"))
    assert (large - 2) / (large - 1) == (large - 1) / large
    pairs = [Pair(close, b0, large - 2, large - 1), Pair(close, b1, large - 1, large)]
    pairs += [Pair(equal, b2, 9, 10), Pair(equal, b1, 18, 20), Pair(equal, b0, 27, 30), Pair(equal, b3, 36, 40)]
    pairs += [Pair(equals, b2, 9, 10), Pair(equals, b1, 18, 20)]
    found = {(row.doc_id, row.witness_doc_id) for row in run(spark, pairs, [], 2)}
    assert found == {("close", "b"), ("equal", "x"), ("equals", "a")}


@pytest.mark.nightly
def test_removals_are_identical_for_1_2_and_7_partitions(spark: SparkSession) -> None:
    """Neither the number of partitions nor the order of rows shows."""
    pairs = planted(5, increments=1)
    plain = run(spark, pairs, [], 0)
    for partitions in (1, 7):
        assert run(spark, pairs[::-1], [], 0, partitions=partitions) == plain


@pytest.mark.nightly
def test_no_pairs_no_removals(spark: SparkSession) -> None:
    """An empty increment is proven like any other."""
    assert run(spark, [], [], 0) == set()
    assert broken(spark, [], inputs(spark, [], [], 0), 0) == (0, 0)


@on_spark  # which has rounds and joins of its own here, Sail solves in its process
def test_the_first_proof_finds_kept_pairs(spark: SparkSession) -> None:
    """One removal is missing; all are; those at the lowest threshold are, so that the rows do not even name it."""
    pairs = planted(1)
    expected = one_after_another(pairs)
    first, second = expected[0], expected[1]
    start = inputs(spark, pairs, [], 0)

    def kept(landed: Collection[Removal], frames: dict[str, DataFrame], increment: int) -> int:
        return kept_pairs(spark.createDataFrame(sorted(landed), OWN_DDL), frames, increment, CONFIG).count()

    assert kept(second - {min(second)}, inputs(spark, pairs, first, 1), 1) > 0
    assert kept([], start, 0) == sum(
        pair.shared * 10 >= pair.united * tenths for pair in pairs if pair.worse.increment == 0 for tenths in (7, 8, 9)
    )
    assert kept({removal for removal in first if removal.threshold > 0.7}, start, 0) > 0


def test_the_second_proof_finds_removals_without_a_kept_witness(spark: SparkSession) -> None:
    """A witness that was removed itself, one that is no pair, other weights: each is one bad row."""
    pairs = planted(1)
    expected = one_after_another(pairs)
    first, row = expected[0], min(expected[1])
    gone = {removal.doc_id for removal in first if removal.threshold == 0.7}
    pair = next(pair for pair in pairs if pair.worse.increment == 1 and pair.better.doc_id in gone)
    removed_witness = Removal(
        0.7,
        pair.worse.dataset,
        pair.worse.doc_id,
        pair.better.dataset,
        pair.better.doc_id,
        pair.shared,
        pair.united,
        pair.shared / pair.united,
    )
    good, *bad = (
        row,
        row._replace(doc_id="x", witness_doc_id="nobody"),
        row._replace(shared_weight=row.shared_weight + 1),
        removed_witness,
    )
    found = unjustified(spark.createDataFrame([good, *bad], OWN_DDL), inputs(spark, pairs, first, 1), 1, CONFIG)
    assert sorted(tuple(r) for r in found.collect()) == sorted((b.threshold, b.doc_id, b.witness_doc_id) for b in bad)


def test_rows_fit_the_table_and_checks_tell_good_from_bad(spark: SparkSession) -> None:
    """Columns are those declared; every check holds for every row, and fails for a row made wrong for it."""
    frame = removals(**inputs(spark, planted(6), [], 0), increment=0, config=RemovalsConfig())
    types = {"long": "bigint"}
    assert frame.dtypes == [(c.name, types.get(c.type, c.type)) for c in REMOVALS.columns]
    landed = spark.createDataFrame(frame.collect(), frame.schema)
    good = Removal(0.7, "code", "a", "code", "b", 7 * 10**10, 10**11, 0.7)
    bad = {
        "witness_is_another": good._replace(witness_doc_id="a"),
        "witness_reaches_the_threshold": good._replace(shared_weight=7 * 10**10 - 1),
        "similarity_is_that_of_the_weights": good._replace(similarity=0.71),
    }
    for check in REMOVALS.checks:
        fails = f"not coalesce({check.predicate}, false)"
        assert landed.where(fails).count() == 0
        assert spark.createDataFrame([good, bad[check.name]], OWN_DDL).where(fails).count() == 1

"""The step that finds members which repeat another."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import pytest

from spark_jobs.dedup.membership.exact_duplicates import EXACT_DUPLICATES, exact_duplicates
from spark_jobs.lake.declare.step import NoConfig
from spark_jobs.lake.engine.arrangement import release

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATASETS = ("code", "docs", "web")
SCHEMA = "increment int, dataset string, doc_id string, content_sha256 string, letters_sha256 string, place bigint"


class Member(NamedTuple):
    """What decides about a member."""

    increment: int
    dataset: str
    doc_id: str
    content_sha256: str
    letters_sha256: str | None


class Removal(NamedTuple):
    """One row of the table."""

    dataset: str
    doc_id: str
    witness_doc_id: str
    matched: str


def run(
    spark: SparkSession,
    members: Sequence[Member],
    removed: Sequence[Removal],
    increment: int,
    partitions: int = 2,
    datasets: Sequence[str] = DATASETS,
) -> set[Removal]:
    """Rows of the step for one increment."""
    placed = [(*member, datasets.index(member.dataset)) for member in members]
    frame = spark.createDataFrame(placed, SCHEMA).repartition(partitions)
    own = spark.createDataFrame(list(removed), "dataset string, doc_id string, witness_doc_id string, matched string")
    rows = exact_duplicates(frame, own, increment, NoConfig()).frames["exact_duplicates"].collect()
    found = {Removal(*row) for row in rows}
    assert len(found) == len(rows)
    return found


def place(member: Member) -> tuple[int, int, str]:
    """Whom to keep first."""
    return member.increment, DATASETS.index(member.dataset), member.doc_id


def greedy(members: Sequence[Member]) -> set[Removal]:
    """Brute force: one after another, removed if it shares bytes or letters with one that is kept."""
    kept: list[Member] = []
    removals = set()
    for member in sorted(members, key=place):
        for witness in kept:
            if witness.content_sha256 == member.content_sha256:
                removals.add(Removal(member.dataset, member.doc_id, witness.doc_id, "bytes"))
                break
            if member.letters_sha256 is not None and witness.letters_sha256 == member.letters_sha256:
                removals.add(Removal(member.dataset, member.doc_id, witness.doc_id, "letters"))
                break
        else:
            kept.append(member)
    return removals


def random_members(seed: int, increments: int, consistent: bool) -> list[Member]:
    """Members with many duplicates; `consistent` where the same bytes always have the same letters."""
    draw = random.Random(seed)
    letters_of = {content: draw.choice([None, "l0", "l1", "l2", "l3", "l4"]) for content in range(12)}
    members = []
    for number in draw.sample(range(1000), 60):
        content = draw.randrange(12)
        letters = letters_of[content] if consistent else draw.choice([None, "l0", "l1", "l2", "l3"])
        increment, dataset = draw.randrange(increments), draw.choice(DATASETS)
        members.append(Member(increment, dataset, f"d{number:03}", f"b{content}", letters))
    return members


def history(spark: SparkSession, members: Sequence[Member], increments: int) -> set[Removal]:
    """All increments, one after another, each with what those before removed."""
    removed: set[Removal] = set()
    for increment in range(increments):
        so_far = [member for member in members if member.increment <= increment]
        new = run(spark, so_far, sorted(removed), increment)
        assert {row.doc_id for row in new} <= {member.doc_id for member in so_far if member.increment == increment}
        removed |= new
    return removed


@pytest.mark.parametrize("seed", range(3))
def test_removals_are_those_of_brute_force(spark: SparkSession, seed: int) -> None:
    """Where the same bytes have the same letters, two rounds give what one after another gives."""
    members = random_members(seed, increments=1, consistent=True)
    expected = greedy(members)
    assert len(expected) > 30
    assert run(spark, members, [], 0) == expected


def test_removals_over_increments_are_those_of_brute_force(spark: SparkSession) -> None:
    """Earlier increments win, so history decides as if all had come in this order."""
    members = random_members(5, increments=3, consistent=True)
    assert history(spark, members, 3) == greedy(members)


@pytest.mark.parametrize("seed", range(2))
def test_no_two_kept_share_a_hash_and_every_removal_has_a_kept_witness(spark: SparkSession, seed: int) -> None:
    """The invariants hold whatever letters the same bytes have."""
    members = random_members(seed, increments=3, consistent=False)
    removed = {row.doc_id: row for row in history(spark, members, 3)}
    kept = {member.doc_id: member for member in members if member.doc_id not in removed}
    contents = [member.content_sha256 for member in kept.values()]
    letters = [member.letters_sha256 for member in kept.values() if member.letters_sha256]
    assert len(set(contents)) == len(contents)
    assert len(set(letters)) == len(letters)
    assert {row.witness_doc_id for row in removed.values()} <= set(kept)
    by_id = {member.doc_id: member for member in members}
    for row in removed.values():
        assert place(by_id[row.witness_doc_id]) < place(by_id[row.doc_id])


def test_worked_example(spark: SparkSession) -> None:
    """The example of the module's docstring."""
    members = [
        Member(0, "code", "A", "x1", "l1"),
        Member(0, "code", "B", "x2", "l1"),
        Member(0, "code", "C", "x2", "l1"),
        Member(0, "code", "D", "x1", "l1"),
    ]
    assert run(spark, members, [], 0) == {
        Removal("code", "B", "A", "letters"),
        Removal("code", "C", "A", "letters"),
        Removal("code", "D", "A", "bytes"),
    }


def test_the_lowest_place_is_kept_then_the_lowest_doc_id(spark: SparkSession) -> None:
    """Within one increment, places decide: here each dataset is one."""
    members = [Member(0, "docs", "a", "x", None), Member(0, "web", "b", "x", None), Member(0, "code", "c", "x", None)]
    assert {row.witness_doc_id for row in run(spark, members, [], 0)} == {"c"}
    reordered = ("web", "docs", "code")
    assert {row.witness_doc_id for row in run(spark, members, [], 0, datasets=reordered)} == {"b"}
    same = [Member(0, "docs", "b", "x", None), Member(0, "docs", "a", "x", None)]
    assert run(spark, same, [], 0) == {Removal("docs", "b", "a", "bytes")}


def test_what_an_earlier_increment_kept_stays_kept(spark: SparkSession) -> None:
    """A new member of a better dataset is removed, not the old one."""
    members = [Member(0, "web", "old", "x", "l"), Member(1, "code", "new", "x", "l")]
    assert run(spark, members, [], 1) == {Removal("code", "new", "old", "bytes")}


def test_a_removed_member_is_nobodys_witness(spark: SparkSession) -> None:
    """What came before and was removed for another reason does not justify a removal."""
    members = [Member(0, "code", "a", "x", None), Member(0, "code", "b", "y", None), Member(1, "code", "c", "y", None)]
    assert run(spark, members, [Removal("code", "b", "a", "bytes")], 1) == set()
    assert run(spark, members, [], 1) == {Removal("code", "c", "b", "bytes")}


def test_texts_with_few_letters_are_compared_by_bytes_alone(spark: SparkSession) -> None:
    """Null letters are not equal to each other, nor to a content that has the same digits."""
    members = [
        Member(0, "code", "a", "x", None),
        Member(0, "code", "b", "y", None),
        Member(0, "code", "c", "z", "x"),
        Member(0, "code", "d", "y", None),
    ]
    assert run(spark, members, [], 0) == {Removal("code", "d", "b", "bytes")}


@pytest.mark.nightly
def test_removals_are_identical_for_1_2_and_7_partitions(spark: SparkSession) -> None:
    """Neither the number of partitions nor the order of rows shows, odd letters included."""
    members = random_members(9, increments=1, consistent=False)
    plain = run(spark, members, [], 0)
    for partitions in (1, 7):
        assert run(spark, members[::-1], [], 0, partitions) == plain


def test_rows_fit_the_table(spark: SparkSession) -> None:
    """Columns are those declared, all of them strings."""
    own = spark.createDataFrame([], "dataset string, doc_id string, witness_doc_id string, matched string")
    frame = exact_duplicates(spark.createDataFrame([], SCHEMA), own, 0, NoConfig()).frames["exact_duplicates"]
    assert [(name, kind) for name, kind in frame.dtypes] == [(c.name, c.type) for c in EXACT_DUPLICATES.columns]


def test_what_new_members_meet_of_the_history_is_kept(spark: SparkSession) -> None:
    """Named several times and not kept, it would be read and joined again each time; a first increment has none."""
    own = spark.createDataFrame([], "dataset string, doc_id string, witness_doc_id string, matched string")
    empty = spark.createDataFrame([], SCHEMA)
    assert not exact_duplicates(empty, own, 0, NoConfig()).persisted
    kept = exact_duplicates(empty, own, 1, NoConfig()).persisted
    assert len(kept) == 2
    for frame in kept:
        release(frame)

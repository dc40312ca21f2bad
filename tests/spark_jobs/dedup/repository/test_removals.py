"""The level `repository` as a whole: which repositories go, for whom, and which files go with them."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from spark_jobs.dedup.near.pairs import PAIRS
from spark_jobs.dedup.removal.removals import REMOVALS, RemovalsConfig, removals
from spark_jobs.dedup.removal.survivors import SurvivorsConfig, survivors
from spark_jobs.dedup.repository.removals import (
    REPOSITORY_REMOVALS,
    RepositoryRemovalsConfig,
    _counted,
    kept_pairs,
    lost_witnesses,
    unjustified,
)
from spark_jobs.lake.declare.tables import spark_schema
from tests.spark_jobs.dedup.repository_corpus import (
    THRESHOLD,
    Corpus,
    Fact,
    File,
    leaving,
    removed,
    run,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def repository(name: str, contents: str, increment: int = 0) -> list[File]:
    """A repository with one file for each word."""
    return [
        File(increment, name, f"{place}.py", content, 512 + 256 * (len(content) % 5))
        for place, content in enumerate(contents.split())
    ]


def words(prefix: str, *numbers: int) -> str:
    """Contents by number."""
    return " ".join(f"{prefix}{number}" for number in numbers)


LOOSE = File(0, None, "notes.md", "fork-only")
FILES = [
    *repository("flask", words("a", *range(10))),
    *repository("my-flask", words("a", *range(9)) + " fork-only"),
    LOOSE,
    *repository("copy-of-b", words("b", *range(8))),
    *repository("good-b", words("b", *range(7)) + " b-other"),
    *repository("lib-1.0", words("v", *range(0, 10))),
    *repository("lib-1.1", words("v", *range(1, 11))),
    *repository("lib-2.0", words("v", *range(2, 12))),
    *repository("single-1", "s0"),
    *repository("single-2", "s0"),
    *repository("apart", words("c", *range(6))),
    *repository("merged", words("m", *range(6))),
    *repository("vendored", words("w", *range(4))),
    *repository("large", words("w", *range(4)) + " " + words("y", *range(16))),
    *repository("copy-of-fork", words("a", *range(9)) + " fork-only", 1),
    *repository("good-c", words("c", *range(6)), 1),
    *repository("near-merged", words("n", *range(6)), 1),
    *repository("apart", words("a", 0, 1), 1),
    File(1, None, "late.md", "a1"),
    *(File(1, name, f"{place}.py", "", 0) for name in ("empty-1", "empty-2") for place in range(3)),
]
LINKS = [(1, f"m{number}", f"n{number}") for number in range(6)]
FACTS = [
    Fact("my-flask", fork_of="flask", licence="MIT"),
    *(Fact(f"lib-{version}", version=version) for version in ("1.0", "1.1", "2.0")),
]
KNOWN_GOOD = {
    "repository_bags": {"known_good": ("good-b", "good-c")},
    "repository_removals": {"max_bucket_pairs": 3},
}
NEAR_MERGED = [file for file in FILES if file.repository == "near-merged"]
IN_LARGE, IN_SMALL = NEAR_MERGED[:4], NEAR_MERGED[3:]
WORLD = Corpus(FILES, LINKS, FACTS, KNOWN_GOOD, [(1, IN_LARGE), (1, IN_SMALL), (0, [*IN_SMALL, LOOSE])])


@pytest.fixture(scope="module")
def world(spark: SparkSession) -> dict[str, DataFrame]:
    """All tables of the corpus above; its checks and proofs held in every increment."""
    return {name: frame.cache() for name, frame in run(spark, WORLD).items()}


def test_pairs_are_those_of_brute_force(world: dict[str, DataFrame]) -> None:
    """Every pair with a new end is found, with its J as an exact fraction, by the bags as they are in its increment."""
    born = {file.repository_id: file.increment for file in FILES if file.repository}
    found = {
        frozenset((row.repository_id, row.better_repository_id)): Fraction(row.shared_weight, row.united_weight)
        for row in world["repository_pairs"].collect()
    }
    expected = {
        pair: j
        for number in WORLD.increments
        for pair, j in WORLD.similarities(number).items()
        if j >= THRESHOLD and max(born[one] for one in pair) == number
    }
    assert found == expected
    assert len(expected) == 8


def test_an_original_is_kept_and_its_fork_goes(world: dict[str, DataFrame]) -> None:
    """A licence does not help a fork: the criterion comes later."""
    assert removed(world)["my-flask"] == ("flask", 0)


def test_a_known_good_repository_wins(world: dict[str, DataFrame]) -> None:
    """Whatever the hashes say."""
    assert removed(world)["copy-of-b"] == ("good-b", 0)


def test_the_newest_release_is_kept_and_those_far_from_it(world: dict[str, DataFrame]) -> None:
    """1.1 goes for 2.0; 1.0 is like 1.1 alone, which is nobody's witness."""
    assert removed(world)["lib-1.1"] == ("lib-2.0", 0)
    assert "lib-1.0" not in removed(world)


def test_later_increments_never_retract(world: dict[str, DataFrame]) -> None:
    """A known good repository that comes late goes; a removed one is nobody's witness; linked files count at once."""
    late = {name: witness for name, (witness, increment) in removed(world).items() if increment == 1}
    assert late == {"good-c": "apart", "copy-of-fork": "flask", "near-merged": "merged"}
    assert set(removed(world)) == {*late, "my-flask", "copy-of-b", "lib-1.1"}


def test_containments_are_those_of_brute_force(world: dict[str, DataFrame]) -> None:
    """Every lesser repository with seven tenths of it in a larger one, where either is new, as an exact fraction."""
    born = {file.repository_id: file.increment for file in FILES if file.repository}
    rows = world["repository_containments"].collect()
    found = {
        (row.repository_id, row.container_repository_id): Fraction(row.shared_weight, row.total_weight) for row in rows
    }
    expected = {
        pair: share
        for number in WORLD.increments
        for pair, share in WORLD.containments(number).items()
        if max(born[one] for one in pair) == number
    }
    assert found == expected and len(rows) == len(found)
    by_name = {(row.repository, row.container_repository): row for row in rows}
    vendored = by_name["vendored", "large"]
    assert vendored.containment == 1 and vendored.similarity < 0.3
    assert ("large", "vendored") not in by_name and "vendored" not in removed(world)


def test_files_leave_with_their_repository_unless_others_need_them(world: dict[str, DataFrame]) -> None:
    """All files of removed repositories, but those that are the exact witness of a file that does not leave."""
    gone = {(name, increment) for name, (_, increment) in removed(world).items()}
    witnesses = WORLD.witnesses()
    of_removed = {file for file in FILES if (file.repository, file.increment) in gone}
    needed = {
        witnesses[other.doc_id]
        for file in of_removed
        for other in FILES
        if other not in of_removed and witnesses.get(other.doc_id) == file.doc_id and other.increment == file.increment
    }
    stand_ins = {
        row.doc_id: row.stand_in_doc_id
        for row in world["repository_removal_files"].where("stand_in_doc_id IS NOT NULL").collect()
    }
    assert stand_ins.keys() == needed != set()
    for doc_id, stand_in in stand_ins.items():
        (increment,) = (one.increment for one in FILES if one.doc_id == doc_id)
        repeats = [one for one in FILES if witnesses.get(one.doc_id) == doc_id and one.increment == increment]
        repeats = [one for one in repeats if one not in of_removed]
        assert stand_in == min(repeats, key=lambda one: (one.place, one.doc_id)).doc_id
    large = {file.doc_id for file in IN_LARGE}
    assert leaving(world) == {file.doc_id for file in of_removed} - needed - large


def test_a_kept_repository_keeps_its_files(spark: SparkSession, world: dict[str, DataFrame]) -> None:
    """But for those that it has twice, or another kept repository or none has; and each text is kept once."""
    frames = WORLD.inputs(spark, 0)
    files = world["repository_removal_files"].where("increment = 0")
    pairs = spark.createDataFrame([], spark_schema(PAIRS))
    own = spark.createDataFrame([], spark_schema(REMOVALS))
    gone = removals(pairs, own, 0, RemovalsConfig(), leaving=files)
    config = SurvivorsConfig(threshold=0.8)
    kept = {row.doc_id for row in survivors(frames["members"], frames["exact_duplicates"], config, gone).collect()}
    out = {name for name, (_, increment) in removed(world).items() if increment == 0}
    here = [file for file in FILES if file.increment == 0]
    held = {file.content for file in here if file.doc_id in kept and file.repository not in out}
    assert {file.content for file in here if file.repository not in out} == held
    assert {file.content for file in here if file.doc_id in kept} == {file.content for file in here}
    contents = [file.content for file in here if file.doc_id in kept and file.content]
    assert len(contents) == len(set(contents))


def test_members_of_large_buckets_do_not_leave(world: dict[str, DataFrame]) -> None:
    """Not all their pairs are stored, so that the order among them must stay; those of small buckets leave."""
    assert "near-merged" in removed(world)
    found = leaving(world)
    assert [file.doc_id in found for file in NEAR_MERGED] == [False] * 4 + [True] * 2


def test_documents_without_a_repository_never_leave(world: dict[str, DataFrame]) -> None:
    """Nor is the file that stands for one."""
    loose = {file.doc_id for file in FILES if file.repository is None}
    assert not leaving(world) & {*loose, WORLD.witnesses().get(LOOSE.doc_id, LOOSE.doc_id)}


@pytest.mark.nightly
def test_rows_are_the_same_for_1_2_and_7_partitions(spark: SparkSession, world: dict[str, DataFrame]) -> None:
    """Neither partitions nor the order of rows show in any table."""
    first = [file for file in FILES if file.increment == 0]
    plain = {name: sorted(map(repr, frame.where("increment = 0").collect())) for name, frame in world.items()}
    for partitions in (1, 7):
        found = run(spark, Corpus(first[::-1], LINKS, FACTS[::-1], KNOWN_GOOD), partitions)
        assert {name: sorted(map(repr, frame.collect())) for name, frame in found.items()} == plain


@pytest.mark.nightly
def test_a_corpus_without_repositories_has_no_rows(spark: SparkSession) -> None:
    """Documents alone make no repository, and nothing goes."""
    found = run(spark, Corpus([LOOSE, File(0, None, "more.md", "more")]))
    assert all(frame.count() == 0 for frame in found.values())


@pytest.mark.nightly
def test_proofs_find_rows_that_are_wrong(spark: SparkSession, world: dict[str, DataFrame]) -> None:
    """A removal that is missing, one without a pair, one whose witness was removed before, a witness that leaves."""
    frames = {**WORLD.inputs(spark, 1), **world}
    frames["repository_removals"] = world["repository_removals"].where("increment = 0")
    landed = world["repository_removals"].where("increment = 1")
    config = RepositoryRemovalsConfig()

    def broken(rows: DataFrame) -> tuple[int, int]:
        return kept_pairs(rows, frames, 1, config).count(), unjustified(rows, frames, 1, config).count()

    assert broken(landed) == (0, 0)
    assert broken(landed.where("repository <> 'good-c'")) == (1, 0)
    other = landed.selectExpr("* EXCEPT (shared_weight)", "shared_weight - 1 AS shared_weight")
    assert broken(other) == (0, 3)
    fork = next(file.repository_id for file in FILES if file.repository == "my-flask")
    row = world["repository_pairs"].where(f"increment = 1 AND better_repository_id = '{fork}'").collect()[0]
    by_fork = row.asDict() | {
        "witness_dataset": "code",
        "witness_repository": "my-flask",
        "witness_repository_id": fork,
    }
    schema = spark_schema(REPOSITORY_REMOVALS)
    tampered = spark.createDataFrame([tuple(by_fork[name] for name in schema.names)], schema)
    assert broken(landed.where("repository <> 'copy-of-fork'").unionByName(tampered)) == (0, 1)
    staying = [(LOOSE.doc_id,), (WORLD.witnesses().get(LOOSE.doc_id, LOOSE.doc_id),)]
    files = world["repository_removal_files"].where("increment = 0").select("doc_id")
    assert lost_witnesses(files, frames, 0, config).count() == 0
    assert lost_witnesses(spark.createDataFrame(staying[-1:], "doc_id string"), frames, 0, config).count() > 0


def test_an_edited_repository_is_no_duplicate_of_its_own_past(spark: SparkSession) -> None:
    """Pairs of two states of one repository do not count where the latest documents alone do; a fork's does."""
    pairs = [
        (1, "code", "lib", "lib-1", "code", "lib", "lib-0"),
        (1, "code", "fork", "fork-1", "code", "lib", "lib-0"),
        (1, "other", "lib", "olib-1", "code", "lib", "lib-0"),
        (1, "all", "lib", "alib-1", "all", "lib", "alib-0"),
    ]
    ddl = "increment int, dataset string, repository string, repository_id string, better_dataset string, "
    frame = spark.createDataFrame(pairs, ddl + "better_repository string, better_repository_id string")
    names = sorted({name for pair in pairs for name in (pair[3], pair[6])})
    pieces = spark.createDataFrame(
        [(1, name, "p") for name in names], "increment int, repository_id string, piece string"
    )
    found = _counted(frame, pieces, 1, RepositoryRemovalsConfig(latest=("code",)))
    assert {row.repository_id for row in found.collect()} == {"fork-1", "olib-1", "alib-1"}

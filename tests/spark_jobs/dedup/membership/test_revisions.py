"""The step that says which members their source has replaced, lost, or brought back."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from spark_jobs.dedup.membership.exact_duplicates import exact_duplicates
from spark_jobs.dedup.membership.revisions import REVISIONS, RevisionsConfig, revisions
from spark_jobs.dedup.removal.removals import RemovalsConfig, kept_pairs, removals, unjustified
from spark_jobs.lake.declare.step import NoConfig
from tests.spark_jobs.dedup.planted_pairs import PAIRS_DDL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATH_DDL = "increment int, dataset string, repository string, path string, doc_id string, dataset_increment int"
OWN_DDL = (
    "increment int, dataset string, doc_id string, path_id string, standing string, other_doc_id string, leaves boolean"
)
# By path, what each dataset increment brings: a document that lands, `+X` one that returns, `-X` one that is gone,
# `xX` one that landed and was deleted for good.
# Upper-case documents are members, lower-case ones land and are rejected by their verdict.
STORIES = {
    "alone": "A . . .",
    "edited": "A B . .",
    "chain": "A B C .",
    "back": "A B +A .",
    "back and on": "A B +A C",
    "deleted": "A -A . .",
    "deleted and back": "A . -A +A",
    "deleted and new": "A -A B .",
    "edited and deleted": "A B -B .",
    "rejected": "A b . .",
    "rejected, then deleted": "A b -b .",
    "for good": "A xb . .",
    "new": ". . A -A",
}
_STATUS = {"+": "returned", "-": "gone", "x": "deleted"}
Told = dict[str, dict[str, str]]


def told(spark: SparkSession, config: RevisionsConfig) -> dict[str, list[Told]]:
    """What increments 1 to 3 tell of datasets `d` and `e`, by path and document: `superseded B`; `!` if it leaves.

    Every step is given what those before it gave.
    """
    documents, arrivals, members = [], [], []
    for dataset, (path, story) in itertools.product("de", STORIES.items()):
        for number, event in enumerate(story.split()):
            row = (number, dataset, None, path, f"{dataset}:{path}:{event[-1]}", number)
            if event[0] in _STATUS:
                arrivals.append((*row, _STATUS[event[0]]))
            elif event != ".":
                documents.append(row)
                if event.isupper():
                    members.append(row)
    frames = [
        spark.createDataFrame(documents, PATH_DDL),
        spark.createDataFrame(arrivals, f"{PATH_DDL}, status string"),
        spark.createDataFrame(members, PATH_DDL),
    ]
    own: list[tuple[object, ...]] = []
    found: dict[str, list[Told]] = {"d": [], "e": []}
    for increment in (1, 2, 3):
        inputs = [frame.where(f"increment <= {increment}") for frame in frames]
        rows = revisions(*inputs, spark.createDataFrame(own, OWN_DDL), increment, config)
        assert rows.columns == [column.name for column in REVISIONS.columns]
        changed = rows.collect()
        for dataset, stories in found.items():
            stories.append({})
            for row in changed:
                if row.dataset == dataset:
                    _, path, name = row.doc_id.split(":")
                    other = f" {row.other_doc_id.split(':')[2]}" if row.other_doc_id else ""
                    stories[-1].setdefault(path, {})[name] = f"{row.standing}{other}{'!' if row.leaves else ''}"
        own += [(increment, *row) for row in changed]
    paths = {(str(row[2]).rpartition(":")[0], row[3]) for row in own if row[3]}
    assert len(paths) == len({path for path, _ in paths}) == len({path_id for _, path_id in paths})
    return found


def test_members_are_superseded_gone_and_latest_again(spark: SparkSession) -> None:
    """Where superseded members stay, whatever returns is the latest again; chains tell each link once.

    A dataset that takes all revisions knows deletions alone: every member of the path is gone then.
    """
    found = told(spark, RevisionsConfig(latest=("d",)))
    assert found["d"] == [
        {
            "edited": {"A": "superseded B", "B": "latest A"},
            "chain": {"A": "superseded B", "B": "latest A"},
            "back": {"A": "superseded B", "B": "latest A"},
            "back and on": {"A": "superseded B", "B": "latest A"},
            "deleted": {"A": "gone"},
            "deleted and new": {"A": "gone"},
            "edited and deleted": {"A": "superseded B", "B": "latest A"},
            "rejected": {"A": "superseded b"},
            "for good": {"A": "superseded b"},
            "rejected, then deleted": {"A": "superseded b"},
        },
        {
            "chain": {"B": "superseded C", "C": "latest B"},
            "back": {"B": "superseded A", "A": "latest B"},
            "back and on": {"B": "superseded A", "A": "latest B"},
            "deleted and back": {"A": "gone"},
            "deleted and new": {"A": "superseded B", "B": "latest A"},
            "edited and deleted": {"B": "gone"},
        },
        {
            "back and on": {"A": "superseded C", "C": "latest A"},
            "deleted and back": {"A": "latest"},
            "new": {"A": "gone"},
        },
    ]
    assert found["e"] == [
        {"deleted": {"A": "gone"}, "deleted and new": {"A": "gone"}},
        {
            "deleted and back": {"A": "gone"},
            "edited and deleted": {"A": "gone", "B": "gone"},
            "rejected, then deleted": {"A": "gone"},
        },
        {"deleted and back": {"A": "latest"}, "new": {"A": "gone"}},
    ]


@pytest.mark.nightly
def test_members_leave_as_the_policies_say(spark: SparkSession) -> None:
    """Excised ones stay out: what returns after it left changes nothing, and the member that stood goes on."""
    found = told(spark, RevisionsConfig(latest=("d", "e"), superseded="excise", on_delete="excise"))
    assert found["d"] == found["e"]
    assert found["d"] == [
        {
            "edited": {"A": "superseded B!", "B": "latest A"},
            "chain": {"A": "superseded B!", "B": "latest A"},
            "back": {"A": "superseded B!", "B": "latest A"},
            "back and on": {"A": "superseded B!", "B": "latest A"},
            "deleted": {"A": "gone!"},
            "deleted and new": {"A": "gone!"},
            "edited and deleted": {"A": "superseded B!", "B": "latest A"},
            "rejected": {"A": "superseded b!"},
            "for good": {"A": "superseded b!"},
            "rejected, then deleted": {"A": "superseded b!"},
        },
        {
            "chain": {"B": "superseded C!", "C": "latest B"},
            "deleted and back": {"A": "gone!"},
            "deleted and new": {"A": "superseded B!", "B": "latest A"},
            "edited and deleted": {"B": "gone!"},
        },
        {"back and on": {"B": "superseded C!", "C": "latest B"}, "new": {"A": "gone!"}},
    ]


def standing(spark: SparkSession, **paths: str) -> DataFrame:
    """Rows of `revisions` that say which documents share a path; a path that ends in `!` has left."""
    rows = [(0, "d", name, path.strip("!"), "superseded", None, path.endswith("!")) for name, path in paths.items()]
    return spark.createDataFrame(rows, OWN_DDL)


def test_exact_duplicates_of_another_revision_go_on(spark: SparkSession) -> None:
    """An edit that changes no letter, two edits, files that swap contents, a renamed file, and copies of an edit."""
    members = [
        # letters: p is edited twice, q is a copy of both
        (0, "p1", "x1", "l1"), (1, "p2", "x2", "l1"), (2, "p3", "x3", "l1"), (2, "q3", "x4", "l1"),
        # r and s swap their contents; both texts are packed already
        (0, "r1", "x5", "l5"), (0, "s1", "x6", "l6"), (1, "r2", "x6", "l6"), (1, "s2", "x5", "l5"),
        # t is gone and has left, u has its bytes; v is gone and stays, w has its bytes
        (0, "t1", "x7", "l7"), (1, "u1", "x7", "l7"), (0, "v1", "x8", "l8"), (1, "w1", "x8", "l8"),
        # y's own bytes are elsewhere, under its former letters
        (0, "y1", "x9", "l9"), (0, "z1", "xa", "l9"), (1, "y2", "xa", "l9"),
    ]  # fmt: skip
    ddl = "increment int, dataset string, doc_id string, place bigint, content_sha256 string, letters_sha256 string"
    rows = [(increment, "d", name, 0, content, letters) for increment, name, content, letters in members]
    frame = spark.createDataFrame(rows, ddl)
    shared = {"p1": "p", "p2": "p", "p3": "p", "r1": "r", "r2": "r", "s1": "s", "s2": "s", "y1": "y", "y2": "y"}
    known = standing(spark, **shared, t1="t!", v1="v")
    own: list[tuple[str, str, str, str]] = []
    removed: dict[str, str] = {}
    for increment in range(3):
        before = spark.createDataFrame(own, "dataset string, doc_id string, witness_doc_id string, matched string")
        seen = frame.where(f"increment <= {increment}")
        own += [
            tuple(row)
            for row in exact_duplicates(seen, before, increment, NoConfig(), known).frames["exact_duplicates"].collect()
        ]
    removed = {doc_id: witness for _, doc_id, witness, _ in own}
    assert removed == {"q3": "p1", "r2": "s1", "s2": "r1", "w1": "v1", "z1": "y1"}


@pytest.mark.nightly
def test_edits_are_no_near_duplicates_of_what_they_replace(spark: SparkSession) -> None:
    """Eight slightly edited documents go on, each beside its former revision; the proofs know the law."""
    pairs = [(1, "prose", "d", f"b{n}", "d", f"a{n}", 0, 95, 100, 0.95) for n in range(8)]
    pairs += [
        (1, "prose", "d", "b0", "d", "other", 0, 75, 100, 0.75),  # one that reaches another document at 0.7 alone
        (1, "prose", "d", "copy", "d", "a1", 0, 90, 100, 0.9),  # superseded, packed, and so a witness for others
        (1, "prose", "d", "copy", "d", "left", 0, 99, 100, 0.99),  # it has left, so it is none
        (1, "prose", "d", "late", "d", "left", 0, 99, 100, 0.99),
    ]
    shared = {f"{letter}{n}": f"path{n}" for n in range(8) for letter in "ab"}
    frames = {"pairs": spark.createDataFrame(pairs, PAIRS_DDL), "revisions": standing(spark, **shared, left="gone!")}
    own = spark.createDataFrame(
        [],
        "threshold double, dataset string, doc_id string, witness_dataset string, witness_doc_id string, "
        "shared_weight bigint, united_weight bigint, similarity double",
    )
    config = RemovalsConfig()
    found = removals(**frames, removals=own, increment=1, config=config)
    assert {(row.threshold, row.doc_id, row.witness_doc_id) for row in found.collect()} == {
        (0.7, "b0", "other"),
        (0.7, "copy", "a1"),
        (0.8, "copy", "a1"),
        (0.9, "copy", "a1"),
    }
    proved = {**frames, "removals": own}
    assert kept_pairs(found, proved, 1, config).isEmpty() and unjustified(found, proved, 1, config).isEmpty()
    wrong = found.where("doc_id = 'b0'").selectExpr("0.8D AS threshold", "dataset", "doc_id", "witness_dataset",
        "'a0' AS witness_doc_id", "95L AS shared_weight", "100L AS united_weight", "0.95D AS similarity")  # fmt: skip
    assert unjustified(wrong, proved, 1, config).count() == 1
    without = {"pairs": frames["pairs"], "removals": own}
    assert kept_pairs(found, without, 1, config).count() > 8


def test_policies_are_known() -> None:
    """A word that is none is refused before anything runs."""
    with pytest.raises(ValueError, match="superseded"):
        RevisionsConfig.model_validate({"superseded": "forget"})

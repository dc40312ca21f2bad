"""The step that says which documents enter a corpus."""

from __future__ import annotations

from contextlib import redirect_stdout
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from pydantic import ValidationError

from spark_jobs.dedup.membership.members import MEMBERS, MembersConfig, members

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


class Document(NamedTuple):
    """A document with all that is known of it."""

    dataset: str
    dataset_increment: int
    doc_id: str
    repository: str | None
    path: str
    kept: bool


DOCUMENTS = [
    Document("code", 0, "c0", "r", "a.py", True),
    Document("code", 1, "c1", "r", "a.py", True),  # replaces c0
    Document("code", 0, "c2", "r", "b.py", True),
    Document("code", 1, "c3", "r", "b.py", False),  # replaces c2, and was rejected
    Document("code", 0, "c4", "s", "a.py", True),
    Document("code", 0, "c5", "s", "z.py", False),
    Document("docs", 0, "d0", None, "a.py", True),
    Document("docs", 1, "d1", None, "a.py", True),  # replaces d0
    Document("other", 0, "o0", "r", "a.py", True),
    Document("other", 1, "o1", "r", "a.py", True),
    Document("other", 1, "o2", "r", "a.py", True),  # the same path twice in one increment
    Document("strange", 0, "x0", None, "a.py", True),
]
ALL = ("code", "docs", "other")
DOCUMENTS_SCHEMA = (
    "dataset string, dataset_increment int, doc_id string, repository string, path string, increment int, shard int, "
    "kind string, language string, content string, content_sha256 string, byte_count bigint, licence string"
)


def run(
    spark: SparkSession, config: MembersConfig, partitions: int = 2, order: int = 1, arrivals: DataFrame | None = None
) -> DataFrame:
    """Members of the documents above; the content is there to be left alone."""
    rows = DOCUMENTS[::order]
    documents = spark.createDataFrame(
        [(*d[:5], 0, 5, "code", None, "text", f"sha {d.doc_id}", 9, None) for d in rows],
        DOCUMENTS_SCHEMA,
    )
    texts = spark.createDataFrame(
        [
            (d.dataset, d.dataset_increment, d.doc_id, "text", None if d.doc_id == "c4" else f"let {d.doc_id}")
            for d in rows
        ],
        "dataset string, dataset_increment int, doc_id string, content string, letters_sha256 string",
    )
    verdicts = spark.createDataFrame(
        [(d.dataset, d.dataset_increment, d.doc_id, d.kept) for d in rows],
        "dataset string, dataset_increment int, doc_id string, kept boolean",
    )
    return members(
        *(frame.repartition(partitions) for frame in (documents, texts, verdicts)), config, arrivals=arrivals
    )


def ids(frame: DataFrame) -> list[str]:
    """Members by doc_id."""
    return sorted(row.doc_id for row in frame.select("doc_id").collect())


def by_id(frame: DataFrame) -> list[Row]:
    """Rows by doc_id; sorting them here spares Spark a second run of the step."""
    return sorted(frame.collect(), key=lambda row: str(row.doc_id))


def test_members_are_what_was_kept_in_its_latest_revision(spark: SparkSession) -> None:
    """The default policy: one revision per path; a replaced one does not come back; ties go to the lowest doc_id."""
    assert ids(run(spark, MembersConfig(datasets=ALL))) == ["c1", "c4", "d1", "o1"]


def test_the_policy_all_takes_every_kept_revision(spark: SparkSession) -> None:
    """Each dataset has its own policy."""
    config = MembersConfig(datasets=ALL, revisions={"code": "all", "docs": "latest", "other": "all"})
    assert ids(run(spark, config)) == ["c0", "c1", "c2", "c4", "d1", "o0", "o1", "o2"]


@pytest.mark.nightly
def test_members_follow_what_returned_and_what_is_gone(spark: SparkSession) -> None:
    """A document that returned is the latest again; one that is gone enters unless the corpus excises deleted ones."""
    events = [
        ("code", 2, "c0", "r", "a.py", "returned"),
        ("code", 2, "c4", "s", "a.py", "gone"),
        ("docs", 2, "d1", None, "a.py", "gone"),
        ("docs", 3, "d1", None, "a.py", "returned"),
        ("other", 2, "o2", "r", "a.py", "returned"),
        ("other", 2, None, "r", "z.py", "gone"),
    ]
    arrivals = spark.createDataFrame(
        events, "dataset string, dataset_increment int, doc_id string, repository string, path string, status string"
    )
    keep = MembersConfig(datasets=ALL)
    assert ids(run(spark, keep, arrivals=arrivals)) == ["c0", "c4", "d1", "o2"]
    excise = MembersConfig(datasets=ALL, on_delete="excise", revisions={"code": "all"})
    assert ids(run(spark, excise, arrivals=arrivals)) == ["c0", "c1", "c2", "d1", "o2"]


def test_members_carry_what_deduplication_needs(spark: SparkSession) -> None:
    """All columns come from the document, the letters from its text; a dataset that is not named stays out."""
    frame = run(spark, MembersConfig(datasets=("code",)))
    assert frame.columns == [column.name for column in MEMBERS.columns]
    row, unlettered = by_id(frame)
    of_repository = int(sha256(b"code\nr").hexdigest()[:5], 16)
    place = (3 << 59) + (of_repository << 39) + (0xC1 >> 21)
    assert tuple(row) == ("code", 5, "c1", "r", "a.py", place, "code", None, 9, "sha c1", "let c1", 0)
    assert (unlettered.doc_id, unlettered.letters_sha256) == ("c4", None)


@pytest.mark.nightly
def test_content_is_never_read(spark: SparkSession, tmp_path: Path) -> None:
    """The scans of the plan leave the column out."""
    documents = spark.createDataFrame(
        [("code", 0, "d", None, "p", 0, 0, "code", None, "text", "sha", 1, None)],
        DOCUMENTS_SCHEMA,
    )
    texts = documents.selectExpr("dataset", "doc_id", "content", "content_sha256 as letters_sha256")
    for name, frame in (("documents", documents), ("texts", texts)):
        frame.write.parquet(str(tmp_path / name))
    stored = [spark.read.parquet(str(tmp_path / name)) for name in ("documents", "texts")]
    verdicts = spark.createDataFrame([("code", "d", True)], "dataset string, doc_id string, kept boolean")
    found = members(*stored, verdicts, MembersConfig(datasets=ALL))
    assert found.count() == 1
    plan = StringIO()
    with redirect_stdout(plan):
        found.explain("formatted")
    schemas = [line for line in plan.getvalue().splitlines() if line.startswith("ReadSchema")]
    assert len(schemas) == 2
    assert not any("content:" in line for line in schemas)


def test_a_policy_for_a_dataset_that_is_not_there_is_refused() -> None:
    """A mistyped name is an error before work starts."""
    with pytest.raises(ValidationError, match="revisions names"):
        MembersConfig(datasets=("code",), revisions={"cod": "all"})
    with pytest.raises(ValidationError, match="one twice"):
        MembersConfig(datasets=("code", "code"))


@pytest.mark.nightly
def test_members_are_identical_for_1_2_and_7_partitions(spark: SparkSession) -> None:
    """Neither the number of partitions nor the order of rows shows."""
    config = MembersConfig(datasets=ALL, revisions={"docs": "all"})
    plain = by_id(run(spark, config))
    for partitions in (1, 7):
        assert by_id(run(spark, config, partitions, order=-1)) == plain


def standings(spark: SparkSession, config: MembersConfig) -> dict[str, int]:
    """Standing of documents: two datasets, forks, a vendored file, one without a licence, one known to be good."""
    rows = [
        ("code", 0, "c0", "r", "a", 0, 0, "code", None, "t", "s", 1, "MIT"),
        ("code", 0, "c1", "r", "b", 0, 0, "code", None, "t", "s", 1, None),
        ("code", 0, "c2", "fork", "a", 0, 0, "code", None, "t", "s", 1, "MIT"),
        ("code", 0, "c3", "good", "a", 0, 0, "code", None, "t", "s", 1, None),
        ("code", 0, "c4", "r", "src/_vendor/six.py", 0, 0, "code", None, "t", "s", 1, "MIT"),
        ("code", 0, "c5", "forked twice", "a", 0, 0, "code", None, "t", "s", 1, "MIT"),
        ("docs", 0, "d0", "r", "a", 0, 0, "prose", None, "t", "s", 1, "MIT"),
        ("docs", 0, "d1", None, "b", 0, 0, "prose", None, "t", "s", 1, None),
    ]
    documents = spark.createDataFrame(rows, DOCUMENTS_SCHEMA)
    texts = documents.selectExpr("dataset", "doc_id", "content", "content_sha256 as letters_sha256")
    verdicts = documents.selectExpr("dataset", "doc_id", "true as kept")
    facts = [
        ("code", 0, "fork", "r", {"stars": "7"}),
        ("code", 0, "forked twice", "fork", {"stars": "many"}),
        ("code", 0, "r", "r", {"stars": "100"}),
        ("docs", 0, "fork", "x", {}),
    ]
    repositories = spark.createDataFrame(
        facts,
        "dataset string, dataset_increment int, repository string, fork_of string, metadata map<string, string>",
    )
    found = members(documents, texts, verdicts, config, repositories).collect()
    for row in found:
        bits = 59 if row.repository is None else 39
        assert row.place & ((1 << bits) - 1) == int(row.doc_id[:15], 16) >> 60 - bits
    return {row.doc_id: row.place >> 59 for row in found}


@pytest.mark.nightly
def test_whom_to_keep_follows_the_criteria_in_their_order(spark: SparkSession) -> None:
    """Dataset before original before stars before licence; a criterion without a list of the known good is none.

    The original comes before its fork, that before a fork of itself, and a vendored file counts as one of a fork.
    """
    both = ("code", "docs")
    plain = standings(spark, MembersConfig(datasets=both))  # the licence would make 24 classes
    assert plain == {"c0": 0, "c1": 0, "c2": 3, "c3": 1, "c4": 2, "c5": 5, "d0": 7, "d1": 7}
    one = standings(spark, MembersConfig(datasets=("code",)))
    assert one == {"c0": 0, "c1": 1, "c2": 6, "c3": 3, "c4": 4, "c5": 10}
    unstarred = standings(spark, MembersConfig(datasets=("code",), min_stars=None))
    assert unstarred == {"c0": 0, "c1": 1, "c2": 2, "c3": 1, "c4": 2, "c5": 4}
    good = standings(spark, MembersConfig(datasets=both, keep_first=("known_good", "dataset"), known_good=("good",)))
    assert good == {"c0": 2, "c1": 2, "c2": 2, "c3": 0, "c4": 2, "c5": 2, "d0": 3, "d1": 3}


@pytest.mark.nightly
def test_there_are_at_most_16_standings(spark: SparkSession) -> None:
    """Criteria that would make more classes are left out, and datasets beyond the 16th share the last class."""
    many = tuple(f"x{number}" for number in range(19))
    found = standings(spark, MembersConfig(datasets=("code", *many, "docs")))
    assert found == {**dict.fromkeys(("c0", "c1", "c2", "c3", "c4", "c5"), 0), "d0": 15, "d1": 15}

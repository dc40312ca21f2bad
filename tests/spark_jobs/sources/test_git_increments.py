"""Increments of git repositories over real Spark: at every path the latest document is what HEAD has there."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from spark_jobs.sources import documents as module
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.landing.revisions import PATH, latest_at_paths
from spark_jobs.sources.listing.changes import discover

from .conftest import ARRIVAL_ROWS
from .git_repositories import Repository, random_history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark leaves the socket of each collect() to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

Row = dict[str, Any]
KNOWN = "doc_id string, repository string, path string, increment int"
EVENTS = f"{KNOWN}, status string"


class Lake:
    """Keeps the rows of a dataset's tables, as the lake does."""

    def __init__(self, spark: SparkSession, config: DocumentsConfig) -> None:
        self.spark, self.config, self.increments = spark, config, 0
        self.documents, self.arrivals = list[Row](), list[Row]()

    def land(self) -> dict[str, list[Row]] | None:
        """The next increment, or None where nothing is new."""
        listing = discover(self.config, pa.Table.from_pylist(self.arrivals, ARRIVAL_ROWS))
        if listing is None:
            return None
        output = module.documents(self.spark.createDataFrame(listing), *self._history(), self.increments, self.config)
        rows = {name: [row.asDict() for row in frame.collect()] for name, frame in output.frames.items()}
        for frame in output.persisted:
            frame.unpersist()
        for row in (*rows["documents"], *rows["arrivals"]):
            row["increment"] = self.increments
        self.documents += rows["documents"]
        self.arrivals += rows["arrivals"]
        self.increments += 1
        return rows

    def latest(self) -> dict[tuple[str, str], str]:
        """The hash of the latest document at each repository and path that is not gone."""
        hashes = {row["doc_id"]: row["content_sha256"] for row in self.documents}
        rows = latest_at_paths(*self._history(), PATH, "increment").collect()
        return {(row["repository"], row["path"]): hashes[row["doc_id"]] for row in rows if not row["gone"]}

    def _history(self) -> tuple[Any, Any]:
        """Documents and arrivals so far, with the columns that the step reads."""
        names = [name.split()[0] for name in EVENTS.split(", ")]
        documents = [tuple(row[name] for name in names[:-1]) for row in self.documents]
        arrivals = [tuple(row[name] for name in names) for row in self.arrivals]
        return self.spark.createDataFrame(documents, KNOWN), self.spark.createDataFrame(arrivals, EVENTS)


def heads(*repositories: Repository) -> dict[tuple[str, str], str]:
    """The hash of each source file of HEAD by `git archive`."""
    return {
        (made.root.name, path): hashlib.sha256(data).hexdigest()
        for made in repositories
        for path, data in made.checkout("HEAD", ".py").items()
    }


def every_version(*repositories: Repository) -> set[tuple[str, str, str]]:
    """Repository, path and hash of each source file of each commit."""
    return {
        (made.root.name, path, hashlib.sha256(data).hexdigest())
        for made in repositories
        for revision in made.revisions("HEAD")
        for path, data in made.checkout(revision, ".py").items()
    }


@pytest.mark.nightly
def test_increments_follow_the_repositories(spark: SparkSession, tmp_path: Path) -> None:
    """Growth, reverts, renames, deletions, merges of old branches, forced pushes, a repository that goes and returns.

    After each of them the latest documents are the files of HEAD, and what landed is what any HEAD so far had behind.
    """
    repos = tmp_path / "repos"
    grows, forced = random_history(repos / "grows", 5, 12), random_history(repos / "forced", 6, 12)
    returns, steady = Repository(repos / "returns"), Repository(repos / "steady")
    for text in ("A", "B", "A"):
        returns.commit(a_py=f"x = '{text}'\n", kept_py="1\n")
    returns.commit(gone_py="1\n")
    returns.commit(gone_py="2\n")
    returns.commit(gone_py=None)
    steady.commit(a_py="1\n")
    whole = (grows, forced, returns, steady)
    source = {"kind": "git", "repositories": [f"{repos}/*"], "revisions": "all", "cache": str(tmp_path / "cache")}
    lake = Lake(spark, DocumentsConfig.model_validate({"dataset": "code", "source": source}))

    def landed() -> set[tuple[str, str, str]]:
        return {(row["repository"], row["path"], row["content_sha256"]) for row in lake.documents}

    first = lake.land()
    assert first is not None
    ever = every_version(*whole)
    assert landed() == ever
    assert lake.latest() == heads(*whole)
    assert {row["path"] for row in first["arrivals"] if row["status"] == "gone" and row["repository"] == "returns"} == {
        "gone.py"
    }
    assert {row["repository"] for row in first["repositories"]} == {"grows", "forced", "returns", "steady"}
    assert lake.land() is None

    grows.git("checkout", "-q", "-b", "side", grows.revisions("HEAD")[-1])
    grows.commit(side_py="s = 1\n")
    grows.commit(side_py="s = 2\n")
    grows.git("checkout", "-q", "-")
    grows.git("merge", "-q", "--no-ff", "-m", "m", "side")
    forced.git("reset", "-q", "--hard", forced.revisions("HEAD")[4])
    forced.commit(other_py="o = 1\n")
    returns.commit(a_py="x = 'B'\n", kept_py=None, gone_py="1\n")
    shutil.move(repos / "steady", tmp_path / "steady")
    second = lake.land()
    assert second is not None
    ever |= every_version(grows, forced, returns)
    assert landed() == ever
    assert lake.latest() == heads(grows, forced, returns)
    about = {row["path"]: row["status"] for row in second["arrivals"] if row["repository"] == "returns" and row["path"]}
    assert about == {"a.py": "returned", "kept.py": "gone", "gone.py": "returned"}
    lost = {(row["path"], row["status"], row["reason"]) for row in second["arrivals"] if row["repository"] == "steady"}
    assert lost == {(None, "gone", "no_repository"), ("a.py", "gone", None)}
    assert {row["repository"] for row in second["repositories"]} == {"grows", "forced", "returns"}

    shutil.move(tmp_path / "steady", repos / "steady")
    returns.commit(a_py="x = 'C'\n")
    returns.commit(a_py="x = 'A'\n")  # C lands and A returns: the one that came first is the latest
    third = lake.land()
    assert third is not None
    assert lake.latest() == heads(*whole)
    assert landed() == ever | every_version(*whole)
    assert {row["repository"] for row in third["arrivals"]} == {"returns", "steady"}  # no other is looked into
    assert lake.land() is None


@pytest.mark.nightly
def test_latest_lands_what_changed_between_two_heads(spark: SparkSession, tmp_path: Path) -> None:
    """Under `latest` an increment has the files that HEAD has changed, under the commit that it is then."""
    made = Repository(tmp_path / "repos" / "r")
    before = made.commit(a_py="1\n", b_py="1\n", c_py="1\n")
    source = {"kind": "git", "repositories": [str(made.root)], "cache": str(tmp_path / "cache")}
    lake = Lake(spark, DocumentsConfig.model_validate({"dataset": "code", "source": source}))
    lake.land()
    made.commit(a_py="between\n")
    after = made.commit(a_py="2\n", b_py=None, d_py="1\n")
    second = lake.land()
    assert second is not None
    assert {(row["path"], row["revision"]) for row in lake.documents} == {
        ("a.py", before),
        ("b.py", before),
        ("c.py", before),
        ("a.py", after),
        ("d.py", after),
    }
    assert lake.latest() == heads(made)
    assert {row["path"]: row["status"] for row in second["arrivals"]} == {
        None: "landed",
        "a.py": "landed",
        "b.py": "gone",
        "d.py": "landed",
    }

"""The step that orders the documents of a repository."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from spark_jobs.code.order.repository_order import OrderRules, ranked_batches
from spark_jobs.code.ordered import ORDERED, OrderedConfig, ordered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

# Dataset, shard, doc_id, repository, path, whether it survived.
MEMBERS = [
    ("code", 0, "00", "r", "src/b.py", True),
    ("code", 0, "01", "r", "src/a.py", True),
    ("code", 0, "02", "r", "setup.py", True),
    ("code", 0, "03", "r", "src/Z.py", True),
    ("code", 0, "04", "r", "src/é.py", True),
    ("code", 0, "05", "r", "src/\ue000.py", True),
    ("code", 0, "06", "r", "src/\U0001f600.py", True),
    ("code", 0, "07", "r", "gone.py", False),
    ("code", 0, "0f", "r", "src/deep/er/x.py", True),
    ("code", 0, "0e", "r", "twice.py", True),
    ("code", 0, "0d", "r", "twice.py", True),
    ("code", 1, "10", "s", "a.py", True),
    ("docs", 2, "20", "r", "README.md", True),
    ("docs", 3, "30", None, "file.jsonl#1", True),
    ("docs", 3, "31", None, "notes/file.jsonl#2", True),
    ("docs", 3, "32", "31", "a repository named like a doc_id", True),
    ("docs", 3, "33", None, "/absolute", True),
]


# Dataset, repository, file that needs and file that is needed (ids above), kind.
EDGES = [
    ("code", "r", "01", "00", "import"),  # src/a.py needs src/b.py
    ("code", "r", "02", "07", "import"),  # setup.py needs gone.py, which did not survive and needs
    ("code", "r", "07", "03", "import"),  # src/Z.py
    ("code", "gone", "90", "91", "import"),  # of a repository that left nothing
    ("docs", "r", "20", "21", "import"),
]
PATHS = {row[2]: row[4] for row in MEMBERS}
EDGE_COLUMNS = "dataset string, repository string, doc_id string, needed_doc_id string, kind string, path string, "


def run(spark: SparkSession, partitions: int = 2, order: int = 1, with_edges: bool = False, **config: Any) -> DataFrame:
    """The order of the members above that survived."""
    rows = MEMBERS[::order]
    columns = "dataset string, shard int, doc_id string, repository string, path string, other boolean"
    members = spark.createDataFrame(rows, columns).selectExpr("*", "'code' AS kind", "'Python' AS language")
    survivors = spark.createDataFrame([r[:3] for r in rows if r[5]], "dataset string, shard int, doc_id string")
    edges = [(*edge, PATHS.get(edge[2], "x.py"), PATHS.get(edge[3], "x.py")) for edge in EDGES[::order]]
    dependencies = spark.createDataFrame(edges, EDGE_COLUMNS + "needed_path string").repartition(partitions)
    return ordered(
        survivors.repartition(partitions),
        members.repartition(partitions),
        OrderedConfig(**config),
        dependencies if with_edges else None,
    )


def by_id(frame: DataFrame) -> list[Row]:
    """Rows by doc_id; sorting them here spares Spark a second run of the step."""
    return sorted(frame.collect(), key=lambda row: str(row.doc_id))


def by_path() -> dict[str, int]:
    """Rank by id: by the bytes of the path and then the id, alone without repository."""
    groups = defaultdict(list)
    for dataset, _, doc_id, repository, path, survived in MEMBERS:
        if survived:
            groups[dataset, repository or ("alone", doc_id)].append((path.encode(), doc_id))
    return {doc_id: rank for group in groups.values() for rank, (_, doc_id) in enumerate(sorted(group))}


@pytest.mark.parametrize("with_edges", [False, True])
def test_ranks_follow_the_bytes_of_the_path_under_the_policy_path(spark: SparkSession, with_edges: bool) -> None:
    """Per dataset and repository, from 0 without gaps; so it is too where no dependencies are bound."""
    config = {"policy": "path"} if with_edges else {}
    assert {row.doc_id: row["rank"] for row in run(spark, with_edges=with_edges, **config).collect()} == by_path()


def test_what_a_file_needs_comes_before_it_also_through_removed_files(spark: SparkSession) -> None:
    """Every survivor has one rank, dense in its repository; a removed file takes no rank and still leads on."""
    rows = by_id(run(spark, with_edges=True))
    found = {row.doc_id: row["rank"] for row in rows}
    assert found.keys() == by_path().keys()
    assert found["00"] < found["01"]
    assert found["03"] < found["02"], "setup.py needs gone.py needs src/Z.py"
    groups = defaultdict(list)
    for row in rows:
        groups[row.dataset, row.repository or ("alone", row.doc_id)].append(row["rank"])
    assert all(sorted(ranks) == list(range(len(ranks))) for ranks in groups.values())
    for row in rows:
        member = next(member for member in MEMBERS if member[2] == row.doc_id)
        assert (row.dataset, row.shard, row.repository) == (member[0], member[1], member[3])


def test_package_is_the_directory_of_the_path(spark: SparkSession) -> None:
    """Null at the top."""
    found = {row.doc_id: row.package for row in run(spark, with_edges=True).collect()}
    assert found["00"] == "src"
    assert found["0f"] == "src/deep/er"
    assert found["31"] == "notes"
    assert [found[doc_id] for doc_id in ("02", "30", "33")] == [None, None, None]


def test_rows_fit_the_table(spark: SparkSession) -> None:
    """Columns and types are those declared, and every row passes the blocking checks."""
    for with_edges in (False, True):
        frame = run(spark, with_edges=with_edges)
        assert frame.dtypes == [(column.name, column.type.replace("long", "bigint")) for column in ORDERED.columns]
        for check in ORDERED.checks:
            assert frame.where(f"not ({check.predicate})").count() == 0


@pytest.mark.nightly
def test_order_is_identical_for_1_2_and_7_partitions(spark: SparkSession) -> None:
    """Neither the number of partitions nor the order of rows shows."""
    for with_edges in (False, True):
        plain = by_id(run(spark, with_edges=with_edges))
        for partitions in (1, 7):
            assert by_id(run(spark, partitions, order=-1, with_edges=with_edges)) == plain


def test_an_empty_dataset_has_an_empty_order(spark: SparkSession) -> None:
    """No survivor and no edge."""
    frame = run(spark, with_edges=True)
    nothing = "dataset string, shard int, doc_id string"
    members = "dataset string, doc_id string, repository string, path string, kind string, language string"
    edges = EDGE_COLUMNS + "needed_path string"
    empty = ordered(
        spark.createDataFrame([], nothing),
        spark.createDataFrame([], members),
        OrderedConfig(),
        spark.createDataFrame([], edges),
    )
    assert empty.collect() == []
    assert empty.schema.names == frame.schema.names


RULES = OrderRules("dependencies_first", ("Go",), 0)


def kernel_rows(files: list[tuple[str, str, str | None]], edges: list[tuple[str, str]]) -> pa.RecordBatch:
    """Rows of one repository as the kernel gets them; files are (doc_id, path, language)."""
    path_of = {doc_id: path for doc_id, path, _ in files}
    names = ["dataset", "repository", "shard", "doc_id", "path", "language", "needed_doc_id", "needed_path", "kind"]
    rows = [("d", "r", 0, doc_id, path, language, None, None, None) for doc_id, path, language in files]
    rows += [("d", "r", None, a, path_of[a], None, b, path_of[b], "import") for a, b in edges]
    types = [pa.int32() if name == "shard" else pa.string() for name in names]
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=names)


def ranked(batch: pa.RecordBatch, rules: OrderRules = RULES, cut: int = 3) -> list[str]:
    """Ids in the order of the kernel, fed in small batches."""
    parts = [batch.slice(start, cut) for start in range(0, batch.num_rows, cut)]
    found = pa.Table.from_batches(ranked_batches(parts, rules))
    assert found.column("rank").to_pylist() == list(range(found.num_rows))
    ids: list[str] = found.column("doc_id").to_pylist()
    return ids


@pytest.mark.nightly
def test_packages_stay_whole_where_most_code_is_go() -> None:
    """Directories in a circle: flat order goes to and fro between them, two levels do not."""
    edges = [("1", "3"), ("4", "2")]
    paths = {"1": "a/1", "2": "a/2", "3": "b/1", "4": "b/2"}
    go = kernel_rows([(doc_id, f"{path}.go", "Go") for doc_id, path in paths.items()], edges)
    python = kernel_rows([(doc_id, f"{path}.py", "Python") for doc_id, path in paths.items()], edges)
    assert [paths[doc_id][0] for doc_id in ranked(go)] in (list("aabb"), list("bbaa"))
    flat = ranked(python)
    assert flat.index("3") < flat.index("1") and flat.index("2") < flat.index("4")
    assert ranked(go, OrderRules("dependencies_first", (), 0)) == flat


def test_documents_with_one_path_each_have_their_rank() -> None:
    """Two revisions of a file, or links that lead to one path: ties by id."""
    batch = kernel_rows([("b", "x.py", "Python"), ("a", "x.py", "Python"), ("c", "w.py", "Python")], [("c", "a")])
    assert ranked(batch) == ["a", "c", "b"]


def test_a_repository_of_one_file_has_rank_0() -> None:
    """With and without an edge to what is not there any more."""
    assert ranked(kernel_rows([("a", "x.py", None)], [])) == ["a"]


@pytest.mark.nightly
def test_a_repository_of_200000_files_is_ordered() -> None:
    """A chain of imports through all of them, in batches of 10,000 rows as Spark sends them."""
    count = 200_000
    files = [(f"{number:06x}", f"{number % 500}/{number}.py", "Python") for number in range(count)]
    batch = kernel_rows(files, [(f"{number:06x}", f"{number + 1:06x}") for number in range(count - 1)])
    assert ranked(batch, cut=10_000) == [doc_id for doc_id, *_ in files][::-1]

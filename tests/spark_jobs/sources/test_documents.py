"""The step over real Spark: the rows of the kernels as three tables, whatever the partitions and the order of files."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow

from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.step import Output
from spark_jobs.sources import documents as module
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.documents import ARRIVALS, DOCUMENTS, PROVENANCE, REPOSITORIES
from spark_jobs.sources.listing.changes import discover

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

# Spark leaves the socket of each collect() to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

Configs = Callable[..., DocumentsConfig]
Rows = list[dict[str, Any]]


def small_tree(root: Path) -> None:
    """A few files of every format, good and bad."""
    for number in range(12):
        (root / f"{number}.txt").write_text(f"text {number} " * number)
    lines = b"".join(b'{"body": "line %d", "id": %d}\n' % (number % 40, number % 40) for number in range(50))
    (root / "a.jsonl").write_bytes(lines + b"{broken\n")
    (root / "b.jsonl.gz").write_bytes(gzip.compress(lines))
    pq.write_table(pa.table({"body": ["x", None, "z"], "id": [1, 2, 3]}), root / "c.parquet", row_group_size=2)
    (root / "bad.txt").write_bytes(b"\xff\xfe\xfd")
    for file in root.iterdir():
        os.utime(file, (1000, 1000))


@pytest.fixture
def partitions(spark: SparkSession) -> Iterator[Callable[[int], None]]:
    """Sets the number of tasks, and puts it back."""
    before = spark.conf.get("spark.sql.shuffle.partitions") or "2"
    yield lambda count: spark.conf.set("spark.sql.shuffle.partitions", count)
    spark.conf.set("spark.sql.shuffle.partitions", before)


KNOWN = "doc_id string, repository string, path string, increment int"
EVENTS = f"{KNOWN}, status string"


def land(
    spark: SparkSession,
    config: DocumentsConfig,
    listing: pa.Table,
    earlier: Rows = (),
    arrived: Rows = (),  # type: ignore[assignment]
) -> dict[str, Rows]:
    """Rows of the three tables, sorted, as the step gives them; the persisted pass is released."""
    known = [(row["doc_id"], row["repository"], row["path"], row.get("increment", 0)) for row in earlier]
    events = [tuple(row[name] for name in ("doc_id", "repository", "path", "increment", "status")) for row in arrived]
    output: Output = module.documents(
        spark.createDataFrame(listing),
        spark.createDataFrame(known, KNOWN),
        spark.createDataFrame(events, EVENTS),
        len(earlier),
        config,
    )
    rows = {name: sorted((row.asDict() for row in frame.collect()), key=repr) for name, frame in output.frames.items()}
    for frame in output.persisted:
        frame.unpersist()
    return rows


def nothing(spark: SparkSession) -> tuple[DataFrame, DataFrame, int]:
    """Documents, arrivals and number of the first increment."""
    return spark.createDataFrame([], KNOWN), spark.createDataFrame([], EVENTS), 0


def test_columns_and_types_are_those_declared(
    spark: SparkSession, files_config: Configs, data: Path, empty_arrivals: pa.Table
) -> None:
    """Every column of each table but `increment`, with its type, in the declared order."""
    from pyspark.sql.pandas.types import from_arrow_schema

    (data / "a.txt").write_text("a")
    listing = discover(files_config(), empty_arrivals)
    output = module.documents(spark.createDataFrame(listing), *nothing(spark), files_config())
    for table in (DOCUMENTS, REPOSITORIES, PROVENANCE, ARRIVALS):
        frame: DataFrame = output.frames[table.name]
        declared = schema_to_pyarrow(table.schema(), include_field_ids=False)
        expected = [(field.name, field.dataType) for field in from_arrow_schema(declared) if field.name != "increment"]
        assert _nullable([(field.name, field.dataType) for field in frame.schema]) == _nullable(expected)
    for frame in output.persisted:
        frame.unpersist()


def _nullable(columns: list[tuple[str, DataType]]) -> list[tuple[str, str]]:
    """Names and types without nullability, which is checked on the data."""
    return [(name, kind.simpleString()) for name, kind in columns]


@pytest.mark.nightly
def test_rows_are_identical_for_1_2_and_7_partitions_and_another_order(
    spark: SparkSession,
    files_config: Configs,
    data: Path,
    empty_arrivals: pa.Table,
    partitions: Callable[[int], None],
    landing: Any,
) -> None:
    """The same three tables, and those that the kernels alone give."""
    small_tree(data)
    config = files_config(text_column="body", id_column="id", shards=4)
    listing = discover(config, empty_arrivals)
    assert listing is not None
    partitions(1)
    expected = land(spark, config, listing)
    assert len(expected["documents"]) == 12 + 40 + 40 + 2 and expected["repositories"] == []
    for count, order in ((2, slice(None)), (7, slice(None, None, -1))):
        partitions(count)
        reordered = listing.take(list(range(listing.num_rows))[order])
        assert land(spark, config, reordered) == expected
    documents, arrivals = landing.land(config)
    assert _comparable(arrivals) == _comparable(expected["arrivals"])
    assert sorted(row["doc_id"] for row in documents) == sorted(row["doc_id"] for row in expected["documents"])


def _comparable(arrivals: Rows) -> list[tuple[object, ...]]:
    """Arrivals as sorted tuples; moments as seconds, as Spark gives them without their zone."""
    names = [column.name for column in ARRIVALS.columns if column.name != "modified"]
    return sorted(
        (*(str(row[name]) for name in names), row["modified"] and row["modified"].timestamp()) for row in arrivals
    )


def test_second_increment_lands_only_what_no_earlier_one_holds(
    spark: SparkSession, files_config: Configs, data: Path, empty_arrivals: pa.Table
) -> None:
    """Edited, appended, touched and left alone: status and documents follow the content."""
    small_tree(data)
    config = files_config(text_column="body", id_column="id")
    first = land(spark, config, discover(config, empty_arrivals))
    arrivals = pa.Table.from_pylist([{**row, "increment": 0} for row in first["arrivals"]], empty_arrivals.schema)
    assert discover(config, arrivals) is None
    (data / "3.txt").write_text("edited")
    (data / "a.jsonl").write_bytes((data / "a.jsonl").read_bytes() + b'{"body": "new", "id": "n"}\n')
    os.utime(data / "5.txt", (2000, 2000))
    listing = discover(config, arrivals)
    assert listing is not None and listing.num_rows == 3
    second = land(spark, config, listing, first["documents"])
    assert sorted(row["path"] for row in second["documents"]) == ["3.txt", "a.jsonl#n"]
    statuses = {os.path.basename(row["location"]): row["status"] for row in second["arrivals"]}
    assert [statuses.get(name) for name in ("3.txt", "a.jsonl", "5.txt", "7.txt")] == [
        "landed",
        "landed",
        "unchanged",
        None,
    ]
    assert statuses["a.jsonl#line:51"] == "rejected"
    before = {row["location"]: row["content_sha256"] for row in first["arrivals"]}
    for row in second["arrivals"]:
        if row["status"] == "unchanged":
            assert row["content_sha256"] == before[row["location"]]


@pytest.mark.nightly
def test_real_distributions_land_with_their_facts(spark: SparkSession, empty_arrivals: pa.Table) -> None:
    """Two small ones as code: content is the files', one row of facts for each; docs hold their licence texts."""
    source = {"kind": "python_code", "distributions": ["attrs", "click"]}
    config = DocumentsConfig.model_validate({"dataset": "code", "source": source, "shards": 2})
    rows = land(spark, config, discover(config, empty_arrivals))
    assert [row["repository"] for row in rows["repositories"]] == ["attrs", "click"]
    assert all(row["content"].encode(row["encoding"]) is not None for row in rows["documents"])
    by_path = {row["path"]: row for row in rows["documents"]}
    import click

    own = Path(click.__file__).read_bytes()
    document = by_path["click/__init__.py"]
    assert document["content"].encode(document["encoding"]) == own
    assert (document["licence"], document["language"], document["revision"]) == (
        "BSD-3-Clause",
        "Python",
        next(row["version"] for row in rows["repositories"] if row["repository"] == "click"),
    )
    assert len({row["shard"] for row in rows["documents"] if row["repository"] == "click"}) == 1
    docs = DocumentsConfig.model_validate({"dataset": "docs", "source": {**source, "kind": "python_docs"}})
    prose = {row["path"]: row for row in land(spark, docs, discover(docs, empty_arrivals))["documents"]}
    assert "Permission is hereby granted" in prose["attrs.dist-info/licenses/LICENSE"]["content"]
    assert prose["attrs.dist-info/METADATA#description"]["media_type"] == "text/markdown"


@pytest.mark.nightly
def test_facts_about_repositories_come_with_their_increment(
    spark: SparkSession, tmp_path: Path, empty_arrivals: pa.Table
) -> None:
    """Of columns, of files, of directories; what changes later is a new row then, bad lines are rejections."""
    lines: Rows = [
        {"t": "one", "repo": "redis", "parent": None, "n": 5},
        {"t": "two", "repo": "valkey", "parent": "redis", "n": None},
        {"t": "three", "repo": "valkey", "parent": "redis", "n": "24"},
        {"t": "alone", "repo": None, "parent": "x", "n": 1},
    ]
    records = tmp_path / "records"
    records.mkdir()
    pq.write_table(pa.Table.from_pylist([{**line, "n": str(line["n"] or "")} for line in lines]), records / "a.parquet")
    (records / "b.jsonl").write_text("\n".join(map(json.dumps, lines)))
    columns = {"fork_of": "parent", "stars": "n"}
    source: dict[str, Any] = {"kind": "files", "path": str(records), "text_column": "t", "repository_column": "repo"}
    config = DocumentsConfig.model_validate({"dataset": "notes", "source": {**source, "fact_columns": columns}})
    rows = land(spark, config, discover(config, empty_arrivals))["repositories"]
    assert {row["repository"]: (row["fork_of"], row["metadata"].get("stars")) for row in rows} == {
        "redis": (None, "5"),
        "valkey": ("redis", "24"),
    }

    trees = tmp_path / "trees"
    for name in ("bolt", "bbolt"):
        (trees / name).mkdir(parents=True)
        (trees / name / "db.go").write_text(f"package {name}")
    (trees / "bolt" / "pyproject.toml").write_text('[project]\nversion = "1.0"\n')
    facts = trees / "repositories.jsonl"
    facts.write_text('{"repository": "bbolt", "fork_of": "bolt"}\n{"repository": "bolt", "stars": 14000}\n{broken\n')
    source = {"kind": "python_code", "directories": [f"{trees}/*"]}
    config = DocumentsConfig.model_validate({"dataset": "code", "source": source})
    first = land(spark, config, discover(config, empty_arrivals))
    assert [(row["repository"], row["fork_of"], row["version"], row["metadata"]) for row in first["repositories"]] == [
        ("bbolt", "bolt", None, {}),
        ("bolt", None, "1.0", {"stars": "14000"}),
    ]
    statuses = {row["location"].rpartition("/")[2]: (row["status"], row["reason"]) for row in first["arrivals"]}
    assert statuses["repositories.jsonl"] == ("landed", None)
    assert statuses["repositories.jsonl#line:3"] == ("rejected", "bad_record")

    arrived = pa.Table.from_pylist([{**row, "increment": 0} for row in first["arrivals"]])
    (trees / "bbolt" / "new.go").write_text("package fresh")
    second = land(spark, config, discover(config, arrived), first["documents"])
    assert [(row["repository"], row["fork_of"]) for row in second["repositories"]] == [("bbolt", "bolt")]
    assert {row["location"].rpartition("/")[2]: row["status"] for row in second["arrivals"]} == {"new.go": "landed"}

    told = [{**row, "increment": at} for at, made in enumerate((first, second)) for row in made["arrivals"]]
    arrived = pa.Table.from_pylist(told)
    facts.write_text('{"repository": "bolt", "stars": 14001}\n')
    third = land(spark, config, discover(config, arrived), first["documents"] + second["documents"])
    assert third["documents"] == []
    assert {row["repository"]: (row["fork_of"], row["metadata"].get("stars")) for row in third["repositories"]} == {
        "bbolt": (None, None),
        "bolt": (None, "14001"),
    }


def test_files_are_read_once(spark: SparkSession, files_config: Configs, data: Path, empty_arrivals: pa.Table) -> None:
    """Once the pass is persisted, all three tables are made without the files."""
    small_tree(data)
    config = files_config(text_column="body")
    output = module.documents(
        spark.createDataFrame(discover(config, empty_arrivals)),
        *nothing(spark),
        config,
    )
    count = output.frames["documents"].count()
    for file in data.iterdir():
        file.unlink()
    assert output.frames["documents"].count() == count > 50
    assert output.frames["arrivals"].where("status = 'landed'").count() == 12 + 3
    for frame in output.persisted:
        frame.unpersist()


def test_tables_have_no_row_that_breaks_their_checks(
    spark: SparkSession, files_config: Configs, data: Path, empty_arrivals: pa.Table
) -> None:
    """The declared predicates hold on good and bad input, and required columns are never null."""
    from pyspark.sql import functions as F

    small_tree(data)
    config = files_config(text_column="body", id_column="id")
    output = module.documents(spark.createDataFrame(discover(config, empty_arrivals)), *nothing(spark), config)
    for table in (DOCUMENTS, REPOSITORIES, PROVENANCE, ARRIVALS):
        predicates = {check.name: check.predicate for check in table.checks}
        predicates |= {column.name: f"{column.name} IS NOT NULL" for column in table.columns if column.required}
        broken = [F.count_if(~F.coalesce(F.expr(p), F.lit(False))).alias(name) for name, p in predicates.items()]
        counts = output.frames[table.name].agg(*broken).collect()[0].asDict()
        assert counts == dict.fromkeys(predicates, 0)
    ids = [row["doc_id"] for row in output.frames["documents"].select("doc_id").collect()]
    assert len(set(ids)) == len(ids) > 50
    for frame in output.persisted:
        frame.unpersist()


def test_documents_that_return_or_go_are_told_once_and_not_landed_again(
    spark: SparkSession, files_config: Configs, data: Path, empty_arrivals: pa.Table
) -> None:
    """Files and records that change back, vanish, and are there again: what landed, and every other event."""
    config = files_config(text_column="body", id_column="id")
    documents: Rows = []
    arrived: Rows = []

    def read(increment: int, files: dict[str, str], *deleted: str) -> tuple[list[str], dict[str, str]]:
        """The next increment: paths that landed, and status by path of whatever returned or is gone."""
        for name, text in files.items():
            (data / name).write_text(text)
            os.utime(data / name, (1000 + increment, 1000 + increment))
        for name in deleted:
            (data / name).unlink()
        schema = empty_arrivals.schema
        listing = discover(config, pa.Table.from_pylist(arrived, schema) if arrived else empty_arrivals)
        assert listing is not None
        made = land(spark, config, listing, documents, arrived)
        documents.extend({**row, "increment": increment} for row in made["documents"])
        arrived.extend({**row, "increment": increment} for row in made["arrivals"])
        told = {row["path"]: row["status"] for row in made["arrivals"] if row["doc_id"]}
        assert len(told) == sum(row["doc_id"] is not None for row in made["arrivals"])
        return sorted(row["path"] for row in made["documents"]), told

    def records(**values: str) -> str:
        return "".join(f'{{"id": "{name}", "body": "{text}"}}\n' for name, text in values.items())

    read(0, {"f.txt": "A", "g.txt": "G", "h.txt": "H", "r.jsonl": records(x="1", y="1"), "s.jsonl": records(z="1")})
    assert read(1, {"f.txt": "B", "r.jsonl": records(x="2")}, "g.txt", "s.jsonl") == (
        ["f.txt", "r.jsonl#x"],
        {"g.txt": "gone", "r.jsonl#y": "gone", "s.jsonl#z": "gone"},
    )
    assert read(2, {"f.txt": "A", "g.txt": "G", "h.txt": "H", "r.jsonl": records(x="1", y="1")}) == (
        [],
        {"f.txt": "returned", "g.txt": "returned", "r.jsonl#x": "returned", "r.jsonl#y": "returned"},
    )
    last = [row for row in arrived if row["increment"] == 2]
    assert {row["path"]: row["status"] for row in last if row["path"] in ("h.txt", "r.jsonl")} == {
        "h.txt": "unchanged",
        "r.jsonl": "returned",
    }
    assert read(3, {"f.txt": "B", "r.jsonl": records(x="1", y="3") + "{broken\n"}) == (
        ["r.jsonl#y"],
        {"f.txt": "returned"},
    )
    assert len({row["doc_id"] for row in documents}) == len(documents)


def test_a_file_that_the_driver_can_read_and_an_executor_cannot_is_an_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It names the file; one that is gone for the driver too is a rejected file like any other."""
    seen, gone = tmp_path / "seen.txt", tmp_path / "gone.txt"
    seen.write_text("x")
    ddl = "location string, path string, reason string, detail string"
    rows = [(str(gone), "gone.txt", "unreadable", "No such file"), (None, str(seen), "unreadable", "No such file")]
    config = DocumentsConfig.model_validate({"dataset": "notes", "source": {"kind": "files", "path": str(tmp_path)}})
    module._require_seen(spark.createDataFrame(rows[:1], ddl), config)
    with pytest.raises(InputError, match=rf"notes.documents: {seen}: an executor cannot read it \(No such file\)"):
        module._require_seen(spark.createDataFrame(rows, ddl), config)


def test_archives_and_pages_land_beside_records(
    spark: SparkSession, files_config: Configs, data: Path, empty_arrivals: pa.Table
) -> None:
    """A folder with a web archive, a broken one, a page and records becomes documents and arrivals."""
    pytest.importorskip("fastwarc")
    pytest.importorskip("resiliparse")
    body = b"<html><body><article><p>" + b"A sentence of the page that is long enough. " * 4
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body

    def record(number: int) -> bytes:
        head = f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:{number}>\r\n"
        return f"{head}Content-Length: {len(answer)}\r\n\r\n".encode() + answer + b"\r\n\r\n"

    (data / "a.warc.gz").write_bytes(gzip.compress(record(1)) + gzip.compress(record(2)))
    (data / "broken.warc.gz").write_bytes(gzip.compress(record(3)) + gzip.compress(record(4))[:-50])
    (data / "page.html").write_bytes(body)
    (data / "records.jsonl").write_bytes(b'{"body": "a record", "id": 1}\n')
    config = files_config(text_column="body", id_column="id")
    listing = discover(config, empty_arrivals)
    assert listing is not None
    tables = land(spark, config, listing)
    paths = sorted(row["path"] for row in tables["documents"])
    assert paths == ["a.warc.gz#1", "a.warc.gz#2", "broken.warc.gz#3", "page.html", "records.jsonl#1"]
    assert sorted((os.path.basename(row["location"]), row["status"], row["reason"]) for row in tables["arrivals"]) == [
        ("a.warc.gz", "landed", None),
        ("broken.warc.gz", "landed", None),
        ("broken.warc.gz#rest", "rejected", "corrupt_archive"),
        ("page.html", "landed", None),
        ("records.jsonl", "landed", None),
    ]
    extracted = [row["path"] for row in tables["documents"] if "headrace.extracted_by" in row["metadata"]]
    assert sorted(extracted) == paths[:-1]

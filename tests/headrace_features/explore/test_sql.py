"""SQL reads the tables of the lake that the reader may see, and nothing else."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import DoubleType, LongType
from starlette.testclient import TestClient

from headrace.tables.settings import settings_at
from headrace_features.explore import sql as sql_module
from spark_jobs.lake.files.scans import scan_of
from spark_jobs.lake.plan.excisions import record_excisions
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.text.texts import TEXTS
from tests.dagster_project.waiting_lake import publish
from tests.headrace_features.explore.judged_lake import judged_rows, make
from tests.headrace_features.explore.served import pages
from tests.tiers import sampled

ROWS = judged_rows(60)
EXCISED = ROWS[3]["doc_id"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the lake and its indexes are."""
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def client(folder: Path) -> TestClient:
    """Pages of a lake with two datasets that `ann` may read, of which one hides its texts, and one that she may not."""
    opened = open_catalogue(settings_at(folder))
    make(opened, ROWS)
    make(opened, judged_rows(10, seed=6), increment=1)
    for name in ("shy", "theirs"):
        make(opened, judged_rows(5, seed=7), name)
    opened.create_table("shy.mine", pa.schema([("n", pa.int64()), ("body", pa.string()), ("doc_id", pa.string())]))
    opened.load_table("shy.mine").append(pa.table({"n": [1], "body": ["text 1"], "doc_id": ["0" * 32]}))
    make(opened, judged_rows(5, seed=7), "masked")
    landed = [{"shard": 0, "edits": [], "doc_id": "0" * 32, "kind": "prose", "content": "+49 170 1234567"}]
    publish(opened, "masked", raw_texts(), 0, landed)
    record_excisions(opened, None, [EXCISED], "run")
    return pages(
        opened, folder, lambda dataset: dataset != "shy", lambda who: lambda table: not table.startswith("theirs.")
    )


def raw_texts() -> Any:
    """`raw_texts`, which a dataset has that replaces personal data."""
    return dataclasses.replace(TEXTS, name="raw_texts")


def ask(client: TestClient, query: str) -> Any:
    """The answer to a query, which is a page too."""
    page, values = client.get("/sql", params={"q": query}), client.get("/sql.json", params={"q": query})
    assert page.status_code == values.status_code and "<script>alert" not in page.text
    return values.json()


@sampled()
@pytest.mark.parametrize("kind", ["prose", "code"])
def test_a_query_counts_what_is_there(client: TestClient, kind: str) -> None:
    """Over joins, with conditions on partitions and columns, through common table expressions."""
    rows = [row for row in [*ROWS, *judged_rows(10, seed=6)] if row["doc_id"] != EXCISED and row["kind"] == kind]
    query = f"""WITH d AS (SELECT * FROM notes.documents WHERE kind = '{kind}')
    SELECT count(*), sum(d.byte_count), sum(s.word_count), max(t.content LIKE '%text%')
    FROM d JOIN notes.signals s USING (doc_id) JOIN notes.texts t USING (doc_id) -- ;"""
    (row,) = ask(client, query)["answer"]["rows"]
    assert row == [len(rows), sum(r["byte_count"] for r in rows), sum(r["word_count"] for r in rows), True]
    (row,) = ask(client, "SELECT count(*) FROM notes.documents WHERE increment = 1")["answer"]["rows"]
    assert row == [10]
    (row,) = ask(client, f"SELECT count(*) FROM notes.documents WHERE doc_id = '{EXCISED}'")["answer"]["rows"]
    assert row == [0]


FORBIDDEN = (
    "SELECT * FROM theirs.documents", "SELECT * FROM system.audit", "SELECT * FROM system.materializations",
    "SELECT * FROM web_quarantine.documents", "SELECT * FROM nothing.documents", "SELECT * FROM documents",
    "SELECT * FROM lake.notes.documents", "SELECT * FROM duckdb_views", "SELECT * FROM information_schema.tables",
    "SELECT * FROM sqlite_master", "SELECT * FROM duckdb_settings()", "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM read_text('/etc/passwd')", "SELECT * FROM read_csv('{file}')", "SELECT * FROM '{file}'",
    "SELECT * FROM read_parquet('http://127.0.0.1:1/x')", "SELECT * FROM glob('/*')", "FROM '/etc/passwd'",
    "SELECT * FROM query('SELECT 1')", "SELECT * FROM query_table('theirs.documents')",
    "SELECT * FROM arrow_scan(1::POINTER, 1::POINTER, 1::POINTER)", "SELECT * FROM arrow_scan_dumb(1, 1, 1)",
    "SELECT (SELECT max(content) FROM theirs.texts)", "SELECT 1 WHERE EXISTS (FROM theirs.texts)",
    "WITH theirs AS (SELECT 1) SELECT * FROM theirs.documents", "SELECT 1 UNION ALL SELECT doc_id FROM theirs.texts",
    "WITH a AS (WITH b AS (FROM theirs.texts) FROM b) FROM a", "SELECT * FROM notes.documents, theirs.documents",
    "DESCRIBE theirs.documents", "SHOW ALL TABLES", "SUMMARIZE theirs.documents", "SELECT * FROM (SHOW TABLES)",
    "ATTACH '{file}' AS x", "INSTALL httpfs", "LOAD httpfs", "COPY notes.documents TO '{out}'",
    "EXPORT DATABASE '{out}'",
    "CREATE TABLE x AS SELECT 1", "INSERT INTO notes.documents VALUES (1)", "DELETE FROM notes.documents",
    "SET enable_external_access = true", "SET memory_limit = '100GB'", "PRAGMA database_list", "CALL pragma_version()",
    "SELECT 1; SELECT 2", "SELECT 1; ATTACH '{file}' AS x", "PREPARE x AS SELECT 1", "VACUUM", "CHECKPOINT",
    "EXPLAIN SELECT 1",
    "SELECT", "", "\0", "SELECT ?", "SELECT getenv('HOME')", "SELECT '<script>alert(1)</script>' FROM",
)  # fmt: skip


@sampled(8)
@pytest.mark.parametrize("query", FORBIDDEN)
def test_nothing_else_can_be_read_or_written(client: TestClient, tmp_path: Path, query: str) -> None:
    """Files, addresses, other people's tables, the system's, settings, extensions: an error, and no trace on disk."""
    file, out = tmp_path / "secret.csv", tmp_path / "out"
    file.write_text("a-secret\n1\n")
    shown = ask(client, query.format(file=file, out=out) or " ")
    assert shown["answer"] is None and (shown["error"] or not query.strip("\0 "))
    assert "a-secret" not in str(shown) and list(tmp_path.iterdir()) == [file]


@pytest.mark.nightly
def test_texts_that_are_hidden_are_hidden_here(client: TestClient) -> None:
    """Of a dataset that does not show them, and texts as they were before personal data was replaced."""
    assert ask(client, "SELECT * FROM shy.mine")["answer"]["rows"] == [[1, "0" * 32]], "a table of one's own"
    for table in ("shy.texts", "shy.documents", "masked.raw_texts", "masked.documents"):
        shown = ask(client, f"SELECT * FROM {table}")["answer"]
        assert shown["rows"] and "content" not in [name for name, _ in shown["columns"]]
        assert "text 1" not in str(shown) and "+49" not in str(shown)
        assert ask(client, f"SELECT content FROM {table}")["error"]
    assert "content" in [name for name, _ in ask(client, "SELECT * FROM masked.texts")["answer"]["columns"]]


@sampled(3)
@pytest.mark.parametrize(
    "query",
    [
        "WITH RECURSIVE r AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM r) SELECT count(*) FROM r",
        "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range * b.range % 7 = 3",
        "SELECT sum(length(t.content || d.content)) FROM notes.texts t, notes.documents d, range(100000000)",
        "SELECT list(range) FROM range(1000000000)",
        "SELECT repeat('x', 2000000000) || repeat('y', 2000000000)",
        "SELECT range(1000000000)",
        f"SELECT {'(' * 3000}1{')' * 3000}",
        f"SELECT {' + '.join(['1'] * 9000)}",
    ],
    ids=lambda query: query[:60],
)
def test_long_queries_end(client: TestClient, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By time or by memory, with one line that says so, and the next query is answered."""
    monkeypatch.setattr(sql_module, "SECONDS", 0.5)
    shown = ask(client, query)
    assert shown["error"] or len(str(shown["answer"]["rows"])) < 5000
    assert ask(client, "SELECT 1")["answer"]["rows"] == [[1]]


def test_rows_and_values_are_cut(client: TestClient) -> None:
    """A thousand rows, two thousand characters; what is no JSON is a text; markup is inert."""
    shown = ask(client, "SELECT range, repeat('x', 5000) AS long FROM range(5000)")["answer"]
    assert (len(shown["rows"]), shown["more"], len(shown["rows"][0][1])) == (1000, True, 2000)
    shown = ask(
        client, "SELECT 'a' AS x, 1 AS x, 'Infinity'::double, DATE '2026-01-01', '<script>alert(1)</script>', [1, 2]"
    )
    assert shown["answer"]["rows"] == [["a", 1, "Infinity", "2026-01-01", "<script>alert(1)</script>", [1, 2]]]


@pytest.mark.nightly
def test_a_scan_opens_only_files_that_may_meet_the_condition(tmp_path: Path) -> None:
    """So a query of one increment is answered when the file of another is gone, and one of both is not."""
    opened = open_catalogue(settings_at(tmp_path))
    for increment in (0, 1):
        make(opened, judged_rows(10, seed=increment), increment=increment)
    first, last = scan_of(opened.load_table("notes.documents")).plan_files()
    Path(first.file.file_path.removeprefix("file://")).unlink()
    client = pages(opened, tmp_path)
    there = last.file.partition[0]
    shown = ask(client, f"SELECT count(path) FROM notes.documents WHERE increment = {there}")
    assert shown["answer"]["rows"] == [[10]]
    assert ask(client, "SELECT count(path) FROM notes.documents")["error"]


def test_a_row_without_a_document_is_of_no_excised_one(client: TestClient, folder: Path) -> None:
    """A refused file has no doc_id: it stays when something else was excised."""
    rows = pa.table({"doc_id": [None, EXCISED, ROWS[4]["doc_id"]], "n": [1, 2, 3]})
    opened = open_catalogue(settings_at(folder))
    opened.create_table("notes.files", rows.schema).append(rows)
    assert ask(client, "SELECT n FROM notes.files ORDER BY n")["answer"]["rows"] == [[1], [3]]


ODD = ('q"q', "Größe (%)", "select", "SELECT", "a b")


@sampled()
@pytest.mark.parametrize("steps", range(1, 5))
def test_a_table_whose_columns_changed_has_the_rows_of_its_scan(client: TestClient, folder: Path, steps: int) -> None:
    """Columns that were widened, renamed or added, or whose names Parquet writes otherwise, have their values."""
    name, opened = f"notes.grown{steps}", open_catalogue(settings_at(folder))
    first = pa.table({"n": pa.array([1, 2], pa.int32()), "was": ["x", None]} | {odd: [len(odd), 0] for odd in ODD})
    table = opened.create_table(name, first.schema)
    table.append(first)
    for step in range(1, steps):
        with table.update_schema() as update:
            if step == 1:
                update.update_column("n", LongType())
            elif step == 2:
                update.rename_column("was", "is")
            else:
                update.add_column("was", DoubleType())  # as one was named before
        schema = table.schema().as_arrow()
        more = {"n": [2**40 + step], "was" if step == 1 else "is": [f"of {step}"], **{odd: [step] for odd in ODD}}
        table.append(pa.table(more | ({"was": [0.5]} if step == 3 else {})).select(schema.names).cast(schema))
    wanted = table.scan().to_arrow()
    every = ask(client, f"SELECT * FROM {name} ORDER BY n")["answer"]["rows"]
    assert every == [[*row.values()] for row in wanted.sort_by("n").to_pylist()]
